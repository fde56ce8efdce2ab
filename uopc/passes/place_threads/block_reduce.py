"""A reduce whose values are in the threads of a block: shuffles in a warp, then shared memory.

Each thread has a part. In a warp the parts are combined by exchanges with the thread whose number
differs in one bit, so that all of them have the result; the warps' results, or the parts of threads
that are no neighbours, go through local storage, with a barrier before they are read. All threads
get the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.ir.builder import alu
from uopc.ir.core import dtypes, ranges
from uopc.ir.core.args import BufferArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine

_WARP = 32


@dataclass(frozen=True)
class Team:
    """The threads of a block by dimension, fastest first, and the one that shares the reduce."""

    threads: Sequence[UOp]
    sizes: Sequence[int]
    position: int

    @property
    def neighbours(self) -> int:
        """How many of them, a power of two, are side by side in whole warps; 1 where not known."""
        size = self.sizes[self.position]
        total = 1
        for n in self.sizes:
            total *= n
        whole = total % _WARP == 0 or total < _WARP
        return min(size, _WARP) if self.position == 0 and whole and _is_power(size) else 1


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


def reduce_threads(u: UOp, value: UOp, team: Team, slot: int) -> UOp:
    """The REDUCE `u` over the team's threads of what each has; `slot` is of a buffer of its own."""
    op = Op.by_name(u.arg.op)
    width = team.neighbours
    step = width // 2
    while step:
        value = alu.alu(value, op, intern(Ops.EXCHANGE, value.dtype, (value,), step))
        step //= 2
    left = team.sizes[team.position] // width
    return value if left == 1 else _through_storage(op, value, team, width, left, slot)


def _through_storage(op: Op, value: UOp, team: Team, width: int, left: int, slot: int) -> UOp:
    """The values of `left` warps or threads, combined by way of local storage."""
    row, rows = affine.const(0), 1  # the place among those that share other reduces
    for i, (t, n) in enumerate(zip(team.threads, team.sizes)):
        if i != team.position:
            row = affine.add(row, affine.mul(t, affine.const(rows)))
            rows *= n
    lanes, me = value.dtype.lanes, team.threads[team.position]
    arg = BufferArg(slot, (rows * left * lanes,), space="local")
    buffer = intern(Ops.BUFFER, value.dtype.scalar, (), arg)
    mine = affine.floordiv(me, affine.const(width))
    place = affine.add(affine.mul(mine, affine.const(rows)), row)  # neighbours, another bank
    free = buffer
    if ranges.ranges(value):  # the loop may come here again before all have read
        free = _after(buffer, intern(Ops.BARRIER, dtypes.void, (value,)))
    target = intern(Ops.INDEX, value.dtype, (free, affine.mul(place, affine.const(lanes))))
    gate = () if width == 1 else (affine.floormod(me, affine.const(width)).eq(0),)
    stored = intern(Ops.STORE, dtypes.void, (target, value, *gate))
    ready = _after(buffer, intern(Ops.BARRIER, dtypes.void, (stored,)))
    parts = []
    for i in range(left):
        at = affine.mul(affine.plus(row, i * rows), affine.const(lanes))
        address = intern(Ops.INDEX, value.dtype, (ready, at))
        parts.append(intern(Ops.LOAD, value.dtype, (address,)))
    while len(parts) > 1:
        pairs = [alu.alu(a, op, b) for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


def _after(buffer: UOp, effect: UOp) -> UOp:
    return intern(Ops.AFTER, buffer.dtype, (buffer, effect))
