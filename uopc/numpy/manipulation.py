"""Functions of the Array API that move elements, and `take`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.errors import UserError, UserIndexError, UserTypeError
from uopc.ir.builder import checks, fold, movement
from uopc.ir.builder.movement import normal_axes, normal_axis
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import Array, applied, check_number, same_kind, uop_of
from uopc.numpy.memory.viewing import frozen_view, reshaped, view
from uopc.tensor import examples, indexing, padding, table
from uopc.tensor.examples import with_name

__all__ = [
    "broadcast_arrays", "broadcast_to", "expand_dims", "flip", "fliplr", "flipud",
    "matrix_transpose", "moveaxis", "pad", "permute_dims", "ravel", "ravel_multi_index", "repeat",
    "reshape", "roll", "rollaxis", "rot90", "squeeze", "swapaxes", "take", "take_along_axis",
    "tile", "transpose", "unravel_index",
]  # fmt: skip


def by_columns(order: Any, rank: int, who: str) -> bool:
    """True for the order "F", False for "C", in either case. UserTypeError for the orders "A" and
    "K", which follow memory, for two or more dimensions."""
    order = order.upper() if isinstance(order, str) else order
    if order in (None, "C", "F"):
        return bool(order == "F")
    if order not in ("A", "K"):
        raise UserTypeError(f"{who}: order must be 'C' or 'F', got {order!r}")
    if rank < 2:
        return False
    raise UserTypeError(
        f"{who}: order={order!r} depends on the layout in memory, which is not known in a graph:"
        " write order='C' (row after row) or order='F' (column after column)"
    )


def reshape(x: Any, /, shape: Any, *, order: str | None = "C", copy: bool | None = None) -> Any:
    """The same elements in row-major order, or with `order="F"` in column-major order, in a new
    `shape`; a dimension of -1 is inferred.

    UserError where the number of elements differs; UserTypeError for an order that follows memory.

    Examples:
        >>> np.asarray(unp.reshape(unp.arange(6), (2, -1)))
        array([[0, 1, 2],
               [3, 4, 5]])
        >>> np.asarray(unp.reshape(unp.arange(6), (2, -1), order="F"))
        array([[0, 2, 4],
               [1, 3, 5]])
    """
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    columns = by_columns(order, uop_of(x, "reshape").ndim, "reshape")

    def graph(u: UOp) -> UOp:
        if columns:
            return _transposed(_transposed(u).reshape(dims[::-1]))
        made: UOp = u.reshape(dims)
        return made

    if copy or not isinstance(x, Array):
        return applied(graph, x)
    made = reshaped(x, dims, "F" if columns else "C", graph)
    if copy is False and made.base is None:
        raise UserError("reshape(copy=False): this reshape of the array is a copy")
    return made


def _transposed(u: UOp) -> UOp:
    return u.permute(tuple(range(u.ndim))[::-1])


@view
def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """Reorder the axes.

    UserError unless `axes` names each axis once.

    Examples:
        >>> unp.permute_dims(unp.zeros((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    order = checks.sequence("permute_dims", "axes", axes)
    return applied(lambda u: u.permute([normal_axis(a, len(u.shape), "axes") for a in order]), x)


@view
def transpose(x: Any, /, axes: Sequence[int] | None = None) -> Any:
    """Reverse the axes, or put them in the given order.

    UserError unless `axes` names each axis once.

    Examples:
        >>> np.asarray(unp.transpose(unp.asarray([[1, 2], [3, 4]])))
        array([[1, 3],
               [2, 4]])
    """
    u = uop_of(x)
    given = range(len(shapes.shape(u)))[::-1] if axes is None else axes
    return same_kind(u.permute(checks.sequence("transpose", "axes", given)), (x,))


@view
def matrix_transpose(x: Any, /) -> Any:
    """Exchange the last two axes.

    UserError for fewer than two axes.

    Examples:
        >>> unp.matrix_transpose(unp.zeros((2, 3, 4))).shape
        (2, 4, 3)
    """
    return applied(_matrix_transpose, x)


def _matrix_transpose(u: UOp) -> UOp:
    rank = len(shapes.shape(u))
    if rank < 2:
        raise UserError(f"matrix_transpose: needs 2 dimensions, got {shapes.show(shapes.shape(u))}")
    return u.permute((*range(rank - 2), rank - 1, rank - 2))


def own_axis(axis: Any, rank: int, who: str) -> int:
    """Count an axis, which the array must have, from the front."""
    if not rank:
        raise UserIndexError(f"{who}: axis {axis} is out of range for an array without dimensions")
    return normal_axis(axis, rank, who)


def own_axes(axis: Any, rank: int, who: str) -> list[int]:
    """The axes of an int or a sequence, in its order; without it, all axes. See `normal_axes`."""
    normal_axes(axis, rank, who)  # UserError for one that is given twice
    chosen = range(rank) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    return [own_axis(a, rank, who) for a in chosen]


def with_rank(u: UOp, rank: int) -> UOp:
    """Insert axes of size 1 in front, up to `rank` dimensions."""
    made: UOp = u.reshape((*(1,) * (rank - u.ndim), *u.shape))
    return made


@view
def swapaxes(x: Any, /, axis1: int, axis2: int) -> Any:
    """Exchange two axes.

    UserIndexError for an axis out of range.

    Examples:
        >>> unp.swapaxes(unp.zeros((2, 3, 4)), 0, 2).shape
        (4, 3, 2)
    """
    u = uop_of(x)
    order = list(range(len(shapes.shape(u))))
    a, b = (own_axis(v, len(order), "swapaxes") for v in (axis1, axis2))
    order[a], order[b] = order[b], order[a]
    return same_kind(u.permute(order), (x,))


@view
def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Move axes of x to other positions; the other axes keep their order.

    UserError unless source and destination have equally many, different axes.

    Examples:
        >>> unp.moveaxis(unp.zeros((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    u = uop_of(x)
    rank = len(shapes.shape(u))
    given = (("source", source), ("destination", destination))
    pairs = [(v,) if isinstance(v, int) else checks.sequence("moveaxis", k, v) for k, v in given]
    froms, tos = ([normal_axis(a, rank, "moveaxis") for a in p] for p in pairs)
    if len(froms) != len(tos) or len(set(froms)) < len(froms) or len(set(tos)) < len(tos):
        raise UserError(
            f"moveaxis: {source} and {destination} must be the same number of different axes"
        )
    order = [i for i in range(rank) if i not in froms]
    for to, axis in sorted(zip(tos, froms)):
        order.insert(to, axis)
    return same_kind(u.permute(order), (x,))


@view
def expand_dims(x: Any, /, axis: int | tuple[int, ...] = 0) -> Any:
    """Insert axes of size 1 at these positions of the result.

    UserIndexError for a position out of range.

    Examples:
        >>> unp.expand_dims(unp.zeros((2, 3)), axis=1).shape
        (2, 1, 3)
    """
    u = uop_of(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    rank = len(shapes.shape(u)) + len(axes)
    for a in sorted(normal_axes(axes, rank, "expand_dims")):
        u = indexing.unsqueeze(u, a)
    return same_kind(u, (x,))


@view
@table.routine
def squeeze(x: Any, /, axis: int | tuple[int, ...] | None = None) -> Any:
    u = uop_of(x)
    dims = shapes.shape(u)
    axes = normal_axes(axis, len(dims), "squeeze") if axis is not None else tuple(
        [i for i, d in enumerate(dims) if d == 1])  # fmt: skip
    if wrong := [a for a in axes if dims[a] != 1]:
        raise UserError(f"squeeze: axis {wrong[0]} of {shapes.show(dims)} is not 1")
    return same_kind(u.reshape([d for i, d in enumerate(dims) if i not in axes]), (x,))


@view
def flip(x: Any, /, axis: int | tuple[int, ...] | None = None) -> Any:
    """Reverse the elements along some axes, or along all.

    UserIndexError for an axis out of range.

    Examples:
        >>> np.asarray(unp.flip(unp.asarray([1, 2, 3])))
        array([3, 2, 1])
    """
    u = uop_of(x)
    axes = normal_axes(axis, len(shapes.shape(u)), "flip")
    return same_kind(u.flip(axes) if axes else u, (x,))


def _flipped(name: str, axis: int, doc: str, result: str) -> Callable[..., Any]:
    """Make `flip` along one axis."""

    def function(m: Any) -> Any:
        return flip(m, own_axis(axis, uop_of(m, name).ndim, name))

    example = examples.of_function(name, ("[[1, 2], [3, 4]]", "", result))
    return view(with_name(
        function, "uopc.numpy", name, f"{doc} axis. UserIndexError without one.{example}"
    ))  # fmt: skip


fliplr = _flipped(
    "fliplr", 1, "The columns in reverse: `flip` along the second",
    "array([[2, 1],\n       [4, 3]])",
)  # fmt: skip
flipud = _flipped(
    "flipud", 0, "The rows in reverse: `flip` along the first", "array([[3, 4],\n       [1, 2]])"
)


@view
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Rotate the plane of two axes by k quarter turns, from the first axis to the second.

    UserError unless there are two axes.

    Examples:
        >>> np.asarray(unp.rot90(unp.asarray([[1, 2], [3, 4]])))
        array([[2, 4],
               [1, 3]])
    """
    rank = uop_of(m, "rot90").ndim
    plane = [normal_axis(a, rank, "rot90") for a in checks.sequence("rot90", "axes", axes)]
    if len(plane) != 2 or plane[0] == plane[1]:
        raise UserError(f"rot90: axes must be two different axes, got {tuple(axes)}")
    turns = checks.integer("rot90", "k", k) % 4
    turned = tuple(plane) if turns == 2 else (plane[1 if turns == 1 else 0],)
    whole = flip(m, turned) if turns else m
    return swapaxes(whole, *axes) if turns % 2 else applied(lambda u: u, whole)


def ravel(a: Any, order: str | None = "C") -> Any:
    """The elements in row-major order, or with `order="F"` in column-major order, as a vector.

    UserTypeError for an order that follows memory, of two dimensions or more.

    Examples:
        >>> np.asarray(unp.ravel(unp.asarray([[1, 2], [3, 4]])))
        array([1, 2, 3, 4])
        >>> np.asarray(unp.ravel(unp.asarray([[1, 2], [3, 4]]), order="F"))
        array([1, 3, 2, 4])
    """
    columns = by_columns(order, uop_of(a, "ravel").ndim, "ravel")
    return reshape(a, -1, order="F" if columns else "C")


@view
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Move an axis in front of axis `start`; see `moveaxis`.

    UserIndexError for an axis out of range; `start` may be the number of axes.

    Examples:
        >>> unp.rollaxis(unp.zeros((2, 3, 4)), 2).shape
        (4, 2, 3)
    """
    rank = uop_of(a, "rollaxis").ndim
    axis = own_axis(axis, rank, "rollaxis")
    start = checks.integer("rollaxis", "start", start)
    place = normal_axis(start, rank + 1, "rollaxis") if start >= 0 else start + rank
    if place < 0:
        raise UserIndexError(f"rollaxis: start must be -{rank} to {rank}, got {start}")
    return moveaxis(a, axis, normal_axis(place - (axis < place), rank, "rollaxis"))


def roll(x: Any, /, shift: Any, axis: Any = None) -> Any:
    """Shift the elements along an axis; elements that leave one end enter at the other.

    Without an axis, the flattened array is shifted. The result has the shape and dtype of x.
    UserError unless there is a shift for each axis.

    Examples:
        >>> np.asarray(unp.roll(unp.arange(5), 2))
        array([3, 4, 0, 1, 2])
    """
    u = uop_of(x)
    dims = shapes.shape(u)
    if axis is None:
        return same_kind(_rolled(u.reshape(-1), shift, 0).reshape(dims), (x,))
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise UserError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for s, a in zip(shifts, axes):
        u = _rolled(u, s, own_axis(a, len(dims), "roll"))
    return same_kind(u, (x,))


def _rolled(u: UOp, shift: int, axis: int) -> UOp:
    if isinstance(shift, Array | np.integer):
        shift = operator.index(shift)
    if type(shift) is not int:
        raise UserTypeError(f"roll: expected an int or a tuple of ints, got {shift!r}")
    dims = shapes.shape(u)
    n = dims[axis]
    if n == 0 or (back := shift % n) == 0:
        return u
    if not isinstance(n, int):  # two parts of computed sizes would be a sum of these, not n
        begins = [0] * len(dims)
        begins[axis] = n - back
        return movement.window(u.cat(u, axis=axis), begins, dims)
    before = (slice(None),) * axis
    return u[(*before, slice(n - back, None))].cat(u[(*before, slice(0, n - back))], axis=axis)


@frozen_view
def broadcast_to(x: Any, /, shape: Sequence[int]) -> Any:
    """Repeat x along axes of size 1, and along new axes in front.

    UserError if a size other than 1 differs.

    Examples:
        >>> np.asarray(unp.broadcast_to(unp.asarray([[1], [2]]), (2, 3)))
        array([[1, 1, 1],
               [2, 2, 2]])
    """
    u = uop_of(x)
    dims = shapes.shape(u)
    shape = (shape,) if isinstance(shape, int) else checks.sequence("broadcast_to", "shape", shape)
    if len(dims) > len(shape):
        raise UserError(f"broadcast_to: {shapes.show(dims)} has more axes than {tuple(shape)}")
    return same_kind(with_rank(u, len(shape)).expand(shape), (x,))


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """Broadcast arrays to their common shape; each keeps its dtype.

    UserError where shapes do not broadcast.

    Examples:
        >>> [a.shape for a in unp.broadcast_arrays(unp.zeros((2, 1)), unp.zeros(3))]
        [(2, 3), (2, 3)]
    """
    shape = shapes.broadcast([shapes.shape(uop_of(a)) for a in arrays])
    return [broadcast_to(a, shape) for a in arrays]


def tile(x: Any, repetitions: int | Sequence[int], /) -> Any:
    """Repeat x along each axis; a single number repeats along the last axis.

    UserError for negative numbers.

    Examples:
        >>> np.asarray(unp.tile(unp.asarray([1, 2]), 2))
        array([1, 2, 1, 2])
    """
    u = uop_of(x)
    if isinstance(repetitions, int):
        repetitions = (repetitions,)
    repetitions = checks.sequence("tile", "repetitions", repetitions)
    if any(type(t) is not int or t < 0 for t in repetitions):
        raise UserError(f"tile: repetitions must be integers of 0 or more, got {repetitions}")
    rank = max(u.ndim, len(repetitions))
    times = (*(1,) * (rank - len(repetitions)), *repetitions)
    return same_kind(indexing.tiled(with_rank(u, rank), times), (x,))


def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Any:
    """Repeat each element `repeats` times; an array or a list gives a number for each element.

    UserError for a UOp or traced Array: the shape of the result would depend on values.

    Examples:
        >>> np.asarray(unp.repeat(unp.asarray([1, 2, 3]), [2, 0, 1]))
        array([1, 1, 3])
    """
    if isinstance(repeats, UOp) or (isinstance(repeats, Array) and repeats.is_unknown):
        raise UserError(
            "repeat: the repeats must be known here, because the shape of the result depends on"
            " them"
        )
    times = checks.array("repeat", repeats)
    if times.dtype.kind not in "iu" or times.ndim > 1 or (times < 0).any():
        raise UserError(f"repeat: repeats must be integers of 0 or more, got {repeats!r}")
    u = uop_of(x)
    if axis is None or not shapes.shape(u):
        u, axis = u.reshape(-1), 0 if axis is None else axis
    dims = shapes.shape(u)
    axis = normal_axis(axis, len(dims), "repeat")
    if times.size != 1:
        if times.size != dims[axis]:
            raise UserError(f"repeat: {times.size} numbers for {shapes.show(dims)}, axis {axis}")
        places = np.repeat(np.arange(times.size), times)
        return same_kind(indexing.take(u, places, axis), (x,))
    repeats = int(times.item())
    behind = axis + 1
    split = u.reshape((*dims[:behind], 1, *dims[behind:]))
    wide = split.expand((*dims[:behind], repeats, *dims[behind:]))
    return same_kind(wide.reshape((*dims[:axis], dims[axis] * repeats, *dims[behind:])), (x,))


@table.routine
def take(x: Any, indices: Any, /, axis: int | None = None) -> Any:
    u = uop_of(x)
    if axis is None and len(shapes.shape(u)) != 1:
        raise UserError(f"take: axis is needed for {len(shapes.shape(u))} dimensions")
    return same_kind(indexing.take(u, uop_of(indices), 0 if axis is None else axis), (x, indices))


def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Any:
    """out[i, j] = x[indices[i, j], j] for axis 0.

    The other axes broadcast. The result has the dtype of x. UserError for another number of
    dimensions.

    Examples:
        >>> x = unp.asarray([[30, 10, 20]])
        >>> np.asarray(unp.take_along_axis(x, unp.argsort(x), axis=1))
        array([[10, 20, 30]])
    """
    u, i = uop_of(x), uop_of(indices)
    axis = normal_axis(axis, len(shapes.shape(u)), "take_along_axis")
    dims, wanted = list(shapes.shape(u)), list(shapes.shape(i))
    if len(dims) != len(wanted):
        raise UserError(
            f"take_along_axis: the array has {len(dims)} dimensions, the indices {len(wanted)}"
        )
    common = shapes.broadcast([
        tuple([1 if k == axis else d for k, d in enumerate(v)]) for v in (dims, wanted)
    ])  # fmt: skip
    sized = [[v[axis] if k == axis else d for k, d in enumerate(common)] for v in (dims, wanted)]
    return same_kind(
        indexing.gather(u.expand(sized[0]), axis, i.expand(sized[1])), (x, indices)
    )


def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = None) -> Any:
    """Pad x by `(before, after)` elements along each axis: with a constant, or by NumPy's mode
    `edge`, `reflect`, `symmetric` or `wrap`.

    `pad_width` is a number, a pair, or a pair for each axis, and so are constants; a dict has
    widths by axis. The result has the dtype of x. UserError for another mode, for a constant that
    does not fit x or that the mode ignores, and for an axis without elements to repeat.

    Examples:
        >>> np.asarray(unp.pad(unp.asarray([1, 2, 3]), (2, 1), mode="reflect"))
        array([3, 2, 1, 2, 3, 2])
    """
    u = uop_of(x)
    dims = shapes.shape(u)
    widths = _widths(pad_width, len(dims))
    if mode == "constant":
        given = 0 if constant_values is None else constant_values
        return same_kind(_padded(u, widths, given), (x,))
    if mode not in padding.MODES:
        known = ", ".join(("constant", *padding.MODES))
        raise UserError(f"pad: mode must be one of {known}, got {mode!r}")
    if constant_values is not None:
        raise UserError(f"pad: mode {mode!r} takes no constant_values, got {constant_values!r}")
    for axis, (before, after) in enumerate(widths):
        u = padding.repeated(u, axis, mode, before, after)
    return same_kind(u, (x,))


def _padded(u: UOp, widths: list[tuple[int, int]], given: Any) -> UOp:
    """Pad by one constant, or by one before and one behind each axis, axis after axis."""
    if not isinstance(given, (tuple, list, np.ndarray)):
        return padding.filled(u, widths, _constant(given, u))
    try:
        constants = np.broadcast_to(np.asarray(given), (len(widths), 2))
    except ValueError:
        raise UserError(
            f"pad: expected a constant, or two for each of {len(widths)} axes, got {given!r}"
        ) from None
    for axis, pair in enumerate(widths):
        for side, width in enumerate(pair):
            only = [(0, 0)] * len(widths)
            only[axis] = (0, width) if side else (width, 0)
            u = padding.filled(u, only, _constant(constants[axis, side].item(), u))
    return u


def _constant(given: Any, u: UOp) -> UOp:
    check_number(given, u.dtype, "pad")
    return fold.cast(uop_of(given, "pad"), u.dtype)


def _widths(given: Any, rank: int) -> list[tuple[int, int]]:
    """The widths before and behind each axis; a dict names the axes with widths."""
    wrong = f"pad: expected (before, after) for each of {rank} axes, got {given!r}"
    pairs: Any = given
    try:
        if isinstance(given, dict):
            pairs = [(0, 0)] * rank
            for axis, width in given.items():
                pairs[axis] = width if isinstance(width, tuple) else (width, width)
        found = np.asarray(pairs)
        wide = np.broadcast_to(found, (rank, 2)).tolist()
    except (IndexError, TypeError, ValueError):
        raise UserError(wrong) from None
    if found.dtype.kind not in "iu" or (found < 0).any():
        raise UserError(wrong)
    return [(before, after) for before, after in wide]


# ---------------------------------------------------------------- places as one number, or several
def unravel_index(indices: Any, shape: Any, order: str | None = "C") -> tuple[Any, ...]:
    """Convert flat indices into an array of this `shape`, in row-major order or with `order="F"` in
    column-major order, to an index for each axis.

    Returns one int64 array per axis, in the shape of `indices`. UserTypeError unless `indices` are
    integers; UserError for numbers out of range. Indices in Arrays and UOps are not checked: beyond
    the end they continue along the first axis.

    Examples:
        >>> [int(i) for i in unp.unravel_index(unp.asarray(5), (2, 3))]
        [1, 2]
    """
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    dims = tuple([as_dim(d) for d in sizes])
    columns = by_columns(order, 2, "unravel_index")
    dims = dims[::-1] if columns else dims
    rest = _places_below(indices, math.prod(dims), "unravel_index")
    found = []
    for d in [dim_uop(d) for d in dims[:0:-1]]:
        size = fold.cast(d, dtypes.int64)
        found.append(rest % size)
        rest = rest // size
    by_axis = [rest, *found[::-1]] if dims else []
    return tuple(same_kind(by_axis[::-1] if columns else by_axis, (indices,)))


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str = "raise", order: str | None = "C"
) -> Any:
    """Convert an array of indices for each axis of `dims` to flat int64 indices, in row-major order
    or with `order="F"` in column-major order.

    The arrays broadcast. UserError unless there is an array for each axis, UserTypeError unless
    they are integers, and UserError for numbers out of range; indices in Arrays and UOps are not
    checked.

    Examples:
        >>> int(unp.ravel_multi_index((unp.asarray(1), unp.asarray(2)), (2, 3)))
        5
    """
    sizes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if mode != "raise":
        raise UserTypeError(f"ravel_multi_index: mode must be 'raise', got {mode!r}")
    if len(multi_index) != len(sizes) or not sizes:
        many = len(multi_index)
        raise UserError(f"ravel_multi_index: {many} arrays of indices for {len(sizes)} axes")
    places = [_places_below(i, d, "ravel_multi_index") for i, d in zip(multi_index, sizes)]
    if by_columns(order, 2, "ravel_multi_index"):
        places, sizes = places[::-1], sizes[::-1]
    found = places[0]
    for place, d in zip(places[1:], sizes[1:]):
        found = found * fold.cast(dim_uop(as_dim(d)), dtypes.int64) + place
    return same_kind(found, multi_index)


def _places_below(x: Any, n: Any, who: str) -> UOp:
    """Indices as int64. UserError for numbers and NumPy arrays outside of 0 to n - 1."""
    u = uop_of(x, who)
    if not u.dtype.is_int:
        raise UserTypeError(f"{who}: indices must be integers, got {u.dtype.name}")
    if not isinstance(x, (Array, UOp)) and isinstance(n, int):
        given = np.asarray(x)
        if (given < 0).any() or (given >= n).any():
            raise UserError(f"{who}: an index is out of range for {n} elements: {x!r}")
    return fold.cast(u, dtypes.int64)
