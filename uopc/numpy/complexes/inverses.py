"""The inverse circular and hyperbolic functions of complex numbers.

By T. E. Hull, T. F. Fairgrieve and P. T. P. Tang (1997): of the distances r and s from 1 and -1 to
the point (x, y), both 0 or more, a = (r + s) / 2 gives one part and b = x / a the other. Where
a - 1 or a - x cancel, they are computed from x and y.

    acos(x + iy) = (acos b, -log(a + sqrt(a² - 1)))
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.builder import leaves
from uopc.ir.builder.alu import where
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.numpy.complexes.arrays import ComplexParts
from uopc.numpy.complexes.formulas import exchanged, log_size
from uopc.tensor import float_functions as f

_NEAR_B, _NEAR_A = 0.6417, 1.5  # below them the direct formulas are exact
_HUGE = {dtypes.float32: 2.0**26, dtypes.float64: 2.0**55}  # beyond it, 1 is nothing


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
    over_s = where(x < 1, y * y / _positive(s + (1 - x)), s + (x - 1))
    less_s = where(x <= 1, s + (1 - x), y * y / _positive(s + (x - 1)))
    am1 = 0.5 * (over_r + over_s)
    near = where(x < 1, am1, 0.5 * (over_r + (s + (x - 1))))
    size = where(
        a < _NEAR_A, f.log1p(near + (near * (a + 1)).sqrt()), (a + (a * a - 1).sqrt()).log()
    )
    # sqrt((a + x)(a - x)), where a - x cancels.
    distance = (0.5 * (a + x) * (over_r + less_s)).sqrt()
    # y² vanishes: a - 1 = y² / (2 (1 - x²)), and so on.
    tiny = y < 2.0**-60 * abs(x - 1)
    beyond = y * x / ((x + 1) * (x - 1)).sqrt()
    distance = where(tiny, where(x < 1, ((1 - x) * (1 + x)).sqrt(), beyond), distance)
    inside = y / _positive(((1 - x) * (1 + x)).sqrt())
    outside = f.log1p((x - 1) + ((x - 1) * (x + 1)).sqrt())
    size = where(tiny & ~x.eq(1), where(x < 1, inside, outside), size)
    far = b > _NEAR_B
    return _Elliptic(
        where(far, f.atan2(distance, x), f.acos(b)),
        where(far, f.atan2(x, distance), f.asin(b)),
        size,
    )


def _positive(x: UOp) -> UOp:
    """x, and 1 where it is 0 or no number: for quotients that are not chosen there."""
    return where(x > 0, x, 1.0)


def _checked(x: UOp, y: UOp) -> tuple[UOp, UOp, UOp]:
    """The point with magnitudes that are neither huge nor infinite, and where it was huge."""
    huge = (x > _HUGE[x.dtype.scalar]) | (y > _HUGE[x.dtype.scalar])
    return where(huge, 1.0, x), where(huge, 1.0, y), huge


def acos(a: ComplexParts) -> ComplexParts:
    """The angle with this cosine: cuts below -1 and above 1."""
    x, y = abs(a.re), abs(a.imaginary)
    near_x, near_y, huge = _checked(x, y)
    found = _elliptic(near_x, near_y)
    left = f.signbit(a.re)
    re = where(left, math.pi - found.acos, found.acos)
    re = where(huge, f.atan2(y, a.re), re)
    size = where(huge, log_size(x, y) + math.log(2), found.size)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = where(lost_x | lost_y, where(lost_y & x.eq(0), math.pi / 2, re * math.nan), re)
    size = where((lost_x & ~f.isinf(y)) | (lost_y & ~f.isinf(x)), math.nan, size)
    return ComplexParts(re, f.copysign(size, -f.copysign(leaves.const_like(x, 1), a.imaginary)))


def asin(a: ComplexParts) -> ComplexParts:
    """The angle with this sine: cuts below -1 and above 1."""
    x, y = abs(a.re), abs(a.imaginary)
    near_x, near_y, huge = _checked(x, y)
    found = _elliptic(near_x, near_y)
    re = where(huge, f.atan2(x, y), found.asin)
    size = where(huge, log_size(x, y) + math.log(2), found.size)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = where((lost_x | lost_y) & ~x.eq(0), math.nan, re)
    size = where((lost_x & ~f.isinf(y)) | (lost_y & ~f.isinf(x)), math.nan, size)
    return ComplexParts(f.copysign(where(x.eq(0), x, re), a.re), f.copysign(size, a.imaginary))


def asinh(a: ComplexParts) -> ComplexParts:
    """-i asin(i z), by reflection: asin of the parts exchanged."""
    return exchanged(asin(exchanged(a)))


def acosh(a: ComplexParts) -> ComplexParts:
    """i acos z or -i acos z, whose real part is 0 or more."""
    found = acos(a)
    return ComplexParts(abs(found.imaginary), f.copysign(found.re, a.imaginary))


def atanh(a: ComplexParts) -> ComplexParts:
    """log1p(4x / ((1 - x)² + y²)) / 4, and atan2(2y, (1 - x)(1 + x) - y²) / 2."""
    x, y = abs(a.re), abs(a.imaginary)
    near_x, near_y, huge = _checked(x, y)
    away = (1 - near_x) * (1 - near_x) + near_y * near_y
    pole = away.eq(0)
    re = f.log1p(4 * near_x / where(pole, 1.0, away)) * 0.25
    near_pole = x.eq(1) & (y < 2.0**-30)
    re = where(near_pole, (math.log(2) - y.log()) * 0.5, re)
    im = f.atan2(2 * near_y, (1 - near_x) * (1 + near_x) - near_y * near_y) * 0.5
    high, low = x.maximum(y), x.minimum(y)
    ratio = where(f.isinf(high), 0.0, low / _positive(high))
    small = x / _positive(high) / high / (1 + ratio * ratio)
    re = where(huge, where(f.isinf(x) | f.isinf(y), 0.0, small), re)
    im = where(huge, math.pi / 2, im)
    lost_x, lost_y = f.isnan(x), f.isnan(y)
    re = where(lost_x & ~f.isinf(y), math.nan, re)
    re = where(lost_y & ~x.eq(0) & ~f.isinf(x), math.nan, re)
    im = where(lost_y | (lost_x & ~f.isinf(y)), math.nan, im)
    re = where(x.eq(0), x, re)
    return ComplexParts(f.copysign(re, a.re), f.copysign(im, a.imaginary))


def atan(a: ComplexParts) -> ComplexParts:
    """-i atanh(i z), by reflection: atanh of the parts exchanged."""
    return exchanged(atanh(exchanged(a)))
