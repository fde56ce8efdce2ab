"""The fragments of a tensor core's tile that the lanes of a warp hold, as index expressions.

A SHAPED_WMMA moves with a range of rows, one of columns and one of depth. Each lane reads its
elements of operand `a` as a vector, and those of `b`. Values after the sum are vectors of the
elements of the result that the lane holds, one per (row, column).
"""

from __future__ import annotations

from collections.abc import Container

from uopc.ir.builder import alu, fold, rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import tensor_cores
from uopc.ir.devices.tensor_cores import Tile
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.ir.records import dataclass
from uopc.passes.analysis.loops import make_range
from uopc.passes.analysis.matrix_tiles import MatrixTile, matrix_tiles
from uopc.passes.analysis.shared_tiles import filled_together
from uopc.target import Target

# Suffixes of a row range's axis: the lanes of the warp, and the elements of a lane.
_LANES, _ELEMENTS = 2, 3


@dataclass(frozen=True)
class Fragments:
    """A SHAPED_WMMA on lanes: its shape, the elements per lane of a, b and the result, the range of
    the warp's lanes, the operands over a range of kind lane, and the rows and columns of the result
    as expressions of a lane."""

    shape: tuple[int, int, int]
    counts: tuple[int, int, int]
    lane: UOp
    a: UOp
    b: UOp
    positions: dict[UOp, UOp]


def of_kernel(kernel: UOp, target: Target) -> tuple[dict[UOp, Fragments], dict[UOp, DType]]:
    """The fragments of each SHAPED_WMMA that a matrix unit computes, and the addresses that take
    whole tiles, with the dtypes of these."""
    order = walk.order(kernel)
    if target.gpu is None:
        tiles = matrix_tiles(order, target)
        return {t.product: _whole(t) for t in tiles}, {t.address: t.result for t in tiles}
    shared = filled_together(order)
    return {u: _of_warp(u, shared) for u in order if u.op is Ops.SHAPED_WMMA}, {}


def _of_warp(u: UOp, shared: Container[UOp]) -> Fragments:
    """The fragments of a SHAPED_WMMA. All lanes of a warp can read the storage in `shared`."""
    tile = tensor_cores.tile_of(u)
    assert tile is not None, u
    a, b, row, column, depth = u.src
    axis = row.arg.axis
    lane = make_range(tensor_cores.WARP, (*axis, _LANES), "warp")
    of_a, of_b, of_c = [
        make_range(n, (*axis, _ELEMENTS), "lane") if n > 1 else affine.const(0)
        for n in tile.counts
    ]
    rows_a, depth_a = tile.of_a(lane, of_a)
    depth_b, columns_b = tile.of_b(lane, of_b)
    rows, columns = tile.of_c(lane, of_c)
    part_a = _matrices(tile, a, row, depth, lane, shared)
    part_b = _matrices(tile, b, column, depth, lane, shared)
    return Fragments(
        u.arg, tile.counts, lane,
        rebuild.rebuild(a, {row: rows_a, depth: depth_a}) if part_a is None else part_a,
        rebuild.rebuild(b, {depth: depth_b, column: columns_b}) if part_b is None else part_b,
        {row: rows, column: columns},
    )  # fmt: skip


def _matrices(
    tile: Tile, operand: UOp, along: UOp, depth: UOp, lane: UOp, shared: Container[UOp]
) -> UOp | None:
    """A TILE_LOAD of an operand of 16 bits in shared storage; None for another operand, or if its
    rows are not in runs of 8 neighbours at multiples of 16 bytes."""
    if operand.op is not Ops.INDEX or tile.operand.itemsize != 2:
        return None
    a = Access(operand)
    if a.storage not in shared or a.gate is not None:
        return None
    if 1 not in (a.stride(along), a.stride(depth)):
        return None
    fast, slow = (along, depth) if a.stride(along) == 1 else (depth, along)
    constant, terms = a.form
    if any(k % 8 for k in (constant, *[k for m, k in terms.items() if m is not fast])):
        return None
    # The order of the 8 x 8 matrices: along the rows first (8 or 16 of them), then the depth.
    count = along.src[0].arg * depth.src[0].arg // 64
    matrix, row = affine.divmod_(lane, affine.const(8))
    matrix = affine.floormod(matrix, affine.const(count))
    deep, high = affine.divmod_(matrix, affine.const(along.src[0].arg // 8))
    begins = {along: affine.scaled(high, 8), depth: affine.scaled(deep, 8)}
    begins[slow] = affine.add(begins[slow], row)
    address = rebuild.rebuild(operand, begins)
    t = operand.dtype.vec(2 * count)
    return intern(Ops.TILE_LOAD, t, (address, lane), (count, int(fast is along)))


def _whole(t: MatrixTile) -> Fragments:
    """The one lane of a CPU's tile holds all of it."""
    zero = affine.const(0)
    positions = dict.fromkeys(t.product.src[2:4], zero)
    return Fragments(t.tile.shape, t.tile.counts, zero, t.a, t.b, positions)


def product(u: UOp, a: UOp, b: UOp) -> UOp:
    """A SHAPED_WMMA of two elements without a matrix unit."""
    tile = tensor_cores.tile_of(u)
    if tile is None or not tile.is_of_words:
        return alu.alu(fold.cast(a, u.dtype), Ops.MUL, fold.cast(b, u.dtype))
    if tile.result.is_float:
        return fold.combine(Ops.DOT2, (a, b))
    src = (b, a) if tile.second is dtypes.uint32 else (a, b)
    return fold.combine(Ops.DOT4, tuple([fold.bitcast(s, dtypes.int32) for s in src]))
