"""Computed addresses of gathers, clamped to the storage where that is cheap."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def some_place(flat: UOp, size: shapes.Dim) -> UOp | None:
    """Indices in 32 bits, clamped to the last element: as unsigned numbers, bad ones are greater.
    So no mask is needed, and a lane is an address without a conversion."""
    if flat.op is not Ops.CAST or flat.src[0].dtype.scalar is not dtypes.int32:
        return None
    if not isinstance(size, int) or not 0 < size <= 1 << 31:
        return None
    unsigned = dtypes.uint32.vec(flat.dtype.lanes)
    last = intern(Ops.CONST, dtypes.uint32, (), size - 1)
    return intern(Ops.MIN, unsigned, (flat.src[0].bitcast(dtypes.uint32), last))


def first_inside(flat: UOp, lanes: int, size: shapes.Dim) -> UOp:
    """The first index of a run of neighbours; 0 if all of them are outside of the storage. Indices
    that were read from memory are assumed to be inside: a comparison of each costs more than the
    reads."""
    if any(u.op in (Ops.LOAD, Ops.INDEX) for u in walk.toposort(flat)):
        return flat
    least, most = bounds.bounds(flat)
    if least <= -lanes:
        flat = (flat <= -lanes).where(0, flat)
    if isinstance(size, int) and most >= size:
        flat = (flat < size).where(flat, 0)
    return flat
