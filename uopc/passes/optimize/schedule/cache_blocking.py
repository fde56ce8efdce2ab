"""Blocks of a contraction that stay in caches: loops around its register tiles.

    for panel: pack b; for row: tile      →      for block of panels: pack b
                                                    for block of rows: for panel: for row: tile

A panel of columns is multiplied by all rows of a. If the rows exceed the last cache, they are taken
in blocks, and each block is multiplied by all panels of a packed block of columns. Rows are also
blocked if they exceed the second cache while all columns fit there: a and the result then pass
through that cache once, not once for each panel. For few rows packing takes a noticeable share of
the time, so several panels are packed at once, from longer runs of b's rows.
"""

from __future__ import annotations

import math

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import length_of, likely_of, most_of, trips
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.schedule import transposes
from uopc.passes.optimize.schedule.guards import cut_loop
from uopc.passes.optimize.schedule.scheduler import Scheduler


def bytes_a_step(reduce: UOp, operand: UOp) -> int:
    """The bytes of an operand that one iteration of the loops around a reduce reads."""
    own = ranges.ranges(operand).intersection(reduce.src[1:])
    return operand.dtype.itemsize * math.prod(map(likely_of, own))


def block(
    s: Scheduler, lane: UOp, row: UOp, height: int, row_bytes: int, column_bytes: int
) -> UOp:
    """Block the panels of these lanes, and rows, if that pays. Return the loop to pack before."""
    target, axis = s.target, lane.arg.axis[:-1]
    inside = [r for r in s.axes if r.arg.axis[: len(axis)] == axis]
    panel = next((r for r in inside if r.arg.kind == "loop" and length_of(r) != 1), None)
    if panel is None or panel.arg.axis > row.arg.axis:
        return row
    width = column_bytes * trips(r for r in inside if r is not panel)
    cache_share = target.last_cache_bytes // thresholds.BLOCK_SHARE // s.context.threads
    if likely_of(row) * row_bytes > 2 * cache_share:
        panels, rows = cache_share // width, cache_share // row_bytes // height * height
        if panels < 2 or rows < thresholds.LEAST_ROW_BLOCK or not s.attempt("BLOCK", row, rows):
            return row
        s.attempt("BLOCK", panel, panels)
        return s.swapped(s.outer(row), s.inner(panel))[0]
    count = target.l2_bytes // 2 // width
    misses_l2 = likely_of(panel) * width > thresholds.FAR_COLUMNS * target.l2_bytes
    few = most_of(row) <= thresholds.FEW_ROWS
    if few and misses_l2 and count > 1 and s.attempt("BLOCK", panel, count):
        return s.inner(panel)
    return row


def rows_around(
    s: Scheduler, lane: UOp, row: UOp, width: int, height: int
) -> tuple[UOp | None, UOp, UOp]:
    """Put a loop over blocks of rows around several panels, if that pays. Return this loop or None,
    and the loops of the lanes and of the rows inside. A tile has `width` columns and `height` rows.
    """
    unblocked, l2 = (None, lane, row), s.target.l2_bytes
    columns, rows = length_of(lane), length_of(row)
    if columns is None or columns <= width or rows is None or lane.arg.axis > row.arg.axis:
        return unblocked
    both = [x.node for x in s.nest.accesses if {row, lane} <= x.loops]
    each = _bytes_apart(s, row, lane) + columns * sum([u.dtype.itemsize for u in both])
    ragged = any([columns * u.dtype.bits % s.target.vector_bits for u in both])
    misses_l2 = columns * _bytes_apart(s, lane, row) > l2 // thresholds.NEAR_COLUMNS
    if ragged or misses_l2 or rows * each <= l2:
        return unblocked
    most = l2 // thresholds.PASSING_ROWS // each
    even = [n for n in range(most, most // 2, -1) if rows % n == 0 and -n % height <= height // 2]
    opt, n = ("TILE", even[0]) if even else ("BLOCK", most // height * height)
    if n < thresholds.LEAST_ROW_BLOCK or not s.attempt(opt, row, n):
        return unblocked
    lane, blocks = s.swapped(lane, s.outer(row))
    return blocks, lane, s.inner(row)


def _bytes_apart(s: Scheduler, r: UOp, other: UOp) -> int:
    """The bytes that an iteration of loop r reads without using the loop `other`."""
    found = [(x.node, x.loops) for x in s.nest.read]
    return sum([
        u.dtype.itemsize * trips([q for q in around if q.arg.kind == "reduce"])
        for u, around in found if r in around and other not in around
    ])  # fmt: skip


def pack(s: Scheduler, lane: UOp, at: UOp, panels: bool) -> None:
    """Pack the next operand that uses these lanes before the loop `at`: one panel, or several if
    `panels`. The fill loop gets lanes. Several panels are filled row by row, so that rows are read
    in long runs."""
    values = [v for v, _ in packing.operands(s.kernel)]
    wanted = [v for v in values if lane in ranges.ranges(v) and not _is_tile(v)]
    # Of a term that is packed element by element, the element with these lanes.
    wanted = [v for v in wanted if not any([w is not v and w in walk.toposort(v) for w in wanted])]
    n = next((n for n, v in enumerate(values) if v in wanted), None)
    fill = [] if n is None else s.added("PACK", at, n)
    if fill:
        fill_in_lanes(s, fill, most_of(lane), panels)


def fill_in_lanes(s: Scheduler, fill: list[UOp], lanes: int, panels: bool) -> None:
    """Give lanes to the last loop that fills a tile; fill several panels row by row."""
    along = transposes.crossed(s.nest, fill[-1])
    along = along if along in fill else None
    if along is not None and _is_guarded(s, along):
        cut_loop(s, along)
        along = s.outer(along)
    transposed = along is not None and not _is_guarded(s, along)
    if not transposed and panels and len(fill) > 2:
        s.swapped(fill[0], fill[-2])
    applied, *_ = [s.attempt("VECTOR", q, lanes) for q in s.family(fill[-1])]
    vectors = s.part(fill[-1], 0)
    if along is not None and transposed:  # read a few rows to their ends, a block at a time
        if vectors is not None and along.arg.axis < vectors.arg.axis:
            along = s.swapped(along, vectors)[0]
        for q in s.family(along):
            transposes.copy_all(s, q, lanes)
    elif applied and vectors is not None and length_of(vectors) is not None:
        count = most_of(vectors)
        copies = max(n for n in range(1, thresholds.TILE_VECTORS + 1) if count % n == 0)
        shared = _same_guards(s, fill) if copies < count else None
        if shared is not None:
            s.copy(shared, thresholds.TILE_VECTORS)
        elif copies > 1:
            s.attempt("UPCAST", vectors, copies)


def _is_guarded(s: Scheduler, r: UOp) -> bool:
    """True if the guards of reads in a loop differ from iteration to iteration."""
    return any([a.gate is not None and r in ranges.ranges(a.gate) for a in s.nest.inside(r)])


def _same_guards(s: Scheduler, fill: list[UOp]) -> UOp | None:
    """The innermost loop of a fill whose iterations share all guards, while the lanes' guards
    differ: its copies then compute each guard once."""
    k = s.nest
    loops = [q for r in fill for q in s.family(r) if (length_of(q) or 1) > 1]
    gates = [ranges.ranges(a.gate) for q in loops for a in k.inside(q) if a.gate is not None]
    if not any([r.arg.kind == "lane" for gate in gates for r in gate]):
        return None
    return next((q for q in reversed(loops) if not any([q in gate for gate in gates])), None)


def _is_tile(value: UOp) -> bool:
    """True if an operand is read from a tile, so it is already packed."""
    if value.op is not Ops.INDEX:
        return False
    below = walk.toposort(value.src[0])
    return any([u.op is Ops.BUFFER and u.arg.space != "global" for u in below])
