"""Sums down the columns of an array, in registers or, for a large array, in memory.

A product of a few rows with a matrix, or a sum over the rows of an array, uses no element often
enough for a register tile. Its time depends on the order of reads, so the sums stay in a local
tile, and the array is read row by row. A product with few results and long sums is cut into blocks
whose operands stay in cache.
"""

from __future__ import annotations

import math

from uopc.cost.machine import LINE
from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import length_of, most_of
from uopc.ir.nest.nest import Nest
from uopc.ir.records import dataclass
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.schedule.lane_costs import is_dear, is_far_constant
from uopc.passes.optimize.schedule.scheduler import Scheduler


@dataclass(frozen=True)
class _ColumnSum:
    """Σ over `reduce` of an array whose neighbours lie along `lane`. Each iteration of `row` uses
    the array again. Each of the `blocks` of columns has sums that fit the nearest cache."""

    array: UOp
    reduce: UOp
    lane: UOp
    row: UOp | None
    rows: int
    blocks: int


def columns_outside(s: Scheduler) -> bool:
    """Move columns outside of rows if threads or blocks share the columns of a sum in memory, so
    that each reads its part of the array. True if the kernel is such a sum."""
    c = _find_columns(s)
    shared = c is not None and (s.context.threads > 1 or c.blocks > 1)
    if shared and c is not None and c.row is not None and c.row.arg.axis < c.lane.arg.axis:
        s.swapped(c.row, c.lane)
    return c is not None


def in_memory(s: Scheduler) -> list[UOp]:
    """Move the sums into local tiles and return the loops that then get lanes; none if nothing was
    done. A constant array is stored in panels instead, and its sums stay in registers."""
    c = _find_columns(s)
    if c is None or (is_far_constant(c.array, s.machine) and length_of(c.lane) is not None):
        return []
    n = thresholds.SUMMED
    while n > 1 and n * c.rows * s.nest.expanded_size() > thresholds.MOST_COPIES:
        n //= 2
    return [q for lane in _block_loops(s, c) for q in _move(s, lane, c.rows, n)]


def _find_columns(s: Scheduler) -> _ColumnSum | None:
    k = s.nest
    if len(k.reduces) != 1 or len(k.reduces[0].src) != 2 or len(k.written) != 1:
        return None
    (u,) = k.reduces
    r = u.src[1]
    loops = [q for q in k.outputs if q.arg.kind == "loop" and q in ranges.ranges(u)]
    lane = next((q for q in loops if k.written[0].stride(q) == 1), None)
    if lane is None or length_of(r) is None:
        return None
    read = [a for a in k.inside(lane) if not a.written]
    large = [a for a in read if r in a.loops]
    if len(large) != 1 or any(a.stride(lane) != 1 for a in read):
        return None
    size = large[0].node.dtype.itemsize * (length_of(r) or 1) * most_of(lane)
    around = [q for q in loops if q in large[0].loops and q is not lane]
    rows = [q for q in loops if q not in large[0].loops]
    row_bytes = most_of(lane) * u.dtype.itemsize
    narrow = row_bytes <= LINE * thresholds.COLUMN_VECTORS
    if narrow or len(rows) > 1 or size <= s.target.l2_bytes // 2:
        return None
    if any(q.arg.axis > p.arg.axis for q in around for p in (lane, *rows)):
        return None
    if any((length_of(q) or 1 << 20) > thresholds.MOST_SUMMED_ROWS for q in rows):
        return None
    count = most_of(rows[0]) if rows else 1
    blocks = max(1, -(-row_bytes * count // (s.machine.caches[0].nbytes // 2)))
    return _ColumnSum(large[0].node, u, lane, rows[0] if rows else None, count, blocks)


def _block_loops(s: Scheduler, c: _ColumnSum) -> list[UOp]:
    """The loops over the columns inside of a block: of all blocks but the last, and of the last."""
    if c.blocks == 1:
        return [c.lane]
    lanes = s.target.lanes(c.reduce.dtype.bits)
    width = -(-most_of(c.lane) // (c.blocks * lanes)) * lanes
    first, rest = s.split(c.lane, width)
    if s.attempt("TILE", first, width):
        first = s.part(first, 1)
    return [q for q in (first, rest) if q is not None]


def _move(s: Scheduler, lane: UOp, rows: int, n: int) -> list[UOp]:
    """Add n rows of the array at a time to a block's sums; return the loops that get lanes."""
    k = s.nest
    (reduce,) = [u for u in k.reduces if lane in ranges.ranges(u)]
    inner = [q for q in ranges.ranges(reduce) if q.arg.axis > lane.arg.axis]
    outer = lane
    if inner:  # the one loop over rows
        lane, outer = s.swapped(lane, inner[0])
    elif rows > 1:
        before = [q for q in ranges.ranges(reduce) if q.arg.axis < lane.arg.axis]
        outer = max(before, key=lambda q: q.arg.axis)
    r = reduce.src[1]
    first = s.widen(r, "TILE", n)
    made = s.added("REDUCE_OUT", first, s.axes.index(outer))
    if first is None or not made:
        return []
    for q in s.family(r):
        if q.arg.axis in ((*first.arg.axis[:-1], 1), (*r.arg.axis, 1)):
            s.attempt("UNROLL", q, 0)
    if rows > 1:
        s.attempt("UPCAST", made[-2], rows)
    return [made[1 if rows > 1 else 0], made[-1], lane]


def cut_sum(s: Scheduler, k: Nest, reduce: UOp, row: UOp, lane: UOp) -> bool:
    """Cut the loop of a long sum of products into blocks, with the results in memory. Do so if all
    operands of a block fit a share of L2 and the columns of one register tile do not stay in L2
    until the next rows. True if the loop was cut."""
    r, l2_bytes = reduce.src[1], s.target.l2_bytes
    outer = min(row, lane, key=lambda q: q.arg.axis)
    lengths = {q: length_of(q) or 0 for q in k.outputs if q.arg.axis >= outer.arg.axis}
    length = length_of(r)
    if len(reduce.src) != 2 or length is None or not all(lengths.values()):
        return False
    step = panel = 0  # bytes that all results, and the columns of a tile, read in a step of the sum
    widest = s.target.lanes(reduce.dtype.bits) * thresholds.MOST_VECTORS
    for operand in reduce.src[0].src:
        read = [n for q, n in lengths.items() if q in ranges.ranges(operand)]
        step += math.prod(read) * operand.dtype.itemsize
        if lane in ranges.ranges(operand):
            panel += min(lengths[lane], widest) * operand.dtype.itemsize
    n = l2_bytes // thresholds.SUMMED_SHARE // step
    if n < thresholds.LEAST_SUMS or length < 2 * n or length * panel <= l2_bytes // 2:
        return False
    return s.attempt("REDUCE_OUT", s.widen(r, "TILE", n), k.axes.index(outer))


# ---------------------------------------------------------------- sums in registers
def sum_side_by_side(s: Scheduler, output: UOp, lanes: int) -> int:
    """Unroll reduces down columns by a few rows: more rows for a single vector of columns, one row
    for a constant stored in panels. Return the number of vectors of columns to compute together; 0
    if there are no such reduces."""
    inside = [u for u in s.nest.reduces if output in ranges.ranges(u)]
    sums = [u for u in inside if not any(r.arg.kind == "lane" for r in u.src[1:])]
    down = dict.fromkeys(r for u in sums for r in u.src[1:] if r.arg.kind == "reduce")
    if not down:
        return 0
    length, near = length_of(output), are_neighbours(s, output)
    side = thresholds.COLUMN_VECTORS
    if length is not None:
        side = -(-length // lanes) if near else length // fitting(lanes, length)
    panels = length is not None and any([
        is_far_constant(a.node, s.machine) and a.stride(output) == 1
        and not a.loops.isdisjoint(down)
        for a in s.nest.read
    ])  # fmt: skip
    rows = 1 if panels else thresholds.COLUMN_ROWS
    if side == 1:
        rows = 1 if is_dear(s.nest, output) else s.machine.accumulators
    for r in down:
        most = thresholds.MOST_COPIES // s.nest.expanded_size()
        if (length_of(r) or 0) >= rows and most >= rows > 1:
            s.widen(r, "UNROLL", rows)
    most = max(1, thresholds.MOST_COPIES // s.nest.expanded_size())
    if length is None or not near:
        return fitting(fitting(thresholds.COLUMN_VECTORS, most), side)
    turns = -(-side // min(thresholds.COLUMN_VECTORS, most))
    vectors = -(-side // turns)
    if panels:
        s.attempt("PREPACK", output, lanes * vectors)
    return vectors


def are_neighbours(s: Scheduler, output: UOp) -> bool:
    """True if a kernel's accesses along its columns are neighbours, the last vector can mask
    columns beyond the end, and all columns have the same guards."""
    return all([
        a.stride(output) in (0, 1) and s.target.masks(a.node.dtype.bits)
        and (a.gate is None or output not in ranges.ranges(a.gate))
        for a in s.nest.inside(output)
    ])  # fmt: skip
