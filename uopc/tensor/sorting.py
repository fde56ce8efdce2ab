"""Sorting: sort, argsort, top_k, searchsorted.

NaN is greater than every number, as in NumPy; -0.0 and 0.0 are equal. Every sort is stable: equal
elements keep their order, also with `descending`.
"""

from __future__ import annotations

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import bitcast, cast
from uopc.ir.builder.movement import normal_axis
from uopc.ir.builder.operands import Operand
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.shapes import show
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise
from uopc.tensor.radix_sort import Order, place_dtype, radix_sort, radix_sort_values

# Rows up to this length are sorted by comparing all pairs, in lanes; longer ones digit by digit.
_SHORT = 64
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


# ---------------------------------------------------------------- the order of values
def _order(t: DType, descending: bool) -> Order:
    """Keys of values of a dtype; the complement of a key gives the other direction."""
    if t.kind == "bool":
        return Order(1, lambda v: cast(v, dtypes.uint8) ^ int(descending))
    key = _float_key if t.is_float else _int_key
    return Order(t.bits, (lambda v: ~key(v)) if descending else key)


def _int_key(v: UOp) -> UOp:
    """The integer without its sign bit, or with it if it was without: the least becomes 0."""
    bits = bitcast(v, _UNSIGNED[v.dtype.bits])
    return bits ^ (1 << (v.dtype.bits - 1)) if v.dtype.is_signed else bits


def _float_key(v: UOp) -> UOp:
    """The bits of a positive float with the sign bit, of a negative one inverted."""
    wide = cast(v, dtypes.float32) if v.dtype.bits < 32 else v
    bits = bitcast(v, _UNSIGNED[v.dtype.bits])
    bits = alu.where(wide.eq(0), leaves.const(bits.dtype, 0), bits)
    sign = 1 << (v.dtype.bits - 1)
    key = alu.where(bits < sign, bits ^ sign, ~bits)
    return alu.where(wide.ne(wide), leaves.const(bits.dtype, bits.dtype.bounds[1]), key)


# ---------------------------------------------------------------- sort
def sort(a: UOp, axis: int = -1, descending: bool = False, stable: bool = True) -> UOp:
    """The elements along an axis in ascending order, NaN last; `descending` gives the mirror image,
    but equal elements keep their order. Every sort is stable, whatever `stable` says.

    UserError for a scalar.

        x = uopc.param("x", (4,))
        uopc.compile(x.sort())([3.0, nan, -1.0, 2.0])    # [-1, 2, 3, nan]
    """
    _check_flags("sort", descending, stable)
    return _sorted("sort", a, axis, descending, values=True, places=False)[0]


def argsort(a: UOp, axis: int = -1, descending: bool = False, stable: bool = True) -> UOp:
    """The places of the elements that `sort` gives, along the axis: int32, or int64 where the
    dimension needs it."""
    _check_flags("argsort", descending, stable)
    return _sorted("argsort", a, axis, descending, values=False, places=True)[0]


def top_k(a: UOp, k: int, axis: int = -1) -> tuple[UOp, UOp]:
    """The k greatest elements along an axis, the greatest (NaN) first, and their places. Of equal
    elements the first ones come first. UserError unless 0 ≤ k ≤ the length of the axis."""
    dims = shapes.shape(a)
    axis = _axis("top_k", a, axis)
    if type(k) is not int:
        raise UserTypeError(f"top_k: k must be an int, got {k!r}")
    if not 0 <= k <= bounds.bounds(leaves.dim_uop(dims[axis]))[0]:
        limit = f"at most the length of axis {axis} of {show(dims)}"
        raise UserError(f"top_k: k must be {limit}, got {k}")
    window = [(0, k if i == axis else d) for i, d in enumerate(dims)]
    values, places = _sorted("top_k", a, axis, True, values=True, places=True)
    return movement.shrink(values, window), movement.shrink(places, window)


def _check_flags(who: str, descending: bool, stable: bool) -> None:
    checks.flag(who, "descending", descending)
    checks.flag(who, "stable", stable)


def _axis(who: str, a: UOp, axis: int) -> int:
    dims = shapes.shape(a)
    if not dims:
        raise UserError(f"{who}: a scalar has no axis")
    return normal_axis(axis, len(dims), who)


def _sorted(
    who: str, a: UOp, axis: int, descending: bool, *, values: bool, places: bool
) -> list[UOp]:
    """The sorted values, the places they had, or both."""
    axis = _axis(who, a, axis)
    x = cast(a, dtypes.int64) if a.dtype is dtypes.index else a
    dims = shapes.shape(x)
    n = dims[axis]
    if isinstance(n, int) and (n <= 1 or shapes.size(dims) == 0):
        zeros = leaves.full(leaves.const(place_dtype(n), 0), dims)
        return [x] * values + [zeros] * places
    others = [i for i in range(len(dims)) if i != axis]
    rows = movement.permute(x, (*others, axis))
    flat = movement.reshape(rows, (shapes.size(tuple([dims[i] for i in others])), n))
    order = _order(x.dtype, descending)
    if bounds.max_dim(n) <= _SHORT:
        found = _by_ranks(flat, order, values, places)
    elif values and places:
        found = list(radix_sort(flat, order))
    elif places:  # the keys move, computed once
        found = [radix_sort(order.key(flat), Order(order.bits))[1]]
    else:
        found = [radix_sort_values(flat, order)]
    back = (*range(axis), len(dims) - 1, *range(axis, len(dims) - 1))
    whole = [movement.reshape(f, shapes.shape(rows)) for f in found]
    return [movement.permute(w, back) for w in whole]


def _by_ranks(x: UOp, order: Order, values: bool, places: bool) -> list[UOp]:
    """Each element has as rank the number of those before it; the element of each rank follows."""
    rows, n = shapes.shape(x)
    key, i = elementwise.contiguous(order.key(x)), leaves.iota(n)
    mine, its = movement.reshape(key, (rows, n, 1)), movement.reshape(key, (rows, 1, n))
    column = movement.reshape(i, (n, 1))
    before = (its < mine) | (its.eq(mine) & (i < column))
    rank = movement.reduce(cast(before, dtypes.int32), "add", 2)
    rank = movement.reshape(elementwise.contiguous(rank), (rows, 1, n))
    here = rank.eq(cast(column, dtypes.int32))
    found = []
    if values:
        truth = x.dtype.kind == "bool"
        bits = x if truth else bitcast(x, _UNSIGNED[x.dtype.bits])
        chosen = _only(here, movement.reshape(bits, (rows, 1, n)))
        found.append(chosen if truth else bitcast(chosen, x.dtype))
    if places:
        found.append(_only(here, cast(i, place_dtype(n))))
    return found


def _only(here: UOp, value: UOp) -> UOp:
    """The one value of the last axis at which `here` is true."""
    kept = alu.where(here, value, leaves.const(value.dtype, 0))
    return movement.reduce(kept, "max", 2)


# ---------------------------------------------------------------- searchsorted
def searchsorted(a: UOp, values: Operand, side: str = "left", sorter: UOp | None = None) -> UOp:
    """Where each value fits into the sorted vector `a`: before the elements that are equal to it
    (`left`), or behind them (`right`). `sorter` holds the places that sort `a`, as by argsort.

    int32, or int64 where the length needs it; the dtypes are promoted. UserError unless `a` has one
    dimension.
    """
    dims = shapes.shape(a)
    if side not in ("left", "right"):
        raise UserError(f"searchsorted: side must be left or right, got {side!r}")
    if len(dims) != 1:
        raise UserError(f"searchsorted: needs a vector to search in, got {show(dims)}")
    if sorter is not None and (shapes.shape(sorter) != dims or not sorter.dtype.is_integral):
        got = f"{sorter.dtype.name}{show(shapes.shape(sorter))}"
        raise UserError(f"searchsorted: sorter must have the places of {show(dims)}, got {got}")
    x, v = operands.paired(a, values, "searchsorted")
    n, place = dims[0], place_dtype(dims[0])
    found = leaves.full(leaves.const(place, 0), shapes.shape(v))
    for step in reversed(range(int(bounds.max_dim(n)).bit_length())):
        reached = found + (1 << step)  # so many elements come before it, if the last of them does
        at = reached - 1 if sorter is None else movement.index(sorter, reached - 1)
        before = _comes_before(movement.index(x, at), v, side)
        found = alu.where((reached <= cast(leaves.dim_uop(n), place)) & before, reached, found)
    return found


def _comes_before(element: UOp, value: UOp, side: str) -> UOp:
    """True where an element stays before a value: it is less, or else as great."""
    if side == "left":
        less = element < value
        return less | (value.ne(value) & element.eq(element)) if value.dtype.is_float else less
    at_most = element <= value
    return at_most | value.ne(value) if value.dtype.is_float else at_most
