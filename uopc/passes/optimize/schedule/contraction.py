"""Contractions: a tile of accumulators in registers, and operands packed in its order.

    for i: for j: for k: c[i, j] += a[i, k] * b[k, j]       a register tile of 2 rows, 16 columns:

    for J by 16:                                            a panel of columns of b
        p[k, :] = b[k, J : J + 16]                          packed once, if that pays
        for I by 2:
            for k: x0 += a[I, k] * p[k]; x1 += a[I + 1, k] * p[k]      sums in vectors of 16
            c[I, J : J + 16], c[I + 1, J : J + 16] = x0, x1

Each step reads a vector of b and numbers of a, so all rows of the tile share the vector. The term
may be any value of the two: a distance, say. Several sums with the same rows share a tile. `choose`
finds such a sum, joins rows that are too short for vectors, and asks for each decision in turn: the
size of the tile, which operands are packed, the order of loops, and the blocks that caches hold.
Every Opt on the way may be refused; the later steps then do without that Opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from uopc.cost.machine import LINE, machine_of
from uopc.ir.core import ranges, walk
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access, is_plain
from uopc.ir.nest.arithmetic import SIDE_BY_SIDE, expansion, is_arithmetic
from uopc.ir.nest.contractions import Contraction, find_contraction, find_pairing, term
from uopc.ir.nest.loops import is_free, length_of, longest_of, most_of, shorter_of, trips
from uopc.ir.nest.nest import Nest
from uopc.ir.records import dataclass
from uopc.passes.analysis import register_tiles, thresholds
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.opts.local_tile import MOST_BYTES
from uopc.passes.optimize.schedule import cache_blocking, column_sums, transposes
from uopc.passes.optimize.schedule.guards import cut_loop, follow_bounds
from uopc.passes.optimize.schedule.lane_costs import is_dear, is_far_constant
from uopc.passes.optimize.schedule.lanes import column_lanes
from uopc.passes.optimize.schedule.scheduler import Scheduler
from uopc.target import Target


@dataclass(frozen=True)
class LanedSum(Contraction):
    """A contraction with chosen loops. `lane`, a column, gets the lanes. A vector of b serves
    several iterations of `row`: one of the rows, or a loop along which b's windows overlap.
    `alive`: the number of reduces whose accumulators are live together, this one and those that
    combine its sums. `adjacent`: contractions with the same lanes and rows in the same kernel,
    whose sums are added to this one's."""

    lane: UOp
    row: UOp
    alive: int
    adjacent: tuple[LanedSum, ...] = ()

    @property
    def each(self) -> tuple[LanedSum, ...]:
        """All sums of the tile."""
        return self, *self.adjacent

    @property
    def is_product(self) -> bool:
        """True for a sum of products a·b; False where other terms combine elements a and b."""
        product = find_contraction(self.reduce, guarded=True)
        return product is not None and self.a in (product.a, product.b)

    @property
    def is_plain_product(self) -> bool:
        """True for one sum of products, or several without windows: a tile is always fastest."""
        if not self.adjacent:
            return self.is_product
        loops = {r for c in self.each for r in (*c.rows, *c.columns)}
        return all([loops.isdisjoint(packing.windows(c.b)) for c in self.each])


def choose(s: Scheduler) -> bool:
    """Schedule a contraction. Return False, with nothing applied, for any other kernel. Sums that
    are no plain products have a tile as alternative to the schedule of other kernels."""
    k = s.nest
    c = only_sum(k)
    if c is not None and not c.is_plain_product and not s.pick("tile", False, True):
        return False
    while c is not None and _join_rows(s, k, c):
        k = s.nest
        c = only_sum(k)
    if c is None:
        return False
    plain = c.alive == 1 and not c.adjacent and is_plain(c.a) and is_plain(c.b)
    if plain and c.is_plain_product and column_sums.cut_sum(s, k, c.reduce, c.row, c.lane):
        for _ in range(2):  # the blocks that are added to the sums in memory, and the rest
            k = s.nest
            for c in [_contraction_at(k, a) for a in k.written]:
                if c and not any(r.arg.kind == "lane" for r in ranges.ranges(c.reduce)):
                    _tile(s, k, c)
                    break
    else:
        _tile(s, k, c)
    for r, n in _worth_distributing(s.nest):
        s.attempt("DISTRIBUTE", r, n)
    return True


# ---------------------------------------------------------------- which reduce is tiled
def only_sum(k: Nest) -> LanedSum | None:
    """The contraction of a kernel with one store; None for other kernels."""
    return _contraction_at(k, k.written[0]) if len(k.written) == 1 else None


def _contraction_at(k: Nest, written: Access) -> LanedSum | None:
    """The contraction that sums vectors if the loop along the result's neighbours gets lanes."""
    loops = [r for r in k.outputs if r.arg.kind == "loop" and r in written.loops]
    lane = next((r for r in loops if written.stride(r) == 1), None)
    reduces = [u for u in k.reduces if lane in ranges.ranges(u)]
    if lane is None or not reduces:
        return None
    if all(reduces[0] in walk.toposort(u) for u in reduces):
        # The others, if any, combine its sums: a maximum over a window, say.
        return _contraction_of(k, reduces[0], lane, len(reduces))
    return _side_by_side(k, reduces, lane)


def _side_by_side(k: Nest, reduces: list[UOp], lane: UOp) -> LanedSum | None:
    """The first of several sums of products, with the others as `adjacent`. None if the sums have
    no row loop in common, or if a factor is computed from another of the sums."""
    found = [c for c in [_with_column(u, lane) for u in reduces] if c is not None]
    rows = [r for r in _longer(found[0].rows) if all([r in c.rows for c in found])] if found else []
    if len(found) < len(reduces) or not rows:
        return None
    factors = [v for c in found for v in (c.a, c.b)]
    if any([not set(reduces).isdisjoint(walk.toposort(v)) for v in factors]):
        return None
    first, *others = [_laned(c, lane, rows[-1], 1) for c in found]
    if any([_is_along_the_sum(k, c) for c in (first, *others)]):
        return None
    return replace(first, adjacent=tuple(others))


def _contraction_of(k: Nest, u: UOp, lane: UOp, alive: int) -> LanedSum | None:
    """The contraction of a reduce, with the loop `lane` as its lanes."""
    p = _with_column(u, lane)
    if p is None:
        return None
    rows = _longer(p.rows)
    found = _laned(p, lane, rows[-1], alive) if rows else None
    return None if found is None or _is_along_the_sum(k, found) else found


def _with_column(u: UOp, lane: UOp) -> Contraction | None:
    """The sum of products, guarded or not, of which only factor b moves with a loop; or the reduce
    of other terms to which only the element b of an array brings the loop."""
    c = find_contraction(u, guarded=True)
    p = None if c is None else c.with_column(lane)
    return find_pairing(u, lane) if p is None else p


def _laned(c: Contraction, lane: UOp, row: UOp, alive: int) -> LanedSum:
    return LanedSum(c.reduce, c.a, c.b, c.rows, c.columns, lane, row, alive)


def _longer(loops: Iterable[UOp]) -> list[UOp]:
    """The loops of more than one iteration."""
    return [r for r in loops if length_of(r) != 1]


def _is_along_the_sum(k: Nest, c: LanedSum) -> bool:
    """True if lanes along the sum are faster: the sum is long, both operands are neighbours along
    the sum, and b is strided along the columns and serves few rows."""
    few = (longest_of(c.row) or 1 << 20) < thresholds.LEAST_ROWS_TO_TRANSPOSE
    inner = max(c.depth, key=lambda r: r.arg.axis)
    long = (length_of(inner) or 1 << 20) >= thresholds.WHOLE_UNROLL
    if not few or not long or _is_neighbours(k, c):
        return False
    body = walk.toposort(c.reduce.src[0])
    return all(a.stride(inner) == 1 for a in k.accesses if a.node in body)


def dot_rows(k: Nest, reduces: list[UOp]) -> UOp | None:
    """The output loop whose iterations share an operand, in products summed along the lanes."""
    small = thresholds.DOT_ROWS * k.expanded_size() <= thresholds.MOST_COPIES
    if len(k.reduces) != 1 or len(reduces) != 1 or not small:
        return None
    p = k.contraction
    found = [] if p is None else _longer(p.rows) or _longer(p.columns)
    if not found or (length_of(found[-1]) or 1 << 20) < thresholds.DOT_ROWS:
        return None
    return found[-1]


# ---------------------------------------------------------------- rows that are too short
def _join_rows(s: Scheduler, k: Nest, c: LanedSum) -> bool:
    """COALESCE short rows of the result with the loop around them, if full vectors save more than
    it costs to store the operands in the joined order."""
    outer = joined_with(k, c)
    if outer is None:
        return False
    separate, joined = cycles_separate_and_joined(s, k, c, outer, most_of)
    return joined < separate and s.attempt("COALESCE", outer, k.axes.index(c.lane))


def joined_with(k: Nest, c: LanedSum) -> UOp | None:
    """The loop around rows of the result that can be merged with their lanes."""
    only_b = [ranges.ranges(p.b) - ranges.ranges(p.a) for p in c.each]
    outer = [
        r for r in k.outputs
        if all([r in own for own in only_b]) and k.written[0].stride(r) == length_of(c.lane)
    ]  # fmt: skip
    if len(outer) != 1 or length_of(outer[0]) is None or length_of(c.lane) is None or c.alive > 1:
        return None
    return None if any([c.row in own for own in only_b]) else outer[0]


def cycles_separate_and_joined(
    s: Scheduler, k: Nest, c: LanedSum, outer: UOp, length: Callable[[UOp], int]
) -> tuple[float, float]:
    """The cycles with separate rows of the result, and with rows merged along `outer`, for loops of
    these lengths."""
    separate = joined = 0.0
    rows, columns = length(outer), length(c.lane)
    high = None if longest_of(c.row) is None else length(c.row)
    for p in c.each:
        is_contiguous = _bytes_apart(k, p.b, p.lane) == p.b.dtype.itemsize
        vectors = rows * columns / s.target.lanes(p.b.dtype.bits)
        gathered = rows * columns * s.machine.gather
        fill = vectors * s.machine.fill if is_contiguous else gathered
        steps = trips(p.depth)
        joined += steps * (sum_tile(s, k, p, high, rows * columns)[2] + fill)
        separate += steps * rows * sum_tile(s, k, p, high, columns)[2]
    return separate, joined


# ---------------------------------------------------------------- the tile
def _tile(s: Scheduler, k: Nest, c: LanedSum) -> None:
    """Give one contraction a register tile, and pack its operands if that pays."""
    target = s.target
    lanes = target.lanes(c.reduce.dtype.bits)
    packs = any([is_packed(k, p, target) for p in c.each])
    stored = all([is_far_constant(p.b, s.machine) for p in c.each])  # in panels, as a rule
    image, widest = image_inside(s, c)
    height, vectors, _ = sum_tile(
        s, k, c, longest_of(c.row), longest_of(c.lane), packs or stored, widest
    )
    in_registers = not packs and _is_register_resident(s, k, c)
    height = thresholds.HELD_ROWS if in_registers else height
    computed = [p.a for p in c.each if not is_plain(p.a)]
    if computed:
        c = replace(c, row=_row_block(s, c, computed))
    seen = [r for p in c.each for r in packing.windows(p.b)] if packs else []
    windows = [r for r in k.outputs if r in seen and r.arg.kind == "loop"]
    lane, row = _order_loops(s, c, windows, lanes * vectors)
    if image is not None and image.arg.axis < lane.arg.axis:
        lane, _ = s.swapped(lane, image)
    if stored and s.attempt("PREPACK", lane, lanes * vectors):
        packs = False
    short = all([0 < _bytes_apart(k, p.a, c.row) < s.machine.pages.line for p in c.each])
    if height > 1 and short and all([is_far_constant(p.a, s.machine) for p in c.each]):
        s.attempt("PREPACK", row, height)
    for _ in computed:
        _pack_producer(s, lane, row, lanes)
    around, blocked = None, not computed and not windows
    if blocked:
        around, lane, row = cache_blocking.rows_around(s, lane, row, lanes * vectors, height)
    parts = column_lanes(s, lane, lanes, vectors)
    rows = s.family(row)
    for part in parts if packs else []:
        _pack_panel(s, c, part, rows, around, height if blocked else None)
    for q in rows:
        _tile_rows(s, s.inner(q), height, vectors)
    for r in c.depth if in_registers else ():
        for q in s.family(r):
            s.attempt("UNROLL", q, 0)
    for q in s.family(lane) if around is not None else ():
        _followed(s, q, 1)
    for p in c.each:
        for r in p.depth if p.reduce.src[0] is not term(p.reduce) else ():
            cut_loop(s, r)


def _is_register_resident(s: Scheduler, k: Nest, c: LanedSum) -> bool:
    """True if registers can hold all of b, one vector wide, across the tiles of many rows: each
    step then loads only numbers of a. The sum's steps must be straight code, and no function may be
    called."""
    target, rows, steps = s.target, thresholds.HELD_ROWS, c.depth
    if any([is_arithmetic(u) and expansion(u) > 1 for u in k.order]):
        return False
    plain = is_plain(c.a) and is_plain(c.b) and c.reduce.src[0] is term(c.reduce)
    if c.adjacent or c.alive > 1 or not plain or c.row in ranges.ranges(c.b):
        return False
    columns = length_of(c.lane)
    if columns is None or columns > target.lanes(c.reduce.dtype.bits):
        return False
    many = (length_of(c.row) or thresholds.TYPICAL_LENGTH) >= thresholds.LEAST_TILES_HELD * rows
    # Without mask registers a multiply-add cannot read one number for all of its lanes.
    spare = target.registers - rows - (not target.has_mask_registers)
    return many and all([length_of(r) is not None for r in steps]) and trips(steps) <= spare


def sum_tile(
    s: Scheduler, k: Nest, c: LanedSum, rows: int | None, columns: int | None,
    packs: bool = True, widest: int | None = None,
) -> tuple[int, int, float]:  # fmt: skip
    """The rows and vectors of a tile for a result of this size, and the cycles per step."""
    target = s.target
    return register_tiles.register_tile(
        rows, columns, target.lanes(c.reduce.dtype.bits), _registers(c, target),
        _bytes_apart(k, c.a, c.row),
        s.machine,
        masked=not packs and not target.has_mask_registers, widest=widest,
        vectors_in_l1=math.inf if packs else _vectors_in_l1(k, c, target),
        shorter=(shorter_of(c.row), shorter_of(c.lane)),
    )  # fmt: skip


def _registers(c: LanedSum, target: Target) -> int:
    """The registers for a tile of one of the reduces whose accumulators are live together. Terms
    that are no products are all computed before they are combined, and take as many again."""
    return target.registers // (c.alive if c.is_product else c.alive + 1)


def _vectors_in_l1(k: Nest, c: LanedSum, target: Target) -> float:
    """The vectors of b, read in place, that the nearest cache holds for all steps of the sum."""
    near = machine_of(target).caches[0]
    if any([near.is_crowded(*rows) for rows in _rows_of(k, c)]):
        return 0
    column = cache_blocking.bytes_a_step(c.reduce, c.b)
    return near.nbytes // (column * target.lanes(c.b.dtype.bits))


def _rows_of(k: Nest, c: LanedSum) -> list[tuple[int, int]]:
    """For each loop of the sum along which b moves: its length, and the bytes from row to row."""
    loops = [r for r in ranges.ranges(c.b) if r.arg.kind == "reduce"]
    return [
        (length_of(r) or thresholds.TYPICAL_LENGTH, _bytes_apart(k, c.b, r)) for r in loops
    ]


def _bytes_apart(k: Nest, value: UOp, r: UOp) -> int:
    """The bytes between an operand's elements in neighbouring iterations of r; 1 if they vary."""
    for access in k.accesses:
        if access.node in walk.toposort(value):
            return (access.stride(r) or 0) * access.itemsize or 1
    return 1


# ---------------------------------------------------------------- operands in the order of the tile
def is_packed(k: Nest, c: LanedSum, target: Target) -> bool:
    """True if packing b pays: a vector of b takes more than one load, or b leaves the near caches
    between rows. Many rows gain most."""
    if not _is_neighbours(k, c) or not is_plain(c.b):
        return True
    rows, size = longest_of(c.row) or thresholds.TYPICAL_LENGTH, c.b.dtype.itemsize
    m = machine_of(target)
    wide = m.vector_bytes >= LINE
    least = thresholds.LEAST_ROWS_OF_LINES if wide else thresholds.LEAST_ROWS_TO_PACK
    size *= longest_of(c.lane) or thresholds.TYPICAL_LENGTH
    crowded = pages = False
    for length, step in _rows_of(k, c):
        size *= length
        crowded |= m.caches[0].is_crowded(length, step)
        pages |= step % m.pages.line == 0
    if rows < least:
        pages &= rows >= thresholds.LEAST_ROWS_OF_PAGES
        return size > target.l2_bytes or (crowded and pages)
    return crowded or size >= target.l2_bytes // thresholds.PACKED_SHARE


def _is_neighbours(k: Nest, c: LanedSum) -> bool:
    """True if b is an element of an array and its lanes read neighbours."""
    return any(a.node is c.b and a.stride(c.lane) == 1 for a in k.accesses)


def _pack_panel(
    s: Scheduler, c: LanedSum, part: UOp, rows: list[UOp], around: UOp | None, height: int | None
) -> None:
    """PACK a panel of b before the loop `around` its rows. Without such a loop, PACK before the
    rows, which a `height` also cuts into blocks for the caches."""
    nests = [ranges.ranges(u) for u in s.nest.reduces if part in ranges.ranges(u)]
    at = first = next((r for r in rows if any(r in nest for nest in nests)), None)
    if around is not None:
        at = around
    elif at is not None and height is not None:
        sizes = [cache_blocking.bytes_a_step(c.reduce, operand) for operand in (c.a, c.b)]
        at = cache_blocking.block(s, part, at, height, *sizes)
    if at is not None:
        for _ in c.each:
            cache_blocking.pack(s, part, at, panels=at is not first)


def _pack_producer(s: Scheduler, lane: UOp, row: UOp, lanes: int) -> None:
    """PACK a computed operand a once, before the outermost loop that the operand does not depend
    on. If the row loop is outside of that loop, PACK the operand's rows all at once."""
    for n, (value, user) in enumerate(packing.operands(s.kernel)):
        own = ranges.ranges(value)
        if lane not in ranges.ranges(user) or lane in own or is_plain(value):
            continue
        loops = [r for r in s.axes if r in ranges.ranges(user)]
        at = next(r for r in loops if r.arg.kind == "loop" and r not in own)
        at = row if row in loops and row.arg.axis < at.arg.axis else at
        reduces = [r for r in s.axes if r.arg.kind == "reduce"]
        fill = s.added("PACK", at, n)
        if fill:
            reuse_terms(s, reduces)
            if transposes.crossed(s.nest, fill[-1]) in fill:
                cache_blocking.fill_in_lanes(s, fill, lanes, panels=False)
            else:
                s.vectorise(fill[-1], lanes)
        return


def reuse_terms(s: Scheduler, reduces: list[UOp]) -> list[UOp]:
    """REUSE the terms of reduces that are dearer to compute again than to read; return those."""
    return [r for r in reduces if is_dear(s.nest, r) and s.attempt("REUSE", r, 0)]


# ---------------------------------------------------------------- the order of loops
def _order_loops(
    s: Scheduler, c: LanedSum, windows: list[UOp], wide: int
) -> tuple[UOp, UOp]:  # fmt: skip
    """Put rows inside of columns, so that all rows use a panel of b, `wide` columns, in turn;
    return the lane and row loops. If windows of b overlap along another loop, block that loop so
    that a block fills half of L2. If windows overlap along the columns and fit half of L2, rows
    stay outside; if they do not fit, each panel packs its own windows."""
    row, lane = c.row, c.lane
    around = [r for r in windows if r is not lane]
    if around:
        block = _block(s, c, around[-1])
        if row is around[-1]:
            return lane, s.inner(row)
        if block is not None and row.arg.axis < block.arg.axis:
            row = s.swapped(row, block)[0]
        return lane, row
    fits = sum([_panel_bytes(p, wide) for p in c.each]) <= s.target.l2_bytes // 2
    shared = row in ranges.ranges(c.b) or (lane in windows and fits)
    if row.arg.axis < lane.arg.axis and not shared:
        row, lane = s.swapped(row, lane)
    return lane, row


def _panel_bytes(c: LanedSum, wide: int) -> int:
    """The bytes of a packed panel of b, `wide` columns, with the rows of its windows."""
    found = packing.digits(c.b, _packed_loops(c))
    return c.b.dtype.itemsize * math.prod([_packed_extent(d, c, wide) for d in found])


def _packed_extent(d: packing.Digit, c: LanedSum, wide: int) -> int:
    """The extent of a digit within one panel of columns. Windows further apart than the panel is
    wide share no elements."""
    far = [q for q, f in d.factors.items() if q is not c.lane and c.lane in d.factors and f > wide]
    return trips([*far, c.lane]) if far else d.extent


def _packed_loops(c: LanedSum, *windows: UOp) -> list[UOp]:
    """The loops whose elements of b share one tile: reduces, columns and windows."""
    inside = (c.lane, *windows)
    return [r for r in ranges.ranges(c.b) if r.arg.kind == "reduce" or r in inside]


def _block(s: Scheduler, c: LanedSum, window: UOp) -> UOp | None:
    """The loop over blocks of a window's loop; None if one block holds the entire loop."""
    if any([longest_of(r) is None for p in c.each for r in _packed_loops(p, window)]):
        return window
    found = [(p, packing.digits(p.b, _packed_loops(p, window))) for p in c.each]
    length = longest_of(window) or 1
    for n in range(length, 0, -1):
        size = sum([_block_bytes(p, digits, window, length - n) for p, digits in found])
        if length % n == 0 and size <= s.target.l2_bytes // 2:
            if n == length:
                return None
            if n > 1 and s.attempt("TILE", window, n):
                return s.part(window, 0)
            break
    return window


def _block_bytes(c: LanedSum, digits: list[packing.Digit], window: UOp, fewer: int) -> int:
    """The bytes that a block of a window's loop packs; it has `fewer` iterations than the loop."""
    extents = [d.extent - d.factors.get(window, 0) * fewer for d in digits]
    return c.b.dtype.itemsize * math.prod(extents)


def _row_block(s: Scheduler, c: LanedSum, computed: list[UOp]) -> UOp:
    """The row loop, or its blocks if the computed operands of all rows exceed half of L2. If b
    exceeds L2, the limit is a thread's share of the last cache, because each block reads all of b.
    """
    rows, size, largest = longest_of(c.row), 0, 0
    for a in computed:
        reduces = [r for r in ranges.ranges(a) if r.arg.kind == "reduce"]
        largest += a.dtype.itemsize * trips(reduces)
        size += a.dtype.itemsize * math.prod(
            length_of(r) or thresholds.TYPICAL_LENGTH for r in reduces
        )
    columns = longest_of(c.lane) or thresholds.TYPICAL_LENGTH
    misses_l2 = cache_blocking.bytes_a_step(c.reduce, c.b) * columns > s.target.l2_bytes
    cache_share = s.target.last_cache_bytes // thresholds.BLOCK_SHARE // s.context.threads
    fits = min(cache_share, MOST_BYTES) if misses_l2 else s.target.l2_bytes // 2
    most = max(1, fits // size)
    if rows is None:
        # The tile holds the greatest sizes, and up to as many rows again for ragged tiles.
        most = min(most, MOST_BYTES // 2 // largest)
        n = min(most_of(c.row), most // thresholds.LEAST_ROW_BLOCK * thresholds.LEAST_ROW_BLOCK)
        cut = 0 < n < most_of(c.row) and s.attempt("BLOCK", c.row, n)
        return s.inner(c.row) if cut else c.row
    n = next(n for n in range(min(rows, most), 0, -1) if rows % n == 0)
    if rows > most and n >= thresholds.LEAST_ROW_BLOCK and s.attempt("TILE", c.row, n):
        return s.inner(c.row)
    return c.row


def image_inside(s: Scheduler, c: LanedSum) -> tuple[UOp | None, int | None]:
    """The outer row loop (such as the rows of an image) to move inside of the columns, if its
    operand fits half of L2 and the columns' operand does not. Each panel is then loaded from memory
    once. Also the most vectors of a panel, so that L2 holds the panel and the next one, which is
    prefetched."""
    each, l2 = c.each, s.target.l2_bytes
    rows = [r for r in s.nest.outputs if r is not c.row and r is not c.lane]
    rows = [r for r in rows if all([r in ranges.ranges(p.a) for p in each])]
    rows = [r for r in rows if not any([r in ranges.ranges(p.b) for p in each])]
    if not rows or any([c.row in ranges.ranges(p.b) for p in each]):
        return None, None
    row_bytes = 0
    for p in each:
        loops = [r for r in ranges.ranges(p.a) if r.arg.kind == "reduce" or r in (rows[-1], c.row)]
        if any([longest_of(r) is None for r in (*loops, c.lane)]):
            return None, None
        row_bytes += p.a.dtype.itemsize * math.prod([d.extent for d in packing.digits(p.a, loops)])
    column = sum([cache_blocking.bytes_a_step(p.reduce, p.b) for p in each])
    if row_bytes > l2 // 2 or column * trips([c.lane]) <= l2 // 2:
        return None, None
    vector = column * s.target.lanes(c.reduce.dtype.bits)
    return rows[-1], max(1, (l2 - row_bytes) // (2 * vector))


# ---------------------------------------------------------------- rows of the tile
def _tile_rows(s: Scheduler, row: UOp, height: int, vectors: int) -> None:
    """Unroll rows. The remaining rows become a block, or a loop if their number varies."""
    length = length_of(row)
    if length is not None and length <= height:
        s.attempt("UPCAST", row, length)
        return
    first: UOp | None = row
    if not affine.is_multiple(row.src[0], height):
        first, rest = s.split(row, height)
        if rest is not None:
            _tile_rest(s, rest, height, vectors)
        if first is row:
            return
    for q in _followed(s, first, height):
        s.attempt("UPCAST", q, height)


def _tile_rest(s: Scheduler, rest: UOp, height: int, vectors: int) -> None:
    """Unroll all rows that fill no tile. If chunks have two lengths, unroll the rows that all
    chunks have, and then the rows that only longer chunks have.

    A free number of rows is halves of tiles, as long as the sums of a half hide their latency, then
    a tile whose last row is computed again in the place of those that are missing."""
    length: int | None = shorter_of(rest) or length_of(rest)
    if is_free(rest):
        half, last = height // 2, None
        if half * vectors >= SIDE_BY_SIDE:
            halves, last = s.split(rest, half)
        if last is not None:
            s.attempt("UPCAST", halves, half)
            _tile_rest(s, last, half, vectors)
        elif most_of(rest) > 1:
            s.attempt("REPEAT", rest, height)
        return
    parts: tuple[UOp | None, ...] = (rest,)
    if length is not None and length_of(rest) is None:
        parts = s.split(rest, length)
    for q, n in zip(parts, (length, None)):
        n = n or (None if q is None else length_of(q))
        if q is not None and n is not None:
            s.attempt("UPCAST", q, n)


def _followed(s: Scheduler, r: UOp | None, n: int) -> list[UOp]:
    """The parts of a row or column loop, cut in blocks of n where guards of stores change."""
    if r is None:
        return []
    if any([a.gate is not None for a in s.nest.written]):
        follow_bounds(s, r, n, 1)
    return s.family(r)


def _worth_distributing(k: Nest) -> list[tuple[UOp, int]]:
    """For each reduce that long code follows in copies: a loop, and the most copies of it."""
    found = []
    for u in k.reduces:
        copies = trips([q for q in ranges.ranges(u) if q.arg.kind == "upcast"])
        after, nodes = {u}, 0
        for v in k.order:
            if not after.isdisjoint(v.src):
                after.add(v)
                nodes += expansion(v)
        most = max(1, thresholds.MOST_AFTER_SUMS // max(1, nodes))
        if copies > most:
            found.append((u.src[1], most))
    return found
