"""Sorting and searching functions of the Array API and of NumPy; indices are int64."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, fold
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import Array, promoted, same_kind, uop_of
from uopc.tensor import indexing, table
from uopc.tensor.sorts import sorting

__all__ = [
    "argpartition", "argsort", "digitize", "lexsort", "partition", "searchsorted", "sort", "top_k",
]  # fmt: skip


@table.routine
def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    return same_kind(sorting.sort(uop_of(x, "sort"), axis, descending, stable), (x,))


@table.routine
def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    made = sorting.argsort(uop_of(x, "argsort"), axis, descending, stable)
    return same_kind(fold.cast(made, dtypes.int64), (x,))


@table.routine
def top_k(x: Any, k: int, /, axis: int = -1) -> tuple[Any, Any]:
    values, places = sorting.top_k(uop_of(x, "top_k"), k, axis)
    return tuple(same_kind([values, fold.cast(places, dtypes.int64)], (x,)))


@table.routine
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Any:
    (a, v), _ = promoted("searchsorted", x1, x2)
    order = None if sorter is None else uop_of(sorter, "searchsorted")
    made = sorting.searchsorted(a, v, side, order)
    return same_kind(fold.cast(made, dtypes.int64), (x1, x2, sorter))


# ---------------------------------------------------------------- by NumPy's names
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The index of the bin of each element: int64, in the shape of x.

    Bin i has bins[i - 1] <= x < bins[i], or with `right` bins[i - 1] < x <= bins[i]; if bins
    decrease, the reverse. Elements outside get 0 or the number of bins. UserError unless `bins` is
    a vector, and for known bins that neither increase nor decrease.

    Examples:
        >>> np.asarray(unp.digitize(unp.asarray([0.2, 6.4, 3.0]), [0.0, 1.0, 2.5, 4.0]))
        array([1, 4, 3])
    """
    if uop_of(bins, "digitize").ndim != 1:
        shown = shapes.show(uop_of(bins, "digitize").shape)
        raise UserError(f"digitize: bins must be a vector, got {shown}")
    if not isinstance(bins, (Array, UOp)):
        steps = np.diff(np.asarray(bins), axis=0)
        if not ((steps >= 0).all() or (steps <= 0).all()):
            raise UserError(f"digitize: bins must increase or decrease, got {bins!r}")
    (v, edges), _ = promoted("digitize", *[uop_of(a, "digitize") for a in (x, bins)])
    side = "left" if checks.flag("digitize", "right", right) else "right"
    rises = edges[:1] <= edges[-1:]
    n = fold.cast(dim_uop(edges.shape[0]), dtypes.int64)
    found = sorting.searchsorted(alu.where(rises.all(), edges, edges.flip(0)), v, side)
    found = fold.cast(found, dtypes.int64)
    return same_kind(alu.where(rises.all(), found, n - found), (x, bins))


def _check_places(kth: Any, n: Any, who: str) -> None:
    """UserError for indices out of range of an axis of known size."""
    given = kth if isinstance(kth, (tuple, list)) else [kth]
    places = [checks.integer(who, "kth", k) for k in given]
    if isinstance(n, int) and (out := [k for k in places if not -n <= k < max(n, 1)]):
        raise UserError(f"{who}: index {out[0]} is out of range for an axis of {n} elements")


def partition(a: Any, kth: Any, axis: int | None = -1) -> Any:
    """Order the elements along an axis so that those at `kth` are where `sort` puts them, lesser
    ones before and greater ones behind (uopc sorts all); for None, of the flattened array.

    The result has the dtype of `a`. UserError for indices out of range.

    Examples:
        >>> int(unp.partition(unp.asarray([30, 10, 20]), 1)[1])
        20
    """
    u = uop_of(a, "partition")
    u, axis = (u.reshape(-1), 0) if axis is None else (u, normal_axis(axis, u.ndim, "partition"))
    _check_places(kth, u.shape[axis] if u.ndim else 1, "partition")
    return same_kind(sorting.sort(u, axis), (a,))


def argpartition(a: Any, kth: Any, axis: int | None = -1) -> Any:
    """The original indices of the elements of `partition(a, kth, axis)`: int64.

    UserError for indices out of range.

    Examples:
        >>> int(unp.argpartition(unp.asarray([30, 10, 20]), 1)[1])
        2
    """
    u = uop_of(a, "argpartition")
    u, axis = (u.reshape(-1), 0) if axis is None else (u, normal_axis(axis, u.ndim, "argpartition"))
    _check_places(kth, u.shape[axis] if u.ndim else 1, "argpartition")
    return same_kind(fold.cast(sorting.argsort(u, axis), dtypes.int64), (a,))


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The indices that sort by several keys along an axis: by the last key, ties by the key before.

    int64, in the shape of a key. UserError without keys, and for keys of several shapes.

    Examples:
        >>> first, second = unp.asarray([1, 0, 1]), unp.asarray([20, 10, 10])
        >>> np.asarray(unp.lexsort((second, first)))
        array([1, 2, 0])
    """
    uops = [uop_of(key, "lexsort") for key in keys]
    if not uops or any(u.shape != uops[0].shape for u in uops):
        shown = [shapes.show(u.shape) for u in uops]
        raise UserError(f"lexsort: needs keys of one shape, got {', '.join(shown) or 'none'}")
    axis = normal_axis(axis, uops[0].ndim, "lexsort")
    order = fold.cast(sorting.argsort(uops[0], axis), dtypes.int64)
    for u in uops[1:]:
        step = sorting.argsort(indexing.gather(u, axis, order), axis)
        order = indexing.gather(order, axis, step)
    return same_kind(order, [*keys])
