"""float64 angles on machines without an instruction for a*b + c with one rounding.

|x| = n pi + high + low. Products of n with the first two parts of pi are exact: n has 17 bits at
most, they have 35 and 34. `high` is a multiple of 2^-14, so high - 171/1024 high^3 is exact, too.
These are the large terms of the sine; the others are small, and their products may round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from uopc.ir.builder.float_bits import bits_of, polynomial, sign_of, with_sign
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.functions.huge_angles import payne_hanek, where_huge
from uopc.passes.decompose.functions.transcendental import INVERSE_PI_64, PI_64, SIN_64, TAN_64

PI_EXACT_64: Final = (3.1415926535846666, 5.126688305920769e-12, -2.731731080442501e-21)
LARGE_ANGLE_64: Final = 2.0**16
_SIXTH: Final = 171 / 1024
_ROUND: Final = 1.5 * 2.0**52  # adding it rounds to an integer, in the low bits of the sum
_ROUND_HIGH: Final = 1.5 * 2.0**38  # adding it rounds to a multiple of 2^-14


def sin(x: UOp) -> UOp:
    """Sine: |x| = n pi + r, sin |x| = (-1)^n sin r, and the sign of x."""
    rounded = abs(x) * INVERSE_PI_64 + _ROUND
    sine = _sine(*_subtract_multiple_of_pi(abs(x), rounded - _ROUND, 1.0))
    usual = with_sign(sine, (bits_of(rounded) << 63) ^ sign_of(x))
    return where_huge("huge_sin", x, _huge_sin, usual, LARGE_ANGLE_64)


def _huge_sin(x: UOp) -> UOp:
    sine, odd = _huge_sine(x, 0)
    return with_sign(sine, odd ^ sign_of(x))


def cos(x: UOp) -> UOp:
    """Cosine: |x| = (n + 1/2) pi + r, cos x = -(-1)^n sin r."""
    rounded = (abs(x) * INVERSE_PI_64 - 0.5) + (_ROUND + 1.0)
    sine = _sine(*_subtract_multiple_of_pi(abs(x), (rounded - (_ROUND + 1.0)) + 0.5, 1.0))
    usual = with_sign(sine, bits_of(rounded) << 63)
    return where_huge("huge_cos", x, _huge_cos, usual, LARGE_ANGLE_64)


def _huge_cos(x: UOp) -> UOp:
    return with_sign(*_huge_sine(x, 1 << 62))


def _huge_sine(x: UOp, quarter: int) -> tuple[UOp, UOp]:
    """The sine of the rest of |x| modulo pi, and the sign bit of what was taken off."""
    r, error, odd = payne_hanek(x, 0, quarter, PI_64)
    high = _high(r)
    return _sine(r, high, (r - high) + error), bits_of(odd)


def tan(x: UOp) -> UOp:
    """Tangent: 2|x| = n pi + 2r; a quotient of polynomials, or for odd n minus its reciprocal; the
    sign of x. The numerator gets 1.4 times the rounding error of r, as with FMA."""
    rounded = abs(x) * (2 * INVERSE_PI_64) + _ROUND
    _, high, low = _subtract_multiple_of_pi(abs(x), rounded - _ROUND, 0.5)
    near = high + low
    usual = _quotient(x, near, low - (near - high), bits_of(rounded) << 63)
    return where_huge("huge_tan", x, _huge_tan, usual, LARGE_ANGLE_64)


def _huge_tan(x: UOp) -> UOp:
    r, c, sign = payne_hanek(x, 1, 0, [part / 2 for part in PI_64])
    return _quotient(x, r, c, bits_of(sign))


def _quotient(x: UOp, r: UOp, c: UOp, odd: UOp) -> UOp:
    z = r * r
    above = r + (c * 1.4 + r * (z * polynomial(z, TAN_64[0])))
    below = polynomial(z, TAN_64[1])
    swap = odd.ne(0)
    quotient = swap.where(below, above) / swap.where(above, below)
    return with_sign(quotient, sign_of(x) ^ odd)


def _high(r: UOp) -> UOp:
    """r rounded to a multiple of 2^-14."""
    return (r + _ROUND_HIGH) - _ROUND_HIGH


def _subtract_multiple_of_pi(a: UOp, n: UOp, unit: float) -> tuple[UOp, UOp, UOp]:
    """a - n unit pi, for a unit that is a power of two: rounded to a float, and exactly enough as
    high + low. The difference of a and the first product is exact, but for the cosine of a small a.
    """
    first, second, third = [n * (part * unit) for part in PI_EXACT_64]
    near = (a - first) - second
    high = _high(near)
    return near, high, ((a - (first + high)) - second) - third


def _sine(r: UOp, high: UOp, low: UOp) -> UOp:
    """sin (high + low) for a sum below pi/2 that rounds to about r."""
    z = r * r
    cubic = high * -_SIXTH
    exact = high + (high * high) * cubic
    slope = (r + high) * cubic + z * -_SIXTH  # ((high + low)^3 - high^3) / low, times -_SIXTH
    tail = (r * z) * polynomial(z, (SIN_64[0] + _SIXTH, *SIN_64[1:]))
    return exact + (low + (low * slope + tail))


FUNCTIONS: Final[dict[Op, Callable[[UOp], UOp]]] = {Ops.SIN: sin, Ops.COS: cos, Ops.TAN: tan}
