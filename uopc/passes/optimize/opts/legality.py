"""When an Opt may change a loop: `Refused` says why it may not.

Each Opt gives a kernel that computes the same numbers (reduces in another order), or raises
`Refused` with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.errors import Error
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis
from uopc.ir.core.node import intern
from uopc.passes.analysis.loops import closers, is_overwritten, parts

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


class Refused(Error):
    """A transformation that is not legal here, and why.

    Expressions are written out where the message is read: to a heuristic a refusal is an answer.
    """

    def __init__(self, why: str, *expressions: UOp) -> None:
        super().__init__(why, *expressions)
        self.why, self.expressions = why, expressions

    def __str__(self) -> str:
        texts = [e.render(simplify=False) for e in self.expressions]
        return self.why.format(*texts) if texts else self.why


def replaced(kernel: UOp, r: UOp, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """The kernel with `value` for the range, and `ranges` closed where it was."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u is r:
            return value
        kept = [s for s, old in zip(src, u.src) if old is not r]
        return intern(u.op, u.dtype, (*kept, *ranges), u.arg, u.tag)

    return remake.rewritten(kernel, change, only={r, *closers(kernel, r)})


def check_free(kernel: UOp, r: UOp) -> None:
    """Refused where the length of another loop depends on the range."""
    for u in parts(kernel).ranges:
        if u is not r and r in analysis.ranges(u):
            raise Refused("the length of another loop depends on this range")


def check_unordered(kernel: UOp, r: UOp) -> None:
    """Refused where the iterations of the range must stay in their order."""
    if any([is_overwritten(u, r) for u in parts(kernel).stores]):
        raise Refused("its iterations write to one place, in their order")
