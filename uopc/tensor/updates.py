"""`a.at[key].set(v)`: an array with some elements replaced or combined; `a` stays unchanged.

For ints and slices, movement ops put the values in place. For arrays of indices, a kernel updates a
copy, in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, fold, leaves, movement, operands
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.typed import UpdatesByKey
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.tensor import scatter
from uopc.tensor.indexing import (
    BLOCK,
    NEW,
    AxisSelection,
    advanced,
    known_mask,
    parse,
    result_layout,
    windowed,
)
from uopc.tensor.sorts import compaction

_COMBINED: Final = {"add": Ops.ADD, "mul": Ops.MUL, "min": Ops.MIN, "max": Ops.MAX}

A = TypeVar("A")  # UOp or Array


class At(Generic[A]):
    """The elements of an array that a key names, to be updated: `a.at[key]`.

    Examples:
        >>> x = uopc.constant([1, 2, 3])
        >>> uopc.compile(x.at[::2].set(0))()
        array([0, 2, 0])
    """

    def __init__(self, update: Callable[[str, Any], A]) -> None:
        self._update = update

    def set(self, value: Any) -> A:
        """The array with these elements replaced; an element with several values gets the last.

        Examples:
            >>> x = uopc.constant([1, 2, 3])
            >>> uopc.compile(x.at[1].set(9))()
            array([1, 9, 3])
        """
        return self._update("set", value)

    def add(self, value: Any) -> A:
        """The array with the values added; several values for an element are all added.

        Examples:
            >>> x = uopc.constant([1, 2, 3])
            >>> uopc.compile(x.at[[0, 0, 2]].add(10))()
            array([21,  2, 13])
        """
        return self._update("add", value)

    def mul(self, value: Any) -> A:
        """The array with these elements multiplied by the values.

        Examples:
            >>> x = uopc.constant([1, 2, 3])
            >>> uopc.compile(x.at[1:].mul(10))()
            array([ 1, 20, 30])
        """
        return self._update("mul", value)

    def min(self, value: Any) -> A:
        """The array with the least of each of these elements and its values.

        Examples:
            >>> x = uopc.constant([1, 2, 3])
            >>> uopc.compile(x.at[:].min(2))()
            array([1, 2, 2])
        """
        return self._update("min", value)

    def max(self, value: Any) -> A:
        """The array with the greatest of each of these elements and its values.

        Examples:
            >>> x = uopc.constant([1, 2, 3])
            >>> uopc.compile(x.at[:].max(2))()
            array([2, 2, 3])
        """
        return self._update("max", value)


class Indexed(Generic[A]):
    """`a.at`: takes a key in brackets.

    The result has the methods `set`, `add`, `mul`, `min` and `max`.

    Examples:
        >>> x = uopc.constant([1, 2, 3])
        >>> uopc.compile(x.at[0].set(7))()
        array([7, 2, 3])
    """

    def __init__(self, updated: Callable[[Any, str, Any], A]) -> None:
        self._updated = updated

    def __getitem__(self, key: Any) -> At[A]:
        return At(lambda how, value: self._updated(key, how, value))


def at(a: UOp) -> UpdatesByKey[UOp]:
    """Updates of elements: `a.at[key].set(v)`, `add`, `mul`, `min`, `max` give a new array.

    The key is an int, a slice, None, an ellipsis, an array of indices, a tuple of these, or a mask:
    one that is known now, or a value of the array's shape, to which values broadcast. The values
    have the dtype of the array and broadcast to `a[key]`. An index from data that is out of range
    updates nothing.

    Examples:
        >>> x = uopc.param("x", (4,))
        >>> uopc.compile(x.at[1:3].add(10))(np.zeros(4, "f4"))
        array([ 0., 10., 10.,  0.], dtype=float32)
    """
    return Indexed(lambda key, how, value: updated(a, key, how, value))


def refused(a: Any, key: Any, value: Any) -> NoReturn:
    """Refuse `a[key] = value`: an array of a graph is a value."""
    raise UserTypeError("x[i] = v: an array never changes; write x = x.at[i].set(v)")


def updated(a: UOp, key: Any, how: str, value: Any) -> UOp:
    """Combine the elements of `a` that `key` names with the values."""
    new = fold.cast(operands.as_uop(value, a.dtype, f"at[].{how}"), a.dtype)
    mask = _mask(a, key, shapes.shape(new))
    if mask is not None:
        return alu.where(mask, _combined(a, how, new), a)
    axes, layout = parse(compaction.known(key, shapes.shape(a)), shapes.shape(a))
    layout = result_layout(axes, layout)
    blocks = [x.index for x in axes if x.index is not None]
    block = shapes.broadcast([shapes.shape(i) for i in blocks], "index") if blocks else ()
    groups = [(1,) if i == NEW else block if i == BLOCK else (axes[i].count,) for i in layout]
    shape = tuple([d for group in groups for d in group])
    new = _broadcast(new, shape, how)
    if not blocks:
        counts = tuple([x.count for x in axes])
        return _put(a, movement.reshape(new, counts), axes, how)
    part = [AxisSelection(0, n, n) if advanced(x) else x for x, n in zip(axes, shapes.shape(a))]
    before = layout.index(BLOCK) if BLOCK in layout else 0  # of scalars, the block has no axes
    first = sum([len(group) for group in groups[:before]])
    order = [*range(first, first + len(block))]
    new = movement.permute(new, (*order, *[i for i in range(len(shape)) if i not in order]))
    kept = tuple([x.count for x in axes if not advanced(x)])
    new = movement.reshape(new, (shapes.size(block), *kept))
    return _put(a, _scattered(windowed(a, part), axes, block, new, how), part, "set")


def _mask(a: UOp, key: Any, given: shapes.Shape) -> UOp | None:
    """The key as a mask of the array's shape, if the values broadcast to the whole array; None for
    other keys, and for a known mask whose values are for the chosen elements alone."""
    known = known_mask(key)
    if known is not None:
        whole = known.shape == shapes.shape(a) and (given == known.shape or not given)
        return operands.constant(known) if whole else None
    if not isinstance(key, UOp) or key.dtype is not dtypes.bool_:
        return None
    if shapes.shape(key) != shapes.shape(a):
        found, wanted = shapes.show(shapes.shape(key)), shapes.show(shapes.shape(a))
        raise UserError(f"at[]: the mask {found} must have the shape {wanted}")
    return key


def _broadcast(value: UOp, shape: shapes.Shape, how: str) -> UOp:
    given = shapes.shape(value)
    if shapes.broadcast([given, shape], f"at[].{how}") != shape:
        shown = f"{shapes.show(given)} do not fit {shapes.show(shape)}"
        raise UserError(f"at[].{how}: values of the shape {shown}")
    ones = (1,) * (len(shape) - len(given))
    return movement.expand(movement.reshape(value, (*ones, *given)), shape)


def _combined(a: UOp, how: str, value: UOp) -> UOp:
    return value if how == "set" else alu.alu(a, _COMBINED[how], value)


def _put(a: UOp, value: UOp, axes: list[AxisSelection], how: str) -> UOp:
    """Combine the windows of `a` with a value, which has as many axes as `a`."""
    placed = _placed(_combined(windowed(a, axes), how, value), axes, a)
    everywhere = leaves.full(leaves.const(dtypes.bool_, True), shapes.shape(value))
    return alu.where(_placed(everywhere, axes, a), placed, a)


def _placed(value: UOp, axes: list[AxisSelection], a: UOp) -> UOp:
    """Move the value to its places among the elements of `a`, with 0 around it."""
    for i, x in enumerate(axes):
        step = abs(x.step)
        if step > 1:
            dims = list(shapes.shape(value))
            apart = movement.reshape(value, (*dims[: i + 1], 1, *dims[i + 1 :]))
            widths = [(0, step - 1 if p == i + 1 else 0) for p in range(len(dims) + 1)]
            dims[i] = dims[i] * step
            joined = movement.reshape(movement.pad(apart, widths), dims)
            value = movement.shrink(
                joined, [(0, x.size if p == i else d) for p, d in enumerate(dims)]
            )
    mirrored = tuple([i for i, x in enumerate(axes) if x.step < 0])
    if mirrored:
        value = movement.flip(value, mirrored)
    ends = [n - x.begin - x.size for x, n in zip(axes, shapes.shape(a))]
    return movement.pad(value, [(x.begin, end) for x, end in zip(axes, ends)])


def _scattered(
    a: UOp, axes: list[AxisSelection], block: shapes.Shape, value: UOp, how: str
) -> UOp:
    """Combine the elements of `a` at the index arrays with the rows of the value."""
    dims = shapes.shape(a)
    picked = [i for i, x in enumerate(axes) if advanced(x)]
    kept = [i for i in range(len(dims)) if i not in picked]
    rows, *rest = shapes.shape(value)
    size = shapes.size(tuple([dims[i] for i in picked]))
    flat = movement.reshape(movement.permute(a, (*picked, *kept)), (size, *rest))
    place, valid = affine.const(0), leaves.const(dtypes.bool_, True)
    for i in picked:
        index = movement.reshape(_rows(axes[i], block), (rows,))
        place = alu.binary(Ops.ADD, alu.binary(Ops.MUL, place, dim_uop(dims[i])), index)
        valid = alu.alu(scatter.inside(index, dims[i]), Ops.AND, valid)
    place = alu.where(valid, place, affine.const(-1))
    op = None if how == "set" else _COMBINED[how]
    made = scatter.scatter(flat, place, value, op)
    back = movement.reshape(made, [dims[i] for i in (*picked, *kept)])
    return movement.permute_back(back, (*picked, *kept))


def _rows(x: AxisSelection, block: shapes.Shape) -> UOp:
    """The unguarded index of each update along an axis; the kernel skips indices out of range."""
    if x.index is None:
        return movement.expand(dim_uop(x.begin), block)
    index = x.index
    if index.op is Ops.WHERE and index.src[2].op is Ops.INVALID:
        index = index.src[1]
    return _broadcast(index, block, "index")
