"""The bits of floats, and polynomials: building blocks of functions."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp

_UINT = {16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def bits_of(x: UOp) -> UOp:
    """The bits of a float, as an unsigned integer of its size."""
    return x.bitcast(_UINT[x.dtype.bits])


def float_of(bits: UOp) -> UOp:
    """The float with these bits: the inverse of `bits_of`."""
    return bits.bitcast(dtypes.float64 if bits.dtype.bits == 64 else dtypes.float32)


def polynomial(x: UOp, coefficients: Sequence[float | UOp]) -> UOp:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule; c0 first."""
    last = coefficients[-1]
    result = x.const_like(last) if isinstance(last, float) else last
    for c in reversed(coefficients[:-1]):
        result = result.mulacc(x, c)
    return result


def sign_of(x: UOp) -> UOp:
    """The sign bit of x; all other bits 0."""
    return bits_of(x) & (1 << (x.dtype.bits - 1))


def with_sign(magnitude: UOp, sign: UOp) -> UOp:
    """The float with its sign flipped where `sign` has the sign bit."""
    return float_of(bits_of(magnitude) ^ sign)


def to_odd(rounded: UOp, inexact: UOp, smaller: UOp) -> UOp:
    """Round to odd: the rounded value where exact, else the neighbour of the exact value with an
    odd last bit. Rounding the result to fewer bits is then correct. `smaller`: |rounded| < |exact|.
    """
    bits = bits_of(rounded)
    moved = inexact & (bits & 1).eq(0)
    return float_of(moved.where(smaller.where(bits + 1, bits - 1), bits))


def exponent_and_fraction(x: UOp, subnormals: bool = True) -> tuple[UOp, UOp]:
    """(k, m) with x = 2^k m and sqrt(1/2) <= m < sqrt(2), for 0 < x < infinity; k is a float."""
    mantissa, bias = (52, 1023) if x.dtype.bits == 64 else (23, 127)
    k_bias: UOp | float = 2.0**mantissa + bias
    if subnormals:
        tiny = x < 2.0 ** (1 - bias)
        x = tiny.where(x * 2.0 ** (mantissa + 1), x)
        k_bias = tiny.where(k_bias + mantissa + 1, x.const_like(k_bias))
    root = 0x3FE6A09E667F3BCD if mantissa == 52 else 0x3F3504F3
    one = bias << mantissa
    shifted = bits_of(x) + (one - root)
    m = float_of((shifted & ((1 << mantissa) - 1)) + root)
    # The exponent field as the low bits of 2^mantissa + exponent.
    k = float_of((shifted >> mantissa) | ((bias + mantissa) << mantissa)) - k_bias
    return k, m
