"""Interval analysis: the least and greatest value of a node, by its op's rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.ir.core import arrays as data
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim, shape
from uopc.ir.core.uop import UOp
from uopc.ir.core.walk import _sweep


def max_dim(d: Dim) -> int:
    """The greatest value of a dimension."""
    return d if isinstance(d, int) else int(bounds(d)[1])


# ---------------------------------------------------------------- bounds
Bounds = tuple[Any, Any]


def bounds(u: UOp) -> Bounds:
    """(least, greatest) value of any element; for floats only constants are known exactly."""
    found = u._bounds
    return _sweep(u, "_bounds", _bounds, _is_unbounded) if found is None else found  # type: ignore[no-any-return]


def type_bounds(t: dtypes.DType) -> Bounds:
    """The bounds every value of the type has."""
    if t.kind == "float":
        return float("-inf"), float("inf")
    return (0, 0) if t.kind == "void" else t.bounds


def _is_unbounded(u: UOp) -> bool:
    return u.op not in (_BOUNDED_FLOATS if u.dtype.is_float else _BOUNDS_RULES)


def _bounds(u: UOp) -> Bounds:
    limits = type_bounds(u.dtype.scalar)
    if _is_unbounded(u):
        return limits
    low, high = _BOUNDS_RULES[u.op](u)
    # A fixed-width result that may leave its type wraps: nothing is known.
    if low < limits[0] or high > limits[1]:
        return limits
    return low, high


_BOUNDED_FLOATS = frozenset((
    Ops.CONST, Ops.WHERE, Ops.RESHAPE, Ops.EXPAND, Ops.CAST, Ops.STACK,
))  # fmt: skip


def _b(u: UOp, i: int) -> Bounds:
    return u.src[i]._bounds  # type: ignore[no-any-return]


def _bounds_const(u: UOp) -> Bounds:
    if type(u.arg) is tuple:
        return min(u.arg), max(u.arg)
    return u.arg, u.arg


def _bounds_add(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return (a or c, b or d) if u.dtype.kind == "bool" else (a + c, b + d)


def _bounds_sub(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return (0, 1) if u.dtype.kind == "bool" else (a - d, b - c)


def _bounds_mul(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _bounds_div(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    fold = u.op.fold
    assert fold is not None
    divisors = [v for v in (c, d, 1, -1) if c <= v <= d and v != 0]
    corners = [fold(x, v) for x in (a, b) for v in divisors]
    if a < 0 < b or a == 0 or b == 0 or c <= 0 <= d:
        corners.append(0)
    return min(corners, default=0), max(corners, default=0)


def _bounds_floormod(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c == d and c > 0 and a // c == b // c:
        return a % c, b % c
    low = 0 if c >= 0 else min(c + 1, 0)
    high = 0 if d <= 0 else d - 1
    if c >= 0 and a >= 0:
        high = min(high, b)
    return low, high


def _bounds_cmod(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c == d and c > 0 and a >= 0 and a // c == b // c:
        return a % c, b % c
    most = max(abs(c), abs(d), 1) - 1
    return max(-most, min(a, 0)), min(most, max(b, 0))


def _bounds_neg(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    return (1 - high, 1 - low) if u.dtype.kind == "bool" else (-high, -low)


def _bounds_abs(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _bounds_max(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return max(a, c), max(b, d)


def _bounds_min(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    return min(a, c), min(b, d)


def _bounds_where(u: UOp) -> Bounds:
    low, high = _b(u, 0)
    if low == high:
        return _b(u, 1 if low else 2)
    if u.src[2].op is Ops.INVALID:
        return _b(u, 1)
    (a, b), (c, d) = _b(u, 1), _b(u, 2)
    return min(a, c), max(b, d)


def _bounds_branch(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 2)
    return min(a, c), max(b, d)


def _bounds_range(u: UOp) -> Bounds:
    return 0, max(0, _b(u, 0)[1] - 1)


def _bounds_cast(u: UOp) -> Bounds:
    source = u.src[0].dtype
    low, high = _b(u, 0)
    if source.is_float:
        return type_bounds(u.dtype.scalar)
    if u.dtype.is_float:
        exact = max(abs(low), abs(high)) <= 1 << u.dtype.scalar.whole_bits
        return (float(low), float(high)) if exact else type_bounds(u.dtype.scalar)
    if u.dtype.kind == "bool":
        return (0 if low <= 0 <= high else 1), (0 if low == high == 0 else 1)
    return int(low), int(high)


def _bounds_compare(u: UOp) -> Bounds:
    if u.src[0].dtype.is_float:
        return 0, 1
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.op is Ops.CMPLT:
        return int(b < c), int(a < d)
    if u.op is Ops.CMPLE:
        return int(b <= c), int(a <= d)
    equal = int(a == b == c == d), int(a <= d and c <= b)
    return equal if u.op is Ops.CMPEQ else (1 - equal[1], 1 - equal[0])


def _bounds_and(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.dtype.kind == "bool":
        return min(a, c), min(b, d)
    if a >= 0 or c >= 0:
        return 0, min(v for v, lo in ((b, a), (d, c)) if lo >= 0)
    return type_bounds(u.dtype.scalar)


def _bounds_or(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if u.dtype.kind == "bool":
        return max(a, c), max(b, d)
    if a >= 0 and c >= 0:
        return max(a, c), (1 << max(b, d).bit_length()) - 1
    return type_bounds(u.dtype.scalar)


def _bounds_xor(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if a >= 0 and c >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return (-1 - b, -1 - a) if c == d == -1 else type_bounds(u.dtype.scalar)


def _bounds_stack(u: UOp) -> Bounds:
    every = [s._bounds for s in u.src if s.op is not Ops.INVALID]
    if not every:
        return type_bounds(u.dtype.scalar)
    return min([b[0] for b in every]), max([b[1] for b in every])


def _bounds_shift(u: UOp) -> Bounds:
    (a, b), (c, d) = _b(u, 0), _b(u, 1)
    if c != d or not 0 <= c < u.dtype.bits:
        return type_bounds(u.dtype.scalar)
    return (a << c, b << c) if u.op is Ops.SHL else (a >> c, b >> c)


def _bounds_reduce(u: UOp) -> Bounds:
    if u.arg.op in ("max", "min") and not u.arg.axes:
        return _b(u, 0)
    return type_bounds(u.dtype.scalar)


def _bounds_index(u: UOp) -> Bounds:
    constant = u.src[0].op is Ops.DATA and u.dtype.scalar.is_int
    return data.bounds(u.src[0].arg) if constant else type_bounds(u.dtype.scalar)


def _same(u: UOp) -> Bounds:
    return _b(u, 0)


_BOUNDS_RULES: dict[Op, Callable[[UOp], Bounds]] = {
    Ops.CONST: _bounds_const,
    Ops.VARIABLE: lambda u: (u.arg.low, u.arg.high),
    Ops.LANES: lambda u: (0, u.arg - 1),
    Ops.IOTA: lambda u: (0, max(0, max_dim(shape(u)[0]) - 1)),
    Ops.RANGE: _bounds_range,
    Ops.SPECIAL: _bounds_range,
    Ops.ADD: _bounds_add,
    Ops.SUB: _bounds_sub,
    Ops.MUL: _bounds_mul,
    Ops.FLOORDIV: _bounds_div,
    Ops.CDIV: _bounds_div,
    Ops.FLOORMOD: _bounds_floormod,
    Ops.CMOD: _bounds_cmod,
    Ops.NEG: _bounds_neg,
    Ops.ABS: _bounds_abs,
    Ops.MAX: _bounds_max,
    Ops.MIN: _bounds_min,
    Ops.WHERE: _bounds_where,
    Ops.BRANCH: _bounds_branch,
    Ops.CAST: _bounds_cast,
    Ops.CMPLT: _bounds_compare,
    Ops.CMPLE: _bounds_compare,
    Ops.CMPEQ: _bounds_compare,
    Ops.CMPNE: _bounds_compare,
    Ops.AND: _bounds_and,
    Ops.OR: _bounds_or,
    Ops.XOR: _bounds_xor,
    Ops.STACK: _bounds_stack,
    Ops.SHL: _bounds_shift,
    Ops.SHR: _bounds_shift,
    Ops.REDUCE: _bounds_reduce,
    Ops.INDEX: _bounds_index,
    **dict.fromkeys((
        Ops.BIND, Ops.AFTER, Ops.CONTIGUOUS, Ops.DETACH, Ops.STAGE, Ops.RESHAPE, Ops.EXPAND,
        Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.LANE,
    ), _same),
}  # fmt: skip
