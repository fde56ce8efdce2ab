"""The part of the heuristic for blocks of a contraction: loops around its tiles of registers.

    for panel: pack b; for row: tile      →      for block of panels: pack b
                                                    for block of rows: for panel: for row: tile

A panel of columns walks through all rows of a. Where these are too many to stay in the last cache,
they are walked in blocks, each by all panels of a packed block of columns. And where the rows are
few, packing is a part of the time: several panels at once read b's rows in longer pieces.
"""

from __future__ import annotations

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.opts import packing as local_stage
from uopc.passes.optimize.schedule import stencils as choose_streams
from uopc.passes.optimize.schedule import thresholds as machine
from uopc.passes.optimize.schedule.kernel_facts import length_of, most_of
from uopc.passes.optimize.schedule.scheduler import Chooser


def bytes_a_step(reduce: UOp, operand: UOp) -> int:
    """Bytes of an operand that one iteration of the loops around a reduce reads."""
    size = operand.dtype.itemsize
    for r in reduce.src[1:]:
        size *= most_of(r) if r in ranges.ranges(operand) else 1
    return size


def block(
    chooser: Chooser, lane: UOp, row: UOp, height: int, row_bytes: int, column_bytes: int
) -> UOp:
    """Blocks of the loops over panels, which have these lanes, and over rows in them, where they
    serve; the loop before which a block of columns is to be packed."""
    target, axis = chooser.context.target, lane.arg.axis[:-1]
    inside = [r for r in chooser.axes if r.arg.axis[: len(axis)] == axis]
    panel = next((r for r in inside if r.arg.kind == "loop"), None)
    if panel is None or panel.arg.axis > row.arg.axis:
        return row
    width = column_bytes
    for r in inside:
        width *= most_of(r) if r is not panel else 1
    rows = most_of(row)
    near = target.last_cache_bytes // machine.BLOCK_SHARE // chooser.context.threads
    if rows * row_bytes > 2 * near:
        return _by_rows(chooser, panel, row, near // width, near // row_bytes // height * height)
    count = target.l2_bytes // 2 // width
    far = most_of(panel) * width > machine.FAR_COLUMNS * target.l2_bytes
    if rows <= machine.FEW_ROWS and far and count > 1 and chooser.attempt("BLOCK", panel, count):
        return chooser.inner(panel)
    return row


def _by_rows(chooser: Chooser, panel: UOp, row: UOp, panels: int, rows: int) -> UOp:
    """Blocks of so many rows outside of the loop over panels, and blocks of so many of these
    outside of both."""
    if panels < 2 or rows < machine.LEAST_ROW_BLOCK or not chooser.attempt("BLOCK", row, rows):
        return row
    chooser.attempt("BLOCK", panel, panels)
    blocks = chooser.part(row, 0)
    assert blocks is not None
    return chooser.swapped(blocks, chooser.inner(panel))[0]


def pack(chooser: Chooser, lane: UOp, at: UOp, panels: bool) -> None:
    """A packed tile of what these lanes read, or several panels of them, before a loop around them;
    its fill in lanes, and panel by panel inside, so that rows are read in long pieces."""
    reads = enumerate(local_stage.operands(chooser.kernel))
    n = next((n for n, (value, _) in reads if lane in ranges.ranges(value)), None)
    before = set(chooser.axes)
    if n is None or not chooser.attempt("PACK", at, n):
        return
    fill = [r for r in chooser.axes if r not in before]
    k = chooser.facts
    along = choose_streams.crossed(k, fill[-1])
    if along in fill and not any(a.gate is not None for a in k.inside(fill[-1])):
        _turn_over(chooser, along, fill[-1], most_of(lane))
        return
    if panels and len(fill) > 2:
        chooser.swapped(fill[0], fill[-2])
    if chooser.attempt("VECTOR", fill[-1], most_of(lane)):
        _copy(chooser, chooser.part(fill[-1], 0))


def _turn_over(chooser: Chooser, along: UOp, lane: UOp, lanes: int) -> None:
    """The fill of a tile from rows that lie along another loop: these few rows are read to their
    ends, a block of copies at a time, which is turned over in registers."""
    chooser.attempt("VECTOR", lane, lanes)
    vectors = chooser.part(lane, 0)
    if vectors is not None and along.arg.axis < vectors.arg.axis:
        along = chooser.swapped(along, vectors)[0]
    for q in chooser.family(along):
        choose_streams.copy(chooser, q, lanes)


def _copy(chooser: Chooser, r: UOp | None) -> None:
    """Copies of the body for as many iterations as divide a loop, up to those of a tile."""
    length = None if r is None else length_of(r)
    if r is not None and length is not None:
        most = min(machine.TILE_VECTORS, length)
        copies = next(n for n in range(most, 0, -1) if length % n == 0)
        if copies > 1:
            chooser.attempt("UPCAST", r, copies)
