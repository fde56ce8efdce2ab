"""Quotients and remainders of integers, by instructions that truncate and may trap.

    a // 8   →   a >> 3
    a // 3   →   (a·m) >> s, in vectors of indices
    a // b   →   q = cdiv a, b; q - 1 where cmod a, b is not 0 and differs from b in sign
"""

from __future__ import annotations

import itertools

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, intervals
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern

_LARGEST = 1 << 48  # indices up to this are divided without an integer division


def instruction(op: Op, a: UOp, b: UOp) -> UOp:
    """A machine instruction, which is not decomposed again."""
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return intern(op, a.dtype.scalar.vec(lanes), (a, b))


def constant(u: UOp, value: int | float | bool) -> UOp:
    """A scalar constant of the dtype of `u`."""
    return leaves.const(u.dtype.scalar, value)


def _truncating(op: Op, a: UOp, b: UOp) -> UOp:
    """CDIV or CMOD with operands that cannot trap: 0 for b = 0; the least value // -1 wraps."""
    low, high = bounds.bounds(b)
    zero, one = constant(a, 0), constant(b, 1)
    may_be_zero = low <= 0 <= high
    overflows = a.dtype.is_signed and low <= -1 <= high
    overflows &= bounds.bounds(a)[0] == intervals.of_type(a.dtype.scalar)[0]
    if not may_be_zero and not overflows:
        return instruction(op, a, b)
    unsafe = b.eq(0) | b.eq(-1) if overflows else b.eq(0)
    result = instruction(op, a, unsafe.where(one, b))
    if overflows:
        result = b.eq(-1).where(-a if op is Ops.CDIV else zero, result)
    return b.eq(0).where(zero, result)


def by_multiplication(a: UOp, d: int) -> UOp | None:
    """floor(a / d) as (a·m) >> s where 64 bits hold the product, else in float64: vectors have no
    integer division.

    With m = ceil(2^s / d) and e = m·d - 2^s, the quotient is exact for 0 ≤ a where a·e < 2^s.
    A multiple of d that makes all values nonnegative is added first, and factors 2 of d are shifted
    out, which makes the product shorter.
    """
    low, high = bounds.bounds(a)
    if a.dtype.scalar is not dtypes.index or low < -_LARGEST or high > _LARGEST:
        return None
    moved = max(0, -(low // d))
    twos = (d & -d).bit_length() - 1
    most, odd = max(high + moved * d, 1) >> twos, d >> twos
    shift = next(s for s in itertools.count() if most * (-(1 << s) % odd) < 1 << s)
    factor = -(-(1 << shift) // odd)
    if most * factor >= 1 << 63:
        # Both are floats exactly, and a quotient this short is not rounded up to the next integer.
        exact = a.cast(dtypes.float64) / constant(a, d).cast(dtypes.float64)
        return exact.floor().cast(dtypes.index)
    steps = ((Ops.ADD, moved * d), (Ops.SHR, twos), (Ops.MUL, factor), (Ops.SHR, shift),
             (Ops.SUB, moved))  # fmt: skip
    for op, amount in steps:
        if amount != (1 if op is Ops.MUL else 0):
            a = instruction(op, a, constant(a, amount))
    return a


def integer_division(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """FLOORDIV, FLOORMOD, CDIV or CMOD of integers; `u` on the operands `src`."""
    a, b = src
    divides, floors = u.op in (Ops.FLOORDIV, Ops.CDIV), u.op in (Ops.FLOORDIV, Ops.FLOORMOD)
    nonnegative = bounds.bounds(a)[0] >= 0 and bounds.bounds(b)[0] >= 0  # toward zero is down
    divisor = b.arg if b.op is Ops.CONST and type(b.arg) is int and b.arg > 0 else 0
    is_power = divisor > 0 and divisor & (divisor - 1) == 0
    if divisor and not is_power and a.dtype.lanes > 1 and (floors or nonnegative):
        quotient = by_multiplication(a, divisor)
        if quotient is not None:
            multiple = instruction(Ops.MUL, quotient, constant(a, divisor))
            return quotient if divides else instruction(Ops.SUB, a, multiple)
    if nonnegative or not floors:
        return _truncating(Ops.CDIV if divides else Ops.CMOD, a, b)
    if is_power and divides:
        return instruction(Ops.SHR, a, constant(a, divisor.bit_length() - 1))
    if is_power:
        return a & constant(a, divisor - 1)
    remainder = _truncating(Ops.CMOD, a, b)
    wrong_sign = remainder.ne(0) & ((remainder < 0) ^ (b < 0))
    if not divides:
        return wrong_sign.where(remainder + b, remainder)
    quotient = _truncating(Ops.CDIV, a, b)
    return wrong_sign.where(quotient - constant(quotient, 1), quotient)
