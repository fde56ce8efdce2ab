"""A constant array that is a triangle of one value, and another one outside, as a comparison.

    where(tril[i, j], s[i, j], -inf)   →   where(j <= i, s[i, j], -inf)

Models have their causal masks as arrays of bools, or of 0 and a number to be added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.builder import fold, index_maps, leaves, rebuild
from uopc.ir.core import walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, compare


def as_comparisons(graph: UOp) -> UOp:
    """The graph with comparisons in place of elements of triangles."""
    triangles: dict[UOp, tuple[int, Any, Any] | None] = {}
    for u in walk.nodes(graph):
        if u.op is Ops.INDEX and u.src[0].op is Ops.DATA and u.src[0] not in triangles:
            array = u.src[0].arg.array
            known = isinstance(array, np.ndarray) and (u.dtype.is_float or u.dtype.kind == "bool")
            triangles[u.src[0]] = _triangle(array) if known else None
    found = {data: t for data, t in triangles.items() if t is not None}
    if not found:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.INDEX or u.src[0] not in found:
            return None
        index, guard = index_maps.plain_index(src[1:], index_maps.true())
        return _element(u.dtype, index, *found[u.src[0]]) if guard is index_maps.true() else None

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _element(t: DType, index: tuple[UOp, ...], offset: int, low: Any, high: Any) -> UOp:
    """The value `low` where the last index is at most the one before plus `offset`, else `high`."""
    inside = compare.less(index[-1], affine.plus(index[-2], offset + 1))
    if t.kind == "bool":
        return inside if low else fold.combine(Ops.NEG, (inside,))
    return fold.select(inside, *[leaves.const(t, v.item()) for v in (low, high)])


def _triangle(array: npt.NDArray[Any]) -> tuple[int, Any, Any] | None:
    """The offset k, and both values, of an array that is np.tri(rows, columns, k) of them, the same
    in all other dimensions; None for another array. Most arrays differ in their first row."""
    if array.ndim < 2 or array.size == 0:
        return None
    rows, columns = array.shape[-2:]
    every = array.reshape(-1, rows, columns)
    low, high = every[0, -1, 0], every[0, 0, -1]
    if low == high or low != low or high != high:
        return None
    starts = np.flatnonzero(every[0, :, 0] == low)
    first = int(starts[0])
    offset = int(np.count_nonzero(every[0, first] == low)) - 1 - first
    wanted = np.where(np.tri(rows, columns, offset, dtype=bool), low, high)
    bits = f"u{array.itemsize}"  # by their values, 0.0 and -0.0 are equal
    for rows_of in (every[:1, :1], every):  # the first row tells most arrays apart
        part = np.broadcast_to(wanted[: rows_of.shape[1]], rows_of.shape)
        if not np.array_equal(part.view(bits), rows_of.view(bits)):
            return None
    return offset, low, high
