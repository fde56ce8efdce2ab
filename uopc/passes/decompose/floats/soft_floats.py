"""float16, bfloat16 and the 8-bit floats in integer arithmetic: exact conversions to and from
float32.

Widening is exact; narrowing rounds to nearest, ties to even; the 8-bit types saturate at their
greatest finite value, unless the value is known to be one of the type; NaN stays NaN.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp


class SoftFormat(NamedTuple):
    """A float of at most 16 bits."""

    mantissa: int  # bits
    bias: int  # of the exponent
    limit: float  # greater values become this
    nan: int
    infinity: int = 0  # its bits, in a format that has infinities
    negative_zero: bool = True
    bits: DType = dtypes.uint8


FORMATS: dict[DType, SoftFormat] = {
    dtypes.fp8e4m3: SoftFormat(3, 7, 448.0, 0x7F),
    dtypes.fp8e5m2: SoftFormat(2, 15, 57344.0, 0x7E, 0x7C),
    dtypes.fp8e4m3fnuz: SoftFormat(3, 8, 240.0, 0x80, negative_zero=False),
    dtypes.fp8e5m2fnuz: SoftFormat(2, 16, 57344.0, 0x80, negative_zero=False),
    # The limit is what infinity would be as a number: what rounds to it is infinite.
    dtypes.float16: SoftFormat(10, 15, 65536.0, 0x7E00, 0x7C00, bits=dtypes.uint16),
}
# Types without arithmetic on any machine; float16 is another one where it has no conversions.
SOFTWARE = frozenset((dtypes.bfloat16, *FORMATS)) - {dtypes.float16}


def widen(a: UOp) -> UOp:
    """The float32 with the value of `a`."""
    if a.dtype.scalar is dtypes.bfloat16:
        bits = a.bitcast(dtypes.uint16).cast(dtypes.uint32)
        return (bits << 16).bitcast(dtypes.float32)
    form = FORMATS[a.dtype.scalar]
    bits, top = a.bitcast(form.bits).cast(dtypes.uint32), 1 << (form.bits.bits - 1)
    size, sign = bits & (top - 1), (bits & top) << (32 - form.bits.bits)
    shift = 23 - form.mantissa
    normal = ((size << shift) + ((127 - form.bias) << 23)).bitcast(dtypes.uint32)
    tiny = size.cast(dtypes.float32) * 2.0 ** (1 - form.bias - form.mantissa)
    value = (size < (1 << form.mantissa)).where(tiny.bitcast(dtypes.uint32), normal)
    nan = leaves.const(dtypes.uint32, 0x7FC00000)
    if form.infinity:
        value = (size >= form.infinity).where((size << shift) | (0xFF << 23), value)
    elif form.negative_zero:
        value = size.eq(form.nan).where(nan, value)
    value = value | sign
    if not form.negative_zero:
        value = bits.eq(form.nan).where(nan, value)
    return value.bitcast(dtypes.float32)


def narrow(a: UOp, target: DType, exact: bool = False) -> UOp:
    """The float32 `a` rounded to `target`; `exact`: it is one of its values, infinity perhaps."""
    bits = a.bitcast(dtypes.uint32)
    if target is dtypes.bfloat16:
        rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
        quiet = (bits >> 16) | 0x40
        return a.ne(a).where(quiet, rounded).cast(dtypes.uint16).bitcast(target)
    form = FORMATS[target]
    width = form.bits.bits
    sign = (bits >> (32 - width)) & (1 << (width - 1))
    size = abs(a).minimum(leaves.const(dtypes.float32, form.limit))
    size_bits, shift = size.bitcast(dtypes.uint32), 23 - form.mantissa
    odd = (size_bits >> shift) & 1
    normal = (size_bits + (odd + ((1 << (shift - 1)) - 1))) >> shift
    normal = normal - ((127 - form.bias) << form.mantissa)
    tiny = (size * 2.0 ** (form.bias - 1 + form.mantissa)).round().cast(dtypes.uint32)
    value = (size < 2.0 ** (1 - form.bias)).where(tiny, normal)
    if exact and target is dtypes.fp8e5m2:  # the one that has infinities
        value = abs(a).eq(math.inf).where(leaves.const(dtypes.uint32, form.infinity), value)
    if form.negative_zero:
        value = value | sign
    else:
        value = value.eq(0).where(value, value | sign)
    nan = leaves.const(dtypes.uint32, form.nan)  # one: the sign of a NaN means nothing
    return a.ne(a).where(nan, value).cast(form.bits).bitcast(target)
