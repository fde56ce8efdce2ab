"""PADs and SHRINKs one after the other as one window of a value, which is made when it is read."""

from __future__ import annotations

from typing import NamedTuple

from uopc.ir.core import bounds, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.ir.records import dataclass


class Slot(NamedTuple):
    """A window of one dimension: element j of it is element j + begin of the base, if that is in
    low … high - 1, and else 0."""

    begin: int
    size: shapes.Dim
    low: shapes.Dim
    high: shapes.Dim

    def is_full(self, n: shapes.Dim) -> bool:
        """True if it shows all of a dimension, and nothing else."""
        return self == (0, n, 0, n)

    def is_fixed(self, n: shapes.Dim) -> bool:
        """True if all of its sizes are numbers, and so is that of the dimension."""
        return all([isinstance(d, int) for d in (*self, n)])


@dataclass(frozen=True)
class AwaitedWindow:
    """A window of a value that is not made yet."""

    base: UOp
    slots: tuple[Slot, ...]


def full_slots(dims: shapes.Shape) -> tuple[Slot, ...]:
    """The window that shows all of a value."""
    return tuple([Slot(0, d, 0, d) for d in dims])


def composed(u: UOp, base: UOp, slots: tuple[Slot, ...]) -> AwaitedWindow | None:
    """The window of a value that a PAD or SHRINK of a window shows. None if its start is no number,
    or if the order of sizes is unknown."""
    begins, sizes = shapes.window(u)
    sign, found = -1 if u.op is Ops.PAD else 1, []
    for s, b, n in zip(slots, begins, sizes):
        low, high = greater(s.low, s.begin), less(s.high, s.begin + s.size)
        if low is None or high is None or not isinstance(b, int):
            return None
        found.append(Slot(s.begin + sign * b, n, low, high))
    return AwaitedWindow(base, tuple(found))


def gap(a: shapes.Dim, b: shapes.Dim) -> tuple[float, float]:
    """The least and the greatest value of b - a."""
    return bounds.bounds(affine.sub(dim_uop(b), dim_uop(a)))


def greater(a: shapes.Dim, b: shapes.Dim) -> shapes.Dim | None:
    """The greater of two sizes, if that is known."""
    low, high = gap(a, b)
    return a if high <= 0 else b if low >= 0 else None


def less(a: shapes.Dim, b: shapes.Dim) -> shapes.Dim | None:
    """The less of two sizes, if that is known."""
    low, high = gap(a, b)
    return b if high <= 0 else a if low >= 0 else None
