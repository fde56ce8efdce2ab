"""Writes to Arrays by NumPy's rules: `x[key] = v`, `x op= v`, `out=`, and the functions that write.

A write to a view writes to its base, and every view of the base sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.numpy.array import (
    Array,
    arrays_in,
    captured,
    check_number,
    current_trace,
    index_of,
    trace_of,
    uop_of,
)
from uopc.numpy.memory.steps import ViewStep, written
from uopc.numpy.memory.viewing import (
    getitem,
    gives_view,
    in_place_of,
    owner_of,
    parts_of,
    step_of,
    viewed,
)
from uopc.tensor import updates

Method = Callable[..., Any]


# ---------------------------------------------------------------- a write
def write(a: Array, value: UOp, *given: Any) -> None:
    """Put a graph of the array's dtype and shape into its memory; it was made of `given`, too."""
    owner = owner_of(a)
    check_writable(a)
    owner._promote()
    trace = trace_of((owner, *given))
    owner._uop, owner.storage = written(owner.uop, owner.storage, a.steps, value)
    owner._trace, owner._value, owner.weak = trace, None, False
    owner.version += 1


def check_writable(a: Array) -> None:
    """UserError for memory that nobody may write, or not from the body that runs now."""
    owner = owner_of(a)
    frozen = next((s.frozen for s in a.steps if s.frozen), "")
    if frozen:
        raise UserError(f"the destination of a write is read-only: {frozen}")
    if owner.weak:
        raise UserTypeError("a number of Python is not written: make an array of it, x = x + 0.0")
    first, who = captured.get()
    if owner.born < first:
        raise UserError(
            f"a function that {who} runs writes to an array from outside of it, which would change"
            f" once and not in each run: pass the array as an argument, and return it"
            f"{made_at(owner.uop)}"
        )


def fitted(a: Array, value: Any, who: str = "x[i] = v") -> UOp:
    """A value in the dtype of the array that it is written to."""
    if isinstance(value, complex):
        raise UserTypeError(f"{who}: a complex number does not fit {a.dtype.name}")
    if type(value) is float:
        check_number(value, a.dtype, who)
    like = a.dtype if type(value) is not float or a.dtype.is_float else None
    return fold.cast(uop_of(value, who, like), a.dtype)


def spread(value: UOp, dims: shapes.Shape, who: str = "x[i] = v") -> UOp:
    """Broadcast a value to a shape. As in NumPy, axes of size 1 in front may be too many."""
    given = shapes.shape(value)
    while len(given) > len(dims) and given[0] == 1:
        given = given[1:]
    if shapes.broadcast([given, dims], who) != dims:
        shown = f"{shapes.show(shapes.shape(value))} does not fit {shapes.show(dims)}"
        raise UserError(f"{who}: a value of the shape {shown}")
    ones = (1,) * (len(dims) - len(given))
    return movement.expand(movement.reshape(value, (*ones, *given)), dims)


# ---------------------------------------------------------------- x[key] = v
def setitem(a: Array, key: Any, value: Any) -> None:
    """`x[key] = value`: the value broadcasts, and is cast to the dtype of x.

    A mask may stand first in the key. UserError where the value does not fit, and for memory that
    nobody may write; UserIndexError for a known index out of range.
    """
    mask = _mask_of(key)
    if mask is not None:
        _set_where(a, mask, parts_of(key)[1:], value)
        return
    if gives_view(key):
        part = viewed(a, step_of(key))
        same = isinstance(value, Array) and owner_of(value) is owner_of(a)
        if same and _names(value) == _names(part):
            return  # x[i] += v has written it
        new = spread(fitted(part, value), part.shape)
        write(part, new, value, *arrays_in(key))
        return
    made = updates.updated(a.uop, index_of(key), "set", fitted(a, value))
    write(a, made, value, *arrays_in(key))


def _names(a: Array) -> list[Any]:
    return [s.name for s in a.steps]


def _mask_of(key: Any) -> Array | None:
    """A mask that stands first in a key and that only a call knows."""
    first = parts_of(key)[0] if parts_of(key) else None
    if not isinstance(first, (Array, UOp)) or first.dtype is not dtypes.bool_:
        return None
    mask = first if isinstance(first, Array) else Array(first, current_trace.get())
    return mask if mask.is_unknown or not mask.ndim else None


def _set_where(a: Array, mask: Array, rest: tuple[Any, ...], value: Any) -> None:
    """`x[mask, rest] = value`."""
    rest = () if all([isinstance(r, slice) and r == slice(None) for r in rest]) else rest
    if mask.shape != a.shape[: mask.ndim]:
        found, wanted = shapes.show(mask.shape), shapes.show(a.shape)
        raise UserError(f"x[mask] = v: the mask {found} must have the first dimensions of {wanted}")
    part = viewed(a, step_of((*[slice(None)] * mask.ndim, *rest))) if rest else a
    new, inner = fitted(part, value), part.shape[mask.ndim :]
    if len(shapes.shape(new)) > len(inner):  # a value for each element that the mask holds
        whole = in_place_of(new, mask.uop) if not rest else None
        new = _expanded(new, mask.uop, inner) if whole is None else whole
    else:
        new = spread(new, part.shape)
    holds = movement.reshape(mask.uop, (*mask.shape, *(1,) * len(inner)))
    holds = movement.expand(holds, part.shape)
    write(part, alu.where(holds, new, part.uop), mask, value)


def _expanded(values: UOp, mask: UOp, inner: shapes.Shape) -> UOp:
    """Put values, one for each element that the mask holds, at the places of these elements."""
    dims, count = shapes.shape(mask), shapes.shape(values)[0]
    line = movement.reshape(mask, (shapes.size(dims),))
    place = fold.cast(line, dtypes.int64).cumsum(0) - 1
    if count == 1:
        place = place * 0
    found = values[place]
    rows = spread(found, (shapes.size(dims), *inner))
    return movement.reshape(rows, (*dims, *inner))


# ---------------------------------------------------------------- x op= v
def in_place(function: Method, name: str) -> Method:
    """Make an in-place operator. Of a number it gives another number, and writes nothing."""

    def method(a: Array, other: Any) -> Any:
        made = function(a, other)
        if made is NotImplemented or is_number(a):
            return made
        into(a, made, name)
        return a

    return method


def is_number(a: Array) -> bool:
    """True for a value without dimensions that no name shares: it stands for NumPy's float64."""
    return not a.held and a.base is None and not a.ndim


def into(target: Any, made: Any, who: str) -> None:
    """Write a result to the array that was given for it: NumPy's rule `same_kind` decides.

    UserTypeError for an array of NumPy's, which holds no traced values, and for a cast to another
    kind; UserError for another shape.
    """
    if not isinstance(target, Array):
        raise UserTypeError(
            f"{who}: out= is {type(target).__name__}, but only an Array is written: NumPy's arrays"
            " and UOps take no values of a graph"
        )
    u = made if target.is_complex else uop_of(made, who)
    if not np.can_cast(u.dtype.numpy, target.dtype.numpy, "same_kind"):
        raise UserTypeError(
            f"{who}: the result is {u.dtype.name}, which NumPy does not cast to {target.dtype.name}"
            " in place: write x = x.astype(dtype) before"
        )
    if u.shape != target.shape:
        shown = f"{shapes.show(u.shape)}, the array {shapes.show(target.shape)}"
        raise UserError(f"{who}: the result has the shape {shown}")
    if target.is_complex:
        target[...] = made
    else:
        write(target, fold.cast(u, target.dtype), made)


# ---------------------------------------------------------------- functions and methods that write
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write src to dst, where a mask holds. UserTypeError for a cast that the rule forbids."""
    given = uop_of(src, "copyto")
    rule: Any = casting
    is_weak = type(src) in (bool, int, float)
    if not is_weak and not np.can_cast(given.dtype.numpy, dst.dtype.numpy, rule):
        names = f"{given.dtype.name} to {dst.dtype.name}"
        raise UserTypeError(f"copyto: casting={casting!r} does not allow {names}")
    new = spread(fitted(dst, src, "copyto"), dst.shape, "copyto")
    if where is not True:
        holds = spread(uop_of(where, "copyto"), dst.shape, "copyto")
        new = alu.where(holds, new, dst.uop)
    write(dst, new, src, where)


def line_of(a: Array) -> Array:
    """The elements of an array in a row, as a view whatever the order in memory."""
    count = shapes.size(a.shape)
    dims = a.shape

    def graph(u: UOp) -> UOp:
        return movement.reshape(u, (count,))

    def numpy(v: Any) -> Any:
        return np.reshape(v, (-1,))

    return viewed(a, ViewStep(("reshape", (count, dims)), graph, numpy))


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values, again and again if they are too few, at places among all elements in a row.

    UserTypeError for another mode than "raise".

    Examples:
        >>> x = unp.zeros(3)
        >>> x.put([0, 2], [7, 8])
        >>> x.tolist()
        [7.0, 0.0, 8.0]
    """
    if mode != "raise":
        raise UserTypeError(f"put: mode must be 'raise', got {mode!r}")
    places = uop_of(ind, "put")
    count = shapes.size(shapes.shape(places))
    values = _cycled(fitted(a, v, "put"), count)
    places = movement.reshape(places, (count,))
    line = line_of(a)
    write(line, updates.updated(line.uop, places, "set", values), ind, v)


def _cycled(values: UOp, count: Any) -> UOp:
    """The first `count` values of a row that begins anew at its end."""
    n = shapes.size(shapes.shape(values))
    row = movement.reshape(values, (n,))
    if n == 1:
        return movement.expand(row, (count,))
    if n == count:
        return row
    return row[leaves.iota(count) % n]


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Write values, of the same places, where a mask holds; too few are taken again and again."""
    new = _cycled(fitted(a, values, "putmask"), shapes.size(a.shape))
    holds = spread(uop_of(mask, "putmask"), a.shape, "putmask")
    write(a, alu.where(holds, movement.reshape(new, a.shape), a.uop), mask, values)


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write the first values where a mask holds, again and again if they are too few."""
    holds = movement.reshape(uop_of(mask, "place"), (shapes.size(arr.shape),))
    row = fitted(arr, vals, "place")
    n = shapes.size(shapes.shape(row))
    number = (fold.cast(holds, dtypes.int64).cumsum(0) - 1) % n
    new = movement.reshape(row, (n,))[number]
    line = line_of(arr)
    write(line, alu.where(holds, new, line.uop), mask, vals)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write a value to the elements whose indices are all equal.

    UserError for fewer than two dimensions, and for more that differ. UserTypeError for `wrap`.
    """
    dims = a.shape
    if len(dims) < 2 or (len(dims) > 2 and len(set(dims)) > 1):
        raise UserError(f"fill_diagonal: two or more equal dimensions, got {shapes.show(dims)}")
    if wrap:
        raise UserTypeError("fill_diagonal: wrap=True is not supported")
    if not all([isinstance(d, int) for d in dims]):
        raise UserError(f"fill_diagonal: the sizes must be known, got {shapes.show(dims)}")
    step = 1 + sum([math.prod(dims[i + 1 :]) for i in range(len(dims) - 1)])
    end = dims[1] * dims[1] if len(dims) == 2 else None
    setitem(line_of(a), slice(None, end, step), val)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int = -1) -> None:
    """Write values at an index along an axis for each of the other places."""
    places = uop_of(indices, "put_along_axis")
    rank = len(shapes.shape(places))
    key: list[Any] = []
    for i, n in enumerate(shapes.shape(places)):
        dims = [n if i == j else 1 for j in range(rank)]
        key.append(movement.reshape(leaves.iota(n), dims))
    key[axis % rank] = places
    setitem(arr, tuple(key), values)


def fill(a: Array, value: Any) -> None:
    """Write one value to all elements.

    Examples:
        >>> x = unp.zeros(2)
        >>> x.fill(7)
        >>> x.tolist()
        [7.0, 7.0]
    """
    setitem(a, ..., value)


_UPDATES = {
    "add": "add", "subtract": "add", "multiply": "mul", "minimum": "min", "maximum": "max",
}  # fmt: skip


def ufunc_at(ufunc: Any, a: Array, key: Any, values: Any = None) -> None:
    """`np.add.at(a, key, values)`: an element that the key names several times is updated as often.

    UserTypeError for a ufunc of two operands that no update exists for.
    """
    if ufunc.nin == 1:
        setitem(a, key, ufunc(getitem(a, key)))
        return
    how = _UPDATES.get(ufunc.__name__)
    if how is None:
        known = ", ".join(_UPDATES)
        raise UserTypeError(f"numpy.{ufunc.__name__}.at of an Array: only {known} have updates")
    new = fitted(a, values, f"{ufunc.__name__}.at")
    new = -new if ufunc.__name__ == "subtract" else new
    made = updates.updated(a.uop, index_of(key), how, new)
    write(a, made, values, *arrays_in(key))


FUNCTIONS: dict[str, Method] = {
    "copyto": copyto, "put": put, "putmask": putmask, "place": place,
    "fill_diagonal": fill_diagonal, "put_along_axis": put_along_axis,
}  # fmt: skip
