"""Sorting: sort, argsort, top_k, searchsorted.

NaN is greater than every number, as in NumPy; -0.0 and 0.0 are equal. Every sort is stable: equal
elements keep their order, also with `descending`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import bitcast, cast
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.shapes import show, show_value
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import elementwise, indexing
from uopc.tensor.primitive import primitive
from uopc.tensor.sorts.network_sort import SortKeys, network_sort, network_time
from uopc.tensor.sorts.radix_sort import Order, radix_sort, radix_sort_values, radix_time

# Rows up to _SHORT are sorted by comparing all pairs, in lanes; longer ones digit by digit; those
# up to _NETWORK, whose groups a near cache holds, by a network where that takes the least time.
_SHORT, _NETWORK = 64, 4096
# For the k first of more than _FEW * k elements not all are sorted.
_FEW = 16
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


# ---------------------------------------------------------------- the order of values
class _Codes:
    """Unsigned integers for the values of a dtype, in the order of the values: each value has its
    own code. Equal values (zeros, NaNs) have different codes and the same key.

    A negative float has its bits inverted, a positive one gets the sign bit. NaNs with a sign would
    come first; subtracting the code of -infinity wraps them to the end. For 8-bit floats, whose
    NaNs are elsewhere, the codes are the bits, and only the keys have the order.
    """

    def __init__(self, t: DType, descending: bool) -> None:
        self.dtype, self.descending = t, descending
        self.unsigned = _UNSIGNED[max(t.bits, 8)]
        self.order = Order(1 if t.kind == "bool" else t.bits, self._key)
        self.sign = 0 if t.kind in ("bool", "uint") else 1 << (t.bits - 1)
        self.wraps = t.is_float and t.bits > 8
        infinity = np.array(np.inf if self.wraps else 0, t.numpy).tobytes()
        self.infinity = int.from_bytes(infinity, "little")
        self.low = self.sign - 1 - self.infinity  # the inverted bits of -infinity

    def code(self, v: UOp) -> UOp:
        """The code of a value."""
        if self.dtype.kind == "bool":
            return cast(v, self.unsigned)
        bits = bitcast(v, self.unsigned)
        if self.wraps:
            return alu.where(bits < self.sign, bits ^ self.sign, ~bits) - self.low
        return bits if self.dtype.is_float else bits ^ self.sign

    def value(self, code: UOp) -> UOp:
        """The value of a code."""
        if self.dtype.kind == "bool":
            return cast(code, self.dtype)
        if self.wraps:
            code = code + self.low
            code = alu.where(code < self.sign, ~code, code ^ self.sign)
        return bitcast(code if self.dtype.is_float else code ^ self.sign, self.dtype)

    def keys(self, v: UOp) -> UOp:
        """The keys of values."""
        return self._key(self.code(v))

    def network(self) -> SortKeys:
        """The keys for a sorting network."""
        exact = not self.dtype.is_float
        return SortKeys(self.order.bits, exact, self.keys, lambda key: self.value(self._key(key)))

    def _key(self, code: UOp) -> UOp:
        """The key of a code; its complement sorts in the other direction."""
        if self.wraps:
            zero = self.sign - self.low
            code = alu.where(code.eq(zero - 1), leaves.const(code.dtype, zero), code)
            code = code.minimum(zero + self.infinity + 1)
        elif self.dtype.is_float:
            wide = cast(bitcast(code, self.dtype), dtypes.float32)
            bits = alu.where(wide.eq(0), leaves.const(code.dtype, 0), code)
            key = alu.where(bits < self.sign, bits ^ self.sign, ~bits)
            code = alu.where(wide.ne(wide), leaves.const(code.dtype, 255), key)
        if self.descending:
            return code ^ 1 if self.dtype.kind == "bool" else ~code
        return code


# ---------------------------------------------------------------- sort
def sort(a: UOp, axis: int = -1, descending: bool = False, stable: bool = True) -> UOp:
    """Sort the elements along an axis, NaN last."""
    _check_flags("sort", descending, stable)
    (found,) = _sorted("sort", a, axis, descending, values=True, places=False)
    return _as_sorted(found, a, axis, descending)


def _as_sorted(found: UOp, a: UOp, axis: int, descending: bool, name: str = "sort") -> UOp:
    """Mark sorted values, or their places, as the primitive `name` for derivatives and batches."""
    rank = len(shapes.shape(a))
    return primitive(found, name, a, details=(axis % rank - rank, int(descending)))


def argsort(a: UOp, axis: int = -1, descending: bool = False, stable: bool = True) -> UOp:
    """The original places of the elements that `sort` returns."""
    _check_flags("argsort", descending, stable)
    (found,) = _sorted("argsort", a, axis, descending, values=False, places=True)
    return _as_sorted(found, a, axis, descending, "argsort")


def top_k(a: UOp, k: Any, axis: int = -1, largest: bool = True) -> tuple[UOp, UOp]:
    """The k greatest elements along an axis, or the k least, in order, and their places."""
    dims = shapes.shape(a)
    axis, descending = _axis("top_k", a, axis), checks.flag("top_k", "largest", largest)
    is_size = isinstance(k, UOp) and k.dtype is dtypes.index
    if type(k) is not int and not is_size:
        raise UserTypeError(f"top_k: k must be an int, got {k!r}")
    if not is_size and not 0 <= k <= bounds.bounds(dim_uop(dims[axis]))[0]:
        limit = f"at most the length of axis {axis} of {show(dims)}"
        raise UserError(f"top_k: k must be {limit}, got {k}")
    window = [(0, k if i == axis else d) for i, d in enumerate(dims)]
    if not is_size and k and isinstance(dims[axis], int) and dims[axis] > _FEW * k:
        x = cast(a, dtypes.int64) if a.dtype is dtypes.index else a
        flat, unflatten = _flat_rows(elementwise.contiguous(x), axis)
        places = _first(_Codes(x.dtype, descending).keys(flat), k)
        return unflatten(indexing.gather(flat, 1, places)), unflatten(places)
    values, places = _sorted("top_k", a, axis, descending, values=True, places=True)
    values = _as_sorted(values, a, axis, descending)
    return movement.shrink(values, window), movement.shrink(places, window)


def _first(key: UOp, k: int) -> UOp:
    """The places of the k least elements of each row of unsigned integers, in order and stable.

    The k blocks with the least minima hold all k elements. Blocks of sqrt(n / k) elements balance
    the two searches: each has sqrt(n * k) candidates.
    """
    rows, n = shapes.shape(key)
    if n <= _FEW * k:
        return movement.shrink(argsort(key, 1), [(0, rows), (0, k)])
    size = math.isqrt(n // k)
    blocks = -(-n // size)
    padded = movement.pad(key, [(0, 0), (0, blocks * size - n)], key.dtype.bounds[1])
    least = movement.reduce(movement.reshape(padded, (rows, blocks, size)), "min", 2)
    chosen = sort(_first(least, k), 1)  # so that the elements in them are in order, too
    first = movement.reshape(cast(chosen, place_dtype(n)) * size, (rows, k, 1))
    inside = movement.reshape(first + cast(leaves.iota(size), first.dtype), (rows, k * size))
    order = _first(indexing.gather(padded, 1, inside), k)
    return indexing.gather(inside, 1, order)


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
    """Sort along an axis; return the sorted values, their original places, or both."""
    axis = _axis(who, a, axis)
    x = cast(a, dtypes.int64) if a.dtype is dtypes.index else a
    dims = shapes.shape(x)
    n = dims[axis]
    if isinstance(n, int) and (n <= 1 or shapes.size(dims) == 0):
        zeros = leaves.full(leaves.const(place_dtype(n), 0), dims)
        return [x] * values + [zeros] * places
    flat, unflatten = _flat_rows(x, axis)
    codes = _Codes(x.dtype, descending)
    if _network_pays(flat, codes, places):
        return [unflatten(f) for f in network_sort(flat, codes.network(), values, places)]
    if bounds.max_dim(n) <= _SHORT:
        found = _by_ranks(flat, codes, values, places)
    elif values and places:
        found = list(radix_sort(codes.code(flat), codes.order))
    elif values:
        found = [radix_sort_values(codes.code(flat), codes.order)]
    else:
        found = [radix_sort(codes.keys(flat), Order(codes.order.bits))[1]]
    if values:
        found[0] = codes.value(found[0])
    return [unflatten(f) for f in found]


def _network_pays(x: UOp, codes: _Codes, places: bool) -> bool:
    """True if a network takes at most half the time of other sorts, since its code is longer."""
    rows, n = bounds.max_dim(shapes.shape(x)[0]), shapes.shape(x)[1]
    if not isinstance(n, int) or n > _NETWORK:
        return False
    other = radix_time(rows, n, codes.order)
    if n <= _SHORT:
        other = 0.025 * rows * n * n * x.dtype.itemsize  # a vector of pairs takes 1.6 ns
    return 2 * network_time(rows, n, codes.network(), places) < other


def _flat_rows(x: UOp, axis: int) -> tuple[UOp, Callable[[UOp], UOp]]:
    """Reshape the lines along an axis to rows of a matrix; also return the inverse function."""
    dims = shapes.shape(x)
    kept = tuple([d for i, d in enumerate(dims) if i != axis])
    order = (*[i for i in range(len(dims)) if i != axis], axis)
    back = (*range(axis), len(dims) - 1, *range(axis, len(dims) - 1))

    def unflatten(rows: UOp) -> UOp:
        whole = movement.reshape(rows, (*kept, shapes.shape(rows)[1]))
        return movement.permute(whole, back)

    return movement.reshape(movement.permute(x, order), (shapes.size(kept), dims[axis])), unflatten


def _by_ranks(x: UOp, codes: _Codes, values: bool, places: bool) -> list[UOp]:
    """Sort codes and places by ranks: the rank of an element is the number of elements before
    it."""
    rows, n = shapes.shape(x)
    key, i = elementwise.contiguous(codes.keys(x)), leaves.iota(n)
    mine, its = movement.reshape(key, (rows, n, 1)), movement.reshape(key, (rows, 1, n))
    column = movement.reshape(i, (n, 1))
    before = (its < mine) | (its.eq(mine) & (i < column))
    rank = movement.reduce(cast(before, dtypes.int32), "add", 2)
    rank = movement.reshape(elementwise.contiguous(rank), (rows, 1, n))
    here = rank.eq(cast(column, dtypes.int32))
    chosen = [movement.reshape(codes.code(x), (rows, 1, n))] * values
    chosen += [cast(i, place_dtype(n))] * places
    return [_only(here, v) for v in chosen]


def _only(here: UOp, value: UOp) -> UOp:
    """The single value along the last axis at which `here` is true."""
    kept = alu.where(here, value, leaves.const(value.dtype, 0))
    return movement.reduce(kept, "max", 2)


# ---------------------------------------------------------------- searchsorted
def searchsorted(a: UOp, values: Operand, side: str = "left", sorter: UOp | None = None) -> UOp:
    """The index at which to insert each value into the sorted vector `a`."""
    dims = shapes.shape(a)
    if side not in ("left", "right"):
        raise UserError(f"searchsorted: side must be left or right, got {side!r}")
    if len(dims) != 1:
        raise UserError(f"searchsorted: needs a vector to search in, got {show(dims)}")
    if sorter is not None and (shapes.shape(sorter) != dims or not sorter.dtype.is_integral):
        want, got = show(dims), show_value(sorter)
        raise UserError(f"searchsorted: sorter must have the indices of {want}, got {got}")
    x, v = operands.paired(a, values, "searchsorted")
    n, place = dims[0], place_dtype(dims[0])
    found = leaves.full(leaves.const(place, 0), shapes.shape(v))
    for step in reversed(range(int(bounds.max_dim(n)).bit_length())):
        reached = found + (1 << step)  # so many elements come before it, if the last of them does
        at = reached - 1 if sorter is None else movement.index(sorter, reached - 1)
        before = _comes_before(movement.index(x, at), v, side)
        found = alu.where((reached <= cast(dim_uop(n), place)) & before, reached, found)
    return found


def _comes_before(element: UOp, value: UOp, side: str) -> UOp:
    """True where an element comes before a value: it is less, or, for side "right", equal."""
    if side == "left":
        less = element < value
        return less | (value.ne(value) & element.eq(element)) if value.dtype.is_float else less
    at_most = element <= value
    return at_most | value.ne(value) if value.dtype.is_float else at_most
