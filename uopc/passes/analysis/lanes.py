"""The lanes of vectors: steps of indices, one value in all lanes, few values in any of them, limits
on strided loads."""

from __future__ import annotations

from uopc.ir.core import bounds
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine

# Rows are loaded in chunks: shuffles within 128 bits are cheap on every machine with wider vectors,
# and joining chunks is part of the load.
CHUNK_BITS = 128
# Elements: lanes at most this far apart are picked out of vectors by shuffles, one per vector;
# lanes farther apart take a load each (docs/lab/schedule.md, pooling).
MOST_STEP = 4


def chunk(t: DType) -> int:
    """The number of elements in a chunk: a bool is a byte in memory."""
    return max(2, CHUNK_BITS // (8 * t.scalar.itemsize))


def lane_step(flat: UOp) -> int | None:
    """The growth of a flat index from lane to lane; None if it is not constant."""
    if flat.dtype.lanes == 1:
        return 0
    step = 0
    for m, k in affine.form(flat)[1].items():
        if m.op is Ops.LANES:
            step += k
        elif m.dtype.lanes > 1:
            return None
    return step


def splat(value: UOp, lanes: int) -> UOp:
    """A scalar in all lanes of a vector; the value itself if it has that many lanes."""
    if value.dtype.lanes == lanes:
        return value
    return intern(Ops.STACK, value.dtype.vec(lanes), (value,) * lanes)


def has_few_values(u: UOp, count: int) -> bool:
    """True for integers with 3 to `count` values; a comparison chooses between two values."""
    if u.dtype.kind not in ("int", "uint") or u.dtype.bits > 32:
        return False
    low, high = bounds.bounds(u)
    return bool(1 < high - low < count)


def fitting(most: int, length: int | None) -> int:
    """The greatest of most, most / 2, … that a loop of this length fills at least once."""
    while length is not None and most > max(length, 1):
        most //= 2
    return most


def covering(most: int, length: int, least: int = 1) -> int:
    """The least of most, most / 2, …, `least` that covers this length; `most` if none does."""
    while most > least and most // 2 >= length:
        most //= 2
    return most
