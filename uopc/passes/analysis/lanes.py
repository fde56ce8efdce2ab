"""The lanes of vectors: one value in all lanes, and limits on loads of strided lanes."""

from __future__ import annotations

from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern

# Bits of the pieces that rows are loaded in: shuffles within pieces of 128 bits are cheap on every
# machine with wider vectors, and joining pieces is part of the load.
PIECE_BITS = 128
# Elements: lanes at most this far apart are picked out of vectors by shuffles, one per vector;
# lanes farther apart take a load each (docs/lab/schedule.md, pooling).
MOST_STEP = 4


def piece(t: DType) -> int:
    """The number of elements in a piece."""
    return max(2, PIECE_BITS // t.scalar.bits)


def splat(value: UOp, lanes: int) -> UOp:
    """A scalar in all lanes of a vector; the value itself if it has that many lanes."""
    if value.dtype.lanes == lanes:
        return value
    return intern(Ops.STACK, value.dtype.vec(lanes), (value,) * lanes)
