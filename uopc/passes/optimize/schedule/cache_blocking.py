"""Blocks of a contraction that stay in caches: loops around its register tiles.

    for panel: pack b; for row: tile      →      for block of panels: pack b
                                                    for block of rows: for panel: for row: tile

A panel of columns is multiplied by all rows of a. Rows that exceed the last cache are taken in
blocks, each of which all panels of a packed block of columns use. For few rows packing takes a
noticeable share of the time, so several panels are packed at once, in longer pieces of b's rows.
"""

from __future__ import annotations

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.schedule import thresholds, transposes
from uopc.passes.optimize.schedule.kernel_facts import length_of, most_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


def bytes_a_step(reduce: UOp, operand: UOp) -> int:
    """Bytes of an operand that one iteration of the loops around a reduce reads."""
    size = operand.dtype.itemsize
    for r in reduce.src[1:]:
        size *= most_of(r) if r in ranges.ranges(operand) else 1
    return size


def block(
    s: Scheduler, lane: UOp, row: UOp, height: int, row_bytes: int, column_bytes: int
) -> UOp:
    """Cut the loop over panels, which have these lanes, and the loop over rows into blocks where
    that pays; the loop before which a block of columns is to be packed."""
    target, axis = s.target, lane.arg.axis[:-1]
    inside = [r for r in s.axes if r.arg.axis[: len(axis)] == axis]
    panel = next((r for r in inside if r.arg.kind == "loop"), None)
    if panel is None or panel.arg.axis > row.arg.axis:
        return row
    width = column_bytes
    for r in inside:
        width *= most_of(r) if r is not panel else 1
    rows = most_of(row)
    near = target.last_cache_bytes // thresholds.BLOCK_SHARE // s.context.threads
    if rows * row_bytes > 2 * near:
        return _by_rows(s, panel, row, near // width, near // row_bytes // height * height)
    count = target.l2_bytes // 2 // width
    far = most_of(panel) * width > thresholds.FAR_COLUMNS * target.l2_bytes
    if rows <= thresholds.FEW_ROWS and far and count > 1 and s.attempt("BLOCK", panel, count):
        return s.inner(panel)
    return row


def _by_rows(s: Scheduler, panel: UOp, row: UOp, panels: int, rows: int) -> UOp:
    """Blocks of `rows` outside of the loop over panels, and blocks of `panels` outside of both; the
    loop before which columns are packed."""
    if panels < 2 or rows < thresholds.LEAST_ROW_BLOCK or not s.attempt("BLOCK", row, rows):
        return row
    s.attempt("BLOCK", panel, panels)
    blocks = s.part(row, 0)
    assert blocks is not None
    return s.swapped(blocks, s.inner(panel))[0]


def pack(s: Scheduler, lane: UOp, at: UOp, panels: bool) -> None:
    """Pack the operand of these lanes before a loop around them, one panel or several `panels`. The
    fill is in lanes, and its panels are inside of its rows, which are then read in long pieces."""
    reads = enumerate(packing.operands(s.kernel))
    n = next((n for n, (value, _) in reads if lane in ranges.ranges(value)), None)
    before = set(s.axes)
    if n is None or not s.attempt("PACK", at, n):
        return
    fill = [r for r in s.axes if r not in before]
    k = s.facts
    along = transposes.crossed(k, fill[-1])
    if along in fill and not any(a.gate is not None for a in k.inside(fill[-1])):
        _turn_over(s, along, fill[-1], most_of(lane))
        return
    if panels and len(fill) > 2:
        s.swapped(fill[0], fill[-2])
    if s.attempt("VECTOR", fill[-1], most_of(lane)):
        _copy(s, s.part(fill[-1], 0))


def _turn_over(s: Scheduler, along: UOp, lane: UOp, lanes: int) -> None:
    """Fill a tile from rows that lie along another loop: read these few rows to their ends, a block
    of copies at a time, which is turned over in registers."""
    s.attempt("VECTOR", lane, lanes)
    vectors = s.part(lane, 0)
    if vectors is not None and along.arg.axis < vectors.arg.axis:
        along = s.swapped(along, vectors)[0]
    for q in s.family(along):
        transposes.copy(s, q, lanes)


def _copy(s: Scheduler, r: UOp | None) -> None:
    """Copies of the body: the greatest divisor of the loop's length up to TILE_VECTORS."""
    length = None if r is None else length_of(r)
    if r is not None and length is not None:
        most = min(thresholds.TILE_VECTORS, length)
        copies = next(n for n in range(most, 0, -1) if length % n == 0)
        if copies > 1:
            s.attempt("UPCAST", r, copies)
