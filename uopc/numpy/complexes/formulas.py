"""Functions of complex numbers as formulas of the two parts, with C99's values at zeros, infinities
and NaN, and NumPy's branch cuts.

    exp(x + iy) = (exp x · cos y, exp x · sin y), and (exp x, y) where y is 0

Products are the plain ones and quotients are Smith's, as in NumPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.builder import alu, leaves
from uopc.ir.builder.alu import where
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.numpy.complexes.arrays import ComplexParts
from uopc.tensor import float_functions as f
from uopc.tensor.matrices.products import by_squares


class _Format(NamedTuple):
    """Facts of a float type: `limit`: an integer whose exp and its half are finite, and whose exp
    of its negative is normal; `huge`, `tiny`: squares below or above are finite and normal."""

    limit: float
    huge: float
    tiny: float


_FORMATS = {
    dtypes.float32: _Format(87.0, 2.0**60, 2.0**-50),
    dtypes.float64: _Format(708.0, 2.0**500, 2.0**-450),
}


def _of(x: UOp) -> _Format:
    return _FORMATS[x.dtype.scalar]


# ---------------------------------------------------------------- arithmetic
def add(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    im = b.im if a.im is None else a.im if b.im is None else a.im + b.im
    return ComplexParts(a.re + b.re, im)


def subtract(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    im = a.im if b.im is None else -b.im if a.im is None else a.im - b.im
    return ComplexParts(a.re - b.re, im)


def multiply(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """The product; a real operand has no second part to multiply."""
    if a.im is None:
        return ComplexParts(a.re * b.re, None if b.im is None else a.re * b.im)
    if b.im is None:
        return ComplexParts(a.re * b.re, a.im * b.re)
    return ComplexParts(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def divide(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """R. L. Smith (1962): the larger part of the divisor divides first, so that nothing overflows
    before the result does."""
    if b.im is None:
        return ComplexParts(a.re / b.re, None if a.im is None else a.im / b.re)
    c, d = b.re, b.im
    first = abs(c) >= abs(d)
    large, small = where(first, c, d), where(first, d, c)
    nothing = c.eq(0) & d.eq(0)
    ratio = where(nothing, 0.0, small / large)
    scale = 1 / (large + small * ratio)
    re, im = a.re, a.imaginary
    x, y = where(first, re, im), where(first, im, re)
    low = where(first, y - x * ratio, x * ratio - y) * scale
    zero = abs(large)
    return ComplexParts(
        where(nothing, re / zero, (x + y * ratio) * scale), where(nothing, im / zero, low)
    )


def reciprocal(a: ComplexParts) -> ComplexParts:
    """1 / a, as NumPy computes it: by the larger part."""
    c, d = a.re, a.imaginary
    first = abs(d) <= abs(c)
    large, small = where(first, c, d), where(first, d, c)
    ratio = small / large
    under = large + small * ratio
    return ComplexParts(where(first, 1.0, ratio) / under, -where(first, ratio, 1.0) / under)


def negative(a: ComplexParts) -> ComplexParts:
    return ComplexParts(-a.re, None if a.im is None else -a.im)


def conj(a: ComplexParts) -> ComplexParts:
    return ComplexParts(a.re, -a.imaginary)


def square(a: ComplexParts) -> ComplexParts:
    re, im = a.re, a.imaginary
    return ComplexParts(re * re - im * im, re * im + im * re)


def absolute(a: ComplexParts) -> UOp:
    return f.hypot(a.re, a.imaginary)


def angle(a: ComplexParts) -> UOp:
    return f.atan2(a.imaginary, a.re)


def sign(a: ComplexParts) -> ComplexParts:
    """The number of magnitude 1 in the same direction; 0 for 0, NaN for NaN and for two infinite
    parts."""
    re, im = a.re, a.imaginary
    size = f.hypot(re, im)
    one, both = leaves.const_like(re, 1), f.isinf(re) & f.isinf(im)

    def turned(v: UOp) -> UOp:
        at_infinity = where(both, math.nan, where(f.isinf(v), f.copysign(one, v), 0.0))
        return where(size.eq(0), 0.0, where(size.eq(math.inf), at_infinity, v / size))

    return ComplexParts(turned(re), turned(im))


# ---------------------------------------------------------------- exponentials
def _turned(size: UOp, other: UOp, y: UOp, extra: UOp) -> ComplexParts:
    """(size · cos y, other · sin y) · extra. Where y is 0 the second part is y, also for an
    infinite `other`."""
    re = size * y.cos() * extra
    im = other * y.sin() * extra
    zero = y.eq(0)
    return ComplexParts(where(zero, size * extra, re), where(zero, y, im))


def _exp_and_scale(x: UOp) -> tuple[UOp, UOp]:
    """exp x as a product of two numbers that are finite for x up to twice the limit, so that it may
    meet a small cosine before it overflows."""
    limit = _of(x).limit
    above = x > limit
    rest = where(above, x - limit, x)
    return rest.exp(), where(above, math.exp(limit), leaves.const_like(x, 1))


def exp(a: ComplexParts) -> ComplexParts:
    """e to the a; 0 at -inf, whatever the direction."""
    x, y = a.re, a.imaginary
    size, scale = _exp_and_scale(x)
    found = _turned(size, size, y, scale)
    low = x.eq(-math.inf) & ~f.isfinite(y)  # 0, whatever the direction
    both = x.eq(math.inf) & ~f.isfinite(y)
    return ComplexParts(
        where(low, 0.0, where(both, math.inf, found.re)),
        where(low, f.copysign(leaves.const_like(y, 0), y), found.imaginary),
    )


def expm1(a: ComplexParts) -> ComplexParts:
    """e to the a, minus 1, exact for small a."""
    x, y = a.re, a.imaginary
    half = (y * 0.5).sin()
    re = f.expm1(x) * y.cos() - 2 * half * half
    whole = exp(a)
    re = where(y.eq(0), f.expm1(x) + 0.0, where(x > 1, whole.re - 1, re))
    return ComplexParts(where(x.eq(-math.inf), -1.0, re), whole.im)


def log_size(x: UOp, y: UOp) -> UOp:
    """log |x + iy|, without overflow in between, and exact near 1."""
    high, low = abs(x).maximum(abs(y)), abs(x).minimum(abs(y))
    ratio = where(low.eq(0) | f.isinf(high), 0.0, low / high)
    near = (high >= 0.5) & (high <= 2)
    rest = where(near, (high - 1) * (high + 1) + low * low, ratio * ratio)
    found = where(near, 0.0, high.log()) + f.log1p(rest) * 0.5
    return where(f.isinf(x) | f.isinf(y), math.inf, found)


def log(a: ComplexParts) -> ComplexParts:
    return ComplexParts(log_size(a.re, a.imaginary), angle(a))


def log2(a: ComplexParts) -> ComplexParts:
    found = log(a)
    return ComplexParts(found.re / math.log(2), found.imaginary / math.log(2))


def log10(a: ComplexParts) -> ComplexParts:
    found = log(a)
    return ComplexParts(found.re / math.log(10), found.imaginary / math.log(10))


def log1p(a: ComplexParts) -> ComplexParts:
    """log(1 + a), exact for small a."""
    x, y = a.re, a.imaginary
    small = abs(x).maximum(abs(y)) < 0.5
    near = f.log1p(x * (x + 2) + y * y) * 0.5
    return ComplexParts(where(small, near, log_size(x + 1, y)), f.atan2(y, x + 1))


def sqrt(a: ComplexParts) -> ComplexParts:
    """The root with a real part of 0 or more: |im| / 2 over the part that does not cancel."""
    given_x, given_y = a.re, a.imaginary
    most = abs(given_x).maximum(abs(given_y))
    large, small = most >= _of(most).huge, most < _of(most).tiny
    even = int(math.log2(_of(most).huge)) // 2 * 2
    one = leaves.const_like(most, 1)
    scale = where(large, 2.0**-even, where(small, 2.0**even, one))
    back = where(large, 2.0 ** (even // 2), where(small, 2.0 ** (-even // 2), one))
    x, y = given_x * scale, given_y * scale
    root = ((abs(x) + f.hypot(x, y)) * 0.5).sqrt()
    other = where(root.eq(0), 0.0, abs(y) / (2 * where(root.eq(0), 1.0, root)))
    right = ~(x < 0)
    re, im = where(right, root, other) * back, where(right, other, root) * back
    infinite_y, infinite_x = f.isinf(given_y), f.isinf(given_x)
    im = where(infinite_x, where(right, leaves.const_like(x, 0), math.inf), im)
    re = where(infinite_x, where(right, leaves.const_like(x, math.inf), 0.0), re)
    lost = infinite_x & f.isnan(given_y)
    re = where(lost & ~right, math.nan, re)
    im = where(lost & right, math.nan, im)
    re = where(infinite_y, math.inf, re)
    im = where(infinite_y, math.inf, im)
    im = where(f.isnan(given_x) & ~infinite_y, math.nan, im)
    return ComplexParts(re, f.copysign(im, given_y))


# ---------------------------------------------------------------- hyperbolic and circular functions
def _hyperbolic(x: UOp) -> tuple[UOp, UOp, UOp]:
    """sinh x and cosh x over a scale, and the scale, which is not 1 where they might overflow."""
    limit = _of(x).limit
    large = abs(x) > limit
    size = (abs(x) - limit).minimum(limit).exp()
    return (
        where(large, f.copysign(size, x), f.sinh(x)),
        where(large, size, f.cosh(x)),
        where(large, math.exp(limit) / 2, leaves.const_like(x, 1)),
    )


def sinh(a: ComplexParts) -> ComplexParts:
    """The hyperbolic sine."""
    x, y = a.re, a.imaginary
    s, c, scale = _hyperbolic(x)
    found = _turned(s, c, y, scale)
    re = where(x.eq(0) & ~f.isfinite(y), x, found.re)
    return ComplexParts(where(f.isinf(x) & ~f.isfinite(y), math.inf, re), found.im)


def cosh(a: ComplexParts) -> ComplexParts:
    """The hyperbolic cosine."""
    x, y = a.re, a.imaginary
    s, c, scale = _hyperbolic(x)
    found = _turned(c, s, y, scale)
    turned = where(f.isnan(x), y, y * f.copysign(leaves.const_like(x, 1), x))
    im = where(y.eq(0), turned, found.imaginary)
    im = where(x.eq(0) & ~f.isfinite(y), 0.0, im)
    return ComplexParts(where(f.isinf(x) & ~f.isfinite(y), math.inf, found.re), im)


def tanh(a: ComplexParts) -> ComplexParts:
    """sinh x cosh x / (sinh² x + cos² y), sin y cos y / (sinh² x + cos² y)."""
    x, y = a.re, a.imaginary
    large = abs(x) > 20
    near = x.minimum(20).maximum(-20)
    s, c, sin, cos = f.sinh(near), f.cosh(near), y.sin(), y.cos()
    under = s * s + cos * cos
    far = 4 * sin * cos * (-2 * abs(x)).exp()
    re = where(large, f.copysign(leaves.const_like(x, 1), x), s * c / under)
    im = where(large, far, sin * cos / under)
    infinite = f.isinf(x)
    turn = where(f.isfinite(y), sin * cos, f.copysign(leaves.const_like(y, 0), y))
    im = where(infinite, f.copysign(leaves.const_like(x, 0), turn), im)
    re = where(f.isnan(x), x, where(large & ~infinite & ~f.isfinite(y), math.nan, re))
    return ComplexParts(where(x.eq(0), x, re), where(y.eq(0), y, im))


def _times_i(a: ComplexParts) -> ComplexParts:
    return ComplexParts(-a.imaginary, a.re)


def exchanged(a: ComplexParts) -> ComplexParts:
    """im + i re: i times the conjugate, by which odd functions turn into their hyperbolic ones."""
    return ComplexParts(a.imaginary, a.re)


def sin(a: ComplexParts) -> ComplexParts:
    return exchanged(sinh(exchanged(a)))


def cos(a: ComplexParts) -> ComplexParts:
    return cosh(_times_i(a))


def tan(a: ComplexParts) -> ComplexParts:
    return exchanged(tanh(exchanged(a)))


# ---------------------------------------------------------------- powers
def power(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """exp(b log a); 1 where b is 0, 0 where a is 0 and the real part of b is positive."""
    found = exp(multiply(log(a), b))
    re, im = found.re, found.imaginary
    nothing = a.re.eq(0) & a.imaginary.eq(0)
    positive = nothing & (b.re > 0)
    one = b.re.eq(0) & b.imaginary.eq(0)
    re = where(one, 1.0, where(positive, 0.0, where(nothing, math.nan, re)))
    im = where(one | positive, 0.0, where(nothing, math.nan, im))
    return ComplexParts(re, im)


def whole_power(a: ComplexParts, n: int) -> ComplexParts:
    """The power of a known integer, by repeated squares."""
    if n == 0:
        return ComplexParts(leaves.const_like(a.re, 1), leaves.const_like(a.re, 0))
    found = by_squares(ComplexParts(a.re, a.imaginary), abs(n), multiply)
    return reciprocal(found) if n < 0 else found


# ---------------------------------------------------------------- comparisons
def equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return a.re.eq(b.re) & a.imaginary.eq(b.imaginary)


def not_equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return a.re.ne(b.re) | a.imaginary.ne(b.imaginary)


def _before(a: ComplexParts, b: ComplexParts, last: UOp) -> UOp:
    """a < b by real parts, and by `last`, of the imaginary parts, where these are equal."""
    known = ~(f.isnan(a.imaginary) | f.isnan(b.imaginary))
    return ((a.re < b.re) & known) | (a.re.eq(b.re) & last)


def less(a: ComplexParts, b: ComplexParts) -> UOp:
    return _before(a, b, a.imaginary < b.imaginary)


def less_equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return _before(a, b, a.imaginary <= b.imaginary)


def is_nan(a: ComplexParts) -> UOp:
    return f.isnan(a.re) | f.isnan(a.imaginary)


def is_true(a: ComplexParts) -> UOp:
    return a.re.ne(0) | a.imaginary.ne(0)


def chosen(condition: UOp, a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """a where the condition holds, else b."""
    return ComplexParts(where(condition, a.re, b.re), where(condition, a.imaginary, b.imaginary))


def maximum(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return chosen(is_nan(a) | less_equal(b, a), a, b)


def minimum(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return chosen(is_nan(a) | less_equal(a, b), a, b)


def fmax(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return chosen(is_nan(b) | less_equal(b, a), a, b)


def fmin(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    return chosen(is_nan(b) | less_equal(a, b), a, b)


# Where `Ops` has a rounding to the nearest integer, of ties to even.
def rounded(a: ComplexParts) -> ComplexParts:
    return ComplexParts(alu.alu(a.re, Ops.ROUND), alu.alu(a.imaginary, Ops.ROUND))
