"""Lengths of the loops that Opts make: rounded up, cut off at the end, or about as long."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.records import dataclass

# A thread's chunk begins at a multiple of this many iterations, so that vectors stay whole. The
# multiple is halved while one chunk could exceed another by more than 1 / MOST_UNEVEN of it.
CHUNK_MULTIPLE, MOST_UNEVEN = 64, 32


def quotient_up(value: UOp, n: int) -> UOp:
    """⌈value / n⌉"""
    return affine.floordiv(affine.plus(value, n - 1), affine.const(n))


def smaller(a: UOp, b: UOp) -> UOp:
    """min(a, b)"""
    return a if affine.at_most(a, b) else intern(Ops.MIN, dtypes.index, (a, b))


def clamped(a: UOp, b: UOp) -> UOp:
    """max(min(a, b), 0)"""
    low = smaller(a, b)
    if bounds.bounds(low)[0] >= 0:
        return low
    return intern(Ops.MAX, dtypes.index, (low, affine.const(0)))


# ---------------------------------------------------------------- chunks for threads
@dataclass(frozen=True, slots=True)
class Chunks:
    """The `count` chunks of a loop: each has `size` iterations, except for the last, which has
    `last`."""

    count: int
    size: int
    last: int

    @property
    def longest(self) -> int:
        return max(self.size, self.last)

    def suits(self, block: int) -> bool:
        """True if constants can be stored in blocks of this size: each chunk begins at a block, or
        all chunks have blocks of their own."""
        return self.size == self.last or self.size % block == 0


def chunks_of(length: int, chunks: int) -> Chunks:
    """The chunks, at least 1, of a loop of known length for this number of threads."""
    share = -(-length // chunks)

    def cut(size: int) -> Chunks:
        count = min(chunks, -(-length // size))
        return Chunks(count, size, length - size * (count - 1))

    def nearest(multiple: int) -> Chunks:
        near = share // multiple * multiple
        found = [cut(size) for size in (near, near + multiple) if size]
        return min(found, key=lambda c: (c.longest, -c.size))

    multiple, found = CHUNK_MULTIPLE, nearest(CHUNK_MULTIPLE)
    while multiple > 1 and (found.longest - share) * MOST_UNEVEN > share:
        multiple //= 2
        found = nearest(multiple)
    panels = nearest(3 * CHUNK_MULTIPLE)  # of three vectors, or of four
    return panels if panels.longest <= found.longest else found


def chunk_size(length: UOp, chunks: int) -> UOp:
    """The size of the chunks of a loop of any length for this number of threads."""
    multiple = CHUNK_MULTIPLE
    while multiple > 1 and multiple * chunks * MOST_UNEVEN > bounds.bounds(length)[1]:
        multiple //= 2
    return affine.scaled(quotient_up(quotient_up(length, chunks), multiple), multiple)
