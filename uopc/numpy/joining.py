"""Joins arrays into one, and splits an array into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, fold
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, promoted, same_kind, uop_of
from uopc.numpy.dtype_functions import as_dtype
from uopc.numpy.manipulation import own_axis, reshape, with_rank
from uopc.tensor import examples, indexing
from uopc.tensor.examples import with_name

__all__ = [
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "column_stack",
    "concat", "delete", "dsplit", "dstack", "hsplit", "hstack", "insert", "split", "stack",
    "unstack", "vsplit", "vstack",
]  # fmt: skip


# ---------------------------------------------------------------- joining
def _cast(u: UOp, dtype: Any, who: str) -> UOp:
    """Cast to the requested dtype. UserTypeError for a dtype of another kind."""
    t = as_dtype(dtype, u.dtype)
    if dtype is not None and not np.can_cast(u.dtype.numpy, t.numpy, "same_kind"):
        raise UserTypeError(f"{who}: {u.dtype.name} is not cast to {t.name}: use astype")
    return fold.cast(u, t)


def concat(arrays: Sequence[Any], /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Join arrays along an axis; if the axis is None, flatten them first.

    The dtypes promote, or `dtype` is taken; UserTypeError for one of another kind. UserError
    without arrays, and where shapes differ off the axis.

    Examples:
        >>> np.asarray(unp.concat([unp.asarray([1, 2]), unp.asarray([3])]))
        array([1, 2, 3])
    """
    return same_kind(_cast(_join_arrays("concat", arrays, axis), dtype, "concat"), arrays)


def _join_arrays(who: str, values: Sequence[Any], axis: int | None) -> UOp:
    if not len(values):
        raise UserError(f"{who}: needs at least one array")
    uops, _ = promoted(who, *values)
    if axis is None:
        uops, axis = [u.reshape(-1) for u in uops], 0
    first, *others = uops
    made: UOp = first.cat(*others, axis=axis)
    return made


def stack(arrays: Sequence[Any], /, axis: int = 0, *, dtype: Any = None) -> Any:
    """Join arrays of one shape along a new axis.

    The dtypes promote, or `dtype` is taken; UserTypeError for one of another kind. UserError where
    the shapes differ.

    Examples:
        >>> np.asarray(unp.stack([unp.asarray([1, 2]), unp.asarray([3, 4])], axis=1))
        array([[1, 3],
               [2, 4]])
    """
    first, *others = promoted("stack", *arrays)[0]
    return same_kind(_cast(first.stack(*others, axis=axis), dtype, "stack"), arrays)


def unstack(x: Any, /, axis: int = 0) -> tuple[Any, ...]:
    """Split x into slices along an axis; the slices lack the axis.

    UserError for an axis whose size is a variable.

    Examples:
        >>> first, second = unp.unstack(unp.asarray([[1, 2], [3, 4]]))
        >>> np.asarray(second)
        array([3, 4])
    """
    u = uop_of(x)
    axis = own_axis(axis, len(shapes.shape(u)), "unstack")
    before, whole = (slice(None),) * axis, _whole(x, u)
    return tuple([whole[(*before, i)] for i in range(_length(u, axis, "unstack"))])


def _whole(x: Any, u: UOp) -> Any:
    """An Array or UOp, parts of which are views or nodes."""
    return x if isinstance(x, (Array, UOp)) else Array(u)


def _length(u: UOp, axis: int, who: str) -> int:
    """The length of an axis. UserError for a variable one."""
    n = u.shape[axis]
    if not isinstance(n, int):
        raise UserError(f"{who}: axis {axis} of {shapes.show(u.shape)} must have a known size")
    return n


# ---------------------------------------------------------------- joining, by NumPy's ranks
def _at_least(rank: int, u: UOp) -> UOp:
    """Insert axes of size 1 in front, up to `rank` dimensions; a third axis goes behind."""
    if rank == 3 and u.ndim < 3:
        return with_rank(u, 2).unsqueeze(-1)
    return with_rank(u, rank)


def _ranked(a: Any, rank: int) -> Any:
    """An array with at least so many dimensions; an Array that has them is returned itself."""
    if not isinstance(a, Array):
        return same_kind(_at_least(rank, uop_of(a)), (a,))
    made = _at_least(rank, a.uop).shape
    return a if a.ndim >= rank else reshape(a, made)


def _with_rank(rank: int, doc: str, given: str, shape: str) -> Callable[..., Any]:
    """Make the function that gives each array at least `rank` dimensions."""

    def function(*arys: Any) -> Any:
        made = tuple([_ranked(a, rank) for a in arys])
        return made[0] if len(made) == 1 else made

    name, result = f"atleast_{rank}d", "One array, or a tuple of as many as there are."
    example = examples.section(f">>> unp.{name}({given}).shape", shape)
    return with_name(
        function, "uopc.numpy", name, f"Each array with at least {doc}.\n\n{result}{example}"
    )


atleast_1d = _with_rank(1, "one dimension: a number is a vector", "unp.asarray(3.0)", "(1,)")
atleast_2d = _with_rank(2, "two dimensions: a vector is one row", "unp.zeros(3)", "(1, 3)")
atleast_3d = _with_rank(
    3, "three dimensions: (n,) is (1, n, 1), and (m, n) is (m, n, 1)", "unp.zeros((2, 3))",
    "(2, 3, 1)",
)  # fmt: skip


def vstack(tup: Sequence[Any], *, dtype: Any = None) -> Any:
    """Join arrays along the first axis; a vector is one row.

    The dtypes promote, or `dtype` is taken; UserTypeError for one of another kind. UserError
    without arrays, and where the other axes differ.

    Examples:
        >>> np.asarray(unp.vstack([unp.asarray([1, 2]), unp.asarray([3, 4])]))
        array([[1, 2],
               [3, 4]])
    """
    rows = [_at_least(2, uop_of(a)) for a in tup]
    return same_kind(_cast(_join_arrays("vstack", rows, 0), dtype, "vstack"), tup)


def hstack(tup: Sequence[Any], *, dtype: Any = None) -> Any:
    """Join arrays along the second axis; vectors and numbers along the first.

    The dtypes promote, or `dtype` is taken; UserTypeError for one of another kind. UserError
    without arrays, and where the other axes differ.

    Examples:
        >>> np.asarray(unp.hstack([unp.asarray([[1], [2]]), unp.asarray([[3], [4]])]))
        array([[1, 3],
               [2, 4]])
    """
    uops = [_at_least(1, uop_of(a)) for a in tup]
    axis = 0 if uops and uops[0].ndim == 1 else 1
    return same_kind(_cast(_join_arrays("hstack", uops, axis), dtype, "hstack"), tup)


def dstack(tup: Sequence[Any]) -> Any:
    """Join arrays along the third axis; (n,) counts as (1, n, 1), and (m, n) as (m, n, 1).

    The dtypes promote. UserError without arrays, and where the other axes differ.

    Examples:
        >>> unp.dstack([unp.zeros((2, 3)), unp.ones((2, 3))]).shape
        (2, 3, 2)
    """
    return same_kind(_join_arrays("dstack", [_at_least(3, uop_of(a)) for a in tup], 2), tup)


def column_stack(tup: Sequence[Any]) -> Any:
    """Join columns to a matrix: a vector is one column, a matrix gives all of its columns.

    The dtypes promote. UserError without arrays, and where their lengths differ.

    Examples:
        >>> np.asarray(unp.column_stack([unp.asarray([1, 2]), unp.asarray([3, 4])]))
        array([[1, 3],
               [2, 4]])
    """
    uops = [uop_of(a) for a in tup]
    columns = [u.reshape(-1, 1) if u.ndim < 2 else u for u in uops]
    return same_kind(_join_arrays("column_stack", columns, 1), tup)


def block(arrays: Sequence[Any]) -> Any:
    """Join blocks in nested lists: the innermost lists along the last axis, the lists around them
    along the axis before.

    The dtypes promote. UserError for an empty list, a tuple, lists nested to different depths, and
    blocks that do not fit.

    Examples:
        >>> a, b = unp.asarray([[1, 2]]), unp.asarray([[3]])
        >>> np.asarray(unp.block([[a, b], [b, a]]))
        array([[1, 2, 3],
               [3, 1, 2]])
    """
    leaves: list[Any] = []
    depths = _depths(arrays, 0, leaves)
    if len(depths) > 1:
        raise UserError(f"block: all lists must have the same depth, got depths {sorted(depths)}")
    (depth,) = depths
    rank = max([depth, *[uop_of(v).ndim for v in leaves]])
    return same_kind(_blocks(arrays, depth, rank), leaves)


def _depths(arrays: Any, depth: int, leaves: list[Any]) -> set[int]:
    """The depths of the arrays in nested lists; appends the arrays to `leaves`."""
    if isinstance(arrays, tuple) or (isinstance(arrays, list) and not arrays):
        raise UserError(f"block: needs lists of arrays, got {arrays!r}")
    if not isinstance(arrays, list):
        leaves.append(arrays)
        return {depth}
    return set().union(*[_depths(v, depth + 1, leaves) for v in arrays])


def _blocks(arrays: Any, depth: int, rank: int) -> UOp:
    if not isinstance(arrays, list):
        return with_rank(uop_of(arrays), rank)
    return _join_arrays("block", [_blocks(v, depth - 1, rank) for v in arrays], -depth)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append `values` to `arr` along an axis; without an axis, flatten both first.

    The dtypes promote. UserError where shapes differ off the axis.

    Examples:
        >>> np.asarray(unp.append(unp.asarray([[1, 2]]), unp.asarray([3])))
        array([1, 2, 3])
    """
    uops = [uop_of(v, "append") for v in (arr, values)]
    return same_kind(_join_arrays("append", uops, axis), (arr, values))


# ---------------------------------------------------------------- elements left out and put in
def _line(arr: Any, axis: int | None, who: str) -> tuple[UOp, int, int]:
    """The array, flattened if there is no axis; the axis, and its length, which must be known."""
    u = uop_of(arr, who)
    if axis is None:
        u, axis = u.reshape(-1), 0
    axis = own_axis(axis, u.ndim, who)
    return u, axis, _length(u, axis, who)


def _known(obj: Any, who: str) -> Any:
    """Positions as NumPy values. UserError for traced positions: the shape would depend on them."""
    values = obj if isinstance(obj, (tuple, list)) else [obj]
    if any(isinstance(v, UOp) or (isinstance(v, Array) and v.is_unknown) for v in values):
        raise UserError(
            f"{who}: the indices must be known here, because the shape of the result depends on"
            " them"
        )
    return np.asarray(obj) if isinstance(obj, Array) else obj


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Remove the elements at the positions `obj` (an int, a slice, a list or a mask) of an axis;
    without an axis, flatten the array first.

    UserError for traced positions or positions out of range, and for an axis whose size is a
    variable.

    Examples:
        >>> np.asarray(unp.delete(unp.asarray([10, 20, 30]), 1))
        array([10, 30])
    """
    u, axis, n = _line(arr, axis, "delete")
    places = _known(obj, "delete")
    try:
        kept = np.delete(np.arange(n), places)
    except (IndexError, ValueError) as error:
        raise UserError(f"delete: {error}") from None
    return same_kind(indexing.take(u, kept, axis), (arr,))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Insert `values` before the positions `obj` of an axis (an int, a slice, a list or a mask;
    they refer to `arr`); without an axis, flatten the array first.

    The result has the dtype of `arr`. UserError for traced positions or positions out of range, and
    for an axis whose size is a variable.

    Examples:
        >>> np.asarray(unp.insert(unp.asarray([10, 30]), 1, unp.asarray([20, 25])))
        array([10, 20, 25, 30])
    """
    u, axis, n = _line(arr, axis, "insert")
    places = _known(obj, "insert")
    if not isinstance(places, slice) and np.ndim(places) == 1 and np.asarray(places).dtype == bool:
        places = np.flatnonzero(places)
    v = with_rank(fold.cast(uop_of(values, "insert"), u.dtype), u.ndim)
    several = isinstance(places, slice) or np.ndim(places) > 0
    if not several and v.ndim == u.ndim:  # rows for one place are in the first axis
        v = v.permute([*range(1, axis + 1), 0, *range(axis + 1, v.ndim)])
    count = len(range(n)[places]) if isinstance(places, slice) else np.size(places)
    count = v.shape[axis] if count == 1 and v.ndim == u.ndim else count
    try:
        order = np.insert(np.arange(n), places, n + np.arange(count))
    except (IndexError, ValueError, TypeError) as error:
        raise UserError(f"insert: {error}") from None
    wide = v.expand([count if i == axis else d for i, d in enumerate(u.shape)])
    return same_kind(indexing.take(u.cat(wide, axis=axis), order, axis), (arr, values))


# ---------------------------------------------------------------- parting
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split an array along an axis: at the positions of a list, or into a number of parts whose
    lengths differ by at most 1, longer parts first.

    UserError for fewer than 1 part, and for a number of parts of a variable size.

    Examples:
        >>> [p.shape for p in unp.array_split(unp.zeros(7), 3)]
        [(3,), (2,), (2,)]
    """
    return _split_parts(ary, indices_or_sections, axis, "array_split")


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split an array along an axis: at the positions of a list, or into parts of equal length.

    UserError if the number of parts does not divide the length, or the size is a variable.

    Examples:
        >>> [np.asarray(p) for p in unp.split(unp.asarray([1, 2, 3, 4]), [1, 3])]
        [array([1]), array([2, 3]), array([4])]
    """
    return _split_parts(ary, indices_or_sections, axis, "split")


def _split_parts(ary: Any, given: Any, axis: int, who: str) -> list[Any]:
    u = uop_of(ary, who)
    axis = own_axis(axis, u.ndim, who)
    places = _known(given, who)
    if np.ndim(places):
        borders = [checks.integer(who, "an index", p) for p in places]
    else:
        parts = checks.integer(who, "the number of parts", places)
        borders = _borders(parts, _length(u, axis, who), who)
    before = (slice(None),) * axis
    ends = zip([0, *borders], [*borders, None])
    whole = _whole(ary, u)
    return [whole[(*before, slice(*pair))] for pair in ends]


def _borders(count: int, n: int, who: str) -> list[int]:
    """The positions between `count` parts of n elements."""
    if count < 1:
        raise UserError(f"{who}: the number of parts must be 1 or more, got {count}")
    size, longer = divmod(n, count)
    if longer and who != "array_split":
        raise UserError(f"{who}: {n} elements do not divide into {count} equal parts")
    return [i * size + min(i, longer) for i in range(1, count)]


def _split_along(name: str, axis: int, least: int, doc: str, shape: str) -> Callable[..., Any]:
    """Make `split` along an axis, for arrays of at least `least` dimensions; vectors along axis
    0."""

    def function(ary: Any, indices_or_sections: Any) -> list[Any]:
        rank = uop_of(ary, name).ndim
        if rank < least:
            raise UserError(f"{name}: needs {least} dimension{'s' * (least > 1)}, got {rank}")
        return _split_parts(ary, indices_or_sections, min(axis, rank - 1), name)

    call = f">>> [p.shape for p in unp.{name}(unp.zeros((4, 4, 4)), 2)]"
    example = examples.section(call, f"[{shape}, {shape}]")
    errors = "UserError as that of `split`, and for fewer dimensions."
    return with_name(function, "uopc.numpy", name, f"`split` along {doc}\n\n{errors}{example}")


hsplit = _split_along("hsplit", 1, 1, "the second axis; of a vector along the first.", "(4, 2, 4)")
vsplit = _split_along("vsplit", 0, 2, "the first axis of at least two.", "(2, 4, 4)")
dsplit = _split_along("dsplit", 2, 3, "the third axis.", "(4, 4, 2)")
