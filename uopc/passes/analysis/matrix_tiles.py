"""Tiles of a CPU's matrix unit: sums of SHAPED_WMMAs that are stored in a tile of their own.

    for row: for column: t[16·row + column] = Σ_k a[…, 16·row + depth] · b[…, 16·depth + column]
    →  t[… 256 lanes] = Σ_k₀ wmma(a[… 256 lanes], b[… 256 lanes])

Each operand and the result are then a vector: neighbours in memory from one place on. DISTRIBUTE
and PACK put them there. A sum that reads or writes anything else stays in loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.builder import rebuild
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.tensor_cores import Tile, tile_of
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.target import Target

_ZERO = affine.const(0)


class MatrixTile(NamedTuple):
    """A SHAPED_WMMA on a tile: its operands as vectors, the address that takes the sum, and the
    dtype of that as a vector."""

    tile: Tile
    product: UOp
    a: UOp
    b: UOp
    address: UOp
    result: DType


def matrix_tiles(order: Iterable[UOp], target: Target) -> list[MatrixTile]:
    """The tiles of a kernel; none where the machine has none like them."""
    ends = [u for u in order if u.op is Ops.END and u.src[0].op is Ops.STORE]
    found = [_tile_of(u.src[0], u.src[1:], target) for u in ends if len(u.src[0].src) == 2]
    return [t for t in found if t is not None]


def _tile_of(store: UOp, closed: tuple[UOp, ...], target: Target) -> MatrixTile | None:
    address, total = store.src
    product = total.src[0] if total.op is Ops.REDUCE else total
    tile = tile_of(product) if product.op is Ops.SHAPED_WMMA else None
    if tile is None or not target.has_tile(tile):
        return None
    a, b, row, column, depth = product.src
    first, second = _neighbours(a, row, depth), _neighbours(b, depth, column)
    result = _neighbours(address, row, column)
    if first is None or second is None or result is None:
        return None
    if row not in closed or column not in closed:
        return None
    return MatrixTile(tile, product, first, second, address, result.dtype)


def _neighbours(u: UOp, slow: UOp, fast: UOp) -> UOp | None:
    """All elements of a tile from an INDEX of one, if they are neighbours row by row."""
    if u.op is not Ops.INDEX or len(u.src) != 2:
        return None
    a, length = Access(u), int(fast.src[0].arg)
    if a.gate is not None or a.stride(slow) != length or a.stride(fast) != 1:
        return None
    t = u.dtype.vec(length * int(slow.src[0].arg))
    base = rebuild.rebuild(a.flat, {slow: _ZERO, fast: _ZERO})
    return intern(Ops.INDEX, t, (u.src[0], base))
