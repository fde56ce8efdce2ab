"""The tiles that matrix units multiply, and the elements of each tile in each lane of a warp.

A tile has the shape (m, n, k): c[m, n] += a[m, k] · b[k, n]. On a GPU the 32 lanes of a warp
compute it. With g = lane // 4 and t = lane % 4, a lane has the rows g and g + 8 of `a`, the column
g of `b`, and the rows g and g + 8 and the columns 2t and 2t + 1 of `c`. Along k, a lane has `word`
neighbours (a register of 32 bits holds that many) from word·t on, and again every 4·word.

On a CPU one thread holds a complete tile, row by row, as a single lane. Operands are words of 32
bits with several neighbours along k: two bfloat16, or four bytes, signed in an int32 and unsigned
in a uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes, semantics
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass

WARP = 32
SIDE = 16  # rows, columns and words along k of a tile of a CPU
Shape = tuple[int, int, int]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tile:
    """The product of one instruction: its shape, the dtypes of a, of b if different, and of the
    result; the number of lanes that hold the tile together."""

    shape: Shape
    operand: DType
    result: DType
    second: DType | None = None
    lanes: int = WARP

    @property
    def operands(self) -> tuple[DType, DType]:
        """The dtypes of a and b."""
        return self.operand, self.operand if self.second is None else self.second

    @property
    def is_of_words(self) -> bool:
        """True for a tile of a CPU."""
        return self.lanes == 1

    @property
    def word(self) -> int:
        """The number of neighbours along k in a register of a lane."""
        return max(1, 4 // self.operand.itemsize)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of elements that a lane has of a, of b and of c."""
        m, n, k = self.shape
        return m * k // self.lanes, k * n // self.lanes, m * n // self.lanes

    # Each takes and gives integers, arrays of them, or UOps of dtype index.
    def of_a(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and the index along k of a lane's element of a."""
        if self.is_of_words:
            return element // self.shape[2], element % self.shape[2]
        word, high = self.word, self.shape[0] // 8
        row = lane // 4 + 8 * ((element // word) % high)
        return row, word * (lane % 4) + element % word + 4 * word * (element // (word * high))

    def of_b(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The index along k and the column of a lane's element of b."""
        if self.is_of_words:
            return element // self.shape[1], element % self.shape[1]
        word = self.word
        return word * (lane % 4) + element % word + 4 * word * (element // word), lane // 4

    def of_c(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and column of a lane's element of c."""
        if self.is_of_words:
            return element // self.shape[1], element % self.shape[1]
        return lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2


TILES: tuple[Tile, ...] = (
    Tile((16, 8, 16), dtypes.bfloat16, dtypes.float32),
    Tile((16, 8, 16), dtypes.float16, dtypes.float32),
    Tile((16, 8, 8), dtypes.float32, dtypes.float32),
    Tile((16, 8, 32), dtypes.int8, dtypes.int32),
    Tile((8, 8, 4), dtypes.float64, dtypes.float64),
    Tile((16, 8, 4), dtypes.float64, dtypes.float64),
    Tile((SIDE, SIDE, SIDE), dtypes.int32, dtypes.float32, lanes=1),
    Tile((SIDE, SIDE, SIDE), dtypes.uint32, dtypes.int32, dtypes.int32, 1),
    Tile((SIDE, SIDE, SIDE), dtypes.int32, dtypes.int32, dtypes.uint32, 1),
)
OF_GPUS = tuple([t for t in TILES if not t.is_of_words])


def is_tile(t: DType) -> bool:
    """True for a dtype as long as a tile of words. Vectors may be as long in kernels without
    products of tiles."""
    return t.lanes * t.bits == 32 * SIDE * SIDE


def multiplies_tiles(kernel: UOp) -> bool:
    """True for a linear CPU kernel with products of tiles: vectors as long as a tile are tiles
    there."""
    return any([u.op is Ops.WMMA for u in kernel.src])


def tiles_for(a: DType, b: DType, result: DType) -> list[Tile]:
    """The tiles for operands of dtypes `a` and `b`, and sums of dtype `result`. The last tile is
    the largest; if there are several, only later GPUs multiply it."""
    return [t for t in TILES if t.operands == (a, b) and t.result is result]


def tile_of(u: UOp) -> Tile | None:
    """The tile that a SHAPED_WMMA or WMMA names; None if no such tile exists."""
    a, b = [s.dtype.scalar for s in u.src[:2]]
    return next((t for t in tiles_for(a, b, u.dtype.scalar) if t.shape == u.arg), None)


def terms(tile: Tile, a: Array, b: Array) -> Array:
    """The products of elements of a and b; for words, the sums of the products of their parts."""
    if not tile.is_of_words:
        exact = tile.result.numpy
        return np.asarray(rounded(tile, a).astype(exact) * rounded(tile, b).astype(exact))
    a, b = [np.ascontiguousarray(x).view(np.int32).reshape(x.shape) for x in (a, b)]
    if tile.result.is_float:
        return semantics.dot2(a, b)
    return semantics.dot4(*((b, a) if tile.second is dtypes.uint32 else (a, b)))


def rounded(tile: Tile, a: Array) -> Array:
    """Operands as the tensor core reads them: float32 with the 10 leading bits of its mantissa."""
    if tile.operand is not dtypes.float32:
        return a
    bits = np.ascontiguousarray(a).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def multiplied(tile: Tile, a: Array, b: Array) -> Array:
    """The elements of a·b in each lane, from each lane's elements of a and b: arrays (32, elements,
    …)."""
    m, n, k = tile.shape
    lanes = np.arange(tile.lanes)[:, None]
    rest = np.broadcast_shapes(a.shape[2:], b.shape[2:])
    whole = np.zeros((m, k, *a.shape[2:]), a.dtype)
    other = np.zeros((k, n, *b.shape[2:]), b.dtype)
    counts = tile.counts
    whole[tile.of_a(lanes, np.arange(counts[0])[None, :])] = a
    other[tile.of_b(lanes, np.arange(counts[1])[None, :])] = b
    products = np.zeros((m, n, *rest), tile.result.numpy)
    for i in range(k):
        products += terms(tile, whole[:, i, None], other[None, i])
    return np.asarray(products[tile.of_c(lanes, np.arange(counts[2])[None, :])])
