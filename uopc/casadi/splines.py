"""B-splines and interpolants on grids of any dimension.

A value is the sum of the coefficients around the point, times the products of the basis functions
that are not zero there: degree + 1 for each axis. Piecewise linear interpolation is the spline of
degree 1. The basis functions come by the recurrence of Cox and de Boor, in the order of
"The NURBS Book", algorithm A2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
import numpy.typing as npt

from uopc.casadi.instruction import Instruction
from uopc.casadi.matrix_ops import Rule
from uopc.casadi.serialized import SerializedFields
from uopc.casadi.structures import F8, columns, joined, length, numbers, rows, taken
from uopc.ir.builder import leaves, movement
from uopc.ir.builder.operands import constant
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.tracing.transforms import jvp

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class SplineAxis:
    """One axis of a grid: the knots, the degree of the pieces, the number of coefficients.

    `ends`: True if the spline is 0 outside of its knots, False if its outer pieces go on.
    """

    knots: Numbers
    degree: int
    count: int
    ends: bool

    def around(self, x: UOp) -> tuple[UOp, UOp]:
        """For points (n,): the numbers of the basis functions that are not zero there, and their
        values, both of shape (n, degree + 1)."""
        d, n = self.degree, length(x)
        inner = numbers(self.knots[d + 1 : self.count])
        begin = leaves.full(leaves.const(dtypes.int64, 0), (n,))
        if length(inner):
            begin = (inner <= x.reshape(n, 1)).cast(dtypes.int64).sum(axis=1)
        knots = numbers(self.knots)

        def at(k: int) -> UOp:
            """The knots from the piece of each point on."""
            return knots[begin + (d + k)]

        values = [leaves.full(leaves.const(F8, 1.0), (n,))]
        for r in range(1, d + 1):
            rest, made = leaves.full(leaves.const(F8, 0.0), (n,)), []
            for i, v in enumerate(values):
                right, left = at(i + 1), at(i + 1 - r)
                share = v / (right - left)
                made.append(rest + (right - x) * share)
                rest = (x - left) * share
            values = [*made, rest]
        if self.ends:
            inside = (x >= self.knots[0]) & (x <= self.knots[-1])
            values = [inside.where(v, 0.0) for v in values]
        steps = constant(np.arange(d + 1), dtypes.int64)
        return begin.reshape(n, 1) + steps, movement.stack(*values, axis=1)


def values_at(points: UOp, axes: Sequence[SplineAxis], coefficients: UOp, m: int) -> UOp:
    """The m values at each of n points (n · axes,), as a vector (n · m,). The coefficients stand in
    the order: values, first axis, second axis, ..."""
    n = length(points) // len(axes)
    table = points.reshape(n, len(axes))
    at = constant(np.arange(m), dtypes.int64).reshape(1, 1, m)
    weights, stride = leaves.full(leaves.const(F8, 1.0), (n, 1)), m
    for k, axis in enumerate(axes):
        number, basis = axis.around(table[:, k])
        at = (number * stride).reshape(n, -1, 1, 1) + at.reshape(at.shape[0], 1, -1, m)
        at = at.reshape(n, -1, m)
        weights = (basis.reshape(n, -1, 1) * weights.reshape(n, 1, -1)).reshape(n, -1)
        stride *= axis.count
    return (coefficients[at] * weights.reshape(n, -1, 1)).sum(axis=1).reshape(-1)


def _parts(values: Numbers, offset: Numbers) -> list[Numbers]:
    return [values[a:b] for a, b in zip(offset[:-1], offset[1:])]


def _spline(fields: SerializedFields, x: UOp, coefficients: Sequence[UOp]) -> UOp:
    knots, offset, degree, dims = [
        fields.numbers(f"BSplineCommon::{name}")
        for name in ("knots", "offset", "degree", "coeffs_dims")
    ]
    grid = zip(_parts(knots, offset), degree, dims[1:])
    axes = [SplineAxis(t, int(d), int(n), True) for t, d, n in grid]
    c = coefficients[0] if coefficients else numbers(fields.numbers("BSpline::coeffs"))
    return values_at(x, axes, c, int(fields.number("BSplineCommon::m")))


def spline_function(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """An interpolant by B-splines."""
    return [_spline(SerializedFields(f), args[0], args[1:])]


def linear_function(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """A piecewise linear interpolant; its values may be an input."""
    return [_piecewise_linear(SerializedFields(f), args[0], args[1:])]


def linear_jacobian(f: ca.Function, args: Sequence[UOp]) -> list[UOp]:
    """The derivative of a piecewise linear interpolant by its points. The last argument, the value
    there, is not needed."""
    fields, x = SerializedFields(f), args[0]
    m = int(fields.number("Interpolant::m"))
    axes = len(fields.numbers("Interpolant::offset")) - 1
    n = length(x) // axes
    slopes = []
    for k in range(axes):
        step = numbers(np.tile(np.arange(axes) == k, n))
        _, slope = jvp(lambda p: _piecewise_linear(fields, p, args[1:-1]), (x,), (step,))
        slopes.append(slope)
    row, column = rows(f.sparsity_out(0)), columns(f.sparsity_out(0))
    point, axis = column // axes, column % axes
    return [taken(joined(slopes), np.where(row // m == point, axis * n * m + row, -1))]


def _piecewise_linear(fields: SerializedFields, x: UOp, values: Sequence[UOp]) -> UOp:
    grid, offset = fields.numbers("Interpolant::grid"), fields.numbers("Interpolant::offset")
    axes = [
        SplineAxis(np.concatenate([t[:1], t, t[-1:]]), 1, len(t), False)
        for t in _parts(grid, offset)
    ]
    c = values[0] if values else numbers(fields.numbers("Interpolant::values"))
    return values_at(x, axes, c, int(fields.number("Interpolant::m")))


def _rule(node: Instruction, x: UOp, *coefficients: UOp) -> UOp:
    return _spline(node.fields, x, coefficients)


SPLINE_OPS: dict[int, Rule] = {ca.OP_BSPLINE: _rule}
