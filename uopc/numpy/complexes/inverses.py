"""The inverse circular and hyperbolic functions of complex numbers.

By T. E. Hull, T. F. Fairgrieve and P. T. P. Tang (1997): of the distances r and s from 1 and -1 to
the point (x, y), both 0 or more, a = (r + s) / 2 gives one part and b = x / a the other. Where
a - 1 or a - x cancel, they are computed from x and y.

    acos(x + iy) = (acos b, -log(a + sqrt(a² - 1)))
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.builder import alu, leaves
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.numpy.complexes.arrays import ComplexParts
from uopc.tensor import float_functions as f

_NEAR_B, _NEAR_A = 0.6417, 1.5  # below them the direct formulas are exact
_HUGE = {dtypes.float32: 2.0**26, dtypes.float64: 2.0**55}  # beyond it, 1 is nothing


def _where(condition: UOp, a: UOp | float, b: UOp | float) -> UOp:
    like = a if isinstance(a, UOp) else b
    assert isinstance(like, UOp)
    a, b = (v if isinstance(v, UOp) else leaves.const_like(like, v) for v in (a, b))
    return alu.where(condition, a, b)


def _im(a: ComplexParts) -> UOp:
    return leaves.const_like(a.re, 0) if a.im is None else a.im


class _Elliptic(NamedTuple):
    """For a point in the first quadrant: the inverse cosine and sine of b, and acosh a."""

    acos: UOp
    asin: UOp
    size: UOp


def _elliptic(x: UOp, y: UOp) -> _Elliptic:
    r, s = f.hypot(x + 1, y), f.hypot(x - 1, y)
    a = (r + s) * 0.5
    a = a.maximum(1)
    b = x / a
    # r - (x + 1) and s - |x - 1|, without cancellation.
    over_r = y * y / _positive(r + (x + 1))
    over_s = _where(x < 1, y * y / _positive(s + (1 - x)), s + (x - 1))
    less_s = _where(x <= 1, s + (1 - x), y * y / _positive(s + (x - 1)))
    am1 = 0.5 * (over_r + over_s)
    near = _where(x < 1, am1, 0.5 * (over_r + (s + (x - 1))))
    size = _where(
        a < _NEAR_A, f.log1p(near + (near * (a + 1)).sqrt()), (a + (a * a - 1).sqrt()).log()
    )
    # sqrt((a + x)(a - x)), where a - x cancels.
    distance = (0.5 * (a + x) * (over_r + less_s)).sqrt()
    # y² vanishes: a - 1 = y² / (2 (1 - x²)), and so on.
    tiny = y < 2.0**-60 * abs(x - 1)
    distance = _where(tiny, _where(x < 1, ((1 - x) * (1 + x)).sqrt(),
                                   y * x / ((x + 1) * (x - 1)).sqrt()), distance)  # fmt: skip
    inside = y / _positive(((1 - x) * (1 + x)).sqrt())
    outside = f.log1p((x - 1) + ((x - 1) * (x + 1)).sqrt())
    size = _where(tiny & ~x.eq(1), _where(x < 1, inside, outside), size)
    far = b > _NEAR_B
    return _Elliptic(
        _where(far, f.atan2(distance, x), f.acos(b)),
        _where(far, f.atan2(x, distance), f.asin(b)),
        size,
    )


def _positive(x: UOp) -> UOp:
    """x, and 1 where it is 0 or no number: for quotients that are not chosen there."""
    return _where(x > 0, x, 1.0)


def _checked(x: UOp, y: UOp) -> tuple[UOp, UOp, UOp]:
    """The point with magnitudes that are neither huge nor infinite, and where it was huge."""
    huge = (x > _HUGE[x.dtype.scalar]) | (y > _HUGE[x.dtype.scalar])
    return _where(huge, 1.0, x), _where(huge, 1.0, y), huge


def _log_twice(x: UOp, y: UOp) -> UOp:
    """log(2 |x + iy|) of a huge point; infinite if one part is."""
    high, low = x.maximum(y), x.minimum(y)
    ratio = _where(f.isinf(high), 0.0, low / _positive(high))
    found = high.log() + f.log1p(ratio * ratio) * 0.5 + math.log(2)
    return _where(f.isinf(x) | f.isinf(y), math.inf, found)


def acos(a: ComplexParts) -> ComplexParts:
    """The angle with this cosine: cuts below -1 and above 1."""
    x, y = abs(a.re), abs(_im(a))
    near_x, near_y, huge = _checked(x, y)
    found = _elliptic(near_x, near_y)
    left = f.signbit(a.re)
    re = _where(left, math.pi - found.acos, found.acos)
    re = _where(huge, f.atan2(y, a.re), re)
    size = _where(huge, _log_twice(x, y), found.size)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = _where(lost_x | lost_y, _where(lost_y & x.eq(0), math.pi / 2, re * math.nan), re)
    size = _where((lost_x & ~f.isinf(y)) | (lost_y & ~f.isinf(x)), math.nan, size)
    return ComplexParts(re, f.copysign(size, -f.copysign(leaves.const_like(x, 1), _im(a))))


def asin(a: ComplexParts) -> ComplexParts:
    """The angle with this sine: cuts below -1 and above 1."""
    x, y = abs(a.re), abs(_im(a))
    near_x, near_y, huge = _checked(x, y)
    found = _elliptic(near_x, near_y)
    re = _where(huge, f.atan2(x, y), found.asin)
    size = _where(huge, _log_twice(x, y), found.size)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = _where((lost_x | lost_y) & ~x.eq(0), math.nan, re)
    size = _where((lost_x & ~f.isinf(y)) | (lost_y & ~f.isinf(x)), math.nan, size)
    return ComplexParts(f.copysign(_where(x.eq(0), x, re), a.re), f.copysign(size, _im(a)))


def asinh(a: ComplexParts) -> ComplexParts:
    """-i asin(i z), by reflection: asin of the parts exchanged."""
    found = asin(ComplexParts(_im(a), a.re))
    return ComplexParts(_im(found), found.re)


def acosh(a: ComplexParts) -> ComplexParts:
    """i acos z or -i acos z, whose real part is 0 or more."""
    found = acos(a)
    return ComplexParts(abs(_im(found)), f.copysign(found.re, _im(a)))


def atanh(a: ComplexParts) -> ComplexParts:
    """log1p(4x / ((1 - x)² + y²)) / 4, and atan2(2y, (1 - x)(1 + x) - y²) / 2."""
    x, y = abs(a.re), abs(_im(a))
    near_x, near_y, huge = _checked(x, y)
    away = (1 - near_x) * (1 - near_x) + near_y * near_y
    pole = away.eq(0)
    re = f.log1p(4 * near_x / _where(pole, 1.0, away)) * 0.25
    near_pole = x.eq(1) & (y < 2.0**-30)
    re = _where(near_pole, (math.log(2) - y.log()) * 0.5, re)
    im = f.atan2(2 * near_y, (1 - near_x) * (1 + near_x) - near_y * near_y) * 0.5
    high, low = x.maximum(y), x.minimum(y)
    ratio = _where(f.isinf(high), 0.0, low / _positive(high))
    small = x / _positive(high) / high / (1 + ratio * ratio)
    re = _where(huge, _where(f.isinf(x) | f.isinf(y), 0.0, small), re)
    im = _where(huge, math.pi / 2, im)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = _where(lost_x & ~f.isinf(y), math.nan, re)
    re = _where(lost_y & ~x.eq(0) & ~f.isinf(x), math.nan, re)
    im = _where(lost_y | (lost_x & ~f.isinf(y)), math.nan, im)
    re = _where(x.eq(0), x, re)
    return ComplexParts(f.copysign(re, a.re), f.copysign(im, _im(a)))


def atan(a: ComplexParts) -> ComplexParts:
    """-i atanh(i z), by reflection: atanh of the parts exchanged."""
    found = atanh(ComplexParts(_im(a), a.re))
    return ComplexParts(_im(found), found.re)
