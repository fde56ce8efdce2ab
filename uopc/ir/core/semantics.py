"""The elementwise ops in NumPy, as rows of the op table name them (`Op.evaluate`).

Every function takes arrays (or NumPy scalars) of the operands' type and gives arrays of that type
(comparisons: bool). Constant folding and the reference interpreter call the same functions, so each
corner case has one definition: integers wrap, division and remainder by zero give 0, shifts by the
width or more give 0 or the sign, maximum and minimum propagate NaN and give the second of two
zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType

Array = npt.NDArray[Any]


def _wide(a: Array) -> Array:
    """Narrow floats as float32; the caller rounds the result."""
    return a.astype(np.float32) if a.dtype.itemsize < 4 and not _is_integer(a) else a


def _is_integer(a: Array) -> bool:
    return a.dtype.kind in "iub"


def _rounding(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function that rounds: it computes 8-bit floats in float32 and converts as CAST does."""

    def evaluate(*operands: Array) -> Array:
        t = operands[0].dtype
        if t.itemsize > 1 or _is_integer(operands[0]):
            return function(*operands)
        wide = [a.astype(np.float32) for a in operands]
        return cast(np.asarray(function(*wide)), dtypes.float32, dtypes.from_numpy(t))

    return evaluate


def computed_wide(name: str) -> Any:
    """`np.<name>`, computed in float32 for narrower floats and rounded to the operands' type."""
    function = getattr(np, name)
    return _rounding(lambda *a: np.asarray(function(*map(_wide, a)).astype(a[0].dtype)))


def neg(a: Array) -> Array:
    return np.logical_not(a) if a.dtype == np.bool_ else np.negative(a)


@_rounding
def erf(a: Array) -> Array:
    exact = np.array([math.erf(float(v)) for v in np.ravel(a)], np.float64)
    return exact.reshape(np.shape(a)).astype(a.dtype)


@_rounding
def sub(a: Array, b: Array) -> Array:
    return np.logical_xor(a, b) if a.dtype == np.bool_ else np.subtract(a, b)


def maximum(a: Array, b: Array) -> Array:
    """The greater value. (NumPy's choice of a zero depends on the dtype.)"""
    if a.dtype.kind in "biu":
        return np.maximum(a, b)
    return np.where((a > b) | np.isnan(a), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The lesser value, with zeros as in `maximum`."""
    if a.dtype.kind in "biu":
        return np.minimum(a, b)
    return np.where((a < b) | np.isnan(a), a, b)


add = _rounding(np.add)
mul = _rounding(np.multiply)
floor_div = _rounding(np.floor_divide)


@_rounding
def power(a: Array, b: Array) -> Array:
    """a raised to b; integers wrap."""
    if not _is_integer(a):
        x, y = _wide(a), _wide(b)
        # NumPy takes the square root of one value, whose −0 and −inf are not the power's.
        root = (y == 0.5) & ((x == 0) | np.isinf(x))
        return np.asarray(np.where(root, np.abs(x), np.power(x, y)).astype(a.dtype))
    if a.dtype == np.bool_:
        return np.logical_or(a, np.logical_not(b))
    # Integer powers wrap; a negative exponent is the integer part of the reciprocal power.
    exponent = np.where(b < 0, 0, b).astype(a.dtype)
    result = np.power(a, exponent)
    negative = np.where(a == 1, 1, 0).astype(a.dtype)
    if a.dtype.kind == "i":
        negative = np.where(a == -1, np.where(b % 2 == 0, 1, -1), negative).astype(a.dtype)
    return np.asarray(np.where(b < 0, negative.astype(a.dtype), result))


@_rounding
def trunc_div(a: Array, b: Array) -> Array:
    """The quotient rounded toward 0; integers: 0 where b = 0."""
    if not _is_integer(a):
        return np.asarray(np.trunc(_wide(a) / _wide(b)).astype(a.dtype))
    return np.asarray((a - np.fmod(a, b)) // b)


def _in_width(a: Array, b: Array) -> Array:
    """True where a shift count lies in [0, width); counts are read as unsigned."""
    return (b >= 0) & (b < a.dtype.itemsize * 8)


def shl(a: Array, b: Array) -> Array:
    """a shifted left; 0 where the count is outside of the width."""
    inside = _in_width(a, b)
    shifted = np.left_shift(a, np.where(inside, b, 0).astype(a.dtype))
    return np.where(inside, shifted, 0).astype(a.dtype)


def shr(a: Array, b: Array) -> Array:
    """a shifted right; 0 or the sign where the count is outside of the width."""
    inside = _in_width(a, b)
    bits = a.dtype.itemsize * 8
    count = np.where(inside, b, bits - 1 if a.dtype.kind == "i" else 0).astype(a.dtype)
    shifted = np.right_shift(a, count)
    return shifted if a.dtype.kind == "i" else np.where(inside, shifted, 0).astype(a.dtype)


@_rounding
def scale(a: Array, n: Array) -> Array:
    """a·2^n with one rounding; n is a whole number."""
    exponent = np.clip(n.astype(np.float64), -(1 << 14), 1 << 14)
    with np.errstate(all="ignore"):
        scaled = np.ldexp(_wide(a), np.where(np.isnan(exponent), 0, exponent).astype(np.int32))
    return np.asarray(np.where(np.isnan(n), n, scaled).astype(a.dtype))


def dot4(a: Array, b: Array, c: Array | int = 0) -> Array:
    """The sum of c and the products of the bytes of two int32: unsigned ones of a, signed of b."""
    total = np.asarray(c, np.int32)
    for shift in (0, 8, 16, 24):
        unsigned = np.bitwise_and(np.right_shift(a, shift), 255)
        signed = np.right_shift(np.left_shift(b, 24 - shift), 24)
        total = np.add(total, np.multiply(unsigned, signed))
    return total


def dot2(a: Array, b: Array, c: Array | float = 0.0) -> Array:
    """The sum of c and the products of the two bfloat16 of int32 words, the low ones first."""
    total = np.asarray(c, np.float32)
    for first, second in zip(_pair(a), _pair(b)):
        total = np.add(total, np.multiply(first, second))
    return total


def _pair(a: Array) -> tuple[Array, Array]:
    """The two bfloat16 of each word, as float32."""
    words = np.ascontiguousarray(a).view(np.uint32).reshape(a.shape)
    low, high = words << np.uint32(16), words & np.uint32(0xFFFF0000)
    return low.view(np.float32), high.view(np.float32)


def mulacc(a: Array, b: Array, c: Array) -> Array:
    """a*b + c with one rounding (floats), wrapping (integers)."""
    if _is_integer(a):
        return np.add(np.multiply(a, b), c)
    if a.dtype == np.float64:
        return _fma64(a, b, c)
    # The product is exact in float64; the sum is rounded to odd there, then once to the type.
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where(even & (lost != 0), np.nextafter(total, np.copysign(np.inf, lost)), total)
    exact = np.where(np.isfinite(lost), odd, total)
    return cast(exact, dtypes.float64, dtypes.from_numpy(a.dtype))


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """float64 fused multiply-add: exact rational arithmetic where the operands are finite."""
    from fractions import Fraction

    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.asarray(a * b + c)
    flat = out.reshape(-1)
    for i, (x, y, z) in enumerate(zip(a.reshape(-1), b.reshape(-1), c.reshape(-1))):
        if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
            continue
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if exact != 0:
            try:
                flat[i] = exact.numerator / exact.denominator
            except OverflowError:
                flat[i] = math.inf if exact > 0 else -math.inf
    return flat.reshape(out.shape)


def threefry(x: Array, key: Array) -> Array:
    """threefry-2x32 with 20 rounds (Salmon et al., SC 2011) on uint64 = (high << 32) | low."""
    x, key = np.broadcast_arrays(x.astype(np.uint64), key.astype(np.uint64))
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    keys = [(key & mask).astype(np.uint32), (key >> half).astype(np.uint32)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    lo = (x & mask).astype(np.uint32) + keys[0]
    hi = (x >> half).astype(np.uint32) + keys[1]
    for block in range(5):
        for r in THREEFRY_ROTATIONS[block % 2]:
            lo = lo + hi
            hi = (hi << np.uint32(r)) | (hi >> np.uint32(32 - r))
            hi = hi ^ lo
        lo = lo + keys[(block + 1) % 3]
        hi = hi + keys[(block + 2) % 3] + np.uint32(block + 1)
    return (hi.astype(np.uint64) << half) | lo.astype(np.uint64)


THREEFRY_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))


def cast(a: Array, source: DType, target: DType) -> Array:
    """Convert values: floats truncate and saturate to integers, NaN gives 0; fp8 saturates."""
    source, target = source.scalar, target.scalar
    if target.kind == "bool":
        return np.asarray(_wide(a) != 0)
    if source.is_float and target.is_integral:
        low, high = target.bounds
        wide = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = (wide > float(low) - 1) & (wide < float(high))
        safe = np.where(inside, wide, 0).astype(target.numpy)
        lowest, highest = np.array(target.bounds, dtype=target.numpy)
        return np.where(inside, safe, np.where(wide > 0, highest, lowest))
    if target.is_float and target.bits == 8:
        limit = _LARGEST_FP8[target.name]
        wide = a.astype(np.float32)
        clipped = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
        return clipped.astype(target.numpy)
    return a.astype(target.numpy)


_LARGEST_FP8: Final = {
    "fp8e4m3": 448.0, "fp8e5m2": 57344.0, "fp8e4m3fnuz": 240.0, "fp8e5m2fnuz": 57344.0,
}  # fmt: skip


def reduce_identity(op: str, t: DType) -> float | int | bool:
    """The value of a reduction over nothing: 0, 1, or for max the least value of the dtype (for
    8-bit floats the least finite value, because conversions saturate)."""
    if op == "add":
        return False if t is dtypes.bool_ else 0
    if op == "mul":
        return True if t is dtypes.bool_ else 1
    if not t.is_float:
        low, high = t.bounds
        return low if op == "max" else high
    limit = _LARGEST_FP8.get(t.name, math.inf)
    return -limit if op == "max" else limit
