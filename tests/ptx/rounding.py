"""Roundings that NumPy does not offer: to odd, to bfloat16 from float64, in a direction, fused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from tests.ptx.memory import Array

BF16 = np.dtype(ml_dtypes.bfloat16)


def to_odd(exact: Array, lost: Array) -> Array:
    """float64 sums whose lost part is known, made odd: a later rounding to less is then right."""
    bits = exact.view(np.int64)
    # `exact` was rounded to nearest: toward the lost part where that has its sign, else away.
    step = np.where((lost > 0) == (exact > 0), 1, -1)
    shift = ((bits & 1) == 0) & (lost != 0) & np.isfinite(exact) & np.isfinite(lost)
    return np.where(shift, bits + step, bits).view(np.float64)


def narrow(wide: Array, dtype: Any) -> Array:
    """float64 to a narrower float with one rounding to nearest, ties to even."""
    if dtype != BF16:
        return wide.astype(dtype)
    single = wide.astype(np.float32)
    lost = wide - single.astype(np.float64)
    bits = single.view(np.int32)
    inexact = np.isfinite(lost) & (lost != 0) & ((bits & 1) == 0)
    aim = np.copysign(np.float32(np.inf), lost.astype(np.float32))
    return np.where(inexact, np.nextafter(single, aim), single).astype(dtype)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a*b + c with one rounding, for any float type."""
    dtype = a.dtype
    if dtype == np.float64:
        return _fused_double(*np.broadcast_arrays(a, b, c))
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    if dtype == np.float32 and not _is_near_a_tie(total).any():
        return total.astype(dtype)  # the second rounding is as if it were the only one
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    return narrow(to_odd(total, lost), dtype)


def _is_near_a_tie(total: Array) -> Array:
    """True where a float64 is halfway between two float32s, or small enough to be rounded
    elsewhere: only there an earlier loss matters."""
    low = total.view(np.int64) & 0x1FFFFFFF
    return (low == 0x10000000) | ((np.abs(total) < 2.0**-125) & (low != 0))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and what it lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product and what it lost, by halves of 26 bits."""
    product = a * b
    halves = []
    for x in (a, b):
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        halves += [high, x - high]
    a1, a0, b1, b0 = halves
    return product, a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)


def _fused_double(a: Array, b: Array, c: Array) -> Array:
    """By sums and products without error; the few near overflow or underflow by fractions."""
    product, lost = _two_product(a, b)
    middle, low = _two_sum(c, lost)
    high, rest = _two_sum(product, middle)
    odd, left = _two_sum(low, rest)
    out = np.asarray(a * b + c)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    usual = finite
    for x, limit in ((a, 2.0**400), (b, 2.0**400), (c, 2.0**900)):
        usual = usual & (np.abs(x) < limit) & ((np.abs(x) > 1 / limit) | (x == 0))
    usual = usual & (a != 0) & (b != 0)
    out = np.where(usual, high + to_odd(odd, left), out)
    for i in np.flatnonzero(finite & ~usual & (a != 0) & (b != 0)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact != 0:
            try:
                out[i] = exact.numerator / exact.denominator
            except OverflowError:
                out[i] = math.inf if exact > 0 else -math.inf
    return out


def directed(wide: Array, dtype: Any, direction: str) -> Array:
    """A conversion to a narrower float: rn, rz (toward 0), rm (down) or rp (up)."""
    near = narrow(wide.astype(np.float64), dtype)
    if direction == "rn":
        return near
    back = near.astype(np.float64)
    down = {"rz": np.abs(back) > np.abs(wide), "rm": back > wide, "rp": back < wide}[direction]
    aim = {"rz": np.zeros_like(near), "rm": np.full_like(near, -np.inf),
           "rp": np.full_like(near, np.inf)}[direction]  # fmt: skip
    return np.where(down, np.nextafter(near, aim), near).astype(dtype)


def flush(a: Array) -> Array:
    """Subnormal float32 numbers become zeros of their sign."""
    small = np.abs(a) < np.float32(2.0**-126)
    return np.where(small, np.copysign(np.float32(0), a), a)
