"""The most arguments of a kernel, and the arguments that the code of a value takes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context
from uopc.target import NO_LIMIT


class Limit(NamedTuple):
    """The most buffers of a kernel, and the most arguments: buffers and variables."""

    buffers: int
    arguments: int

    @staticmethod
    def of(context: Context) -> Limit:
        """The limit of a target, or a lower one that the user gave."""
        arguments = context.target.most_arguments
        return Limit(context.options.max_kernel_buffers or arguments, arguments)

    @property
    def words(self) -> str:
        """The lower limit, in words."""
        if self.buffers < self.arguments:
            return f"{self.buffers} buffers"
        return f"{self.arguments} arguments"

    def allows(self, result: UOp, values: Iterable[UOp], stored: Container[UOp]) -> bool:
        """True if one kernel may store values in the storage of `result`."""
        if self.arguments == NO_LIMIT and self.buffers == NO_LIMIT:
            return True
        found = {result, *arguments_of(values, stored)}
        buffers = sum([u.op is not Ops.VARIABLE for u in found])
        return buffers <= self.buffers and len(found) <= self.arguments


def arguments_of(values: Iterable[UOp], stored: Container[UOp]) -> set[UOp]:
    """The storage, stored values and VARIABLEs that the code of some values reads."""
    known: dict[UOp, UOp] = {}
    order: dict[UOp, None] = {}

    def inside(u: UOp) -> bool:
        return u.op is not Ops.AFTER and u not in stored

    for v in values:
        walk.toposort(v, inside, order)
    found = set()
    for u in order:
        base = before_effects(u, known)
        if base is not u or u in stored or u.op.is_storage or u.op is Ops.VARIABLE:
            found.add(base)
    return found
