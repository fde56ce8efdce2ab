"""Which parts of a value are built alike: a number for the form of each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from uopc.ir.core import analysis
from uopc.ir.core.ops import Ops
from uopc.passes.reroll.constant_folding import Constants

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


class Forms:
    """Forms by memo. Constants of one shape have one form, and so have windows of one size of
    values of one form; everything else must be the same."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.form: dict[UOp, int] = {}
        self.numbers: dict[Hashable, int] = {}

    def of(self, root: UOp) -> int:
        """The form of a value: equal numbers for values that are built alike."""
        form = self.form
        stack = [root]
        while stack:
            u = stack[-1]
            if u in form:
                stack.pop()
                continue
            below = [] if u in self.constants.constant else [s for s in u.src if s not in form]
            if below:
                stack += below
                continue
            form[u] = self.numbers.setdefault(self._key(u), len(self.numbers))
            stack.pop()
        return form[root]

    def _key(self, u: UOp) -> Hashable:
        dims = analysis.shape(u)
        if u in self.constants.constant:
            return "constant", u.dtype, dims
        if not u.src or not (u.op.movement or u.op.is_alu or u.op in _COMPARED):
            return u
        arg = u.arg if u.op is not Ops.SHRINK else None
        return u.op, u.dtype, dims, arg, tuple([self.form[s] for s in u.src])

    def groups(self, parts: tuple[UOp, ...]) -> list[list[int]]:
        """The places of the parts of each form, in the order in which forms are first met."""
        found: dict[int, list[int]] = {}
        for i, p in enumerate(parts):
            found.setdefault(self.of(p), []).append(i)
        return list(found.values())


_COMPARED = (Ops.CAST, Ops.WHERE, Ops.REDUCE, Ops.STACK, Ops.CAT)
