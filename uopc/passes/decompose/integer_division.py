"""Quotients and remainders of integers, by instructions that truncate and may trap."""

from __future__ import annotations

import itertools

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, intervals
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern

_FAR = 1 << 48  # indices up to this are divided without an integer division


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
    is_zero, is_minus_one = b.eq(0), b.eq(-1) if overflows else None
    unsafe = is_zero if is_minus_one is None else is_zero | is_minus_one
    result = instruction(op, a, unsafe.where(one, b))
    if is_minus_one is not None:
        result = is_minus_one.where(-a if op is Ops.CDIV else zero, result)
    return is_zero.where(zero, result)


def by_multiplication(a: UOp, d: int) -> UOp | None:
    """floor(a / d) as (a·m) >> s where 64 bits hold the product, else in float64: vectors have no
    integer division.

    With m = ceil(2^s / d) and e = m·d - 2^s, the quotient is exact for 0 ≤ a where a·e < 2^s.
    First a multiple of d is added that makes all values nonnegative, and factors 2 of d are shifted
    out, so that the product is shorter.
    """
    low, high = bounds.bounds(a)
    if a.dtype.scalar is not dtypes.index or low < -_FAR or high > _FAR:
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


def _lanes_division(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """FLOORDIV or FLOORMOD of an index in lanes by a constant."""
    a, b = src
    rounds_down = u.op in (Ops.FLOORDIV, Ops.FLOORMOD) or _same_either_way(a, b)
    if a.dtype.lanes == 1 or b.op is not Ops.CONST or type(b.arg) is tuple or b.arg <= 0:
        return None
    quotient = by_multiplication(a, b.arg) if rounds_down else None
    if quotient is None or u.op in (Ops.FLOORDIV, Ops.CDIV):
        return quotient
    return instruction(Ops.SUB, a, instruction(Ops.MUL, quotient, constant(a, b.arg)))


def integer_division(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """FLOORDIV, FLOORMOD, CDIV or CMOD of integers; `u` on the operands `src`."""
    a, b = src
    power = _power_of_two(b)
    multiplied = _lanes_division(u, src) if power is None else None
    if multiplied is not None:
        return multiplied
    if u.op in (Ops.CDIV, Ops.CMOD) or _same_either_way(a, b):
        return _truncating(Ops.CDIV if u.op in (Ops.CDIV, Ops.FLOORDIV) else Ops.CMOD, a, b)
    if power is not None:
        if u.op is Ops.FLOORDIV:
            return instruction(Ops.SHR, a, constant(a, power))
        return a & constant(a, (1 << power) - 1)
    remainder = _truncating(Ops.CMOD, a, b)
    wrong_sign = remainder.ne(0) & ((remainder < 0) ^ (b < 0))
    if u.op is Ops.FLOORMOD:
        return wrong_sign.where(remainder + b, remainder)
    quotient = _truncating(Ops.CDIV, a, b)
    return wrong_sign.where(quotient - constant(quotient, 1), quotient)


def _same_either_way(a: UOp, b: UOp) -> bool:
    """True if both operands are nonnegative: then rounding down and toward zero agree."""
    return bool(bounds.bounds(a)[0] >= 0 and bounds.bounds(b)[0] >= 0)


def _power_of_two(b: UOp) -> int | None:
    if b.op is Ops.CONST and type(b.arg) is int and b.arg > 0 and b.arg & (b.arg - 1) == 0:
        return b.arg.bit_length() - 1
    return None
