"""Distributions made from the bits of a key: choices, shuffles, dropout, and floats by inversion.

As in `uopc.tensor.random`, a function gives the same numbers for the same key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import creation, indexing, random, reductions
from uopc.tensor.sorts import sorting

__all__ = [
    "categorical", "choice", "dropout", "exponential", "gumbel", "permutation", "truncated_normal"
]  # fmt: skip


# ---------------------------------------------------------------- floats
def exponential(key: UOp, shape: Any = (), dtype: DTypeLike = dtypes.float32) -> UOp:
    """Floats of the exponential distribution with mean 1: minus the logarithm of a uniform number.

    No number is 0. Numbers of float32 or narrower are at most 23, of float64 at most 46.
    UserTypeError for a dtype that is not a float of 16 to 64 bits.

    Examples:
        >>> x = uopc.compile(uopc.random.exponential(uopc.random.key(0), (10000,)))()
        >>> bool(x.min() > 0), bool(abs(x.mean() - 1) < 0.05)
        (True, True)
    """
    dtype = checks.any_dtype("exponential", dtype)
    u = _inside("exponential", key, creation.dims_of(shape, "exponential"), dtype)
    return cast(-u.log(), dtype)


def gumbel(key: UOp, shape: Any = (), dtype: DTypeLike = dtypes.float32) -> UOp:
    """Floats of the standard Gumbel distribution: minus the logarithm of an exponential number.

    All are finite. UserTypeError for a dtype that is not a float of 16 to 64 bits.

    Examples:
        >>> x = uopc.compile(uopc.random.gumbel(uopc.random.key(0), (10000,)))()
        >>> bool(abs(x.mean() - 0.5772) < 0.05)
        True
    """
    dtype = checks.any_dtype("gumbel", dtype)
    return cast(_gumbel("gumbel", key, creation.dims_of(shape, "gumbel"), dtype), dtype)


def _gumbel(who: str, key: UOp, dims: shapes.Shape, dtype: DType) -> UOp:
    # The greatest numbers, which decide who wins, come from the least of `_inside`: the fine ones.
    return -(-(-_inside(who, key, dims, dtype)).log1p()).log()


def truncated_normal(
    key: UOp, lower: float, upper: float, shape: Any = (), dtype: DTypeLike = dtypes.float32
) -> UOp:
    """Floats of the standard normal distribution, restricted to the range from `lower` to `upper`;
    both are numbers, or infinite.

    UserError unless lower < upper, and if the probability of the range is so small that it is no
    normal number of the dtype (float32 for narrower dtypes). (By the inverse of the distribution:
    M. J. Wichura, algorithm AS 241, 1988.)

    Examples:
        >>> k = uopc.random.key(0)
        >>> x = uopc.compile(uopc.random.truncated_normal(k, -2, 2, (1000,)))()
        >>> bool(x.min() >= -2), bool(x.max() <= 2)
        (True, True)
    """
    dtype = random.float_dtype("truncated_normal", dtype)
    low, high = (_bound(v) for v in (lower, upper))
    if not low < high:
        raise UserError(
            f"truncated_normal: expected lower < upper, got {lower!r} and {upper!r}"
        )
    wide = _wide(dtype)
    mirrored = low > -high  # the half of small probabilities, which are exact
    first, last = (-high, -low) if mirrored else (low, high)
    below, width = _normal_below(first), _normal_below(last) - _normal_below(first)
    least = float(_facts(wide).smallest_normal)
    if width < least:
        raise UserError(
            f"truncated_normal: the probability of [{lower!r}, {upper!r}] is 0 in {wide.name}"
        )
    u = _inside("truncated_normal", key, creation.dims_of(shape, "truncated_normal"), dtype)
    found = _normal_place(u.mulacc(width, below).maximum(least))
    ends = np.array([low, high]).astype(wide.numpy)
    found = (-found if mirrored else found).maximum(float(ends[0])).minimum(float(ends[1]))
    return cast(found, dtype)


def _wide(dtype: DType) -> DType:
    """The dtype in which floats of `dtype` are computed."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _facts(wide: DType) -> Any:
    return np.finfo(np.float64 if wide is dtypes.float64 else np.float32)


def _inside(who: str, key: UOp, dims: shapes.Shape, dtype: DType) -> UOp:
    """Numbers in (0, 1) from words of 32 or 64 bits; smaller numbers have finer steps."""
    wide = _wide(random.float_dtype(who, dtype))
    word = dtypes.uint64 if wide is dtypes.float64 else dtypes.uint32
    u = (cast(random.bits_of(who, key, dims, word), wide) + 0.5) * 2.0**-word.bits
    return u.minimum(1 - float(_facts(wide).epsneg))


def _bound(value: Any) -> float:
    infinite = isinstance(value, float) and math.isinf(value)
    return value if infinite else checks.number("truncated_normal", value)


def _normal_below(x: float) -> float:
    """The probability that a normal number is less than x."""
    return math.erfc(-x / math.sqrt(2)) / 2


# Numerators and denominators, the constants first, of M. J. Wichura's algorithm AS 241 (1988).
_CENTER = (
    (3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_SIDE = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
     3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
_TAIL = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def _normal_place(p: UOp) -> UOp:
    """The x for which a normal number is less than x with probability p, where 0 < p < 1."""
    away = p - 0.5
    center = away * _ratio(_CENTER, 0.180625 - away * away)
    tail = (-alu.where(away < 0, p, 1.0 - p).log()).sqrt()
    far = alu.where(tail <= 5.0, _ratio(_SIDE, tail - 1.6), _ratio(_TAIL, tail - 5.0))
    return alu.where(away.abs() <= 0.425, center, alu.where(away < 0, -far, far))


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: UOp) -> UOp:
    above, below = (_polynomial(c, x) for c in polynomials)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: UOp) -> UOp:
    value = leaves.const_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value.mulacc(x, c)
    return value


# ---------------------------------------------------------------- choices
def choice(
    key: UOp, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0
) -> UOp:
    """Random slices of `a` along an axis, or random numbers below `a`, if it is a size.

    The shape of the choice replaces the axis. `p`: how likely each is, a vector of floats that are
    not negative; their sum need not be 1. With `replace=False` none is chosen twice; then those
    with p = 0 come last.

    UserError if nothing or not enough is there to choose from, and for `p` of a wrong shape.

    Examples:
        >>> k = uopc.random.key(0)
        >>> hand = uopc.compile(uopc.random.choice(k, 52, (5,), replace=False))()
        >>> len(set(hand.tolist()))
        5
        >>> rows = uopc.random.choice(k, np.array([[1, 1], [2, 2]]), (3,), p=[0.0, 1.0])
        >>> uopc.compile(rows)()
        array([[2, 2],
               [2, 2],
               [2, 2]])
    """
    dims = creation.dims_of(shape, "choice")
    checks.flag("choice", "replace", replace)
    values = _array("choice", a)
    if values is None:
        (n,) = creation.dims_of(a, "choice")
    else:
        axis = movement.normal_axis(axis, len(shapes.shape(values)), "choice")
        n = shapes.shape(values)[axis]
    count, least = shapes.size(dims), bounds.bounds(dim_uop(n))[0]
    if bounds.max_dim(count) and (least < 1 if replace else bounds.max_dim(count) > least):
        kind = "" if replace else " without replacement"
        raise UserError(
            f"choice: {shapes.show((n,))} elements are too few for {shapes.show(dims)}{kind}"
        )
    weights = None if p is None else _weights(p, n)
    if replace:
        places = _drawn(key, dims, n, weights)
    else:
        if weights is None:
            order = permutation(key, n)
        else:
            noise = _gumbel("choice", key, (n,), weights.dtype)
            order = sorting.argsort(noise + weights.log(), descending=True)
        places = movement.reshape(movement.shrink(order, [(0, count)]), dims)
    return places if values is None else indexing.take(values, places, axis)


def _drawn(key: UOp, dims: shapes.Shape, n: shapes.Dim, weights: UOp | None) -> UOp:
    """Draw indices below n; each draw may return any of them."""
    if weights is None:
        return cast(random.below("choice", key, dims, dim_uop(n)), place_dtype(n))
    # Sums round, here in blocks: the greatest so far never falls.
    totals = reductions.cummax(reductions.cumsum(weights, 0), 0)
    last = movement.reduce(totals, "max", 0)
    drawn = _inside("choice", key, dims, weights.dtype) * last
    return sorting.searchsorted(totals, drawn.minimum(last))


def _weights(p: Any, n: shapes.Dim) -> UOp:
    """The chances of n elements, as floats of 32 or 64 bits."""
    chances = operands.as_uop(checks.array("choice", p) if isinstance(p, (list, tuple)) else p)
    if shapes.shape(chances) != (n,) or not chances.dtype.is_float:
        got = f"{chances.dtype.name}{shapes.show(shapes.shape(chances))}"
        raise UserError(f"choice: p must be floats of shape {shapes.show((n,))}, got {got}")
    if chances.op is Ops.DATA:
        known = chances.arg.array.astype(np.float64)
        low, high = known.min(), known.max()
        if not (low >= 0 and 0 < high < np.inf):
            raise UserError("choice: p must be finite, not negative, and not 0 everywhere")
    return cast(chances, _wide(chances.dtype))


def categorical(key: UOp, logits: UOp, axis: int = -1, shape: Any = None) -> UOp:
    """Random places along an axis, likely as e to the logit there (-inf for never).

    `shape` (that of the logits without the axis by default) may have more dimensions in front: so
    many draws of each. int32, or int64 where the axis needs it. UserTypeError unless the logits are
    floats, UserError for another shape.

    The place of the greatest sum of a logit and Gumbel noise is drawn (E. J. Gumbel, "Statistical
    Theory of Extreme Values", 1954).

    Examples:
        >>> k = uopc.random.key(0)
        >>> logits = np.array([-np.inf, 0.0, -np.inf])
        >>> uopc.compile(uopc.random.categorical(k, logits, shape=(4,)))()
        array([1, 1, 1, 1], dtype=int32)
    """
    known = logits if isinstance(logits, UOp) else checks.array("categorical", logits)
    given = operands.as_uop(known)
    if not given.dtype.is_float:
        raise UserTypeError(f"categorical: logits must be floats, got {given.dtype.name}")
    full = shapes.shape(given)
    if not full:
        raise UserError("categorical: logits must have an axis, got a scalar")
    axis = movement.normal_axis(axis, len(full), "categorical")
    batch = (*full[:axis], *full[axis + 1 :])
    dims = batch if shape is None else creation.dims_of(shape, "categorical")
    more = len(dims) - len(batch)
    if more < 0 or shapes.broadcast([dims, batch], "categorical") != dims:
        wanted = f"end with {shapes.show(batch)}"
        raise UserError(f"categorical: shape must {wanted}, got {shapes.show(dims)}")
    sample = (*dims[: more + axis], full[axis], *dims[more + axis :])
    wide = cast(given, _wide(given.dtype))
    noise = _gumbel("categorical", key, sample, wide.dtype)
    return reductions.argmax(alu.binary(Ops.ADD, noise, wide), more + axis)


def dropout(key: UOp, x: UOp, rate: Any = 0.5) -> UOp:
    """`x` with each element 0 with probability `rate`, and the others divided by 1 - rate.

    The rate is a number, or a scalar float UOp. UserTypeError unless `x` has floats, UserError for
    a number outside [0, 1].

    Examples:
        >>> x = uopc.ones((10000,))
        >>> y = uopc.compile(uopc.random.dropout(uopc.random.key(0), x, 0.2))()
        >>> sorted(set(y.tolist())), bool(abs(y.mean() - 1) < 0.02)
        ([0.0, 1.25], True)
    """
    if not isinstance(x, UOp) or not x.dtype.is_float:
        got = x.dtype.name if isinstance(x, UOp) else repr(x)
        raise UserTypeError(f"dropout: x must be an array of floats, got {got}")
    if isinstance(rate, UOp):
        if shapes.shape(rate) or not rate.dtype.is_float:
            got = f"{rate.dtype.name}{shapes.show(shapes.shape(rate))}"
            raise UserTypeError(f"dropout: the rate must be a scalar float, got {got}")
    elif not 0 <= checks.number("dropout", rate) <= 1:
        raise UserError(f"dropout: the rate must be from 0 to 1, got {rate!r}")
    chance: Any = 1.0 - rate
    wide = _wide(x.dtype)
    share: Any = chance
    if isinstance(chance, UOp):
        share, chance = cast(chance, wide), cast(chance, dtypes.float32)
    elif chance == 0:
        share = 1.0  # of nothing
    kept = random.bernoulli(key, chance, shapes.shape(x))
    return alu.where(kept, cast(cast(x, wide) / share, x.dtype), leaves.const(x.dtype.scalar, 0))


# ---------------------------------------------------------------- shuffles
def permutation(key: UOp, x: Any, axis: int = 0, independent: bool = False) -> UOp:
    """The slices of an array along an axis in random order, or the numbers below `x`, if it is a
    size: int32, or int64 where it needs that.

    `independent`: every line along the axis has an order of its own, not all the same.

    The order is that of random numbers of 64 bits. UserTypeError for anything but an array or a
    size.

    Examples:
        >>> k = uopc.random.key(0)
        >>> sorted(uopc.compile(uopc.random.permutation(k, 5))().tolist())
        [0, 1, 2, 3, 4]
        >>> rows = np.array([[1, 2, 3], [10, 20, 30]])
        >>> turned = uopc.compile(uopc.random.permutation(k, rows, axis=1))()
        >>> (turned[0] * 10 == turned[1]).all().tolist()
        True
    """
    checks.flag("permutation", "independent", independent)
    values = _array("permutation", x)
    if values is None:
        return _order(key, creation.dims_of(x, "permutation"), 0)
    dims = shapes.shape(values)
    axis = movement.normal_axis(axis, len(dims), "permutation")
    if independent:
        return indexing.gather(values, axis, _order(key, dims, axis))
    return indexing.take(values, _order(key, (dims[axis],), 0), axis)


def _order(key: UOp, dims: shapes.Shape, axis: int) -> UOp:
    return sorting.argsort(random.bits_of("permutation", key, dims, dtypes.uint64), axis)


def _array(who: str, a: Any) -> UOp | None:
    """Return an array as a UOp; None for a size."""
    if isinstance(a, (np.ndarray, list)):
        a = operands.as_uop(checks.array(who, a))
    if isinstance(a, UOp) and shapes.shape(a):
        return a
    if isinstance(a, bool) or not isinstance(a, (int, np.integer, UOp)):
        raise UserTypeError(f"{who}: expected an array or a size, got {a!r}")
    return None
