"""Copies of rows and vectors next to the lanes, for reduces that are no contraction."""

from __future__ import annotations

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.schedule.scheduler import Scheduler


def tile_beside_lanes(
    s: Scheduler, output: UOp, reduces: list[UOp], lanes: int
) -> tuple[UOp | None, UOp, int, int]:
    """The row loop that reuses what a reduce reads next to the lanes of `output` (None without
    one), the loop `output`, and the rows and vectors of a tile: fewer if registers do not hold the
    sums and a row of terms, or if the copies would get too long. Swap the two loops if the columns'
    operands leave the cache between rows."""
    k = s.nest
    looped = [
        u for u in k.reduces
        if output in ranges.ranges(u)
        and any(q.arg.kind == "reduce" and q not in reduces for q in u.src[1:])
    ]  # fmt: skip
    if not looped:
        return None, output, 1, 1
    length = length_of(output)
    most = None if length is None else length // fitting(lanes, length)
    row = _row_loop(k, output, looped)
    rows = 1 if row is None else thresholds.TILE_ROWS
    vectors = fitting(thresholds.TILE_VECTORS, most)
    while vectors > 1 and (rows + 1) * vectors >= s.target.registers:  # and one for what is read
        vectors //= 2
    size = k.expanded_size()
    while rows * vectors > 1 and rows * vectors * size > thresholds.MOST_COPIES:
        rows, vectors = (rows // 2, vectors) if rows > 1 else (rows, vectors // 2)
    if row is not None and row.arg.axis < output.arg.axis:
        shared = [a for a in k.inside(output) if not a.written and row not in a.loops]
        footprint = sum([a.itemsize * trips(a.loops) for a in shared])
        if footprint > s.target.l2_bytes / 4:
            row, output = s.swapped(row, output)
    return row, output, rows, vectors


def _row_loop(k: Nest, output: UOp, reduces: list[UOp]) -> UOp | None:
    """The innermost other output loop that uses an operand of the reduces again."""
    for q in reversed(k.outputs):
        if q is output or q.arg.kind != "loop" or (length_of(q) or 2) < 2:
            continue
        if any(q in ranges.ranges(u) for u in reduces) and any(
            q not in a.loops for u in reduces for a in k.inside(u.src[1])
        ):
            return q
    return None
