"""Interval analysis: the least and greatest value of a node, by the interval rule of its op's row.

The rules of ops that depend on more than their operands' intervals stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.ir.core import arrays, intervals
from uopc.ir.core.intervals import Interval
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim, shape
from uopc.ir.core.uop import UOp
from uopc.ir.core.walk import sweep

# Floats: only constants are known, and what passes them on.
_BOUNDED_FLOATS = frozenset((
    Ops.CONST, Ops.WHERE, Ops.RESHAPE, Ops.EXPAND, Ops.CAST, Ops.STACK,
))  # fmt: skip


def bounds(u: UOp) -> Interval:
    """(least, greatest) value of any element; for floats only constants are known exactly."""
    found = u._bounds
    return sweep(u, "_bounds", _bounds, _is_unbounded) if found is None else found  # type: ignore[no-any-return]


def max_dim(d: Dim) -> int:
    """The greatest value of a dimension."""
    return d if isinstance(d, int) else int(bounds(d)[1])


def bounds_from(u: UOp, operands: Sequence[Interval]) -> Interval:
    """The bounds of a node whose operands have these; those of its dtype where it may wrap."""
    limits = intervals.of_type(u.dtype.scalar)
    rule = u.op.bounds
    found = _RULES[u.op](u, *operands) if rule is None else rule(u.src[0].dtype.scalar, *operands)
    return limits if found is None or found[0] < limits[0] or found[1] > limits[1] else found


def _is_unbounded(u: UOp) -> bool:
    return u.op not in (_BOUNDED_FLOATS if u.dtype.is_float else _BOUNDED)


def _bounds(u: UOp) -> Interval:
    if _is_unbounded(u):
        return intervals.of_type(u.dtype.scalar)
    return bounds_from(u, [s._bounds for s in u.src])


# ---------------------------------------------------------------- more than the operands' intervals
def _const(u: UOp) -> Interval:
    return (min(u.arg), max(u.arg)) if type(u.arg) is tuple else (u.arg, u.arg)


def _where(u: UOp, p: Interval, x: Interval, y: Interval) -> Interval:
    if p[0] == p[1]:
        return x if p[0] else y
    return x if u.src[2].op is Ops.INVALID else intervals.either(u.dtype, x, y)


def _range(u: UOp, end: Interval, *_: Interval) -> Interval:
    return 0, max(0, end[1] - 1)


def _cast(u: UOp, x: Interval) -> Interval | None:
    low, high = x
    if u.src[0].dtype.is_float:
        return None
    if u.dtype.is_float:
        exact = max(abs(low), abs(high)) <= 1 << u.dtype.scalar.whole_bits
        return (float(low), float(high)) if exact else None
    if u.dtype.kind == "bool":
        return (0 if low <= 0 <= high else 1), (0 if low == high == 0 else 1)
    return int(low), int(high)


def _stack(u: UOp, *values: Interval) -> Interval | None:
    known = [x for x, s in zip(values, u.src) if s.op is not Ops.INVALID]
    return (min([x[0] for x in known]), max([x[1] for x in known])) if known else None


def _reduce(u: UOp, x: Interval, *_: Interval) -> Interval | None:
    return x if u.arg.op in ("max", "min") and not u.arg.axes else None


def _index(u: UOp, *_: Interval) -> Interval | None:
    constant = u.src[0].op is Ops.DATA and u.dtype.scalar.is_int
    return arrays.bounds(u.src[0].arg) if constant else None


_RULES: dict[Op, Callable[..., Interval | None]] = {
    Ops.CONST: _const,
    Ops.VARIABLE: lambda u: (u.arg.low, u.arg.high),
    Ops.LANES: lambda u: (0, u.arg - 1),
    Ops.IOTA: lambda u, *_: (0, max(0, max_dim(shape(u)[0]) - 1)),
    Ops.RANGE: _range,
    Ops.SPECIAL: _range,
    Ops.WHERE: _where,
    Ops.BRANCH: lambda u, x, p, y: intervals.either(u.dtype, x, y),
    Ops.CAST: _cast,
    Ops.STACK: _stack,
    Ops.REDUCE: _reduce,
    Ops.INDEX: _index,
}
_BOUNDED = frozenset((*_RULES, *[op for op in Op.all() if op.bounds is not None]))
