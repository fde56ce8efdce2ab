"""Functions of samples: slopes, areas, interpolation, unwrapped angles, polynomials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, fold, leaves
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import float_of, promoted, same_kind, uop_of
from uopc.numpy.elementwise import FUNCTIONS
from uopc.numpy.manipulation import own_axes, own_axis, take
from uopc.numpy.reductions import cumsum, diff
from uopc.numpy.reductions import sum as _sum
from uopc.numpy.sorting import argsort
from uopc.tensor.matrices import linear_algebra, products
from uopc.tensor.sorts import sorting

__all__ = [
    "ediff1d", "gradient", "interp", "polyfit", "polyval", "trapezoid", "unwrap", "vander",
]  # fmt: skip


def _slice(u: UOp, axis: int, start: int | None, stop: int | None) -> UOp:
    """The slice of an axis from `start` to `stop`."""
    made: UOp = u[(*(slice(None),) * axis, slice(start, stop))]
    return made


# ---------------------------------------------------------------- differences and slopes
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the flattened array, between `to_begin` and `to_end`.

    The result has the dtype of `ary`. UserTypeError for ends of another kind, and for bool.

    Examples:
        >>> np.asarray(unp.ediff1d(unp.asarray([1, 4, 9]), to_begin=0))
        array([0, 3, 5])
    """
    u = uop_of(ary, "ediff1d")
    if u.dtype.kind == "bool":
        raise UserTypeError("ediff1d needs numbers, got bool")
    parts = [uop_of(diff(u.reshape(-1)))]
    for end, place in ((to_begin, 0), (to_end, 2)):
        if end is None:
            continue
        e = uop_of(end, "ediff1d")
        if not np.can_cast(e.dtype.numpy, u.dtype.numpy, "same_kind"):
            raise UserTypeError(
                f"ediff1d: to_begin and to_end must be cast to {u.dtype.name}, got {e.dtype.name}"
            )
        parts.insert(place, fold.cast(e, u.dtype).reshape(-1))
    first, *others = parts
    return same_kind(first.cat(*others), (ary, to_end, to_begin))


def gradient(
    f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1
) -> Any | tuple[Any, ...]:
    """The slopes of samples along an axis: from both neighbours, at the ends from the nearest.

    `varargs` are the distances of samples (by default 1): a number, or for each axis a number or a
    vector of coordinates. The result has the shape of f, for several axes (all without `axis`) in a
    tuple; integers and bool give float64. `edge_order=2` uses one more sample at the ends.
    UserError for fewer than edge_order + 1 samples, and for distances that do not fit.

    Examples:
        >>> np.asarray(unp.gradient(unp.asarray([1.0, 2.0, 4.0, 7.0]), 0.5))
        array([2., 3., 5., 6.])
    """
    u = float_of(f, "gradient")
    axes = own_axes(axis, u.ndim, "gradient")
    if edge_order not in (1, 2):
        raise UserError(f"gradient: edge_order must be 1 or 2, got {edge_order!r}")
    given = varargs if varargs else (1.0,)
    if len(given) == 1 and not uop_of(given[0]).ndim:
        given = given * len(axes)
    if len(given) != len(axes):
        raise UserError(f"gradient: {len(given)} distances for {len(axes)} axes")
    slopes = [_slopes(u, at, distance, edge_order) for at, distance in zip(axes, given)]
    found = same_kind([fold.cast(v, u.dtype) for v in slopes], (f, *varargs))
    return found[0] if len(found) == 1 else tuple(found)


def _slopes(u: UOp, axis: int, given: Any, edge_order: int) -> UOp:
    """The slopes along an axis. A parabola goes through a sample and its neighbours, at distances l
    and r and with rises L and R; its slope at the sample is (r/l·L + l/r·R) / (l + r)."""
    n = u.shape[axis]
    if bounds.bounds(dim_uop(n))[0] <= edge_order:
        raise UserError(f"gradient: axis {axis} of {shapes.show(u.shape)} needs {edge_order + 1}"
                        " elements")  # fmt: skip
    steps = uop_of(given, "gradient")
    if isinstance(given, (list, tuple, np.ndarray)) and steps.shape == (n,):
        known = np.diff(np.asarray(given) * 1.0)  # even steps are one, so that a sample that is NaN
        if (known == known[0]).all():  # has a slope: that of its neighbours
            steps = uop_of(given := known[0])
    if steps.ndim:
        if steps.shape != (n,):
            shown = shapes.show(steps.shape)
            raise UserError(f"gradient: expected {n} coordinates of samples, got {shown}")
        x = steps if steps.dtype.is_float else fold.cast(steps, dtypes.float64)
        x = x.reshape([n if i == axis else 1 for i in range(u.ndim)])
        step = _slice(x, axis, 1, None) - _slice(x, axis, None, -1)
    else:
        step = promoted("gradient", u, given)[0][1]
    rise = _slice(u, axis, 1, None) - _slice(u, axis, None, -1)

    def part(v: UOp, start: int | None, stop: int | None) -> UOp:
        return _slice(v, axis, start, stop) if v.ndim else v

    if steps.ndim:
        left, right = part(step, None, -1), part(step, 1, None)
        risen = part(rise, None, -1) * (right / left) + part(rise, 1, None) * (left / right)
        inner = risen / (left + right)
    else:
        inner = (_slice(u, axis, 2, None) - _slice(u, axis, None, -2)) / (2 * step)
    first, last = part(rise, 0, 1) / part(step, 0, 1), part(rise, -1, None) / part(step, -1, None)
    if edge_order == 2:
        first = _edge(first, part(rise, 1, 2), part(step, 0, 1), part(step, 1, 2))
        last = _edge(last, part(rise, -2, -1), part(step, -1, None), part(step, -2, -1))
    return first.cat(inner, last, axis=axis)


def _edge(near: UOp, rise: UOp, step: UOp, further: UOp) -> UOp:
    """The slope at an end of the parabola through three samples. `near`: the slope of the first
    step; `rise` and `further`: the rise and length of the second step."""
    return near + (near - rise / further) * (step / (step + further))


# ---------------------------------------------------------------- areas
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The area under the lines that join samples along an axis.

    The samples are `dx` apart, or at the coordinates x (a vector, or an array in the shape of y).
    UserIndexError for an axis out of range.

    Examples:
        >>> float(unp.trapezoid(unp.asarray([1.0, 2.0, 3.0])))
        4.0
    """
    u = uop_of(y, "trapezoid")
    axis = own_axis(axis, u.ndim, "trapezoid")
    width = dx
    if x is not None:
        places = uop_of(x, "trapezoid")
        if places.ndim == 1:
            width = diff(x).reshape([-1 if i == axis else 1 for i in range(u.ndim)])
        else:
            width = diff(x, axis=axis - u.ndim)
    both = _slice(u, axis, 1, None) + _slice(u, axis, None, -1)
    made = FUNCTIONS["divide"](FUNCTIONS["multiply"](width, same_kind(both, (y, x))), 2.0)
    return _sum(made, axis=axis)


# ---------------------------------------------------------------- values between samples
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """The values at x of the line through the points (xp, fp): float64, in the shape of x.

    xp must increase, which is not checked. Outside of xp the values are `left` and `right`, or by
    default the end values. With `period`, xp may have any order, and x is periodic. UserError
    unless xp and fp are vectors of one length, and for a period of 0.

    Examples:
        >>> np.asarray(unp.interp(unp.asarray([0.5, 1.5, 9.0]), [0.0, 1.0, 2.0], [0.0, 10.0, 0.0]))
        array([5., 5., 0.])
    """
    given = (x, xp, fp, left, right, period)
    at, places, values = (fold.cast(uop_of(v, "interp"), dtypes.float64) for v in (x, xp, fp))
    if places.ndim != 1 or places.shape != values.shape:
        shown = f"{shapes.show(places.shape)} and {shapes.show(values.shape)}"
        raise UserError(f"interp: xp and fp must be vectors of one length, got {shown}")
    if places.shape[0] == 0:
        raise UserError("interp: xp must have at least one element")
    if period is not None:
        at, places, values = _periodic(at, places, values, period)
        left = right = None
    lowest, highest = (values[i] if v is None else fold.cast(uop_of(v), dtypes.float64)
                       for i, v in ((0, left), (-1, right)))  # fmt: skip
    made = _between(at, places, values)
    made = alu.where(at < places[0], lowest, alu.where(places[-1] < at, highest, made))
    if places.shape[0] != 1:  # of one sample, NumPy gives its value at NaN too
        made = alu.where(at.ne(at), at, made)
    return same_kind(made, given)


def _between(at: UOp, places: UOp, values: UOp) -> UOp:
    """Interpolate on the line from the last sample up to `at`, or behind the samples on the last
    line. Compute from the line's right end if `at` is there, or if the left end gives NaN, as of an
    infinite value; if that is NaN on a sample, take the sample's value. Unused lines get a slope,
    too, because a derivative would be NaN."""
    last = fold.cast(dim_uop(places.shape[0]), dtypes.int64) - 1
    i = fold.cast(sorting.searchsorted(places, at, "right"), dtypes.int64) - 1
    i = i.minimum(last - 1).maximum(0)
    j = (i + 1).minimum(last)
    x0, x1, y0, y1 = places[i], places[j], values[i], values[j]
    width = x1 - x0
    slope = (y1 - y0) / alu.where(width.eq(0), leaves.const_like(width, 1), width)
    from_left, from_right = slope * (at - x0) + y0, slope * (at - x1) + y1
    from_far = from_left.ne(from_left) & at.ne(x0)
    made = alu.where(from_far | at.eq(x1), from_right, from_left)
    lost = made.ne(made)
    made = alu.where(lost & (y0.eq(y1) | at.eq(x0)), y0, made)
    return alu.where(lost & at.eq(x1), y1, made)


def _periodic(at: UOp, places: UOp, values: UOp, period: Any) -> tuple[UOp, UOp, UOp]:
    """Sort the samples within a period; add the last one before the first, and the first behind."""
    known = uop_of(period, "interp")
    if known.ndim or (known.op is Ops.CONST and known.arg == 0):
        raise UserError(f"interp: period must be a number other than 0, got {period!r}")
    length = abs(fold.cast(known, dtypes.float64))
    places = places % length
    order = uop_of(argsort(places))
    places, values = uop_of(take(places, order)), uop_of(take(values, order))
    wide = (places[-1:] - length).cat(places, places[:1] + length)
    return at % length, wide, values[-1:].cat(values, values[:1])


# ---------------------------------------------------------------- turns
def unwrap(
    p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi
) -> Any:
    """Angles along an axis, with whole periods added so that no jump exceeds half a `period`.

    Jumps of less than `discont`, by default half a period, stay. The result has the shape of p; the
    dtypes of p and the period promote. UserIndexError for an axis out of range, UserTypeError for
    bool.

    Examples:
        >>> np.asarray(unp.unwrap(unp.asarray([1, 3, 0, 2]), period=4))
        array([1, 3, 4, 6])
    """
    (u, whole), _ = promoted("unwrap", p, period)
    axis = own_axis(axis, u.ndim, "unwrap")
    if u.dtype.kind == "bool":
        raise UserTypeError("unwrap needs numbers, got bool")
    half = whole // 2 if u.dtype.is_int else whole / 2
    jump = _slice(u, axis, 1, None) - _slice(u, axis, None, -1)
    small = (jump + half) % whole - half
    even = (half * 2).eq(whole)  # of an odd number of steps, none is half of the period
    small = alu.where(small.eq(-half) & (jump > 0) & even, half, small)
    least = FUNCTIONS["divide"](period, 2) if discont is None else discont
    stays = uop_of(FUNCTIONS["less"](FUNCTIONS["abs"](jump), least))
    turned = alu.where(stays, leaves.const(u.dtype, 0), small - jump)
    added = uop_of(cumsum(turned, axis=axis, dtype=u.dtype))
    made = _slice(u, axis, 0, 1).cat(_slice(u, axis, 1, None) + added, axis=axis)
    return same_kind(made, (p, discont, period))


# ---------------------------------------------------------------- polynomials
def polyval(p: Any, x: Any) -> Any:
    """The values at x of the polynomial with the coefficients p, the highest power first.

    The result has the shape of x (rows of p broadcast with x); the dtypes promote. UserError unless
    p has a known length.

    Examples:
        >>> np.asarray(unp.polyval([1, 0, -2], unp.asarray([1, 2, 3])))
        array([-1,  2,  7])
    """
    (coefficients, at), _ = promoted("polyval", *[uop_of(v, "polyval") for v in (p, x)])
    dims = coefficients.shape
    if not dims or not isinstance(dims[0], int):
        raise UserError(f"polyval: p must have a known length, got {shapes.show(dims)}")
    made = leaves.const_like(at, 0)
    for i in range(dims[0]):
        made = made * at + coefficients[i]
    return same_kind(made, (p, x))


def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None,
    cov: Any = False,
) -> Any:  # fmt: skip
    """The coefficients of the polynomial of degree `deg` that fits the samples (x, y) best, the
    highest power first; if y is a matrix, for each of its columns. `w`: weights of the distances.

    At least float64. Method: the R of a QR factorisation of the scaled powers; where x has too few
    different places, the numbers are infinite, NaN or without meaning, as NumPy warns. UserError
    for fewer samples than coefficients, shapes that do not fit, and `rcond`, `full` and `cov`,
    which need singular values.

    Examples:
        >>> np.round(np.asarray(unp.polyfit(unp.asarray([0, 1, 2]), [1.0, 3.0, 5.0], 1)), 9)
        array([2., 1.])
    """
    if rcond is not None or full or cov is not False:
        raise UserError(
            "polyfit: rcond, full and cov need singular values, which uopc does not compute"
        )
    count = checks.integer("polyfit", "deg", deg) + 1
    at, values = uop_of(x, "polyfit"), uop_of(y, "polyfit")
    fits = at.ndim == 1 and values.ndim in (1, 2) and at.shape == values.shape[:1]
    if not fits or count < 1 or not isinstance(at.shape[0], int) or at.shape[0] < count:
        shown = f"{shapes.show(at.shape)} and {shapes.show(values.shape)}"
        raise UserError(f"polyfit: degree {deg} needs {count} known samples, got {shown}")
    powers, right = promoted("polyfit", vander(float_of(at, "polyfit"), count), values)[0]
    if w is not None:
        weights = fold.cast(uop_of(w, "polyfit"), powers.dtype)
        if weights.shape != at.shape:
            shown = shapes.show(weights.shape)
            raise UserError(f"polyfit: w must have the shape {at.shape} of x, got {shown}")
        column = weights.reshape(-1, 1)
        powers, right = powers * column, right * (column if right.ndim == 2 else weights)
    scale = (powers * powers).sum(0).sqrt()
    q, r = linear_algebra.qr(powers / scale, "reduced")
    made = linear_algebra.solve_triangular(r, products.matmul(q.transpose(), right))
    return same_kind(made / (scale.reshape(-1, 1) if made.ndim == 2 else scale), (x, y, w))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of the elements of a vector as rows: from N - 1 (by default the vector's length -
    1) down to 0, or up from 0 with `increasing`.

    In the dtype that x and int64 promote to. UserError unless x is a vector, of known length
    without N.

    Examples:
        >>> np.asarray(unp.vander(unp.asarray([1, 2, 3]), 3))
        array([[1, 1, 1],
               [4, 2, 1],
               [9, 3, 1]])
    """
    u = uop_of(x, "vander")
    if u.ndim != 1:
        raise UserError(f"vander: needs a vector, got {u.ndim} dimensions")
    count = u.shape[0] if N is None else N
    if not isinstance(count, int) or count < 0:
        raise UserError(f"vander: N must be a number of 0 or more, got {count}")
    u = fold.cast(u, dtypes.promote(u.dtype, dtypes.int64))
    powers = [leaves.const_like(u, 1)]
    for _ in range(count - 1):
        powers.append(powers[-1] * u)
    powers = powers[:count] if increasing else powers[:count][::-1]
    if not powers:
        return same_kind(u.reshape(-1, 1)[:, :0], (x,))
    return same_kind(powers[0].stack(*powers[1:], axis=1), (x,))
