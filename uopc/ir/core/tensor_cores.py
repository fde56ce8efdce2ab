"""The tiles that tensor cores multiply, and the element of each that each lane of a warp has.

The 32 lanes of a warp together compute a tile of shape (m, n, k): c[m, n] += a[m, k] · b[k, n].
With g = lane // 4 and t = lane % 4, a lane has the rows g and g + 8 of `a`, the column g of `b`,
and the rows g and g + 8 and the columns 2t and 2t + 1 of `c`. Along k it has `word` neighbours (a
register of 32 bits holds as many) from word·t on, and as many every 4·word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp

WARP = 32
Shape = tuple[int, int, int]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tile:
    """The product of one instruction: its shape, the dtype of its operands and of its result."""

    shape: Shape
    operand: DType
    result: DType

    @property
    def word(self) -> int:
        """The number of neighbours along k in a register of a lane."""
        return max(1, 4 // self.operand.itemsize)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of elements that a lane has of a, of b and of c."""
        m, n, k = self.shape
        return m * k // WARP, k * n // WARP, m * n // WARP

    # Each takes and gives integers, arrays of them, or UOps of dtype index.
    def of_a(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and the index along k of a lane's element of a."""
        word, high = self.word, self.shape[0] // 8
        row = lane // 4 + 8 * ((element // word) % high)
        return row, word * (lane % 4) + element % word + 4 * word * (element // (word * high))

    def of_b(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The index along k and the column of a lane's element of b."""
        word = self.word
        return word * (lane % 4) + element % word + 4 * word * (element // word), lane // 4

    def of_c(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and column of a lane's element of c."""
        return lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2


TILES: tuple[Tile, ...] = (
    Tile((16, 8, 16), dtypes.bfloat16, dtypes.float32),
    Tile((16, 8, 16), dtypes.float16, dtypes.float32),
    Tile((16, 8, 8), dtypes.float32, dtypes.float32),
    Tile((16, 8, 32), dtypes.int8, dtypes.int32),
    Tile((8, 8, 4), dtypes.float64, dtypes.float64),
)


def tile_for(operand: DType, result: DType) -> Tile | None:
    """The tile for operands of one dtype and sums of another; None where there is none."""
    return next((t for t in TILES if t.operand is operand and t.result is result), None)


def tile_of(u: UOp) -> Tile | None:
    """The tile that a SHAPED_WMMA or WMMA names; None where there is none like it."""
    found = tile_for(u.src[0].dtype.scalar, u.dtype.scalar)
    return found if found is not None and found.shape == u.arg else None


def rounded(tile: Tile, a: Array) -> Array:
    """Operands as the tensor core reads them: float32 with the 10 leading bits of its mantissa."""
    if tile.operand is not dtypes.float32:
        return a
    bits = np.ascontiguousarray(a).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def multiplied(tile: Tile, a: Array, b: Array) -> Array:
    """The elements of a·b in each lane, from those of a and of b: arrays (32, elements, …)."""
    m, n, k = tile.shape
    lanes = np.arange(WARP)[:, None]
    rest = np.broadcast_shapes(a.shape[2:], b.shape[2:])
    whole = np.zeros((m, k, *a.shape[2:]), a.dtype)
    other = np.zeros((k, n, *b.shape[2:]), b.dtype)
    counts = tile.counts
    whole[tile.of_a(lanes, np.arange(counts[0])[None, :])] = rounded(tile, a)
    other[tile.of_b(lanes, np.arange(counts[1])[None, :])] = rounded(tile, b)
    exact = tile.result.numpy
    products = np.zeros((m, n, *rest), exact)
    for i in range(k):
        products += whole[:, i, None].astype(exact) * other[None, i].astype(exact)
    return np.asarray(products[tile.of_c(lanes, np.arange(counts[2])[None, :])])
