"""Interval arithmetic: from the least and greatest values of operands to those of a result.

The rows of the op table name these functions. Each takes the scalar dtype of the first operand and
an interval per operand, and gives an interval, or None where nothing is known. A result outside of
its dtype wraps; the caller handles that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.ir.core.dtypes import DType

Interval = tuple[Any, Any]  # least and greatest, inclusive
Rule = Callable[..., Interval | None]


def of_type(t: DType) -> Interval:
    """The interval that holds every value of the type."""
    if t.kind == "float":
        return float("-inf"), float("inf")
    return (0, 0) if t.kind == "void" else t.bounds


def same(t: DType, x: Interval, *_: Interval) -> Interval:
    return x


EVERYTHING: Interval = (float("-inf"), float("inf"))


def intersect(x: Interval, y: Interval) -> Interval:
    """The numbers in both intervals; there are none if the least is above the greatest."""
    return max(x[0], y[0]), min(x[1], y[1])


def either(t: DType, x: Interval, y: Interval) -> Interval:
    """The least interval around both."""
    return min(x[0], y[0]), max(x[1], y[1])


def add(t: DType, x: Interval, y: Interval) -> Interval:
    return (x[0] or y[0], x[1] or y[1]) if t.kind == "bool" else (x[0] + y[0], x[1] + y[1])


def sub(t: DType, x: Interval, y: Interval) -> Interval:
    return (0, 1) if t.kind == "bool" else (x[0] - y[1], x[1] - y[0])


def mul(t: DType, x: Interval, y: Interval) -> Interval:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def quotient(divide: Callable[[int, int], int]) -> Rule:
    """The rule of an integer division that gives 0 for a divisor 0."""

    def rule(t: DType, x: Interval, y: Interval) -> Interval:
        (a, b), (c, d) = x, y
        divisors = [v for v in (c, d, 1, -1) if c <= v <= d and v != 0]
        corners = [divide(v, by) for v in x for by in divisors]
        if a < 0 < b or a == 0 or b == 0 or c <= 0 <= d:
            corners.append(0)
        return min(corners, default=0), max(corners, default=0)

    return rule


def floormod(t: DType, x: Interval, y: Interval) -> Interval:
    """Of a remainder with the sign of the divisor; 0 for a divisor 0."""
    (a, b), (c, d) = x, y
    if c == d and c > 0 and a // c == b // c:
        return a % c, b % c
    low = 0 if c >= 0 else min(c + 1, 0)
    high = 0 if d <= 0 else d - 1
    return low, min(high, b) if c >= 0 and a >= 0 else high


def cmod(t: DType, x: Interval, y: Interval) -> Interval:
    """Of a remainder with the sign of the dividend; 0 for a divisor 0."""
    (a, b), (c, d) = x, y
    if c == d and c > 0 and a >= 0 and a // c == b // c:
        return a % c, b % c
    most = max(abs(c), abs(d), 1) - 1
    return max(-most, min(a, 0)), min(most, max(b, 0))


def neg(t: DType, x: Interval) -> Interval:
    return (1 - x[1], 1 - x[0]) if t.kind == "bool" else (-x[1], -x[0])


def absolute(t: DType, x: Interval) -> Interval:
    low, high = sorted(map(abs, x))
    return 0 if x[0] <= 0 <= x[1] else low, high


def maximum(t: DType, x: Interval, y: Interval) -> Interval:
    return max(x[0], y[0]), max(x[1], y[1])


def minimum(t: DType, x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), min(x[1], y[1])


def comparison(certain: Callable[[Interval, Interval], tuple[bool, bool]]) -> Rule:
    """The rule of a comparison; `certain` gives (it always holds, it can hold)."""

    def rule(t: DType, x: Interval, y: Interval) -> Interval:
        always, ever = (False, True) if t.is_float else certain(x, y)
        return int(always), int(ever)

    return rule


def _equal(x: Interval, y: Interval) -> tuple[bool, bool]:
    return x[0] == x[1] == y[0] == y[1], x[0] <= y[1] and y[0] <= x[1]


less = comparison(lambda x, y: (x[1] < y[0], x[0] < y[1]))
at_most = comparison(lambda x, y: (x[1] <= y[0], x[0] <= y[1]))
equal = comparison(_equal)
unequal = comparison(lambda x, y: (not _equal(x, y)[1], not _equal(x, y)[0]))


def bit_and(t: DType, x: Interval, y: Interval) -> Interval | None:
    """Known where an operand is not negative."""
    if t.kind == "bool":
        return minimum(t, x, y)
    highs = [high for low, high in (x, y) if low >= 0]
    return (0, min(highs)) if highs else None


def bit_or(t: DType, x: Interval, y: Interval) -> Interval | None:
    """Known where no operand is negative."""
    if t.kind == "bool":
        return maximum(t, x, y)
    if x[0] < 0 or y[0] < 0:
        return None
    return max(x[0], y[0]), (1 << max(x[1], y[1]).bit_length()) - 1


def bit_xor(t: DType, x: Interval, y: Interval) -> Interval | None:
    """Known where no operand is negative, or where one is -1."""
    if x[0] >= 0 and y[0] >= 0:
        return 0, (1 << max(x[1], y[1]).bit_length()) - 1
    return (-1 - x[1], -1 - x[0]) if y == (-1, -1) else None


def shift(move: Callable[[int, int], int]) -> Rule:
    """The rule of a shift: known for one amount below the width."""

    def rule(t: DType, x: Interval, y: Interval) -> Interval | None:
        by = y[0]
        return (move(x[0], by), move(x[1], by)) if by == y[1] and 0 <= by < t.bits else None

    return rule
