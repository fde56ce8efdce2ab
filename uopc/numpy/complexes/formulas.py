"""Functions of complex numbers as formulas of the two parts, with C99's values at zeros, infinities
and NaN, and NumPy's branch cuts.

    exp(x + iy) = (exp x · cos y, exp x · sin y), and (exp x, y) where y is 0

Products are the plain ones and quotients are Smith's, as in NumPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.builder import alu, leaves
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.numpy.complexes.arrays import ComplexParts
from uopc.tensor import float_functions as f


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


def _where(condition: UOp, a: UOp | float, b: UOp | float) -> UOp:
    like = a if isinstance(a, UOp) else b
    assert isinstance(like, UOp)
    a, b = (v if isinstance(v, UOp) else leaves.const_like(like, v) for v in (a, b))
    return alu.where(condition, a, b)


def _im(a: ComplexParts) -> UOp:
    return leaves.const_like(a.re, 0) if a.im is None else a.im


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
    large, small = _where(first, c, d), _where(first, d, c)
    nothing = c.eq(0) & d.eq(0)
    ratio = _where(nothing, 0.0, small / large)
    scale = 1 / (large + small * ratio)
    re, im = a.re, _im(a)
    x, y = _where(first, re, im), _where(first, im, re)
    low = _where(first, y - x * ratio, x * ratio - y) * scale
    zero = abs(large)
    return ComplexParts(
        _where(nothing, re / zero, (x + y * ratio) * scale), _where(nothing, im / zero, low)
    )


def reciprocal(a: ComplexParts) -> ComplexParts:
    """1 / a, as NumPy computes it: by the larger part."""
    c, d = a.re, _im(a)
    first = abs(d) <= abs(c)
    large, small = _where(first, c, d), _where(first, d, c)
    ratio = small / large
    under = large + small * ratio
    return ComplexParts(_where(first, 1.0, ratio) / under, -_where(first, ratio, 1.0) / under)


def negative(a: ComplexParts) -> ComplexParts:
    return ComplexParts(-a.re, None if a.im is None else -a.im)


def conj(a: ComplexParts) -> ComplexParts:
    return ComplexParts(a.re, -_im(a))


def square(a: ComplexParts) -> ComplexParts:
    re, im = a.re, _im(a)
    return ComplexParts(re * re - im * im, re * im + im * re)


def absolute(a: ComplexParts) -> UOp:
    return f.hypot(a.re, _im(a))


def angle(a: ComplexParts) -> UOp:
    return f.atan2(_im(a), a.re)


def sign(a: ComplexParts) -> ComplexParts:
    """The number of magnitude 1 in the same direction; 0 for 0, NaN for NaN and for two infinite
    parts."""
    re, im = a.re, _im(a)
    size = f.hypot(re, im)
    one, both = leaves.const_like(re, 1), f.isinf(re) & f.isinf(im)

    def turned(v: UOp) -> UOp:
        at_infinity = _where(both, math.nan, _where(f.isinf(v), f.copysign(one, v), 0.0))
        return _where(size.eq(0), 0.0, _where(size.eq(math.inf), at_infinity, v / size))

    return ComplexParts(turned(re), turned(im))


# ---------------------------------------------------------------- exponentials
def _turned(size: UOp, other: UOp, y: UOp, extra: UOp) -> ComplexParts:
    """(size · cos y, other · sin y) · extra. Where y is 0 the second part is y, also for an
    infinite `other`."""
    re = size * y.cos() * extra
    im = other * y.sin() * extra
    zero = y.eq(0)
    return ComplexParts(_where(zero, size * extra, re), _where(zero, y, im))


def _exp_and_scale(x: UOp) -> tuple[UOp, UOp]:
    """exp x as a product of two numbers that are finite for x up to twice the limit, so that it may
    meet a small cosine before it overflows."""
    limit = _of(x).limit
    above = x > limit
    rest = _where(above, x - limit, x)
    return rest.exp(), _where(above, math.exp(limit), leaves.const_like(x, 1))


def exp(a: ComplexParts) -> ComplexParts:
    """e to the a; 0 at -inf, whatever the direction."""
    x, y = a.re, _im(a)
    size, scale = _exp_and_scale(x)
    found = _turned(size, size, y, scale)
    low = x.eq(-math.inf) & ~f.isfinite(y)  # 0, whatever the direction
    both = x.eq(math.inf) & ~f.isfinite(y)
    return ComplexParts(
        _where(low, 0.0, _where(both, math.inf, found.re)),
        _where(low, f.copysign(leaves.const_like(y, 0), y), _im(found)),
    )


def expm1(a: ComplexParts) -> ComplexParts:
    """e to the a, minus 1, exact for small a."""
    x, y = a.re, _im(a)
    half = (y * 0.5).sin()
    re = f.expm1(x) * y.cos() - 2 * half * half
    whole = exp(a)
    re = _where(y.eq(0), f.expm1(x) + 0.0, _where(x > 1, whole.re - 1, re))
    return ComplexParts(_where(x.eq(-math.inf), -1.0, re), whole.im)


def _log_size(x: UOp, y: UOp) -> UOp:
    """log |x + iy|, without overflow in between, and exact near 1."""
    high, low = abs(x).maximum(abs(y)), abs(x).minimum(abs(y))
    ratio = _where(low.eq(0) | f.isinf(high), 0.0, low / high)
    near = (high >= 0.5) & (high <= 2)
    rest = _where(near, (high - 1) * (high + 1) + low * low, ratio * ratio)
    found = _where(near, 0.0, high.log()) + f.log1p(rest) * 0.5
    return _where(f.isinf(x) | f.isinf(y), math.inf, found)


def log(a: ComplexParts) -> ComplexParts:
    return ComplexParts(_log_size(a.re, _im(a)), angle(a))


def log2(a: ComplexParts) -> ComplexParts:
    found = log(a)
    return ComplexParts(found.re / math.log(2), _im(found) / math.log(2))


def log10(a: ComplexParts) -> ComplexParts:
    found = log(a)
    return ComplexParts(found.re / math.log(10), _im(found) / math.log(10))


def log1p(a: ComplexParts) -> ComplexParts:
    """log(1 + a), exact for small a."""
    x, y = a.re, _im(a)
    small = abs(x).maximum(abs(y)) < 0.5
    near = f.log1p(x * (x + 2) + y * y) * 0.5
    return ComplexParts(_where(small, near, _log_size(x + 1, y)), f.atan2(y, x + 1))


def sqrt(a: ComplexParts) -> ComplexParts:
    """The root with a real part of 0 or more: |im| / 2 over the part that does not cancel."""
    given_x, given_y = a.re, _im(a)
    most = abs(given_x).maximum(abs(given_y))
    large, small = most >= _of(most).huge, most < _of(most).tiny
    even = int(math.log2(_of(most).huge)) // 2 * 2
    scale = _where(large, 2.0**-even, _where(small, 2.0**even, leaves.const_like(most, 1)))
    back = _where(large, 2.0 ** (even // 2), _where(small, 2.0 ** (-even // 2),
                                                  leaves.const_like(most, 1)))  # fmt: skip
    x, y = given_x * scale, given_y * scale
    root = ((abs(x) + f.hypot(x, y)) * 0.5).sqrt()
    other = _where(root.eq(0), 0.0, abs(y) / (2 * _where(root.eq(0), 1.0, root)))
    right = ~(x < 0)
    re, im = _where(right, root, other) * back, _where(right, other, root) * back
    infinite_y, infinite_x = f.isinf(given_y), f.isinf(given_x)
    im = _where(infinite_x, _where(right, leaves.const_like(x, 0), math.inf), im)
    re = _where(infinite_x, _where(right, leaves.const_like(x, math.inf), 0.0), re)
    lost = infinite_x & f.isnan(given_y)
    re = _where(lost & ~right, math.nan, re)
    im = _where(lost & right, math.nan, im)
    re = _where(infinite_y, math.inf, re)
    im = _where(infinite_y, math.inf, im)
    im = _where(f.isnan(given_x) & ~infinite_y, math.nan, im)
    return ComplexParts(re, f.copysign(im, given_y))


# ---------------------------------------------------------------- hyperbolic and circular functions
def _hyperbolic(x: UOp) -> tuple[UOp, UOp, UOp]:
    """sinh x and cosh x over a scale, and the scale, which is not 1 where they might overflow."""
    limit = _of(x).limit
    large = abs(x) > limit
    size = (abs(x) - limit).minimum(limit).exp()
    return (
        _where(large, f.copysign(size, x), f.sinh(x)),
        _where(large, size, f.cosh(x)),
        _where(large, math.exp(limit) / 2, leaves.const_like(x, 1)),
    )


def sinh(a: ComplexParts) -> ComplexParts:
    """The hyperbolic sine."""
    x, y = a.re, _im(a)
    s, c, scale = _hyperbolic(x)
    found = _turned(s, c, y, scale)
    re = _where(x.eq(0) & ~f.isfinite(y), x, found.re)
    return ComplexParts(_where(f.isinf(x) & ~f.isfinite(y), math.inf, re), found.im)


def cosh(a: ComplexParts) -> ComplexParts:
    """The hyperbolic cosine."""
    x, y = a.re, _im(a)
    s, c, scale = _hyperbolic(x)
    found = _turned(c, s, y, scale)
    im = _where(y.eq(0), _where(f.isnan(x), y, y * f.copysign(leaves.const_like(x, 1), x)),
                _im(found))  # fmt: skip
    im = _where(x.eq(0) & ~f.isfinite(y), 0.0, im)
    return ComplexParts(_where(f.isinf(x) & ~f.isfinite(y), math.inf, found.re), im)


def tanh(a: ComplexParts) -> ComplexParts:
    """sinh x cosh x / (sinh² x + cos² y), sin y cos y / (sinh² x + cos² y)."""
    x, y = a.re, _im(a)
    large = abs(x) > 20
    near = x.minimum(20).maximum(-20)
    s, c, sin, cos = f.sinh(near), f.cosh(near), y.sin(), y.cos()
    under = s * s + cos * cos
    far = 4 * sin * cos * (-2 * abs(x)).exp()
    re = _where(large, f.copysign(leaves.const_like(x, 1), x), s * c / under)
    im = _where(large, far, sin * cos / under)
    infinite = f.isinf(x)
    turn = _where(f.isfinite(y), sin * cos, f.copysign(leaves.const_like(y, 0), y))
    im = _where(infinite, f.copysign(leaves.const_like(x, 0), turn), im)
    re = _where(f.isnan(x), x, _where(large & ~infinite & ~f.isfinite(y), math.nan, re))
    return ComplexParts(_where(x.eq(0), x, re), _where(y.eq(0), y, im))


def _times_i(a: ComplexParts) -> ComplexParts:
    return ComplexParts(-_im(a), a.re)


def _exchanged(a: ComplexParts) -> ComplexParts:
    return ComplexParts(_im(a), a.re)


def sin(a: ComplexParts) -> ComplexParts:
    return _exchanged(sinh(_exchanged(a)))


def cos(a: ComplexParts) -> ComplexParts:
    return cosh(_times_i(a))


def tan(a: ComplexParts) -> ComplexParts:
    return _exchanged(tanh(_exchanged(a)))


# ---------------------------------------------------------------- powers
def power(a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """exp(b log a); 1 where b is 0, 0 where a is 0 and the real part of b is positive."""
    found = exp(multiply(log(a), b))
    re, im = found.re, _im(found)
    nothing = a.re.eq(0) & _im(a).eq(0)
    positive = nothing & (b.re > 0)
    one = b.re.eq(0) & _im(b).eq(0)
    re = _where(one, 1.0, _where(positive, 0.0, _where(nothing, math.nan, re)))
    im = _where(one | positive, 0.0, _where(nothing, math.nan, im))
    return ComplexParts(re, im)


def whole_power(a: ComplexParts, n: int) -> ComplexParts:
    """The power of a known integer, by repeated squares."""
    if n == 0:
        return ComplexParts(leaves.const_like(a.re, 1), leaves.const_like(a.re, 0))
    found: ComplexParts | None = None
    rest, base = abs(n), a
    while rest:
        if rest & 1:
            found = base if found is None else multiply(found, base)
        rest >>= 1
        base = square(base) if rest else base
    assert found is not None
    return reciprocal(found) if n < 0 else found


# ---------------------------------------------------------------- comparisons
def equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return a.re.eq(b.re) & _im(a).eq(_im(b))


def not_equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return a.re.ne(b.re) | _im(a).ne(_im(b))


def _before(a: ComplexParts, b: ComplexParts, last: UOp) -> UOp:
    """a < b by real parts, and by `last`, of the imaginary parts, where these are equal."""
    known = ~(f.isnan(_im(a)) | f.isnan(_im(b)))
    return ((a.re < b.re) & known) | (a.re.eq(b.re) & last)


def less(a: ComplexParts, b: ComplexParts) -> UOp:
    return _before(a, b, _im(a) < _im(b))


def less_equal(a: ComplexParts, b: ComplexParts) -> UOp:
    return _before(a, b, _im(a) <= _im(b))


def is_nan(a: ComplexParts) -> UOp:
    return f.isnan(a.re) | f.isnan(_im(a))


def is_true(a: ComplexParts) -> UOp:
    return a.re.ne(0) | _im(a).ne(0)


def chosen(condition: UOp, a: ComplexParts, b: ComplexParts) -> ComplexParts:
    """a where the condition holds, else b."""
    return ComplexParts(_where(condition, a.re, b.re), _where(condition, _im(a), _im(b)))


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
    return ComplexParts(alu.alu(a.re, Ops.ROUND), alu.alu(_im(a), Ops.ROUND))
