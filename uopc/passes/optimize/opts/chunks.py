"""THREAD and BLOCK: a loop becomes chunks of which the last may be shorter.

    for i < 10: f(i)   →   for o < 3: for i < min(4, 10 - 4·o): f(4·o + i)

Of a loop of known length the chunks of threads have one of two known lengths, by a condition: the
last one has 4 - 2·(1 < o) iterations. Quotients of such a length are known too (`values.cases`), so
that a main loop of whole tiles is the same code in all chunks, and what is left of each of the two
lengths has code of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.config import MOST_THREADS
from uopc.ir.builder import fold
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, compare
from uopc.passes.analysis.loops import kernel_axes, make_range, reduces_over
from uopc.passes.optimize.opts.legality import (
    Refused,
    check_amount,
    check_free,
    check_outermost,
    check_parallel,
    loops_to,
)  # fmt: skip
from uopc.passes.optimize.opts.strip_mining import Strip, clamped, quotient_up, stripped

# A thread's chunk begins at a multiple of this many iterations, so that vectors stay whole. The
# multiple is halved while one chunk could exceed another by more than 1 / MOST_UNEVEN of it.
CHUNK_MULTIPLE, MOST_UNEVEN = 64, 32


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a loop of known length: `count` of them, of `size` iterations each but for the
    last one."""

    count: int
    size: int
    last: int

    @property
    def longest(self) -> int:
        return max(self.size, self.last)

    def suits(self, block: int) -> bool:
        """True if constants can be stored in such blocks: each chunk begins at one, or all chunks
        have their own."""
        return self.size == self.last or self.size % block == 0


def thread(kernel: UOp, r: UOp, chunks: int) -> UOp:
    """r  →  chunk·size + i, where the last of the chunks may be shorter or longer; the caller runs
    the chunks. There are fewer chunks than asked for where fewer take as long."""
    if r.arg.kind != "loop" or ranges.ranges(r.src[0]):
        raise Refused("only an output loop can be shared among threads")
    check_amount(chunks)
    if chunks > MOST_THREADS:
        raise Refused(f"at most {MOST_THREADS} threads share a loop")
    if any(q.arg.kind == "thread" for q in kernel_axes(kernel)):
        raise Refused("the kernel is shared among threads already")
    check_outermost(kernel, r)
    check_parallel(kernel, loops_to(kernel, r), own_storage=True)
    length = r.src[0]
    if length.op is not Ops.CONST or not length.arg:
        size, most = quotient_up(length, chunks), bounds.bounds(length)[1]
        multiple = CHUNK_MULTIPLE
        while multiple > 1 and multiple * chunks * MOST_UNEVEN > most:
            multiple //= 2
        size = affine.scaled(quotient_up(size, multiple), multiple)
        return _in_chunks(kernel, r, affine.const(chunks), size, "thread")
    cut = chunks_of(length.arg, chunks)
    number = make_range(cut.count, (*r.arg.axis, 0), "thread")
    is_last = fold.cast(compare.less(affine.const(cut.count - 2), number), dtypes.index)
    size = affine.plus(affine.scaled(is_last, cut.last - cut.size), cut.size)
    inner = make_range(size, (*r.arg.axis, 1), "loop")
    value = affine.add(affine.scaled(number, cut.size), inner)
    return stripped(kernel, Strip(r, value, (number, inner)))


def chunks_of(length: int, chunks: int) -> Chunks:
    """The chunks of a loop of this length, at least 1, for so many threads."""
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


def block(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + i with i < n, or the remaining iterations in the last block."""
    check_amount(n)
    if r.arg.kind != "loop" or reduces_over(kernel, r):
        raise Refused("BLOCK is for output loops")
    if bounds.bounds(r.src[0])[1] <= n:
        raise Refused("the range is one block")
    check_free(kernel, r)
    return _in_chunks(kernel, r, quotient_up(r.src[0], n), affine.const(n), "loop")


def _in_chunks(kernel: UOp, r: UOp, count: UOp, size: UOp, kind: AxisKind) -> UOp:
    """r  →  chunk·size + i: `count` chunks of the given kind."""
    chunk = make_range(count, (*r.arg.axis, 0), kind)
    first = affine.mul(chunk, size)
    left = affine.sub(r.src[0], first)  # below 0 in a chunk that begins after the end
    inner = make_range(clamped(size, left), (*r.arg.axis, 1), "loop")
    return stripped(kernel, Strip(r, affine.add(first, inner), (chunk, inner)))
