"""THREAD and BLOCK: a loop becomes chunks of which the last may be shorter.

    for i < 10: f(i)   →   for o < 3: for i < min(4, 10 - 4·o): f(4·o + i)
"""

from __future__ import annotations

from uopc.config import MOST_THREADS
from uopc.ir.core import bounds, ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
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


def thread(kernel: UOp, r: UOp, chunks: int) -> UOp:
    """r  →  chunk·size + i with i < min(size, length - chunk·size); the caller runs the chunks."""
    if r.arg.kind != "loop" or ranges.ranges(r.src[0]):
        raise Refused("only an output loop can be shared among threads")
    check_amount(chunks)
    if chunks > MOST_THREADS:
        raise Refused(f"at most {MOST_THREADS} threads share a loop")
    if any(q.arg.kind == "thread" for q in kernel_axes(kernel)):
        raise Refused("the kernel is shared among threads already")
    check_outermost(kernel, r)
    check_parallel(kernel, loops_to(kernel, r), own_storage=True)
    return _in_chunks(kernel, r, affine.const(chunks), chunk(r, chunks), "thread")


def chunk(r: UOp, chunks: int) -> UOp:
    """The iterations of a chunk; the last one may have fewer."""
    most = bounds.bounds(r.src[0])[1]
    multiple = CHUNK_MULTIPLE
    while multiple > 1 and multiple * chunks * MOST_UNEVEN > most:
        multiple //= 2
    return affine.scaled(quotient_up(quotient_up(r.src[0], chunks), multiple), multiple)


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
