"""The least and greatest value of a node, by the interval rule of its op's row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.ir.core import intervals, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.dtypes import DType
from uopc.ir.core.intervals import Interval
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.uop import UOp
from uopc.ir.core.walk import sweep

# Floats: only constants are known, and the ops that pass them on.
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


@memo
def most_elements(dims: Shape) -> float:
    """The number of elements of a shape, at most."""
    return math.prod([max_dim(d) for d in dims], start=1.0)


def most_bytes(u: UOp) -> int:
    """The bytes of a value at its greatest dimensions."""
    return math.prod(map(max_dim, shapes.shape(u)), start=u.dtype.itemsize)


def within(u: UOp, least: float, most: float) -> bool:
    """True if bounds prove that all values of a node are in least … most."""
    low, high = bounds(u)
    return bool(least <= low and high <= most)


def holds(t: DType, u: UOp) -> bool:
    """True if a type represents all values of a node."""
    return within(u, *intervals.of_type(t))


def bounds_from(u: UOp, operands: Sequence[Interval]) -> Interval:
    """The bounds of a node from bounds of its operands; the bounds of its dtype if it may wrap."""
    limits = intervals.of_type(u.dtype.scalar)
    rule = u.op.bounds
    found = None if rule is None else rule(u, *operands)
    return limits if found is None or found[0] < limits[0] or found[1] > limits[1] else found


def _is_unbounded(u: UOp) -> bool:
    return u.op not in _BOUNDED_FLOATS if u.dtype.is_float else u.op.bounds is None


def _bounds(u: UOp) -> Interval:
    if _is_unbounded(u):
        return intervals.of_type(u.dtype.scalar)
    return bounds_from(u, [s._bounds for s in u.src])
