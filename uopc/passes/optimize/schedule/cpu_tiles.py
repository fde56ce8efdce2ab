"""Products on a CPU's matrix unit: tiles of 16 by 16 sums, operands in the order of its registers.

    for j: pack 32 columns of b;  for i: 2 x 2 tiles of sums = Σ_k tiles of a · tiles of b;  rest

All rows of a are packed before the columns, as tiles of 16 rows of 16 words, and so is a panel of b
for all rows. The tiles of sums are stored in the nearest cache, and later code reads vectors from
there.
"""

from __future__ import annotations

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import DOTS, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.tensor_cores import SIDE, Tile
from uopc.ir.nest.loops import length_of, most_of, trips
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.matrix_tiles import matrix_tiles
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.opts import tensor_cores as tiling
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.local_tile import MOST_BYTES
from uopc.passes.optimize.schedule import cache_blocking, contraction
from uopc.passes.optimize.schedule.scheduler import Scheduler

# Tiles of sums, down and across: with two of each operand they fill the eight registers.
SIDE_BY_SIDE = 2


def choose(s: Scheduler) -> bool:
    """Schedule a product of words on tiles. Return False, with nothing applied, if the kernel is no
    such product or tiles would be mostly padding."""
    found = _product(s)
    if found is None:
        return False
    before = s.state
    if _tiled(s, *found):
        return True
    s.state = before
    return False


def _product(s: Scheduler) -> tuple[Tile, UOp, UOp, UOp] | None:
    """The tile for the kernel's only product, and the loops of its rows, columns and depth. Any
    other reduce is part of an operand, which gets packed."""
    k = s.nest
    products = [u for u in k.reduces if u.src[0].op in DOTS]
    if len(products) != 1 or len(k.written) != 1:
        return None
    below = walk.toposort(products[0])
    if not all([u in below for u in k.reduces]):
        return None
    closed = ranges.closed_ranges(products[0])
    for r in sorted(closed, key=lambda r: length_of(r) or 0, reverse=True):
        try:
            tile, row, column, depth = tiling.tile_loops(s.kernel, r, 0)
        except Refused:
            continue
        lengths = [most_of(row), most_of(column), length_of(depth)]
        if s.target.has_tile(tile) and all([_fills(n, m) for n, m in zip(lengths, tile.shape)]):
            return tile, row, column, depth
    return None


def _fills(length: int | None, size: int) -> bool:
    """True if enough of the tiles' rows, columns or depth is used rather than padding."""
    if length is None:
        return False
    return length * thresholds.TILE_PADDING >= -(-length // size) * size


def _tiled(s: Scheduler, tile: Tile, row: UOp, column: UOp, depth: UOp) -> bool:
    if row.arg.axis < column.arg.axis:
        row, column = s.swapped(row, column)
        if row.arg.axis < column.arg.axis:
            return False
    sides = [_side(most_of(q), size) for q, size in zip((row, column), tile.shape)]
    down, across, deep = tile.shape
    sizes = (row, down * sides[0]), (column, across * sides[1]), (depth, deep)
    loops = [s.padded(q, size) for q, size in sizes]
    if None in loops or not s.attempt("TC", loops[-1], 0):
        return False
    (product,) = [u for u in walk.order(s.kernel) if u.op is Ops.SHAPED_WMMA]
    for inner, n in zip(product.src[2:4], sides):
        if n > 1 and not s.attempt("UPCAST", _outside(s, inner), n):
            return False
    return _in_memory(s, product)


def _side(length: int, size: int) -> int:
    """The number of adjacent tiles along a loop: one if more would add much padding."""
    one, several = [-(-length // n) * n for n in (size, size * SIDE_BY_SIDE)]
    return SIDE_BY_SIDE if several <= thresholds.TILE_EDGE * one else 1


def _outside(s: Scheduler, inner: UOp) -> UOp | None:
    """The loop over tiles that was split from the same loop as `inner`."""
    axis = inner.arg.axis[:-1]
    found = [q for q in s.axes if q.arg.axis[: len(axis)] == axis and q is not inner]
    return next((q for q in found if q.arg.kind in ("loop", "reduce")), None)


def _in_memory(s: Scheduler, product: UOp) -> bool:
    """Store the sums in tiles, and pack the operands: a before the loop over columns, b before the
    loop over rows, each entirely or one block at a time."""
    row, column, depth = product.src[2:]
    rows, columns, slices = [_outside(s, q) for q in (row, column, depth)]
    if rows is not None and columns is not None:
        rows, columns = _blocks(s, rows, columns)
    reduces = [q for q in s.axes if q.arg.kind == "reduce"]
    summed = max(_sum(s).src[1:], key=lambda q: q.arg.axis)
    if not s.attempt("DISTRIBUTE", summed, 1):
        return False
    panels = columns is not _outside(s, column)
    for operand, at, far in ((0, columns, False), (1, rows, panels)):
        _pack(s, operand, slices if at is None else at, far)
    contraction.reuse_terms(s, [q for q in reduces if q in s.axes])
    return len(matrix_tiles(walk.order(s.kernel), s.target)) > 0


def _pack(s: Scheduler, operand: int, at: UOp | None, panels: bool) -> None:
    """Pack an operand of the product in tiles. Rows of a are filled to their ends, so that a value
    that a whole row of a needs is computed once."""
    value = _sum(s).src[0].src[operand]
    n = next(i for i, (v, _) in enumerate(packing.operands(s.kernel)) if v is value)
    fill = s.added("PACK", at, n)
    if operand == 0 and len(fill) > 2:
        swapped = s.swapped(fill[-3], fill[-2])
        fill = [*fill[:-3], *swapped, fill[-1]]
    if fill:
        cache_blocking.fill_in_lanes(s, fill, SIDE, panels)


def _blocks(s: Scheduler, rows: UOp, columns: UOp) -> tuple[UOp, UOp]:
    """The loops before which to pack. If the second cache cannot hold all of a, these are loops
    over blocks: rows that fit the second cache and, inside, columns that fit a share of the last
    cache."""
    reduce, target = _sum(s), s.target
    a, b = reduce.src[0].src[:2]
    sizes = [
        cache_blocking.bytes_a_step(reduce, v) * SIDE * trips(_copies(v)) for v in (a, b)
    ]
    cache_share = target.last_cache_bytes // thresholds.BLOCK_SHARE // s.context.threads
    down, across = target.l2_bytes // 2 // sizes[0], min(cache_share, MOST_BYTES) // sizes[1]
    if most_of(rows) <= down or not s.attempt("BLOCK", rows, max(1, down)):
        return rows, columns
    if most_of(columns) > across and s.attempt("BLOCK", columns, max(1, across)):
        columns = s.inner(columns)
    blocks, columns = s.swapped(s.outer(rows), columns)
    return blocks, columns


def _sum(s: Scheduler) -> UOp:
    """The REDUCE of the product."""
    return next(u for u in s.nest.reduces if u.src[0].op is Ops.SHAPED_WMMA)


def _copies(value: UOp) -> list[UOp]:
    """The loops that are copies of adjacent tiles."""
    return [q for q in ranges.ranges(value) if q.arg.kind == "upcast"]
