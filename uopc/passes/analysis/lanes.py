"""The limits on loads of strided lanes that schedules and devectorize share."""

from __future__ import annotations

from uopc.ir.core.dtypes import DType

# Bits of the pieces that rows are loaded in: shuffles within pieces of 128 bits are cheap on every
# machine with wider vectors, and joining pieces is part of the load.
PIECE_BITS = 128
# Elements: lanes at most this far apart are picked out of vectors by shuffles, one per vector;
# lanes farther apart take a load each (docs/lab/schedule.md, pooling).
MOST_STEP = 4


def piece(t: DType) -> int:
    """Elements of a piece."""
    return max(2, PIECE_BITS // t.scalar.bits)
