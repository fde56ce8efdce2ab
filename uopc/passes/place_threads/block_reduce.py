"""A reduce over the threads of a block: shuffles in a warp, then shared memory.

Each thread has a value. In a warp, threads whose numbers differ in one bit exchange values and
combine them, until all have the result. The results of the warps, or the values of threads that are
not neighbours, go through local storage, with a barrier before they are read. All threads get the
total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.ir.builder import alu
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.args import BufferArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.passes.analysis.loops import combined

_WARP = 32


def reduce_threads(
    u: UOp, value: UOp, threads: Sequence[UOp], sizes: Sequence[int], position: int, slot: int
) -> UOp:
    """The REDUCE `u` of each thread's value over one dimension of the block, in which the fastest
    is first; `slot` numbers a new buffer."""
    op, size, total = Op.by_name(u.arg.op), sizes[position], math.prod(sizes)
    full_warps = total % _WARP == 0 or total < _WARP
    neighbours = position == 0 and full_warps and size & (size - 1) == 0
    width = step = min(size, _WARP) if neighbours else 1  # threads that exchange values
    while step > 1:
        step //= 2
        value = alu.alu(value, op, intern(Ops.EXCHANGE, value.dtype, (value,), step))
    left = size // width  # the number of values that remain
    if left == 1:
        return value
    # Through local storage.
    row, rows = affine.const(0), 1  # the number of this reduce among those of the block
    for i, (t, n) in enumerate(zip(threads, sizes)):
        if i != position:
            row = affine.add(row, affine.scaled(t, rows))
            rows *= n
    lanes, me = value.dtype.lanes, threads[position]
    arg = BufferArg(slot, (rows * left * lanes,), space="local")
    buffer = intern(Ops.BUFFER, value.dtype.scalar, (), arg)
    mine = affine.floordiv(me, affine.const(width))
    place = affine.add(affine.scaled(mine, rows), row)  # neighbours use different banks
    free = buffer
    if any([bounds.bounds(r.src[0])[1] > 1 for r in ranges.ranges(value)]):
        # A loop may write again before all have read.
        free = _after(buffer, value)
    target = intern(Ops.INDEX, value.dtype, (free, affine.scaled(place, lanes)))
    lane = affine.floormod(me, affine.const(width))
    gate = () if width == 1 else (compare.equal(lane, affine.const(0)),)
    stored = intern(Ops.STORE, dtypes.void, (target, value, *gate))
    ready = _after(buffer, stored)
    begins = [affine.scaled(affine.plus(row, i * rows), lanes) for i in range(left)]
    addresses = [intern(Ops.INDEX, value.dtype, (ready, at)) for at in begins]
    return combined(op, [intern(Ops.LOAD, value.dtype, (a,)) for a in addresses])


def _after(buffer: UOp, effect: UOp) -> UOp:
    """The buffer once all threads are done with the effect."""
    barrier = intern(Ops.BARRIER, dtypes.void, (effect,))
    return intern(Ops.AFTER, buffer.dtype, (buffer, barrier))
