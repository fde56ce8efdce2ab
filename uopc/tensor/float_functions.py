"""Functions of floats that consist of others: inverse, hyperbolic and two-argument functions.

Their formulas use `exp`, `log`, `sqrt`, fused multiply-adds and polynomials; no table of ops grows.
A value that a logarithm or a difference would round away is kept in two parts, high + low, so that
every function but `logaddexp` is within 3 units in the last place over the whole format (measured
in `docs/accuracy.md`). Infinities, NaN, subnormals and signs of zero are as in C99. Narrower floats
are computed in float32 and rounded once. `python -m tests.ulp --coefficients` prints the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from uopc.errors import UserTypeError
from uopc.ir.builder import alu, leaves, operands
from uopc.ir.builder.float_bits import (
    bits_of,
    exponent_and_fraction,
    polynomial,
    sign_of,
    with_sign,
)
from uopc.ir.builder.fold import cast
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.tensor.elementwise import absolute, as_float, divide, floored, rounded_once
from uopc.tensor.primitive import primitive

# fmt: off
ASIN_32: Final = (0.166666597, 0.0750051588, 0.0445151888, 0.0318201296, 0.0143972486, 0.0375693589)
ASIN_64: Final = (0.16666666666666763, 0.07499999999970408, 0.04464285717485224,
    0.030381942699883157, 0.02237221514969177, 0.01735160974253668, 0.013980843543327504,
    0.01139873975788131, 0.010781205366112464, 0.003702664950208164, 0.02171726206188929,
    -0.021014318248371376, 0.03263918970290381)
ATAN_32: Final = (-0.333333254, 0.199996218, -0.142792374, 0.110545523, -0.0879797339, 0.067128256,
    -0.0442967564, 0.0222134273, -0.00716726668, 0.00108412351)
ATAN_64: Final = ((-0.3333333333333314, -0.7466256029667563, -0.5853914487363646,
    -0.19084893678642798, -0.02369741484353129, -0.0007485771787889147), (1.0, 2.8398768088997284,
    3.031529002995281, 1.5077074842365816, 0.3503883526971758, 0.03308541474885594,
    0.0008296136440441004))
SINH_32: Final = (0.166666657, 0.0083333971, 0.000198287409, 2.85184751e-06)
SINH_64: Final = (0.16666666666666685, 0.00833333333333038, 0.00019841269842879624,
    2.7557318806040244e-06, 2.5052166540605883e-08, 1.6054593495203874e-10, 7.823508524156355e-13)
EXPM1_32: Final = (0.5, 0.166666672, 0.0416663289, 0.00833319779, 0.0013950218, 0.000199510003)
EXPM1_64: Final = (0.5, 0.16666666666666696, 0.04166666666666672, 0.00833333333329981,
    0.0013888888888847807, 0.00019841269947623843, 2.4801587406403285e-05, 2.7557181488567598e-06,
    2.755720159120727e-07, 2.513013676459142e-08, 2.0936931561072674e-09)
HALF_PI: Final = ((1.5707963705062866, -4.371138828673793e-08), (1.5707963267948966,
    6.123233995736766e-17))
LOG10_2: Final = ((0.3010300099849701, -1.432098883924482e-08), (0.3010299956639812,
    -2.8037281277851704e-18))
# fmt: on
# Rational functions for quantiles of the normal distribution: Wichura, "Algorithm AS 241", 1988.
QUANTILE: Final = (
    ((3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
      1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
      3.3430575583588128105e4, 2.5090809287301226727e3),
     (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
      2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
      5.2264952788528545610e3)),
    ((1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
      3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
      2.27238449892691845833e-2, 7.74545014278341407640e-4),
     (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
      1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
      1.05075007164441684324e-9)),
    ((6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
      2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
      2.71155556874348757815e-5, 2.01033439929228813265e-7),
     (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
      7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
      2.04426310338993978564e-15)),
)
LN2: Final = math.log(2)
LOG10_E: Final = 0.4342944819032518
_HUGE: Final = 2.0**30  # above, sqrt(x^2 ± 1) is |x|


class _FormatConstants(NamedTuple):
    """The constants of the functions in a float format."""

    asin: Sequence[float]  # asin x = x + x^3 P(x^2) up to 1/2
    atan: tuple[Sequence[float], ...]  # atan x = x + x^3 P(x^2), or P/Q, up to 1
    sinh: Sequence[float]  # sinh x = x + x^3 P(x^2) up to 5/4
    expm1: Sequence[float]  # e^x - 1 = x + x^2 P(x) up to 0.42
    half_pi: tuple[float, float]
    log10_2: tuple[float, float]
    far: tuple[float, float, float]  # from the first on, e^x/2 is e^(x - second) times the third
    middle: tuple[float, float]  # squares up to 2 to the first are safe; the power to scale others


# e to the second number of `far`, halved, is the third within 1/3000 of a unit in the last place.
_F32: Final = _FormatConstants(
    ASIN_32, (ATAN_32,), SINH_32, EXPM1_32, HALF_PI[0], LOG10_2[0],
    (30.0, 58.64453125, 1.4721983274953642e25), (2.0**60, 2.0**100),
)  # fmt: skip
_F64: Final = _FormatConstants(
    ASIN_64, ATAN_64, SINH_64, EXPM1_64, HALF_PI[1], LOG10_2[1],
    (210.0, 413.80859375, 2.5927392012658504e179), (2.0**500, 2.0**600),
)  # fmt: skip


def _format(x: UOp) -> _FormatConstants:
    return _F64 if x.dtype.scalar is dtypes.float64 else _F32


def _exp(x: UOp) -> UOp:
    return alu.alu(x, Ops.EXP)


def _log(x: UOp) -> UOp:
    return alu.alu(x, Ops.LOG)


def _sqrt(x: UOp) -> UOp:
    return alu.alu(x, Ops.SQRT)


def _log_and(high: UOp, correction: UOp) -> UOp:
    """log(high) + correction; only log(high) if it is infinite or NaN."""
    finite = (high > 0.0) & (high < math.inf)
    return _log(high) + finite.where(correction, 0.0)


# ---------------------------------------------------------------- formulas as functions
def _of_one(formula: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Make the function of any operand from a formula for floats of 32 bits or more."""
    name = formula.__name__.lstrip("_")

    def function(a: UOp) -> UOp:
        x = as_float(a)
        return primitive(rounded_once(formula)(x), name, x)

    return function


def _of_two(formula: Callable[[UOp, UOp], UOp]) -> Callable[[UOp, Operand], UOp]:
    """Make the function of any two operands, which promote and broadcast, from a formula."""
    name = formula.__name__.lstrip("_")

    def function(a: UOp, b: Operand) -> UOp:
        x, y = _floats(name, a, b)
        wide = dtypes.accumulator(x.dtype.scalar)
        return primitive(cast(formula(cast(x, wide), cast(y, wide)), x.dtype), name, x, y)

    return function


def _floats(who: str, a: Operand, b: Operand) -> tuple[UOp, UOp]:
    """Two operands in their common float dtype."""
    x, y = operands.paired(a, b, who)
    return as_float(x), as_float(y)


# ---------------------------------------------------------------- exponentials and logarithms
@_of_one
def expm1(x: UOp) -> UOp:
    series = x * x.mulacc(polynomial(x, _format(x).expm1), 1.0)
    return (abs(x) < 0.41).where(series, _exp(x) - 1.0)


def _log1p(x: UOp) -> UOp:
    high = x + 1.0
    low = (x > 1.0).where(1.0 - (high - x), x - (high - 1.0))
    return high.eq(1.0).where(x, _log_and(high, low / high))


log1p = _of_one(_log1p)


@_of_one
def log10(x: UOp) -> UOp:
    """x = 2^k m: k log10(2) + log(m) log10(e). Powers of ten are exact."""
    k, m = exponent_and_fraction(x)
    high, low = _format(x).log10_2
    usual = k.mulacc(high, _log(m).mulacc(LOG10_E, k * low))
    edge = x.eq(0.0).where(-math.inf, (x > 0.0).where(x, math.nan))
    return ((x > 0.0) & (x < math.inf)).where(usual, edge)


# ---------------------------------------------------------------- hyperbolic functions
def _half_exp(x: UOp) -> UOp:
    """e^x / 2 for x >= 0, even if e^x is infinite: x - c is exact there."""
    start, c, half = _format(x).far
    far = x > start
    return _exp(x - far.where(c, x.const_like(0.0))) * far.where(half, x.const_like(0.5))


@_of_one
def cosh(x: UOp) -> UOp:
    h = _half_exp(abs(x))
    return h + 0.25 / h


@_of_one
def sinh(x: UOp) -> UOp:
    """A series near 0, else half the difference of e^|x| and e^-|x|, with the sign of x."""
    h, z = _half_exp(abs(x)), x * x
    series = x.mulacc(z * polynomial(z, _format(x).sinh), x)
    return (abs(x) < 1.25).where(series, with_sign(h - 0.25 / h, sign_of(x)))


def _root(square: UOp, low: UOp) -> tuple[UOp, UOp]:
    """sqrt(square + low) as two parts."""
    r = _sqrt(square)
    rest = (r.mulacc(-r, square) + low) * (0.5 / r)
    return r, r.eq(0.0).where(0.0, rest)


@_of_one
def asinh(x: UOp) -> UOp:
    """log(a + sqrt(a^2 + 1)), a = |x|."""
    a = abs(x)
    square = a.mulacc(a, 1.0)
    r, low = _root(square, a.mulacc(a, 1.0 - square))
    w = r + a
    low = (a - (w - r)) + low
    huge = a > _HUGE
    return with_sign(_log_and(huge.where(a, w), huge.where(LN2, low / w)), sign_of(x))


@_of_one
def acosh(x: UOp) -> UOp:
    """log(1 + q), q = t + sqrt(t^2 + 2t), t = x - 1."""
    t = x - 1.0
    square = t.mulacc(t, t + t)
    r, low = _root(square, t.mulacc(t, (t + t) - square))
    q = r + t
    w = q + 1.0
    low = (q > 1.0).where(1.0 - (w - q), q - (w - 1.0)) + ((t - (q - r)) + low)
    huge = x > _HUGE
    found = _log_and(huge.where(x, w), huge.where(LN2, low / w))
    return (x < 1.0).where(math.nan, found)


@_of_one
def atanh(x: UOp) -> UOp:
    """log((1 + a) / (1 - a)) / 2, a = |x|."""
    a = abs(x)
    above, below = a + 1.0, 1.0 - a
    w = above / below
    low = w.mulacc(-below, above) + (a - (above - 1.0))
    low = w.mulacc(-((1.0 - below) - a), low)
    return with_sign(_log_and(w, low / above) * 0.5, sign_of(x))


# ---------------------------------------------------------------- angles
def _asin_parts(x: UOp) -> tuple[UOp, UOp, UOp]:
    """(near, s, u): asin |x| = s + s u if near, |x| <= 1/2, and else pi/2 - 2 (s + s u)."""
    a = abs(x)
    near = a <= 0.5
    z = near.where(a * a, (1.0 - a) * 0.5)
    return near, near.where(a, _sqrt(z)), z * polynomial(z, _format(x).asin)


@_of_one
def asin(x: UOp) -> UOp:
    """The arc sine of |x| if small; otherwise pi/2 minus twice the arc sine of a square root."""
    near, s, u = _asin_parts(x)
    high, low = _format(x).half_pi
    twice = s + s
    far = (high - twice) - twice.mulacc(u, -low)
    return with_sign(near.where(s.mulacc(u, s), far), sign_of(x))


@_of_one
def acos(x: UOp) -> UOp:
    """pi/2 minus the arc sine if |x| is small; otherwise twice the arc sine of a square root."""
    near, s, u = _asin_parts(x)
    high, low = _format(x).half_pi
    s = with_sign(s, near.where(sign_of(x), sign_of(s)))
    twice = s + s
    middle = high - s.mulacc(u, s - low)
    behind = (2 * high - twice) - twice.mulacc(u, -2 * low)
    return near.where(middle, (x < 0.0).where(behind, twice.mulacc(u, twice)))


def _arc(t: UOp) -> UOp:
    """The arc tangent for 0 <= t <= 1."""
    z = t * t
    above, *below = [polynomial(z, terms) for terms in _format(t).atan]
    u = z * above
    return t.mulacc(u / below[0] if below else u, t)


@_of_one
def atan(x: UOp) -> UOp:
    """The arc tangent of |x|, or pi/2 minus that of 1 / |x| if |x| > 1, with the sign of x."""
    a = abs(x)
    far = a > 1.0
    arc = _arc(far.where(a.reciprocal(), a))
    high, low = _format(x).half_pi
    return with_sign(far.where(high - (arc - low), arc), sign_of(x))


@_of_two
def atan2(y: UOp, x: UOp) -> UOp:
    """The arc tangent of the smaller over the greater magnitude, added to 0, pi/2 or pi."""
    a, b = abs(y), abs(x)
    steep, behind = a > b, sign_of(x).ne(0)
    small, great = alu.alu(a, Ops.MIN, b), alu.alu(a, Ops.MAX, b)
    t = great.eq(0.0).where(0.0, small.eq(math.inf).where(1.0, small / great))
    arc = _arc(t)
    arc = alu.alu(steep, Ops.CMPNE, behind).where(-arc, arc)
    start = [steep.where(v, behind.where(2 * v, x.const_like(0.0))) for v in _format(x).half_pi]
    return with_sign(start[0] + (arc + start[1]), sign_of(y))


@_of_one
def erfinv(x: UOp) -> UOp:
    """The quantile of the normal distribution at (1 + x) / 2, over sqrt(2): a rational function of
    x^2 near 0, and of the root of a logarithm, in two ranges, near 1."""
    a = abs(x)
    central = a <= 0.85
    root = _sqrt(-_log(central.where(1.0, 1.0 - a) * 0.5))
    middle, near, far = [
        polynomial(t, above) / polynomial(t, below)
        for t, (above, below) in zip((0.180625 - a * a * 0.25, root - 1.6, root - 5.0), QUANTILE)
    ]
    size = central.where(a * 0.5 * middle, (root <= 5.0).where(near, far)) * math.sqrt(0.5)
    size = a.eq(1.0).where(math.inf, (a > 1.0).where(math.nan, size))
    return with_sign(size, sign_of(x))


# ---------------------------------------------------------------- two numbers
@_of_two
def ieee_remainder(x: UOp, y: UOp) -> UOp:
    """The exact remainder by 2 |y|, less |y| once or twice: then at most |y| / 2 is left."""
    a, b = abs(x), abs(y)
    rest = alu.alu(a, Ops.CMOD, b + b)
    once = rest - b
    found = (rest + rest > b).where((once + once >= b).where(once - b, once), rest)
    return sign_of(x).ne(0).where(-found, found)


@_of_two
def hypot(x: UOp, y: UOp) -> UOp:
    """sqrt(x^2 + y^2), scaled by a power of 2 where squares overflow or vanish."""
    a, b = abs(x), abs(y)
    great, small = alu.alu(a, Ops.MAX, b), alu.alu(a, Ops.MIN, b)
    limit, power = _format(x).middle
    one = x.const_like(1.0)
    large, tiny = great > limit, great < 1.0 / limit
    down = large.where(1.0 / power, tiny.where(power, one))
    up = large.where(power, tiny.where(1.0 / power, one))
    great, small = great * down, small * down
    root = _sqrt(great.mulacc(great, small * small)) * up
    return (a.eq(math.inf) | b.eq(math.inf)).where(math.inf, root)


def _copysign(x: UOp, y: UOp) -> UOp:
    return with_sign(abs(x), sign_of(y))


copysign = _of_two(_copysign)


@_of_two
def logaddexp(x: UOp, y: UOp) -> UOp:
    """The greater operand + log1p(e^-distance)."""
    distance = alu.alu(x, Ops.CMPEQ, y).where(0.0, abs(x - y))
    return alu.alu(x, Ops.MAX, y) + _log1p(_exp(-distance))


# ---------------------------------------------------------------- functions without a method
def sinc(x: UOp, n: int = 0) -> UOp:
    """The nth derivative of sin(pi x) / (pi x), 1 at 0; x must be float."""
    return primitive(rounded_once(_sinc)(x, n), "sinc", x, details=(n,))


def _sinc(x: UOp, n: int) -> UOp:
    """The nth derivative s[n] of s = sin(t) / t: t s[n] + n s[n-1] is the nth derivative of sin, so
    compute upwards from s. Near 0, where this loses digits, use the series."""
    if n == 0:
        t = alu.where(x.eq(0), leaves.const_like(x, 1), x * math.pi)
        return alu.where(x.eq(0), leaves.const_like(x, 1), t.sin() / t)
    limit = n / 2 + 1
    t = x * math.pi
    near = abs(t) < limit
    turn = (x - (x * 0.5).round() * 2.0) * math.pi
    waves = [turn.sin(), turn.cos()]
    far = near.where(1.0, t)
    found = waves[0] / far
    for k in range(1, n + 1):
        wave = waves[k % 2] if k % 4 < 2 else -waves[k % 2]
        found = (wave - found * float(k)) / far
    series = polynomial(t * t, _sinc_series(n, limit, 1e-17 if _format(x) is _F64 else 1e-9))
    return near.where(series * t if n % 2 else series, found) * math.pi**n


def _sinc_series(n: int, limit: float, least: float) -> tuple[float, ...]:
    """Coefficients of the nth derivative of sin(t) / t, |t| < limit, in t^2 (times t for odd n)."""
    found: list[float] = []
    power = n % 2
    while not found or abs(found[-1]) * limit**power * (n + 1) > least / 4:
        sign = -1 if (n + power) // 2 % 2 else 1
        found.append(sign / math.factorial(power) / (n + power + 1))
        power += 2
    return tuple(found)


@_of_one
def cbrt(x: UOp) -> UOp:
    """Take the root of |x| by a power, then a step of Newton's method, since 1/3 is no float."""
    size = abs(x)
    near = size ** (1 / 3)
    better = near - (near * near * near - size) / (3 * near * near)
    exact = alu.where(size.eq(0) | isinf(size), size, better)
    return _copysign(exact, x)


def nextafter(a: UOp, b: Operand) -> UOp:
    """The float next to a in the direction of b. UserTypeError for floats of 8 bits."""
    x, y = _floats("nextafter", a, b)
    if x.dtype.bits == 8:
        raise UserTypeError(f"nextafter: needs floats of 16 bits or more, got {x.dtype.name}")
    bits, sign = bits_of(x), sign_of(y)
    away = alu.alu(y < x, Ops.CMPEQ, x < 0.0)
    moved = away.where(bits + 1, bits - 1)
    moved = x.eq(0.0).where(sign | 1, moved)
    unordered = alu.alu(x, Ops.CMPNE, x) | alu.alu(y, Ops.CMPNE, y)
    found = unordered.where(math.nan, moved.bitcast(x.dtype.scalar))
    return alu.alu(x, Ops.CMPEQ, y).where(y, found)


# ---------------------------------------------------------------- classes of numbers
def _never(a: UOp) -> UOp:
    return leaves.const_like(cast(a, dtypes.bool_), False)


def isnan(a: UOp) -> UOp:
    """True for NaN."""
    return alu.alu(a, Ops.CMPNE, a) if a.dtype.is_float else _never(a)


def isinf(a: UOp) -> UOp:
    """True for an infinity."""
    return alu.binary(Ops.CMPEQ, absolute(a), math.inf) if a.dtype.is_float else _never(a)


def isfinite(a: UOp) -> UOp:
    """True unless a is infinite or NaN."""
    if not a.dtype.is_float:
        return alu.alu(_never(a), Ops.NEG)
    return alu.binary(Ops.CMPLT, absolute(a), math.inf)


def signbit(a: UOp) -> UOp:
    """True for a minus sign, including -0.0 and NaN."""
    if not a.dtype.is_float:
        return _never(a) if a.dtype.kind in ("bool", "uint") else alu.binary(Ops.CMPLT, a, 0)
    return sign_of(cast(a, dtypes.accumulator(a.dtype.scalar))).ne(0)


def infinity(value: float) -> Callable[[UOp], UOp]:
    """Make the function that is True for this infinity, and False for all integers."""
    return lambda x: alu.binary(Ops.CMPEQ, x, value) if x.dtype.is_float else _never(x)


# ---------------------------------------------------------------- composites
def number_of(op: Op) -> Callable[[UOp, UOp], UOp]:
    """Make the function for the greater or less of two elements; a NaN loses to a number."""

    def function(x: UOp, y: UOp) -> UOp:
        found = alu.alu(x, op, y)
        if not x.dtype.is_float:
            return found
        return alu.where(isnan(x), y, alu.where(isnan(y), x, found))

    return function


def floor_divide(x: UOp, y: UOp) -> UOp:
    """The floor quotient of the Array API: of infinities, the float quotient rounded down."""
    found = floored(Ops.FLOORDIV)(x, y)
    if not found.dtype.is_float:
        return found
    return alu.where(isinf(x) | isinf(y), divide(x, y).floor(), found)


def heaviside(x: UOp, y: UOp) -> UOp:
    """0 for x < 0, y for 0, 1 for x > 0; NaN for NaN."""
    above = alu.where(x < 0, leaves.const_like(x, 0), leaves.const_like(x, 1))
    return alu.where(x.eq(0), y, alu.where(isnan(x), x, above))


def logaddexp2(x: UOp, y: UOp) -> UOp:
    """log2(2^x + 2^y). Narrow floats become float32 first, because the formula rounds in base e."""
    wide = dtypes.accumulator(x.dtype.scalar)
    return cast(logaddexp(cast(x, wide) * LN2, cast(y, wide) * LN2) / LN2, x.dtype)


def softplus(x: UOp) -> UOp:
    """log(1 + e^x), without overflow in between."""
    return x.maximum(0.0) + log1p(_exp(-abs(x)))
