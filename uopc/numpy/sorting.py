"""Sorting and searching functions of the Array API: places are int64."""

from __future__ import annotations

from typing import Any

from uopc.ir.builder import fold
from uopc.ir.core import dtypes
from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.tensor.sorts import sorting

__all__ = ["argsort", "searchsorted", "sort", "top_k"]


def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """The elements along an axis in order, NaN last; equal ones keep theirs.

    Every sort is stable, whatever `stable` says.

    The result has the shape and dtype of x. UserError for a scalar.

    Examples:
        >>> np.asarray(unp.sort(unp.asarray([30, 10, 20]), descending=True))
        array([30, 20, 10])
    """
    return same_kind(sorting.sort(uop_of(x, "sort"), axis, descending, stable), (x,))


def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """The places that the elements of `sort(x)` had.

    int64, in the shape of x. UserError for a scalar.

    Examples:
        >>> np.asarray(unp.argsort(unp.asarray([30, 10, 20])))
        array([1, 2, 0])
    """
    made = sorting.argsort(uop_of(x, "argsort"), axis, descending, stable)
    return same_kind(fold.cast(made, dtypes.int64), (x,))


def top_k(x: Any, k: int, /, axis: int = -1) -> tuple[Any, Any]:
    """The k greatest elements along an axis, the greatest first, and their places.

    UserError unless k is from 0 to the length of the axis.

    Examples:
        >>> values, places = unp.top_k(unp.asarray([30, 10, 20]), 2)
        >>> np.asarray(values), np.asarray(places)
        (array([30, 20]), array([0, 2]))
    """
    values, places = sorting.top_k(uop_of(x, "top_k"), k, axis)
    return tuple(same_kind([values, fold.cast(places, dtypes.int64)], (x,)))


def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Any:
    """The place where each element of x2 fits into the sorted vector x1: before equal elements
    (`left`) or behind them (`right`).

    `sorter` holds the places that sort x1.

    int64, in the shape of x2. UserError unless x1 has one dimension.

    Examples:
        >>> x = unp.asarray([10, 20, 30])
        >>> np.asarray(unp.searchsorted(x, unp.asarray([5, 20, 99])))
        array([0, 1, 3])
    """
    (a, v), _ = promoted("searchsorted", x1, x2)
    order = None if sorter is None else uop_of(sorter, "searchsorted")
    made = sorting.searchsorted(a, v, side, order)
    return same_kind(fold.cast(made, dtypes.int64), (x1, x2, sorter))
