"""Interval arithmetic: from the least and greatest values of operands to those of a result.

The rows of the op table name these functions. Each function takes the node and an interval per
operand, and returns an interval, or None if unknown. A result outside of its dtype wraps, which the
caller handles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from uopc.ir.core.args import DataArg
from uopc.ir.core.data import arrays
from uopc.ir.core.dtypes import DType

Interval = tuple[Any, Any]  # least and greatest, inclusive
Node = Any  # a UOp: this module comes before it
Rule = Callable[..., Interval | None]


def of_type(t: DType) -> Interval:
    """The interval that holds every value of the type."""
    if t.kind == "float":
        return float("-inf"), float("inf")
    return (0, 0) if t.kind == "void" else t.bounds


EVERYTHING: Interval = (float("-inf"), float("inf"))


def intersect(x: Interval, y: Interval) -> Interval:
    """The numbers in both intervals; there are none if the least is above the greatest."""
    return max(x[0], y[0]), min(x[1], y[1])


def either(x: Interval, y: Interval) -> Interval:
    """The smallest interval that contains both."""
    return min(x[0], y[0]), max(x[1], y[1])


def _is_bool(u: Node) -> bool:
    return bool(u.src[0].dtype.kind == "bool")


def add(u: Node, x: Interval, y: Interval) -> Interval:
    """The bounds of a sum; for indices with a common factor, also from the factor times the other
    sum."""
    if _is_bool(u):
        return x[0] or y[0], x[1] or y[1]
    apart = x[0] + y[0], x[1] + y[1]
    return apart if _is_linear(u) else _together(u, 1, apart)


def sub(u: Node, x: Interval, y: Interval) -> Interval:
    """The bounds of a difference, in the same way as `add`."""
    if _is_bool(u):
        return 0, 1
    apart = x[0] - y[1], x[1] - y[0]
    return apart if _is_linear(u) else _together(u, -1, apart)


def _is_linear(u: Node) -> bool:
    """True if the sum may wrap, or if no operand is a product of two non-constant values."""
    if u.dtype.kind != "index":
        return True
    for s in u.src:
        if s.op.name == "mul":
            v, by = s.src
            if by.op.name != "const" or v.op.name == "mul":
                return False
    return True


def _together(u: Node, sign: int, apart: Interval) -> Interval:
    """The interval of f·x ± f·y as that of f·(x ± y): 4·a·a − a is at least 3 for a ≥ 1."""
    a, b = map(_factors, u.src)
    f = next((v for v in a if v in b and v.op.name != "const"), None)
    if f is None:
        return apart
    a.remove(f)
    b.remove(f)
    x, y = [functools.reduce(_times, [v._bounds for v in vs], (1, 1)) for vs in (a, b)]
    low, high = _times(y, (sign, sign))
    return intersect(apart, _times(f._bounds, (x[0] + low, x[1] + high)))


# More factors than this are not searched.
_MOST_FACTORS = 8


def _factors(u: Node) -> list[Node]:
    found: list[Node] = []
    left = [u]
    while left and len(left) + len(found) <= _MOST_FACTORS:
        v = left.pop()
        if v.op.name == "mul":
            left += v.src
        else:
            found.append(v)
    return [] if left else found


def _times(x: Interval, y: Interval) -> Interval:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def mul(u: Node, x: Interval, y: Interval) -> Interval:
    return _times(x, y)


def quotient(divide: Callable[[int, int], int]) -> Rule:
    """The rule of an integer division with result 0 for a divisor 0."""

    def rule(u: Node, x: Interval, y: Interval) -> Interval:
        (a, b), (c, d) = x, y
        divisors = [v for v in (c, d, 1, -1) if c <= v <= d and v != 0]
        corners = [divide(v, by) for v in x for by in divisors]
        if a < 0 < b or a == 0 or b == 0 or c <= 0 <= d:
            corners.append(0)
        return min(corners, default=0), max(corners, default=0)

    return rule


def floormod(u: Node, x: Interval, y: Interval) -> Interval:
    """The bounds of a remainder with the sign of the divisor; 0 for a divisor 0."""
    (a, b), (c, d) = x, y
    if c == d and c > 0 and a // c == b // c:
        return a % c, b % c
    low = 0 if c >= 0 else min(c + 1, 0)
    high = 0 if d <= 0 else d - 1
    return low, min(high, b) if c >= 0 and a >= 0 else high


def cmod(u: Node, x: Interval, y: Interval) -> Interval:
    """The bounds of a remainder with the sign of the dividend; 0 for a divisor 0."""
    (a, b), (c, d) = x, y
    if c == d and c > 0 and a >= 0 and a // c == b // c:
        return a % c, b % c
    most = max(abs(c), abs(d), 1) - 1
    return max(-most, min(a, 0)), min(most, max(b, 0))


def neg(u: Node, x: Interval) -> Interval:
    return (1 - x[1], 1 - x[0]) if _is_bool(u) else (-x[1], -x[0])


def absolute(u: Node, x: Interval) -> Interval:
    low, high = sorted(map(abs, x))
    return 0 if x[0] <= 0 <= x[1] else low, high


def maximum(u: Node, x: Interval, y: Interval) -> Interval:
    return max(x[0], y[0]), max(x[1], y[1])


def minimum(u: Node, x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), min(x[1], y[1])


def comparison(certain: Callable[[Interval, Interval], tuple[bool, bool]]) -> Rule:
    """The rule of a comparison; `certain` returns (always true, possibly true)."""

    def rule(u: Node, x: Interval, y: Interval) -> Interval:
        always, ever = (False, True) if u.src[0].dtype.is_float else certain(x, y)
        return int(always), int(ever)

    return rule


def _equal(x: Interval, y: Interval) -> tuple[bool, bool]:
    return x[0] == x[1] == y[0] == y[1], x[0] <= y[1] and y[0] <= x[1]


less = comparison(lambda x, y: (x[1] < y[0], x[0] < y[1]))
at_most = comparison(lambda x, y: (x[1] <= y[0], x[0] <= y[1]))
equal = comparison(_equal)
unequal = comparison(lambda x, y: (not _equal(x, y)[1], not _equal(x, y)[0]))


def bit_and(u: Node, x: Interval, y: Interval) -> Interval | None:
    """The bounds of an AND; known if an operand is not negative."""
    if _is_bool(u):
        return minimum(u, x, y)
    highs = [high for low, high in (x, y) if low >= 0]
    return (0, min(highs)) if highs else None


def bit_or(u: Node, x: Interval, y: Interval) -> Interval | None:
    """The bounds of an OR; known if no operand is negative."""
    if _is_bool(u):
        return maximum(u, x, y)
    if x[0] < 0 or y[0] < 0:
        return None
    return max(x[0], y[0]), (1 << max(x[1], y[1]).bit_length()) - 1


def bit_xor(u: Node, x: Interval, y: Interval) -> Interval | None:
    """The bounds of a XOR; known if no operand is negative, or if one operand is -1."""
    if x[0] >= 0 and y[0] >= 0:
        return 0, (1 << max(x[1], y[1]).bit_length()) - 1
    return (-1 - x[1], -1 - x[0]) if y == (-1, -1) else None


def shift(move: Callable[[int, int], int]) -> Rule:
    """The rule of a shift: known for one amount below the width."""

    def rule(u: Node, x: Interval, y: Interval) -> Interval | None:
        by = y[0]
        return (move(x[0], by), move(x[1], by)) if by == y[1] and 0 <= by < u.dtype.bits else None

    return rule


# ---------------------------------------------------------------- leaves
def constant(u: Node) -> Interval:
    return (min(u.arg), max(u.arg)) if type(u.arg) is tuple else (u.arg, u.arg)


def loop(u: Node, end: Interval, *_: Interval) -> Interval:
    """The bounds of a loop's index, if the loop has iterations: see `ranges.in_empty_loop`."""
    return 0, max(0, end[1] - 1)


def hardware_index(u: Node, end: Interval) -> Interval:
    """The bounds of a hardware index. If the grid may be empty, the index is never known to be 0:
    folding it to 0 would hide that the grid may be empty."""
    return 0, max(0 if end[0] > 0 else 1, end[1] - 1)


def iota(u: Node, *length: Interval) -> Interval:
    return 0, max(0, (length[0][1] if length else u.arg[0]) - 1)


# ---------------------------------------------------------------- other ops
def same(u: Node, x: Interval, *_: Interval) -> Interval:
    """The bounds of the first operand, whose elements the node moves."""
    return x


def _is_invalid(u: Node) -> bool:
    return bool(u.op.name == "invalid")


def where(u: Node, p: Interval, x: Interval, y: Interval) -> Interval:
    """The bounds of the operand that the condition picks, or of both. An INVALID has no value."""
    if p[0] == p[1]:
        return x if p[0] else y
    if _is_invalid(u.src[1]):
        return y
    return x if _is_invalid(u.src[2]) else either(x, y)


def cast(u: Node, x: Interval) -> Interval | None:
    """The bounds of a cast; known for integers, and for floats that represent these integers
    exactly."""
    low, high = x
    if u.src[0].dtype.is_float:
        return None
    if u.dtype.is_float:
        exact = max(abs(low), abs(high)) <= 1 << u.dtype.scalar.whole_bits
        return (float(low), float(high)) if exact else None
    if u.dtype.kind == "bool":
        return (0 if low <= 0 <= high else 1), (0 if low == high == 0 else 1)
    return int(low), int(high)


def stack(u: Node, *values: Interval) -> Interval | None:
    known = [x for x, s in zip(values, u.src) if not _is_invalid(s)]
    return (min([x[0] for x in known]), max([x[1] for x in known])) if known else None


def reduce(u: Node, x: Interval, *_: Interval) -> Interval | None:
    """The bounds of a reduce; known for a max or min. If a loop may be empty, include the identity.
    """
    if u.arg.op not in ("max", "min") or u.arg.axes:
        return None
    if all([r.src[0]._bounds[0] > 0 for r in u.src[1:]]):
        return x
    low, high = of_type(u.dtype.scalar)
    return (low, x[1]) if u.arg.op == "max" else (x[0], high)


def element(u: Node, *_: Interval) -> Interval | None:
    """The bounds of an element of a constant array of integers."""
    known = type(u.src[0].arg) is DataArg and u.dtype.scalar.is_int
    return arrays.bounds(u.src[0].arg) if known else None
