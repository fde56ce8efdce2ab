"""Integer quotients of floats and their remainders, exact for every pair of operands.

C's fmod and NumPy's mod and floor_divide, for float32 and float64 as straight-line expressions.
All work is on magnitudes x = |a|, s = |b|. Where x/s is small, its rounded value n gives the
remainder x - n s in one fused operation, exactly: the remainder is below s, so it is representable.
Elsewhere, under a branch, the quotient has up to 277 bits (float64: 2098) and is subtracted in
parts.
"""

from __future__ import annotations

from typing import Final

from uopc.ir.builder.float_bits import bits_of, float_of, sign_of, with_sign
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.cold_branches import cold_branch

# Quotients x/s below these are rounded with an error below 1/8: the remainder stays below 5/8 s.
_SMALL_32: Final = 2.0**21
_SMALL_64: Final = 2.0**50
_STEPS_32, _STEP_32 = 6, 47  # 6 * 47 bits are more than any float32 quotient has


def float_division(op: Op, a: UOp, b: UOp) -> UOp:
    """CDIV, CMOD, FLOORDIV or FLOORMOD of two floats of 32 or 64 bits."""
    if op is Ops.CDIV:
        return (a / b).trunc()
    x, s = abs(a), abs(b)
    rest = _remainder(x, s)
    if op is Ops.CMOD:
        return with_sign(abs(rest), sign_of(a))
    opposite = (a < 0) ^ (b < 0)
    between = opposite & rest.ne(0)
    if op is Ops.FLOORMOD:
        return with_sign(abs(between.where(s - rest, rest)), sign_of(b))
    # As NumPy rounds: the difference, the quotient and the step down once each.
    size = (x - rest) / s
    quotient = opposite.where(-size, size)
    quotient = between.where(quotient - 1.0, quotient)
    whole = quotient.floor()
    whole = (quotient - whole > 0.5).where(whole + 1.0, whole)
    whole = quotient.eq(0).where(with_sign(abs(quotient), sign_of(a) ^ sign_of(b)), whole)
    return b.eq(0).where(a / b, whole)


def _remainder(x: UOp, s: UOp) -> UOp:
    """x modulo s, 0 <= x; NaN for s = 0, infinite x, and NaN."""
    small = (-(x / s).round()).mulacc(s, x)
    small = (small < 0).where(small + s, small)
    small = (x < s).where(x, small)
    narrow = x.dtype.bits == 32
    is_large = x >= s * (_SMALL_32 if narrow else _SMALL_64)
    large = _large_remainder_32(x, s) if narrow else _large_remainder_64(x, s)
    return cold_branch(is_large, small, is_large.where(large, small))


def _large_remainder_32(x: UOp, s: UOp) -> UOp:
    """The remainder in float64, where s 2^k does not overflow: subtract multiples of s 2^235,
    2^188, … 2^0."""
    rest, divisor = x.cast(dtypes.float64), s.cast(dtypes.float64)
    minus_inverse = -1.0 / divisor
    for i in reversed(range(_STEPS_32)):
        scale = 2.0 ** (_STEP_32 * i)
        rest = (rest * (minus_inverse * (1 / scale))).round().mulacc(divisor * scale, rest)
    return (rest < 0).where(rest + divisor, rest).cast(dtypes.float32)


def _large_remainder_64(x: UOp, s: UOp) -> UOp:
    """x = k 2^n u, s = m u with integers k, m below 2^53: k (2^n mod m) mod m, times u.

    2^n is (2^h)^32 2^l with n = 32 h + l. Residues are in [-m/2, m/2], up to a few units.
    """
    x_scale, s_scale = _exponent_64(x), _exponent_64(s)
    k = x / float_of(x_scale) * 2.0**52
    m = s / float_of(s_scale) * 2.0**52
    n = (x_scale - s_scale) >> 52
    power = _residue(_residue(float_of(((n >> 5) + 1023) << 52), m), m)
    for _ in range(5):
        power = _product(power, power, m)
    power = _residue(power * float_of(((n & 31) + 1023) << 52), m)
    rest = _product(power, _residue(k, m), m)
    return (rest < 0).where(rest + m, rest) * 2.0**-52 * float_of(s_scale)


def _exponent_64(x: UOp) -> UOp:
    """The bits of the greatest power of two up to x; the least normal one for less."""
    return (bits_of(x) & (0x7FF << 52)).maximum(1 << 52)


def _residue(v: UOp, m: UOp) -> UOp:
    """v modulo m, within |v| 2^-53 of [-m/2, m/2]; exact because it is an integer below 2^53."""
    return (-(v / m).round()).mulacc(m, v)


def _product(v: UOp, w: UOp, m: UOp) -> UOp:
    """v w modulo m, in [-m/2, m/2]. The product as high + low, |high/m| <= 2^51, |low| <= m/4."""
    high = v * w
    low = v.mulacc(w, -high)
    rest = _residue(high, m)
    return (-((rest + low) / m).round()).mulacc(m, rest) + low
