"""Functions of the Array API and of NumPy that sort, search, and find different values.

Indices are int64. What is not 0, what a mask holds and the different values are as many as the
values say: that length is a size that the call finds. Of arrays that are known, NumPy finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, fold, movement, operands
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import Array, promoted, same_kind, uop_of
from uopc.tensor import indexing, table
from uopc.tensor.sorts import compaction, sorting
from uopc.tensor.sorts import unique as runs

__all__ = [
    "argpartition", "argsort", "argwhere", "compress", "digitize", "extract", "flatnonzero",
    "lexsort", "nonzero", "partition", "searchsorted", "sort", "top_k", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
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


# ---------------------------------------------------------------- lengths that the call finds
class UniqueAll(NamedTuple):
    """The results of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The results of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The results of `unique_inverse`."""

    values: Any
    inverse_indices: Any


def _found(
    who: str, values: tuple[Any, ...], known: Callable[..., Any], graph: Callable[..., Any]
) -> list[Any]:
    """The results of a function: of NumPy's, if all values are known, else of the function of
    UOps. UserError where NumPy refuses values."""
    if not any([v.is_unknown if isinstance(v, Array) else isinstance(v, UOp) for v in values]):
        given = [v.value(who) if isinstance(v, Array) else np.asarray(v) for v in values]
        try:
            return [Array(operands.constant(np.asarray(a))) for a in known(*given)]
        except (ValueError, IndexError) as error:
            raise UserError(f"{who}: {error}") from None
        except TypeError as error:
            raise UserTypeError(f"{who}: {error}") from None
    made = same_kind(list(graph(*[uop_of(v, who) for v in values])), values)
    return list(made)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The indices of the elements that are not 0, in row-major order: an int64 vector for each
    axis. UserError without dimensions.

    Examples:
        >>> np.asarray(unp.nonzero(unp.asarray([0, 3, 0, 5]))[0])
        array([1, 3])
    """
    if not uop_of(x, "nonzero").ndim:
        raise UserError("nonzero: needs at least one dimension")
    return tuple(_found("nonzero", (x,), np.nonzero, compaction.nonzero))


def flatnonzero(a: Any) -> Any:
    """The indices of the elements of the flattened array that are not 0: int64.

    Examples:
        >>> np.asarray(unp.flatnonzero(unp.asarray([[0, 3], [0, 5]])))
        array([1, 3])
    """

    def graph(u: UOp) -> tuple[UOp, ...]:
        return compaction.nonzero(u.reshape(-1))

    return _found("flatnonzero", (a,), lambda v: (np.flatnonzero(v),), graph)[0]


def argwhere(a: Any) -> Any:
    """The indices of the elements that are not 0, a row for each: int64.

    Examples:
        >>> np.asarray(unp.argwhere(unp.asarray([[0, 3], [0, 5]])))
        array([[0, 1],
               [1, 1]])
    """

    def graph(u: UOp) -> list[UOp]:
        return [movement.stack(*compaction.nonzero(u), axis=1)]

    return _found("argwhere", (a,), lambda v: (np.argwhere(v),), graph)[0]


def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    """The slices along an axis at which a vector of conditions holds; for None, the elements of the
    flattened array. The vector may be shorter than the axis.

    UserError unless the condition is a vector, and for one that is longer than the axis.

    Examples:
        >>> np.asarray(unp.compress([False, True, True], unp.asarray([3, 4, 5])))
        array([4, 5])
    """

    def graph(mask: UOp, u: UOp) -> list[UOp]:
        own = 0 if axis is None else movement.normal_axis(axis, u.ndim, "compress")
        return [compaction.compress(u.reshape(-1) if axis is None else u, mask, own)]

    return _found("compress", (condition, a), lambda c, v: (np.compress(c, v, axis),), graph)[0]


def extract(condition: Any, arr: Any) -> Any:
    """The elements at which a condition of the same number of elements holds, in row-major order.

    Examples:
        >>> x = unp.asarray([[3, 4], [5, 6]])
        >>> np.asarray(unp.extract(x > 4, x))
        array([5, 6])
    """

    def graph(mask: UOp, u: UOp) -> list[UOp]:
        return [compaction.compress(u.reshape(-1), mask.reshape(-1), 0)]

    return _found("extract", (condition, arr), lambda c, v: (np.extract(c, v),), graph)[0]


# ---------------------------------------------------------------- different values
def _unique(who: str, x: Any, equal_nan: bool = False) -> tuple[Any, Any, Any, Any]:
    def known(a: Any) -> list[Any]:
        found = list(np.unique(a, True, True, True, equal_nan=equal_nan))
        found[2] = found[2].reshape(a.shape)
        return [found[0], *[np.asarray(v, np.int64) for v in found[1:]]]

    values, places, inverse, counts = _found(who, (x,), known, lambda u: runs.unique(u, equal_nan))
    return values, places, inverse, counts


def unique_all(x: Any, /) -> UniqueAll:
    """The different values in ascending order; the index of the first of each, the index of each
    element's value (in the shape of x), and how often each value occurs, as int64.

    Each NaN is a value of its own.

    Examples:
        >>> found = unp.unique_all(unp.asarray([5, 3, 5]))
        >>> [np.asarray(a).tolist() for a in found]
        [[3, 5], [1, 0], [1, 0, 1], [1, 2]]
    """
    return UniqueAll(*_unique("unique_all", x))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different values in ascending order, and how often each occurs (int64).

    Each NaN is a value of its own.

    Examples:
        >>> [np.asarray(a).tolist() for a in unp.unique_counts(unp.asarray([5, 3, 5]))]
        [[3, 5], [1, 2]]
    """
    values, _, _, counts = _unique("unique_counts", x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different values in ascending order, and the index of each element's value (int64, in the
    shape of x).

    Each NaN is a value of its own.

    Examples:
        >>> [np.asarray(a).tolist() for a in unp.unique_inverse(unp.asarray([5, 3, 5]))]
        [[3, 5], [1, 0, 1]]
    """
    values, _, inverse, _ = _unique("unique_inverse", x)
    return UniqueInverse(values, inverse)


def unique_values(x: Any, /) -> Any:
    """The different values in ascending order. Each NaN is a value of its own.

    Examples:
        >>> np.asarray(unp.unique_values(unp.asarray([5, 3, 5])))
        array([3, 5])
    """
    return _unique("unique_values", x)[0]


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: None = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The different values of the flattened array in ascending order, as NumPy's `unique`; with
    flags also the indices of the first of each, of each element's value, and the counts (int64).

    UserError for an axis.

    Examples:
        >>> np.asarray(unp.unique(unp.asarray([5, 3, 5])))
        array([3, 5])
    """
    if axis is not None:
        raise UserError(f"unique: of the flattened array alone, so axis must be None, got {axis!r}")
    checks.flag("unique", "sorted", sorted)
    wanted = {"index": return_index, "inverse": return_inverse, "counts": return_counts}
    flags = [checks.flag("unique", f"return_{n}", v) for n, v in wanted.items()]
    values, *others = _unique("unique", ar, checks.flag("unique", "equal_nan", equal_nan))
    found = [v for v, asked in zip(others, flags) if asked]
    return (values, *found) if found else values
