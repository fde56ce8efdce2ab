"""Choosing elements: `a[...]`, take, gather, one_hot, triangles; and `assign`, which writes them.

Slices are movement ops, so users can assign to them; arrays of indices are INDEX nodes. An index
out of range is a UserError if its value is known when the graph is built; one from data reads 0.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from uopc.errors import Unsupported, UserError, UserIndexError, UserTypeError
from uopc.ir.builder import alu, checks, kernel, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape, show
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.ir.records import dataclass
from uopc.tensor.reductions import along

NEW: Final = -1  # a new axis, in a layout
_GAP: Final = -2  # an ellipsis that stands for no axis: it still separates index arrays
BLOCK: Final = -3  # the axes of the index arrays, in a layout
_NO_MASK = (
    "a boolean mask as an index is not supported, because the result's size depends on the data;"
    " use uopc.where(mask, x, fill)"
)


@dataclass(slots=True)
class AxisSelection:
    """The part of an axis that a key selects: a window, and in it `count` elements, `step` apart
    (backwards if negative), or the elements at `index`. `dropped`: the result lacks the axis."""

    begin: Dim
    size: Dim
    count: Dim
    step: int = 1
    index: UOp | None = None
    dropped: bool = False


# ---------------------------------------------------------------- a[key]
def getitem(a: UOp, key: Any) -> UOp:
    """Elements by ints, slices, None, Ellipsis and arrays of indices, as in NumPy.

    Indices and bounds of slices may be UOps of dtype index; if variables put such an index out of
    range, the call raises UserError. A slice of fixed length must provably lie in the axis; any
    other slice is clipped, as in NumPy. A mask that is known when the graph is built counts as the
    indices where it holds; `sorts/compaction.py` has other masks.
    """
    dims = shapes.shape(a)
    axes, layout = parse(key, dims)
    out = windowed(a, axes)
    blocks = [x.index for x in axes if x.index is not None]
    block = shapes.broadcast([shapes.shape(i) for i in blocks], "index") if blocks else ()
    layout = result_layout(axes, layout)
    if blocks:
        out = _indexed(out, axes, layout, block)
    groups = [(1,) if i == NEW else block if i == BLOCK else (axes[i].count,) for i in layout]
    return movement.reshape(out, tuple([d for group in groups for d in group]))


def windowed(a: UOp, axes: list[AxisSelection]) -> UOp:
    """Cut out the window of each axis, then flip and step as the key says."""
    out = movement.window(a, [x.begin for x in axes], [x.size for x in axes])
    mirrored = tuple([i for i, x in enumerate(axes) if x.step < 0])
    if mirrored:
        out = movement.flip(out, mirrored)
    return _stepped(out, axes) if any(x.step not in (1, -1) for x in axes) else out


def iterate(a: UOp) -> Iterator[UOp]:
    """The slices along the first axis. UserTypeError for a scalar or a variable size."""
    dims = shapes.shape(a)
    if not dims:
        raise UserTypeError("a scalar cannot be iterated over")
    if not isinstance(dims[0], int):
        raise UserTypeError(f"the first size of {show(dims)} must be known to iterate over it")
    return iter([getitem(a, i) for i in range(dims[0])])


def parse(key: Any, dims: Shape) -> tuple[list[AxisSelection], list[int]]:
    """Return the selection of each axis, and the axes in the key's order, with NEW and _GAP."""
    items = [_settled(item) for item in (key if isinstance(key, tuple) else (key,))]
    masks = {k: m for k, m in enumerate(map(known_mask, items)) if m is not None}
    used = len([i for i in items if i is not None and i is not Ellipsis])
    used += sum([m.ndim - 1 for m in masks.values()])
    if used > len(dims):
        raise UserIndexError(f"too many indices: {used} for shape {show(dims)}")
    if len([i for i in items if i is Ellipsis]) > 1:
        raise UserError("an index may hold one ellipsis (...)")
    if not any(i is Ellipsis for i in items):
        items.append(Ellipsis)
    axes: list[AxisSelection] = []
    layout: list[int] = []
    for k, item in enumerate(items):
        if item is None:
            layout.append(NEW)
        elif k in masks:
            for i, places in enumerate(np.nonzero(masks[k])):
                _check_mask(masks[k].shape[i], dims[len(axes)], len(axes))
                layout.append(len(axes))
                axes.append(_taken(places, dims[len(axes)], len(axes)))
        elif item is Ellipsis:
            whole = range(len(axes), len(axes) + len(dims) - used)
            layout += whole or [_GAP]
            axes += [AxisSelection(0, dims[i], dims[i]) for i in whole]
        else:
            layout.append(len(axes))
            axes.append(_taken(item, dims[len(axes)], len(axes)))
    return axes, layout


def _settled(item: Any) -> Any:
    """NumPy's array of a part of a key that has one, such as an array of another library."""
    is_plain = isinstance(item, (UOp, np.ndarray, np.generic))
    return item if is_plain or not hasattr(item, "__array__") else np.asarray(item)


def known_mask(item: Any) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return a part of a key as a mask if it is a known mask: an array, a list, or a constant of
    the graph. (A bool alone may be a mistaken comparison: see `_NO_MASK`.)"""
    if isinstance(item, UOp):
        item = item.arg.array if item.op is Ops.DATA else None
    if isinstance(item, list) and _is_bools(item):
        item = checks.array("index", item)
    is_mask = isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim
    return item if is_mask else None


def _is_bools(item: list[Any]) -> bool:
    bools = [
        _is_bools(v) if isinstance(v, list) else isinstance(v, (bool, np.bool_)) for v in item
    ]
    return bool(item) and all(bools)


def _check_mask(length: int, n: Dim, axis: int) -> None:
    if length == 0 or (isinstance(n, int) and n == length):  # as in NumPy, 0 holds nowhere
        return
    raise UserIndexError(
        f"a mask of {length} elements for axis {axis} of size {_text(n)}: its shape must be that of"
        " the axes, which must be known"
    )


def _taken(item: Any, n: Dim, axis: int) -> AxisSelection:
    if isinstance(item, slice):
        return _sliced(item, n)
    if isinstance(item, np.ndarray) and not item.ndim:
        item = item[()]
    if isinstance(item, (list, np.ndarray)):
        return _picked(_constant_index(item, n, axis), n)
    if isinstance(item, UOp):
        _check_index_dtype(item.dtype)
        if shapes.shape(item) or item.dtype is not dtypes.index:
            return _picked(in_range(item, n), n)
        return _single(as_dim(item), n, axis)
    if isinstance(item, (bool, np.bool_)):
        raise Unsupported(_NO_MASK)
    if isinstance(item, (int, np.integer)):
        return _single(int(item), n, axis)
    raise UserTypeError(
        f"an index must be an int, slice, None, ... or an array of integers, got {item!r}"
    )


def _check_index_dtype(t: DType) -> None:
    if t.kind == "bool":
        raise Unsupported(_NO_MASK)
    if not t.is_integral:
        raise UserTypeError(f"an index must be of integers, got {t.name}")


def _picked(index: UOp, n: Dim) -> AxisSelection:
    return AxisSelection(0, n, n, index=index, dropped=not shapes.shape(index))


def _single(i: Dim, n: Dim, axis: int) -> AxisSelection:
    """Select one element, by a known index or by an index of variables."""
    if isinstance(i, int) and isinstance(n, int):
        if not -n <= i < n:
            raise UserIndexError(f"index {i} is out of range for axis {axis} of size {n}")
        return AxisSelection(i % n, 1, 1, dropped=True)
    place = dim_uop(_bound(i, n, 0, 0))
    inside = affine.at_most(affine.const(0), place)
    if inside and affine.at_most(affine.plus(place, 1), dim_uop(n)):
        return AxisSelection(as_dim(place), 1, 1, dropped=True)
    return _picked(place, n)  # that it is inside is checked when the variables have values


# ---------------------------------------------------------------- slices
def _sliced(s: slice, n: Dim) -> AxisSelection:
    step = 1 if s.step is None else as_dim(s.step)
    if not isinstance(step, int) or step == 0:
        got = step.render() if isinstance(step, UOp) else repr(s.step)
        raise UserError(f"the step of a slice must be a fixed integer other than 0, got {got}")
    if isinstance(n, int) and not isinstance(s.start, UOp) and not isinstance(s.stop, UOp):
        return _sliced_now(s, n, step)
    if step > 0:
        raw = _bound(s.start, n, 0, 0), _bound(s.stop, n, n, 0)
    else:  # the same elements, from `stop` + 1 up to `start`
        raw = _bound(s.stop, n, 0, 1), _bound(s.start, n, n, 1)
    begin, end = _clamped(raw[0], n), _clamped(raw[1], n)
    size = _length(begin, end)
    # The user gives two symbolic bounds a fixed distance apart, such as pos:pos+1.
    sure = isinstance(s.start, UOp) and isinstance(s.stop, UOp)
    if sure and isinstance(as_dim(raw[1] - raw[0]), int) and not isinstance(size, int):
        raise UserError(
            f"the slice {_text(raw[0])}:{_text(raw[1])} may leave the axis of size {_text(n)}: "
            "narrow the bounds of its variables"
        )
    if isinstance(size, int) and size <= 1:
        return AxisSelection(begin, size, size)
    count = size if abs(step) == 1 else as_dim((size + (abs(step) - 1)) // abs(step))
    return AxisSelection(begin, size, count, step)


def _sliced_now(s: slice, n: int, step: int) -> AxisSelection:
    """Select a slice with known bounds of an axis of known size, by Python's rules."""
    try:
        start, stop, _ = s.indices(n)
    except UserTypeError:  # a traced number: it says so
        raise
    except TypeError:
        raise UserTypeError(f"a bound of a slice must be an int or a variable: {s}") from None
    count = len(range(start, stop, step))
    if count <= 1:
        return AxisSelection(start if count else 0, count, count)
    span = count * abs(step)
    if span > (n - start if step > 0 else start + 1):
        span -= abs(step) - 1  # the last step is cut off; `_stepped` fills it up
    return AxisSelection(start if step > 0 else start - span + 1, span, count, step)


def _stepped(a: UOp, axes: list[AxisSelection]) -> UOp:
    """Take the first of every |step| elements: column 0 of rows of |step|."""
    wide = [(x.count, abs(x.step)) for x in axes]
    padded = movement.pad(a, [(0, as_dim(n * k - x.size)) for (n, k), x in zip(wide, axes)])
    rows = [d for n, k in wide for d in ((n, k) if k > 1 else (n,))]
    first = [(0, 1 if i else n) for n, k in wide for i, n in enumerate((n, k) if k > 1 else (n,))]
    kept = movement.shrink(movement.reshape(padded, tuple(rows)), first)
    return movement.reshape(kept, tuple([n for n, _ in wide]))


def _text(d: Dim) -> str:
    return str(d) if isinstance(d, int) else str(d.render())


def _bound(v: Any, n: Dim, default: Dim, shift: int) -> Dim:
    """Count a bound of a slice from the front, and add `shift`."""
    if v is None:
        return default
    v = as_dim(v)
    low, high = (v, v) if isinstance(v, int) else bounds.bounds(v)
    if high < 0:
        v = as_dim(v + n)
    elif low < 0:
        v = alu.where(alu.binary(Ops.CMPLT, v, 0), v + n, v)
    return as_dim(v + shift) if shift else v


def _clamped(v: Dim, n: Dim) -> Dim:
    """Clamp v to [0, n]."""
    if isinstance(n, int):
        low, high = (v, v) if isinstance(v, int) else bounds.bounds(v)
        if low >= 0 and high <= n:
            return v
    if v is n:
        return n
    u, end = dim_uop(v), dim_uop(n)
    if affine.at_most(end, u):
        return n
    if not affine.at_most(u, end):
        u = affine.minimum(u, end)
    if affine.at_most(u, affine.const(0)):
        return 0
    return as_dim(affine.maximum(u, affine.const(0)))


def _length(begin: Dim, end: Dim) -> Dim:
    size = as_dim(end - begin)
    if isinstance(size, int):
        return max(size, 0)
    proved = affine.at_most(dim_uop(begin), dim_uop(end))
    return size if proved else as_dim(affine.maximum(size, affine.const(0)))


# ---------------------------------------------------------------- indices from arrays
def _constant_index(value: Any, n: Dim, axis: int) -> UOp:
    """Make a known array of indices; if the size is known, count the indices from the front."""
    array = checks.array("index", value)
    if array.size == 0 and isinstance(value, list):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise UserTypeError(f"an index must be of integers, got {array.dtype}")
    if array.dtype.kind == "b":
        raise Unsupported(_NO_MASK)
    if not isinstance(n, int):
        return in_range(operands.constant(array), n)
    bad = (array < -n) | (array >= n)
    if bad.any():
        raise UserIndexError(
            f"index {array[bad].flat[0]} is out of range for axis {axis} of size {n}"
        )
    array = np.where(array < 0, array + n, array).astype(np.int32 if n <= 1 << 31 else np.int64)
    return cast(operands.constant(array), dtypes.index)


def in_range(i: UOp, n: Dim) -> UOp:
    """An index of n elements, of dtype index. Negative indices count from the end, as in NumPy; an
    index out of range is INVALID, so that a read gives 0 and a write does nothing. Reads of `x[i]`
    have this guard; handwritten kernels need it where an index may be out of range.

    Examples:
        >>> x, i = uopc.constant([10, 20, 30]), uopc.constant([2, -3, 7])
        >>> uopc.compile(x.index(uopc.in_range(i, 3)))()
        array([30, 10,  0])
    """
    checks.nodes("in_range", (i,))
    most = dtypes.index.bounds[1]
    if bounds.bounds(i)[1] > most:  # uint64: what no index holds is outside as well
        i = alu.binary(Ops.MIN, i, leaves.const(i.dtype, most))
    i, end = cast(i, dtypes.index), dim_uop(n)
    low, high = bounds.bounds(i)
    if low >= 0:
        return between(i, n)
    from_end = alu.binary(Ops.ADD, i, end)
    wrapped = from_end if high < 0 else alu.where(alu.binary(Ops.CMPLT, i, 0), from_end, i)
    return _guarded(i, affine.scaled(end, -1), end, wrapped)


def between(i: UOp, n: Dim) -> UOp:
    """Count an index from the front; INVALID outside of 0 … n - 1."""
    return _guarded(i, affine.const(0), dim_uop(n), i)


def _guarded(i: UOp, start: UOp, end: UOp, value: UOp) -> UOp:
    """`value` if start ≤ i < end, else INVALID; omits checks that are proved."""
    checks = []
    if not affine.at_most(start, i):
        checks.append(alu.binary(Ops.CMPLE, start, i))
    if not affine.at_most(affine.plus(i, 1), end):
        checks.append(alu.binary(Ops.CMPLT, i, end))
    if not checks:
        return value
    inside = checks[0] if len(checks) == 1 else alu.alu(checks[0], Ops.AND, checks[1])
    return alu.where(inside, value, intern(Ops.INVALID, dtypes.index))


# ---------------------------------------------------------------- the result of a[key]
def result_layout(axes: list[AxisSelection], layout: list[int]) -> list[int]:
    """Drop axes from the layout, and merge the index arrays, and ints beside them, into one BLOCK.

    As in NumPy, the block takes the place of the arrays if they are neighbours, else comes first.
    """
    if not any(x.index is not None and not x.dropped for x in axes):
        return [i for i in layout if i == NEW or (i >= 0 and not axes[i].dropped)]
    places = [p for p, i in enumerate(layout) if i >= 0 and advanced(axes[i])]
    together = places[-1] - places[0] == len(places) - 1
    kept = [i for i in layout if i == NEW or (i >= 0 and not advanced(axes[i]))]
    before = [i for i in layout[: places[0]] if i != _GAP] if together else []
    kept.insert(len(before), BLOCK)
    return kept


def advanced(x: AxisSelection) -> bool:
    """True for an array of indices, and for an int, which joins the arrays of its key."""
    return x.dropped or x.index is not None


def _indexed(a: UOp, axes: list[AxisSelection], layout: list[int], block: Shape) -> UOp:
    """Make the INDEX of the window `a`: every axis up to the last that needs an index gets one."""
    last = max(i for i, x in enumerate(axes) if x.index is not None)
    behind = 0  # axes of the result after this one, of those that indices make
    places: dict[int, int] = {}
    for i in reversed(layout):
        if i == BLOCK or 0 <= i <= last:
            places[i] = behind
            behind += len(block) if i == BLOCK else 1
    indices = []
    for i, x in enumerate(axes[: last + 1]):
        if x.index is not None:
            indices.append(along(x.index, places.get(BLOCK, 0)))
        elif x.dropped:
            indices.append(affine.const(0))
        else:
            indices.append(along(leaves.iota(x.count), places[i]))
    return movement.index(a, *indices)


# ---------------------------------------------------------------- named selections
def take(a: UOp, indices: Any, axis: int | None = None) -> UOp:
    """Slices of `a` at integer indices along an axis; without `axis`, of the flattened array."""
    if axis is None:
        return take(movement.reshape(a, (shapes.size(shapes.shape(a)),)), indices, 0)
    rank = len(shapes.shape(a))
    axis = movement.normal_axis(axis, rank, "take")
    if not rank:
        a = movement.reshape(a, (1,))
    chosen = list(indices) if isinstance(indices, tuple) else indices
    return getitem(a, (*(slice(None),) * axis, chosen))


def gather(a: UOp, axis: int, index: Any) -> UOp:
    """out[i, j, k] = a[i, index[i, j, k], k] for axis 1: one index for each element of the result.

    The result has the shape of the index and the dtype of `a`. The index has as many dimensions as
    `a` and, off the axis, none of them longer: else UserError. Negative indices count from the end;
    one that is out of range gives 0.

    Examples:
        >>> x = uopc.constant([[1, 2], [3, 4]])
        >>> uopc.compile(x.gather(1, [[0, 0], [1, 0]]))()
        array([[1, 1],
               [4, 3]])
    """
    dims = shapes.shape(a)
    i = operands.as_uop(checks.array("gather", index) if isinstance(index, list) else index)
    _check_index_dtype(i.dtype)
    wanted = shapes.shape(i)
    if len(wanted) != len(dims) or not dims:
        raise UserError(f"gather: index {show(wanted)} needs as many dimensions as {show(dims)}")
    axis = movement.normal_axis(axis, len(dims), "gather")
    for p, (w, d) in enumerate(zip(wanted, dims)):
        if p != axis and not affine.at_most(dim_uop(w), dim_uop(d)):
            raise UserError(f"gather: the index {show(wanted)} is longer than {show(dims)}")
    rank = len(dims)
    places = [along(leaves.iota(w), rank - 1 - p) for p, w in enumerate(wanted)]
    places[axis] = in_range(i, dims[axis])
    return movement.index(a, *places)


def one_hot(a: UOp, n: int, dtype: DTypeLike = dtypes.float32) -> UOp:
    """1 at the place each integer names on a new last axis of size n, else 0 (as `eye(n)[a]`).

    An integer outside 0 … n-1 gives zeros only. UserTypeError for floats.

    Examples:
        >>> x = uopc.constant([2, 0, 7])
        >>> uopc.compile(x.one_hot(3))()
        array([[0., 0., 1.],
               [1., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """
    if a.dtype.kind not in ("int", "uint", "index"):
        raise UserTypeError(f"one_hot: needs integers, got {a.dtype.name}")
    places = leaves.iota(as_dim(n))
    narrow = bounds.bounds(places)[1] <= a.dtype.bounds[1]
    common = a.dtype if narrow else dtypes.index
    named = movement.reshape(cast(a, common), (*shapes.shape(a), 1))
    return cast(alu.alu(named, Ops.CMPEQ, cast(places, common)), dtype)


def tril(a: UOp, k: int = 0) -> UOp:
    """The last two axes with zeros above diagonal k."""
    return _triangle(a, k, lower=True)


def triu(a: UOp, k: int = 0) -> UOp:
    """The last two axes with zeros below diagonal k."""
    return _triangle(a, k, lower=False)


def _triangle(a: UOp, k: int, lower: bool) -> UOp:
    dims = shapes.shape(a)
    if len(dims) < 2:
        raise UserError(f"{'tril' if lower else 'triu'}: needs two dimensions, got {show(dims)}")
    row, column = along(leaves.iota(dims[-2]), 1), leaves.iota(dims[-1])
    diagonal = alu.binary(Ops.ADD, row, as_dim(k))
    keep = alu.alu(column, Ops.CMPLE, diagonal) if lower else alu.alu(diagonal, Ops.CMPLE, column)
    return alu.where(keep, a, leaves.const(a.dtype.scalar, 0))


# ---------------------------------------------------------------- axes
def transpose(a: UOp, *axes: Any) -> UOp:
    """Reverse all axes; with two ints, swap these axes; with a tuple, or more than two ints, put
    the axes in that order (as permute). UserError unless each axis is there once.

    Examples:
        >>> x = uopc.zeros((2, 3, 4))
        >>> x.transpose().shape, x.transpose(0, 1).shape, x.transpose(1, 2, 0).shape
        ((4, 3, 2), (3, 2, 4), (3, 4, 2))
        >>> x.T.shape
        (4, 3, 2)
    """
    rank = len(shapes.shape(a))
    order = list(range(rank))
    if not axes or (len(axes) == 1 and axes[0] is None):
        order.reverse()
    elif len(axes) == 2:
        i, j = (movement.normal_axis(x, rank, "transpose") for x in axes)
        order[i], order[j] = order[j], order[i]
    else:
        given = movement.flat_args(axes)
        order = [movement.normal_axis(x, rank, "transpose") for x in given]
        if sorted(order) != list(range(rank)):
            shape = show(shapes.shape(a))
            raise UserError(f"transpose: {given} is not a permutation of the axes of {shape}")
    return movement.permute(a, tuple(order))


def flatten(a: UOp, start: int = 0, end: int = -1) -> UOp:
    """Merge the axes from `start` to `end`, both included, into one.

    UserError where `start` comes after `end`.

    Examples:
        >>> uopc.zeros((2, 3, 4)).flatten(1).shape
        (2, 12)
    """
    dims = shapes.shape(a) or (1,)
    first = movement.normal_axis(start, len(dims), "flatten")
    last = movement.normal_axis(end, len(dims), "flatten")
    if first > last:
        raise UserError(f"flatten: axis {start} comes after axis {end}")
    merged = shapes.size(dims[first : last + 1])
    return movement.reshape(a, (*dims[:first], merged, *dims[last + 1 :]))


def squeeze(a: UOp, axis: Any = None) -> UOp:
    """Remove axes of size 1: all, or those named."""
    dims = shapes.shape(a)
    ones = [i for i, d in enumerate(dims) if isinstance(d, int) and d == 1]
    if axis is not None:
        named = movement.normal_axes(axis, len(dims), "squeeze")
        if not set(named) <= set(ones):
            raise UserError(f"squeeze: axis {axis} of {show(dims)} is not of size 1")
        ones = list(named)
    return movement.reshape(a, tuple([d for i, d in enumerate(dims) if i not in ones]))


def unsqueeze(a: UOp, axis: int) -> UOp:
    """Insert a new axis of size 1 at `axis`.

    UserIndexError for a place beyond the last axis.

    Examples:
        >>> uopc.zeros((2, 3)).unsqueeze(1).shape
        (2, 1, 3)
    """
    dims = list(shapes.shape(a))
    dims.insert(movement.normal_axis(axis, len(dims) + 1, "unsqueeze"), 1)
    return movement.reshape(a, tuple(dims))


def tiled(a: UOp, times: Sequence[Dim]) -> UOp:
    """Repeat the array along each axis."""
    dims = shapes.shape(a)
    split = movement.reshape(a, tuple([s for d in dims for s in (1, d)]))
    wide = movement.expand(split, tuple([s for d, t in zip(dims, times) for s in (t, d)]))
    return movement.reshape(wide, tuple([d * t for d, t in zip(dims, times)]))


# ---------------------------------------------------------------- writing
# PAD is there for steps that do not divide the axis: what it adds is never written.
_VIEWS = frozenset((
    Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.PAD, Ops.BITCAST,
))  # fmt: skip


def assign(a: UOp, value: Any) -> UOp:
    """Write the value into a param or a view of a param, and return the new value of that view.

    The value broadcasts to the shape of `a`: else UserError; UserTypeError when its dtype differs.

    Examples:
        >>> x = uopc.param("x", (4,), dtypes.float64)
        >>> update = uopc.compile(x[1:3].assign(x[:2] * 10))
        >>> memory = np.array([1.0, 2.0, 3.0, 4.0])
        >>> update(memory)
        array([10., 20.])
        >>> memory
        array([ 1., 10., 20.,  4.])
    """
    _check_target(a)
    v = operands.as_uop(value, a.dtype, "assign")
    if v.dtype is not a.dtype:
        raise UserTypeError(f"assign: the target is {a.dtype.name}, the value {v.dtype.name}")
    dims = shapes.shape(a)
    if shapes.broadcast([shapes.shape(v), dims], "assign") != dims:
        raise UserError(f"assign: {show(shapes.shape(v))} does not fit {show(dims)}")
    return kernel.after(a, kernel.store(a, movement.expand(v, dims)))


def _check_target(a: UOp) -> None:
    u = a
    while u.op is not Ops.PARAM and u.op is not Ops.BUFFER:
        if u.op is Ops.AFTER:
            if builtins.any(s.op is Ops.STORE for s in u.src[1:]):
                return  # made by an assign, which has checked it
        elif u.op not in _VIEWS:
            raise UserError(
                f"assign: the target must be a param or a slice, reshape, permute, flip or bitcast"
                f" of one, not the result of {u.op.name}"
            )
        u = u.src[0]
