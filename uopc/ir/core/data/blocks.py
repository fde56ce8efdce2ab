"""Constant arrays in blocks: the order in which a kernel's tile reads the elements.

    w[o, c, r, i]   →   w[c, r // n, o, i, r % n]

An order is (outer, chunks, length, inner, n), for an array seen as outer x chunks x length x inner.
Chunks follow each other. In a chunk, n neighbours along the length are contiguous, and the other
axes keep their order. Missing elements of a chunk's last block are zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    """Memory that begins at a cache line, with any content."""
    return new_array((nbytes,), np.uint8)


def new_array(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array with any content that begins at a cache line."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE)


def blocked(array: npt.NDArray[Any], order: Order) -> npt.NDArray[Any]:
    """The array in this order, flat, aligned to a cache line, so that no vector crosses a line. The
    array has at least as many elements as the order."""
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
