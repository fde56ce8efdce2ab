"""A reduce over the threads of a block: shuffles in a warp, then shared memory.

Each thread has a part. In a warp, threads whose numbers differ in one bit exchange parts and
combine them, until all have the result. The results of the warps, or the parts of threads that are
not neighbours, go through local storage, with a barrier before they are read. All threads get the
total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uopc.ir.builder import alu
from uopc.ir.core import dtypes, ranges
from uopc.ir.core.args import BufferArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.passes.analysis.loops import combined

_WARP = 32


@dataclass(frozen=True)
class Team:
    """The dimensions of a block, fastest first; the one at `position` shares a reduce."""

    threads: Sequence[UOp]
    sizes: Sequence[int]
    position: int

    @property
    def neighbours(self) -> int:
        """The number of threads, a power of two, that are neighbours in a warp; 1 if unknown."""
        size = self.sizes[self.position]
        total = math.prod(self.sizes)
        whole = total % _WARP == 0 or total < _WARP
        return min(size, _WARP) if self.position == 0 and whole and size & (size - 1) == 0 else 1


def reduce_threads(u: UOp, value: UOp, team: Team, slot: int) -> UOp:
    """The REDUCE `u` of each thread's value over the team; `slot` numbers a new buffer."""
    op = Op.by_name(u.arg.op)
    width = team.neighbours
    step = width // 2
    while step:
        value = alu.alu(value, op, intern(Ops.EXCHANGE, value.dtype, (value,), step))
        step //= 2
    left = team.sizes[team.position] // width
    return value if left == 1 else _through_storage(op, value, team, width, left, slot)


def _through_storage(op: Op, value: UOp, team: Team, width: int, left: int, slot: int) -> UOp:
    """The values of `left` warps or threads, combined through local storage."""
    row, rows = affine.const(0), 1  # the team's number among the teams of the block
    for i, (t, n) in enumerate(zip(team.threads, team.sizes)):
        if i != team.position:
            row = affine.add(row, affine.scaled(t, rows))
            rows *= n
    lanes, me = value.dtype.lanes, team.threads[team.position]
    arg = BufferArg(slot, (rows * left * lanes,), space="local")
    buffer = intern(Ops.BUFFER, value.dtype.scalar, (), arg)
    mine = affine.floordiv(me, affine.const(width))
    place = affine.add(affine.scaled(mine, rows), row)  # neighbours use different banks
    free = buffer
    if ranges.ranges(value):  # a loop may write again before all have read
        free = _after(buffer, intern(Ops.BARRIER, dtypes.void, (value,)))
    target = intern(Ops.INDEX, value.dtype, (free, affine.scaled(place, lanes)))
    lane = affine.floormod(me, affine.const(width))
    gate = () if width == 1 else (compare.equal(lane, affine.const(0)),)
    stored = intern(Ops.STORE, dtypes.void, (target, value, *gate))
    ready = _after(buffer, intern(Ops.BARRIER, dtypes.void, (stored,)))
    parts = []
    for i in range(left):
        at = affine.scaled(affine.plus(row, i * rows), lanes)
        address = intern(Ops.INDEX, value.dtype, (ready, at))
        parts.append(intern(Ops.LOAD, value.dtype, (address,)))
    return combined(op, parts)


def _after(buffer: UOp, effect: UOp) -> UOp:
    return intern(Ops.AFTER, buffer.dtype, (buffer, effect))
