"""Places in memory that were computed: kept inside of what is there where it costs little."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def some_place(flat: UOp, size: shapes.Dim) -> UOp | None:
    """Places of 32 bits, the last element's where they are outside: as numbers without a sign these
    are greater. No mask is waited for, and a lane becomes an address as it is."""
    if flat.op is not Ops.CAST or flat.src[0].dtype.scalar is not dtypes.int32:
        return None
    if not isinstance(size, int) or not 0 < size <= 1 << 31:
        return None
    unsigned = dtypes.uint32.vec(flat.dtype.lanes)
    last = intern(Ops.CONST, dtypes.uint32, (), size - 1)
    return intern(Ops.MIN, unsigned, (flat.src[0].bitcast(dtypes.uint32), last))


def first_inside(flat: UOp, lanes: int, size: shapes.Dim) -> UOp:
    """Where so many neighbours begin; 0 if all of them are outside of storage of some size. Places
    from memory are taken to be inside: to compare each costs more (sums of gathered rows: 2.9
    times as long)."""
    if any(u.op in (Ops.LOAD, Ops.INDEX) for u in walk.toposort(flat)):
        return flat
    least, most = bounds.bounds(flat)
    if least <= -lanes:
        flat = (flat <= -lanes).where(0, flat)
    if isinstance(size, int) and most >= size:
        flat = (flat < size).where(flat, 0)
    return flat
