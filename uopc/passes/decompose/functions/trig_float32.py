"""float32 angles: sine and cosine in float32, and larger ones modulo pi in float64.

|x| = n pi/2 + r + d: r is rounded once, and d is its rounding error, so sines are right to less
than a unit in the last place though nothing is wider than float32. A branch reduces angles from
`LARGE_ANGLE_32` on in float64, by windows into the bits of 1/pi.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from uopc.ir.builder.float_bits import bits_of, polynomial, with_sign
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.cold_branches import applied, cold_branch

# fmt: off
WINDOW_STARTS: Final = (2.0**49, 2.0**76, 2.0**102)
INVERSE_PI_32: Final = ((0.3183098861837907, -1.9678676675182486e-17), (1.284127663345183e-08,
    -2.7170920538718753e-25), (-7.518982790644032e-17, 5.090832193749855e-33),
    (-2.7170920538718753e-25, 1.9429493537593412e-41))
SIN_32: Final = (3.141592625182, -5.1677080701296, 2.5500352321539, -0.59800856150688,
    0.077070445778548)
LARGE_ANGLE_32: Final = 65536.0
TWO_BY_PI_SMALL: Final = 0.636619747
HALF_PI_32: Final = (1.57079637, -4.37113883e-08, -1.71512451e-15)
SMALL_SIN_32: Final = (0.333333075, 0.0333284549, 0.00156075333)
SMALL_COS_32: Final = (0.166666582, 0.0111098457, 0.000390908797)
# fmt: on
_PAIRS: Final = tuple(zip(SMALL_COS_32, SMALL_SIN_32, strict=True))
_ROUND_32: Final = 1.5 * 2.0**23  # adding it rounds to an integer, in the low bits of the sum
_ROUND_64: Final = 1.5 * 2.0**52


def sine_32(x: UOp, cosine: bool) -> UOp:
    """sin |x|, or cos x."""
    is_large, small = abs(x) >= LARGE_ANGLE_32, _small_angle(abs(x), cosine)
    name = "large_cos" if cosine else "large_sin"
    large = applied(name, functools.partial(_large_angle, cosine=cosine), x)
    return cold_branch(is_large, small, is_large.where(large, small))


def _small_angle(a: UOp, cosine: bool) -> UOp:
    """The sine or cosine of 0 <= a < LARGE_ANGLE_32; in odd quarters of the circle a cosine of r.

    With g = -(r + d)^2/2: sin (r + d) = r + (d + r g P(g)), cos (r + d) = 1 + (g + g^2 Q(g)).
    a - n pi/2 is exact for the first part of pi/2. Its error in the second part is known: `exact`
    has no bits below 2^-24, so `exact - r` is exact."""
    rounded = a.mulacc(TWO_BY_PI_SMALL, _ROUND_32)
    n = rounded - _ROUND_32
    exact = n.mulacc(-HALF_PI_32[0], a)
    r = exact - n.mulacc(HALF_PI_32[1], 0.0)  # a product that is rounded, and never contracted
    d = n.mulacc(-HALF_PI_32[2], n.mulacc(-HALF_PI_32[1], exact - r))
    quarter = bits_of(rounded) + (1 if cosine else 0)
    odd = (quarter & 1).ne(0)
    g = (r * -0.5).mulacc(r, -r * d)
    chosen = [odd.where(g.const_like(c), g.const_like(k)) for c, k in _PAIRS]
    tail = (odd.where(g, r) * g).mulacc(polynomial(g, chosen), odd.where(g, d))
    sine = odd.where(1.0, r) + tail
    return with_sign(sine, (quarter << 30) & (1 << 31))


def _large_angle(x: UOp, cosine: bool) -> UOp:
    """sin |x| or cos x in float64: |x|/pi = n + r, sin |x| = (-1)^n sin(pi r), cos x = (-1)^n
    sin(pi (1/2 - |r|))."""
    r, rounded = reduced_32(x, INVERSE_PI_32)
    r = 0.5 - abs(r) if cosine else r
    sine = with_sign(r, bits_of(rounded) << 63) * polynomial(r * r, SIN_32)
    return sine.cast(dtypes.float32)


def reduced_32(x: UOp, windows: Sequence[tuple[float, float]]) -> tuple[UOp, UOp]:
    """(r, rounded) in float64 with c |x| = n + r modulo 2; n is the low bits of rounded.

    c is 1/pi or 2/pi in two parts: whole in the first window; in the others, chosen by selects,
    without the bits whose product with x is a multiple of 2. The first product is exact.
    """
    a = abs(x)
    y = a.cast(dtypes.float64)
    high, low = (y.const_like(part) for part in windows[0])
    for start, window in zip(WINDOW_STARTS, windows[1:]):
        beyond = a >= start
        high, low = beyond.where(window[0], high), beyond.where(window[1], low)
    rounded = y.mulacc(high, _ROUND_64)
    return y.mulacc(low, y.mulacc(high, -(rounded - _ROUND_64))), rounded
