"""Constant arrays in blocks: the order in which the tile of a kernel reads them.

    w[o, c, r, i]   →   w[c, r // n, o, i, r % n]

An order is (outer, chunks, length, inner, n): of an array seen as outer x chunks x length x inner,
each chunk lies by itself; in it n neighbours along the length stand side by side, and the elements
of a block in the order of the rest. Those that the last block of a chunk lacks are zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Order = tuple[int, ...]
LINE = 64  # bytes of a cache line
ALIASED = 1024  # bytes: rows a multiple of it apart share a few sets of the first-level cache


def size(order: Order) -> int:
    """The elements of an array in this order."""
    outer, chunks, length, inner, n = order
    return chunks * -(-length // n) * outer * inner * n


def fits(order: Order, dims: tuple[int | None, ...]) -> bool:
    """True for an order of storage of these dimensions."""
    return len(order) == 5 and min(order) > 0 and dims == (size(order),)


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Memory that begins at a line, with any content."""
    whole = np.empty(nbytes + LINE, np.uint8)
    begin = -whole.ctypes.data % LINE
    return whole[begin : begin + nbytes]


def blocked(array: npt.NDArray[Any], order: Order) -> npt.NDArray[Any]:
    """The array in this order, flat, at the begin of a cache line: vectors of it lie in one line.
    It has at least as many elements as the order says."""
    outer, chunks, length, inner, n = order
    rows = array.reshape(-1)[: math.prod(order[:4])].reshape(outer, chunks, length, inner)
    whole, rest = divmod(length, n)
    flat = aligned(size(order) * array.itemsize).view(array.dtype)
    made = flat.reshape(chunks, -(-length // n), outer, inner, n)
    first = rows[:, :, : whole * n].reshape(outer, chunks, whole, n, inner)
    made[:, :whole] = first.transpose(1, 2, 0, 4, 3)
    if rest:
        made[:, whole, ..., rest:] = 0
        made[:, whole, ..., :rest] = rows[:, :, whole * n :].transpose(1, 0, 3, 2)
    return flat
