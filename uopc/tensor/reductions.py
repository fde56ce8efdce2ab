"""Reductions along axes: sums, means, variances, argmax, running sums.

`axis` is None (all axes), one axis or a tuple. sum and prod of bool and small integers accumulate
in int32 (uint32), of float16, bfloat16 and fp8 in float32 and are rounded once to the input dtype.
The reduction over no elements is the identity: 0, 1, or the least (max) or greatest (min) value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, leaves, movement
from uopc.ir.builder.fold import cast
from uopc.ir.builder.movement import normal_axes, normal_axis
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.args import ReduceArg, ReduceOp
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Shape, show
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype


def _reduction(
    who: str, op: ReduceOp, computed_in: Callable[[DType], DType] = lambda t: t
) -> Callable[..., UOp]:
    def function(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
        axes = normal_axes(axis, len(shapes.shape(a)), who)
        keepdims = checks.flag(who, "keepdims", keepdims)
        total = movement.reduce(cast(a, computed_in(a.dtype)), op, axes, keepdims)
        return cast(total, a.dtype) if total.dtype.is_float else total

    return function


METHODS = {
    "sum": _reduction("sum", "add", dtypes.accumulator),
    "prod": _reduction("prod", "mul", dtypes.accumulator),
    "max": _reduction("max", "max"),
    "min": _reduction("min", "min"),
    "any": _reduction("any", "max", lambda t: dtypes.bool_),
    "all": _reduction("all", "min", lambda t: dtypes.bool_),
}


# ---------------------------------------------------------------- means
def _group_size(dims: Shape, axes: tuple[int, ...], dtype: DType) -> UOp:
    """The number of elements that a reduction over the axes combines, in a float dtype."""
    return cast(dim_uop(shapes.size(tuple([dims[i] for i in axes]))), dtype)


def average(x: UOp, axes: tuple[int, ...], keepdims: bool) -> UOp:
    """The mean of wide floats over axes counted from the front."""
    total = movement.reduce(x, "add", axes, keepdims)
    return alu.alu(total, Ops.FDIV, _group_size(shapes.shape(x), axes, x.dtype))


def _mean_types(t: DType) -> tuple[DType, DType]:
    """The dtype in which a mean is computed, and the dtype of the result."""
    given = t if t.is_float else dtypes.float32
    return dtypes.accumulator(given), given


def mean(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
    """The arithmetic mean."""
    wide, given = _mean_types(a.dtype)
    axes = normal_axes(axis, len(shapes.shape(a)), "mean")
    keepdims = checks.flag("mean", "keepdims", keepdims)
    return cast(average(cast(a, wide), axes, keepdims), given)


def _variance(who: str, x: UOp, axis: Any, keepdims: bool, correction: float) -> UOp:
    """The mean square distance from the mean, in two passes."""
    dims = shapes.shape(x)
    axes = normal_axes(axis, len(dims), who)
    keepdims = checks.flag(who, "keepdims", keepdims)
    correction = checks.number(who, correction)
    away = alu.binary(Ops.SUB, x, average(x, axes, keepdims=True))
    total = movement.reduce(alu.alu(away, Ops.MUL, away), "add", axes, keepdims)
    free = alu.binary(Ops.SUB, _group_size(dims, axes, x.dtype), correction)
    return alu.alu(total, Ops.FDIV, alu.binary(Ops.MAX, free, 0))


def var(a: UOp, axis: Any = None, keepdims: bool = False, correction: float = 0) -> UOp:
    """The variance: squared distances from the mean over (count - correction)."""
    wide, given = _mean_types(a.dtype)
    return cast(_variance("var", cast(a, wide), axis, keepdims, correction), given)


def std(a: UOp, axis: Any = None, keepdims: bool = False, correction: float = 0) -> UOp:
    """The square root of the variance."""
    wide, given = _mean_types(a.dtype)
    variance = _variance("std", cast(a, wide), axis, keepdims, correction)
    return cast(alu.alu(variance, Ops.SQRT), given)


# ---------------------------------------------------------------- places
def _place(op: ReduceOp) -> Callable[..., UOp]:
    """Make the function for the index of the first best element by `op`, or of the first NaN."""
    who = f"arg{op}"

    def function(a: UOp, axis: int | None = None, keepdims: bool = False) -> UOp:
        dims = shapes.shape(a)
        keepdims = checks.flag(who, "keepdims", keepdims)
        if axis is None:
            found = function(movement.reshape(a, (shapes.size(dims),)), 0)
            return movement.reshape(found, (1,) * len(dims)) if keepdims else found
        if not dims:
            a, dims = movement.reshape(a, (1,)), (1,)
        axis = normal_axis(axis, len(dims), who)
        n = dims[axis]
        if isinstance(n, int) and n == 0:
            raise UserError(f"{who}: axis {axis} of {show(dims)} is empty")
        best = movement.reduce(a, op, axis, keepdims=True)
        hit = alu.alu(a, Ops.CMPEQ, best)
        if a.dtype.is_float:  # the best is NaN if there is one, and equals nothing
            hit = alu.alu(hit, Ops.OR, alu.alu(a, Ops.CMPNE, a))
        t = place_dtype(n)
        place = along(cast(leaves.iota(n), t), len(dims) - 1 - axis)
        candidate = alu.where(hit, place, leaves.const(t, t.bounds[1]))
        return movement.reduce(candidate, "min", axis, keepdims)

    return function


argmax, argmin = _place("max"), _place("min")


def along(a: UOp, after: int) -> UOp:
    """Append `after` axes of size 1 to `a`; a scalar, which broadcasts, stays."""
    dims = shapes.shape(a)
    return movement.reshape(a, (*dims, *(1,) * after)) if dims and after else a


# ---------------------------------------------------------------- running sums
def _running(
    who: str, op: ReduceOp, computed_in: Callable[[DType], DType] = lambda t: t
) -> Callable[..., UOp]:
    def function(a: UOp, axis: int | None = None) -> UOp:
        dims = shapes.shape(a)
        if axis is None:
            a, dims, axis = movement.reshape(a, (shapes.size(dims),)), (shapes.size(dims),), 0
        if not dims:
            raise UserError(f"{who}: a scalar has no axis")
        axis, computed = normal_axis(axis, len(dims), who), cast(a, computed_in(a.dtype))
        made = intern(Ops.ACCUMULATE, computed.dtype, (computed,), ReduceArg(op, (axis,)))
        total = leaves.located(made)
        return cast(total, a.dtype) if a.dtype.is_float else total

    return function


cumsum = _running("cumsum", "add", dtypes.accumulator)
cumprod = _running("cumprod", "mul", dtypes.accumulator)
cummax, cummin = _running("cummax", "max"), _running("cummin", "min")
