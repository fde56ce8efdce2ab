"""A read of a value while storage is chosen: where it is wanted, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.ir import analysis
from uopc.ir.indexing import Index

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


@dataclass(frozen=True)
class Demand:
    """A read of a value: for which stored value, at which index, inside which loops, and in which
    share of their iterations (a PAD or a CAT reads its source in some only); `gathered` if the
    index is read from storage."""

    reader: UOp
    index: Index
    loops: tuple[UOp, ...]
    share: float = 1.0
    gathered: bool = False

    @property
    def around(self) -> tuple[UOp, ...]:
        """The loops a value at this index is computed in: to the innermost that it uses."""
        used: set[UOp] = set()
        for x in self.index:
            used |= analysis.ranges(x)
        last = max((i for i, r in enumerate(self.loops) if r in used), default=-1)
        return self.loops[: last + 1]

    def moved(self, index: Index, loops: tuple[UOp, ...], share: float = 1.0) -> Demand:
        """The read that this one makes of a source."""
        return Demand(self.reader, index, loops, self.share * share, self.gathered)

    def shares_nothing(self, again: bool) -> bool:
        """Whether each read computes alone what loops of the value itself would compute once: at
        gathered places, or `again` for each iteration of a reduce."""
        return self.gathered or (again and any(r.arg.kind == "reduce" for r in self.around))


def product(loops: tuple[UOp, ...]) -> float:
    """How many iterations some loops have together, at most."""
    total = 1.0
    for r in loops:
        total *= analysis.max_dim(r.src[0])
    return total


def part(s: UOp, u: UOp) -> float:
    """How much of `u` the elements of its source are."""
    return count(analysis.shape(s)) / max(1, count(analysis.shape(u)))


def count(dims: analysis.Shape) -> int:
    """How many elements a shape has, at most."""
    total = 1
    for d in dims:
        total *= analysis.max_dim(d)
    return total
