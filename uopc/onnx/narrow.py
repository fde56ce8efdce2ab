"""Types of fewer than 8 bits and exponent-only floats, held in a wider dtype.

Bytes hold integers; float32 holds floats of 4 bits and exponents. Arithmetic uses the wider dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core.dtypes import DType
from uopc.ir.records import dataclass

# Integers: their numbers in TensorProto, the bits, and whether they have a sign.
INTEGERS = {21: (4, False), 22: (4, True), 25: (2, False), 26: (2, True)}
FLOAT4, EXPONENT = 23, 24
NARROW = frozenset([*INTEGERS, FLOAT4, EXPONENT])
_NAMES = {
    "uint4": 21, "int4": 22, "uint2": 25, "int2": 26, "float4_e2m1fn": FLOAT4,
    "float8_e8m0fnu": EXPONENT,
}  # fmt: skip


@dataclass(frozen=True)
class Narrow:
    """A tensor of a narrow type: the node that holds its values, and ONNX's number of the type."""

    held: UOp
    number: int


def narrow_of(v: Any) -> int | None:
    """ONNX's number of a tensor's narrow type; None for other tensors."""
    if isinstance(v, Narrow):
        return v.number
    return _NAMES.get(v.dtype.name) if isinstance(v, np.ndarray) else None


def holder(number: int) -> DType:
    """The dtype that holds a narrow type."""
    if number in INTEGERS:
        return dtypes.int8 if INTEGERS[number][1] else dtypes.uint8
    return dtypes.float32


def fitted(x: UOp, number: int, saturate: bool = True, mode: str = "up") -> Narrow:
    """Cast a tensor to a narrow type. `saturate` and `mode` are the attributes of `Cast`."""
    if number in INTEGERS:
        return Narrow(_integer(x, *INTEGERS[number]), number)
    if number == FLOAT4:
        return Narrow(_float4(x), number)
    return Narrow(_exponent(x.cast(dtypes.float32), saturate, mode), number)


def _integer(x: UOp, bits: int, signed: bool) -> UOp:
    """Truncate to an integer and keep its lowest bits."""
    held = x.cast(dtypes.int32) & ((1 << bits) - 1)
    if not signed:
        return held.cast(dtypes.uint8)
    return uopc.where(held >= 1 << bits - 1, held - (1 << bits), held).cast(dtypes.int8)


def _float4(x: UOp) -> UOp:
    """Round to ±0, 0.5, 1, 1.5, 2, 3, 4 or 6, ties to even; NaN gives 0."""
    wide = x if x.dtype.is_float and x.dtype.itemsize >= 4 else x.cast(dtypes.float32)
    size = wide.abs().minimum(6.0)
    step = uopc.where(size < 2, 0.5, uopc.where(size < 4, 1.0, 2.0))
    near = uopc.where(wide.ne(wide), 0.0, (size / step).round() * step)
    return uopc.where(wide < 0, -near, near).cast(dtypes.float32)


def _exponent(x: UOp, saturate: bool, mode: str) -> UOp:
    """Round to a power of 2 from 2^-127 to 2^127 by `mode`; negative numbers give NaN.

    Without `saturate`, 0 and numbers outside this range give NaN.
    """
    bits = x.bitcast(dtypes.uint32).cast(dtypes.int32)
    power, rest = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    least, half = power.eq(0), 1 << 22  # 2^-127 is subnormal: half of the least power
    if mode == "up":
        more = uopc.where(least, rest > half, rest > 0)
    elif mode == "nearest":
        more = uopc.where(least, rest >= half + half // 2, rest >= half)
    elif mode == "down":
        more = uopc.full(x.shape, False, dtypes.bool_)
    else:
        raise UserError(f"round_mode must be up, down or nearest, got {mode!r}")
    made = power + more.cast(dtypes.int32)
    if saturate:
        made = made.minimum(254)
    else:
        made = uopc.where(least & (rest < half), 255, made.minimum(255))
    made = uopc.where(x.ne(x) | (x < 0), 255, made)
    number = uopc.where(made.eq(0), half, uopc.where(made.eq(255), 0x7FC00000, made << 23))
    return number.cast(dtypes.uint32).bitcast(dtypes.float32)
