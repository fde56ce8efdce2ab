"""THREAD and BLOCK: a loop becomes chunks of any length, of which the last may be shorter.

for i < 10: f(i)   →   for o < 3: for i < min(4, 10 - 4·o): f(4·o + i)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import AxisKind
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.passes.analysis.loops import is_reduce, kernel_axes, make_range
from uopc.passes.optimize.opts.legality import Refused, check_free, replaced

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


# Chunks of threads start at multiples of this many iterations, so that vectors stay whole; of fewer
# where a chunk could then be greater than another by more than a share of this many.
CHUNK_MULTIPLE, MOST_UNEVEN = 64, 32


def thread(kernel: UOp, r: UOp, chunks: int) -> UOp:
    """r  →  chunk·size + i with i < min(size, n - chunk·size); the chunk is the caller's."""
    if r.arg.kind != "loop" or analysis.ranges(r.src[0]):
        raise Refused("only an output loop can be shared among threads")
    if chunks < 1:
        raise Refused(f"the amount {chunks} is too small")
    if any(q.arg.kind == "thread" for q in kernel_axes(kernel)):
        raise Refused("the kernel is shared among threads already")
    others = [u for u in kernel.src if u.op is not Ops.END or r not in u.src[1:]]
    if others:
        raise Refused("the range is not around the whole kernel")
    most = analysis.bounds(r.src[0])[1]
    multiple = CHUNK_MULTIPLE
    while multiple > 1 and multiple * chunks * MOST_UNEVEN > most:
        multiple //= 2
    size = _quotient(_quotient(r.src[0], chunks), multiple)
    return _in_chunks(kernel, r, affine.const(chunks), affine.scaled(size, multiple), "thread")


def _quotient(value: UOp, n: int) -> UOp:
    """⌈value / n⌉"""
    return affine.floordiv(affine.plus(value, n - 1), affine.const(n))


def _in_chunks(kernel: UOp, r: UOp, count: UOp, size: UOp, kind: AxisKind) -> UOp:
    """r  →  chunk·size + i: `count` chunks of the given kind, what is left over in the last."""
    end, axis = r.src[0], r.arg.axis
    chunk = make_range(count, (*axis, 0), kind)
    first = affine.mul(chunk, size)
    left = affine.sub(end, first)
    length = size if affine.at_most(size, left) else intern(Ops.MIN, dtypes.index, (size, left))
    if analysis.bounds(left)[0] < 0:  # a chunk that begins behind the end is empty
        length = intern(Ops.MAX, dtypes.index, (length, affine.const(0)))
    inner = make_range(length, (*axis, 1), "loop")
    return replaced(kernel, r, affine.add(first, inner), (chunk, inner))


def block(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + i with i < n, or what is left over in the last block."""
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    if r.arg.kind != "loop" or is_reduce(kernel, r):
        raise Refused("BLOCK is for output loops")
    if analysis.bounds(r.src[0])[1] <= n:
        raise Refused("the range is one block")
    check_free(kernel, r)
    return _in_chunks(kernel, r, _quotient(r.src[0], n), affine.const(n), "loop")
