"""What each lane of a warp has of a tensor core's tile, as index expressions.

A SHAPED_WMMA moves with a range of rows, one of columns and one of depth. Its operands are read as
vectors: `a` with the elements that a lane has of it for lanes, and so `b`; everything after the sum
is a vector of the lane's elements of the result, one for each place of (row, column) that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.ir import affine, remake, tensor_cores
from uopc.ir.ops import Ops
from uopc.passes.range_tiling import make_range

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

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


def fragments(u: UOp) -> Fragments:
    """A SHAPED_WMMA taken apart."""
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
    return Fragments(
        u.arg, tile.counts, lane,
        remake.rebuild(a, {row: rows_a, depth: depth_a}),
        remake.rebuild(b, {depth: depth_b, column: columns_b}),
        {row: rows, column: columns},
    )  # fmt: skip


def is_tensor_sum(u: UOp) -> bool:
    """Whether a REDUCE adds up what a tensor core multiplies."""
    return u.op is Ops.REDUCE and u.src[0].op is Ops.SHAPED_WMMA
