"""The elements that a mask holds, one after another: their number is a length of the graph.

    k = 0
    for i in range(n):              mask    1 0 0 1 1      places  0 3 4 | free
        places[k] = i                                      count   3
        k += mask[i]

A place that the mask does not hold is written over by the next one, so the loop has no branch.
Storage has room for all n; what reads the places reads the first `count`.
"""

from __future__ import annotations

import weakref
from typing import Any

from uopc.errors import UserError, UserIndexError
from uopc.ir.builder import alu, kernel, leaves, movement, operands
from uopc.ir.builder.fold import bitcast, cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import creation, elementwise, indexing


def length(name: str, value: UOp, most: Dim) -> Dim:
    """The dimension that a graph computes: the value, which is at most `most` and not negative."""
    variable = operands.variable(name, 0, max(bounds.max_dim(most), 0))
    bound = elementwise.bind(variable, value)
    if isinstance(most, int):
        return bound
    return operands.as_dim(alu.alu(bound, Ops.MIN, dim_uop(most)))


def places(mask: UOp, name: str = "count") -> UOp:
    """The places of the elements of a vector that are not 0, in order: unsigned integers. Their
    number is a length of this name, one for all uses of the mask."""
    found = _made.get((mask, name))
    if found is None:
        found = _made[mask, name] = _places(mask, name)
    return found


# The places of a mask, as long as somebody has them.
_made: weakref.WeakValueDictionary[tuple[UOp, str], UOp] = weakref.WeakValueDictionary()


def _places(mask: UOp, name: str) -> UOp:
    (n,) = shapes.shape(mask)
    if n == 0:
        return leaves.full(leaves.const(dtypes.uint32, 0), (0,))
    taken = elementwise.contiguous(cast(mask, dtypes.bool_))
    wide = dtypes.uint32 if place_dtype(n) is dtypes.int32 else dtypes.uint64
    storage = [creation.buffer((n,), wide), creation.buffer((1,), dtypes.int64), taken]
    found, number, held = [
        creation.kernel_param(slot, shapes.shape(s), s.dtype) for slot, s in enumerate(storage)
    ]
    zero = kernel.store(movement.index(number, 0), 0)
    i = kernel.range(n, 0)
    number = kernel.after(number, zero)
    at = movement.index(number, 0)
    # The place is at most i, and not negative: this proves that it is inside.
    place = alu.alu(cast(bitcast(at, dtypes.uint64), dtypes.index), Ops.MIN, i)
    put = kernel.store(movement.index(found, place), cast(i, found.dtype))
    following = movement.index(kernel.after(number, put), 0)
    step = kernel.store(following, at + cast(movement.index(held, i), dtypes.int64))
    sink = kernel.sink(kernel.end(step, i), name="compact")
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *storage)))
    count = movement.reshape(kernel.after(storage[1], call), ())
    return movement.shrink(kernel.after(storage[0], call), [(0, length(name, count, n))])


def nonzero(a: UOp) -> tuple[UOp, ...]:
    """The indices of the elements that are not 0, in row-major order: an int64 vector for each
    axis, all of one length, which the call finds. UserError without dimensions.

    Examples:
        >>> x = uopc.param("x", (2, 3))
        >>> rows, columns = uopc.compile(list(x.nonzero()))(np.array([[0, 5, 0], [7, 0, 9]], "f4"))
        >>> rows, columns
        (array([0, 1, 1]), array([1, 0, 2]))
    """
    dims = shapes.shape(a)
    if not dims:
        raise UserError("nonzero: needs at least one dimension")
    flat = movement.reshape(cast(a, dtypes.bool_), (shapes.size(dims),))
    place = cast(places(flat), dtypes.int64)
    found = []
    for axis, d in enumerate(dims):
        inner = shapes.size(dims[axis + 1 :])
        own = place if inner == 1 else place // cast(dim_uop(inner), dtypes.int64)
        found.append(own if axis == 0 else own % cast(dim_uop(d), dtypes.int64))
    return tuple(found)


def compress(a: UOp, mask: UOp, axis: int) -> UOp:
    """The slices along an axis at which a vector holds that is not longer than the axis. UserError
    for anything else."""
    given, n = shapes.shape(mask), shapes.shape(a)[axis]
    if len(given) != 1:
        raise UserError(f"compress: the condition must be a vector, got {shapes.show(given)}")
    if isinstance(n, int) and isinstance(given[0], int) and given[0] > n:
        raise UserError(f"compress: {given[0]} conditions for an axis of {n}")
    place = places(cast(mask, dtypes.bool_))
    return indexing.getitem(a, (*[slice(None)] * axis, cast(place, dtypes.int64)))


# ---------------------------------------------------------------- keys that a call decides
def getitem(a: UOp, key: Any) -> UOp:
    """`indexing.getitem`, for keys that hold what only a call knows."""
    return indexing.getitem(a, known(key, shapes.shape(a)))


def known(key: Any, dims: shapes.Shape) -> Any:
    """A key with sizes that the graph computes in place of what only a call knows.

    As in NumPy, a mask counts as the indices where it holds, and a computed bound of a slice is cut
    to the axis. UserIndexError for a mask that has not the shape of its axes, UserError for such
    a slice with a negative step.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    if not any([_is_mask(i) or _is_computed_slice(i) for i in items]):
        return key
    taken = [_axes_of(i) for i in items]
    given: list[Any] = []
    for k, item in enumerate(items):
        rest = any([i is Ellipsis for i in items[:k]])
        first = len(dims) - sum(taken[k:]) if rest else sum(taken[:k])
        wanted = dims[first : first + taken[k]]
        if _is_mask(item):
            own = shapes.shape(item)
            if len(own) != len(wanted) or any([d not in (0, w) for d, w in zip(own, wanted)]):
                masked = f"a mask of shape {shapes.show(own)}"
                raise UserIndexError(f"{masked} for axes of shape {shapes.show(wanted)}")
            given += nonzero(item)
        elif _is_computed_slice(item) and wanted:
            if isinstance(item.step, int) and item.step < 0:
                raise UserError("a slice with a computed bound has a step above 0: flip the slice")
            bounds_of = _bound("start", item.start, wanted[0]), _bound("stop", item.stop, wanted[0])
            given.append(slice(*bounds_of, item.step))
        else:
            given.append(item)
    return tuple(given)


def _bound(name: str, v: Any, n: Dim) -> Any:
    """A bound of a slice: a length, if only a call knows it."""
    if not _is_computed(v):
        return v
    size = cast(dim_uop(n), dtypes.int64)
    v = cast(v, dtypes.int64)
    v = alu.where(v < 0, v + size, v)
    return length(name, v.maximum(0).minimum(size), n)


def _is_computed(v: Any) -> bool:
    """True for an integer that only a call knows, other than a size."""
    return isinstance(v, UOp) and v.dtype.kind in ("int", "uint") and not shapes.shape(v)


def _is_computed_slice(item: Any) -> bool:
    return isinstance(item, slice) and (_is_computed(item.start) or _is_computed(item.stop))


def _is_mask(item: Any) -> bool:
    """True for a mask that only a call knows."""
    if not isinstance(item, UOp) or item.op is Ops.DATA:
        return False
    return item.dtype is dtypes.bool_ and bool(shapes.shape(item))


def _axes_of(item: Any) -> int:
    """The number of axes that a part of a key takes."""
    if item is None or item is Ellipsis:
        return 0
    mask = indexing.known_mask(item)
    return mask.ndim if mask is not None else len(shapes.shape(item)) if _is_mask(item) else 1
