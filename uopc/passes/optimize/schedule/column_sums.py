"""The part of the heuristic for sums in memory: a large array added up down its columns.

A row, or a few, times a matrix; a sum over the rows of an array. No element is used often enough
to be worth a register tile, and what bounds the time is how memory is walked: row by row. And a
product whose few results have long sums: what its register tiles read again is to stay near.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.schedule import thresholds as machine
from uopc.passes.optimize.schedule.kernel_facts import (
    KernelFacts,
    expanded_size,
    length_of,
    most_of,
)
from uopc.passes.optimize.schedule.scheduler import Chooser


@dataclass(frozen=True)
class _Columns:
    """Σ over `reduce` of an array whose neighbours are those of `lane`; `row` uses it again."""

    reduce: UOp
    lane: UOp
    row: UOp | None

    @property
    def rows(self) -> int:
        return 1 if self.row is None else length_of(self.row) or 1


def columns_outside(chooser: Chooser) -> bool:
    """Whether this is for sums in memory. If so, columns go outside of rows where threads or
    blocks are to share the columns: each then reads a part of the array."""
    c = _find(chooser)
    if c is None:
        return False
    shared = chooser.context.threads > 1 or _block_count(c) > 1
    if shared and c.row is not None and c.row.arg.axis < c.lane.arg.axis:
        chooser.swapped(c.row, c.lane)
    return True


def in_memory(chooser: Chooser) -> list[UOp]:
    """Put the sums into local tiles; the loops that are to get lanes, none if nothing was done."""
    c = _find(chooser)
    if c is None:
        return []
    n = machine.SUMMED
    while n > 1 and n * c.rows * expanded_size(chooser.facts) > machine.MOST_COPIES:
        n //= 2
    return [q for lane in _blocks(chooser, c) for q in _move(chooser, lane, c.rows, n)]


def _find(chooser: Chooser) -> _Columns | None:
    k = chooser.facts
    written = [a for a in k.accesses if a.written]
    if len(k.reduces) != 1 or len(k.reduces[0].src) != 2 or len(written) != 1:
        return None
    (u,) = k.reduces
    r = u.src[1]
    loops = [q for q in k.outputs if q.arg.kind == "loop" and q in ranges.ranges(u)]
    lane = next((q for q in loops if written[0].stride(q) == 1), None)
    if lane is None or (length_of(r) or 0) < machine.LEAST_SUMMED:
        return None
    read = [a for a in k.inside(lane) if not a.written]
    large = [a for a in read if r in ranges.ranges(a.node)]
    if len(large) != 1 or any(a.stride(lane) != 1 for a in read):
        return None
    size = large[0].node.dtype.itemsize * (length_of(r) or 1) * most_of(lane)
    around = [q for q in loops if q in ranges.ranges(large[0].node) and q is not lane]
    rows = [q for q in loops if q not in ranges.ranges(large[0].node)]
    narrow = most_of(lane) * u.dtype.itemsize <= machine.WIDE_BYTES * machine.COLUMN_VECTORS
    if narrow or len(rows) > 1 or size <= chooser.context.target.l2_bytes // 2:
        return None
    row = rows[0] if rows else None
    if any(q.arg.axis > p.arg.axis for q in around for p in (lane, *rows)):
        return None
    if row is not None and (length_of(row) or 1 << 20) > machine.MOST_SUMMED_ROWS:
        return None
    return _Columns(u, lane, row)


def _block_count(c: _Columns) -> int:
    size = most_of(c.lane) * c.reduce.dtype.itemsize * c.rows
    return max(1, -(-size // machine.SUM_BYTES))


def _blocks(chooser: Chooser, c: _Columns) -> list[UOp]:
    """The loops over columns, each over few enough for their sums to stay in the nearest cache."""
    count, lanes = _block_count(c), chooser.context.target.lanes(c.reduce.dtype.bits)
    if count == 1:
        return [c.lane]
    width = -(-most_of(c.lane) // (count * lanes)) * lanes
    parts: list[UOp | None] = [c.lane]
    if chooser.attempt("SPLIT", c.lane, width):
        parts = [chooser.part(c.lane, 0), chooser.part(c.lane, 1)]
    if parts[0] is not None and chooser.attempt("TILE", parts[0], width):
        parts[0] = chooser.part(parts[0], 1)
    return [q for q in parts if q is not None]


def _move(chooser: Chooser, lane: UOp, rows: int, n: int) -> list[UOp]:
    """n rows of the array at a time into the sums of a block of columns."""
    k = chooser.facts
    (reduce,) = [u for u in k.reduces if lane in ranges.ranges(u)]
    inner = [q for q in ranges.ranges(reduce) if q.arg.axis > lane.arg.axis]
    outer = lane
    if inner:  # the one loop over rows
        lane, outer = chooser.swapped(lane, inner[0])
    elif rows > 1:
        before = [q for q in ranges.ranges(reduce) if q.arg.axis < lane.arg.axis]
        outer = max(before, key=lambda q: q.arg.axis)
    r = reduce.src[1]
    first = chooser.widen(r, "TILE", n)
    axes = chooser.axes
    if first is None or not chooser.attempt("REDUCE_OUT", first, axes.index(outer)):
        return []
    made = [q for q in chooser.axes if q not in axes]
    for q in chooser.family(r):
        if q.arg.axis in ((*first.arg.axis[:-1], 1), (*r.arg.axis, 1)):
            chooser.attempt("UNROLL", q, 0)
    if rows > 1:
        chooser.attempt("UPCAST", made[-2], rows)
    return [made[1 if rows > 1 else 0], made[-1], lane]


def cut_sum(chooser: Chooser, k: KernelFacts, reduce: UOp, tile: tuple[UOp, UOp]) -> bool:
    """Cut the loop of a long sum of products into blocks, its results in memory, where they are so
    few that a block of all they read stays near. Whether it was done."""
    r, l2_bytes = reduce.src[1], chooser.context.target.l2_bytes
    outer = min(tile, key=lambda q: q.arg.axis)
    lengths = {q: length_of(q) or 0 for q in k.outputs if q.arg.axis >= outer.arg.axis}
    length = length_of(r)
    if len(reduce.src) != 2 or length is None or not all(lengths.values()):
        return False
    step = 0  # bytes that all results read in one step of the sum
    for operand in reduce.src[0].src:
        read = [n for q, n in lengths.items() if q in ranges.ranges(operand)]
        step += math.prod(read) * operand.dtype.itemsize
    n = l2_bytes // machine.SUMMED_SHARE // step
    if n < machine.LEAST_SUMS or length < 2 * n or length * step <= l2_bytes // 2:
        return False
    first = chooser.widen(r, "TILE", n)
    return first is not None and chooser.attempt("REDUCE_OUT", first, k.position(outer))
