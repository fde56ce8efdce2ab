"""What each lane of a warp has of a tensor core's tile, as index expressions.

A SHAPED_WMMA moves with a range of rows, one of columns and one of depth. Its operands are read as
vectors: `a` with the elements that a lane has of it for lanes, and so `b`; everything after the sum
is a vector of the lane's elements of the result, one for each place of (row, column) that it has.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from uopc.ir.builder import rebuild as remake
from uopc.ir.core import ranges, tensor_cores
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.tensor_cores import Tile
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.loops import make_range

# Suffixes of a row range's axis: the lanes of the warp, and the elements of a lane.
_LANES, _ELEMENTS = 2, 3


@dataclass(frozen=True)
class Fragments:
    """A SHAPED_WMMA on lanes: the range of the warp's lanes, its operands as values over a range
    of kind lane, and where the result's rows and columns are."""

    shape: tuple[int, int, int]
    counts: tuple[int, int, int]
    lane: UOp
    a: UOp
    b: UOp
    places: dict[UOp, UOp]


def fragments(u: UOp, shared: Container[UOp]) -> Fragments:
    """A SHAPED_WMMA taken apart. `shared`: the storage that all lanes of a warp can read."""
    tile = tensor_cores.tile_of(u)
    assert tile is not None, u
    a, b, row, column, depth = u.src
    axis = row.arg.axis
    lane = make_range(affine.const(tensor_cores.WARP), (*axis, _LANES), "warp")
    of_a, of_b, of_c = [
        make_range(affine.const(n), (*axis, _ELEMENTS), "lane") if n > 1 else affine.const(0)
        for n in tile.counts
    ]
    rows_a, depth_a = tile.of_a(lane, of_a)
    depth_b, columns_b = tile.of_b(lane, of_b)
    rows, columns = tile.of_c(lane, of_c)
    part_a = _matrices(tile, a, row, depth, lane, shared)
    part_b = _matrices(tile, b, column, depth, lane, shared)
    return Fragments(
        u.arg, tile.counts, lane,
        remake.rebuild(a, {row: rows_a, depth: depth_a}) if part_a is None else part_a,
        remake.rebuild(b, {depth: depth_b, column: columns_b}) if part_b is None else part_b,
        {row: rows, column: columns},
    )  # fmt: skip


def _matrices(
    tile: Tile, operand: UOp, along: UOp, depth: UOp, lane: UOp, shared: Container[UOp]
) -> UOp | None:
    """An operand of 16 bits in shared storage as a TILE_LOAD; None where it is none, or its rows
    are not in pieces of 8 neighbours at multiples of 16 bytes."""
    if operand.op is not Ops.INDEX or tile.operand.itemsize != 2:
        return None
    base = storage_root(operand)
    constant, terms = affine.form(operand.src[1])
    if base not in shared or 1 not in (terms.get(along), terms.get(depth)):
        return None
    fast, slow = (along, depth) if terms.get(along) == 1 else (depth, along)
    rest = [k for m, k in terms.items() if m is not fast]
    if any(k % 8 for k in (constant, *rest)) or any(
        fast in ranges.ranges(m) for m in terms if m is not fast
    ):
        return None
    # Matrices side by side: rows and rows + 8 first, as far as there are so many, then the depth.
    count = along.src[0].arg * depth.src[0].arg // 64
    number, high = lane // 8 % count, along.src[0].arg // 8
    places = {along: 8 * (number % high), depth: 8 * (number // high)}
    places[slow] = places[slow] + lane % 8
    address = remake.rebuild(operand, places)
    t = operand.dtype.vec(2 * count)
    return intern(Ops.TILE_LOAD, t, (address, lane), (count, int(fast is along)))


def is_tensor_sum(u: UOp) -> bool:
    """Whether a REDUCE adds up what a tensor core multiplies."""
    return u.op is Ops.REDUCE and u.src[0].op is Ops.SHAPED_WMMA
