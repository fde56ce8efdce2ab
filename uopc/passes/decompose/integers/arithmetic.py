"""Integers: shifts by any count, powers, random bits, and a comparison on both sides."""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.core import bounds, dtypes, semantics
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.integers.integer_division import constant, instruction

Source = tuple["UOp", ...]


def shift(u: UOp, src: Source) -> UOp | None:
    """A shift by a count outside of the width gives 0, or the sign."""
    a, b = src
    low, high = bounds.bounds(b)
    last = a.dtype.bits - 1
    if low >= 0 and high <= last:
        return None
    inside = (b <= constant(b, last)) if low >= 0 else (b >= 0) & (b <= constant(b, last))
    if u.op is Ops.SHR and a.dtype.is_signed:
        return instruction(Ops.SHR, a, inside.where(b, constant(b, last)))
    return inside.where(instruction(u.op, a, inside.where(b, constant(b, 0))), constant(a, 0))


def integer_power(src: Source) -> UOp:
    """Square and multiply, bit by bit of the exponent; negative exponents leave 1, -1 or 0."""
    base, exponent = src
    if base.dtype.kind == "bool":
        return base | exponent.ne(True)
    bits = max(1, min(bounds.bounds(exponent)[1].bit_length(), exponent.dtype.bits))
    result, square = constant(base, 1), base
    for i in range(bits):
        taken = (instruction(Ops.SHR, exponent, constant(exponent, i)) & 1).ne(0)
        result = taken.where(result * square, result)
        square = square * square
    if bounds.bounds(exponent)[0] >= 0:
        return result
    odd = (exponent & 1).ne(0)
    negative = base.eq(1).where(constant(base, 1), constant(base, 0))
    negative = base.eq(-1).where(odd.where(constant(base, -1), constant(base, 1)), negative)
    return (exponent < 0).where(negative, result)


def threefry(src: Source) -> UOp:
    """Twenty rounds on 32-bit halves."""
    x, key = src
    low, high = x.cast(dtypes.uint32), (x >> 32).cast(dtypes.uint32)
    keys = [key.cast(dtypes.uint32), (key >> 32).cast(dtypes.uint32)]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    low, high = low + keys[0], high + keys[1]
    for block in range(5):
        for r in semantics.THREEFRY_ROTATIONS[block % 2]:
            low = low + high
            high = ((high << r) | (high >> (32 - r))) ^ low
        low = low + keys[(block + 1) % 3]
        high = high + keys[(block + 2) % 3] + (block + 1)
    return (high.cast(dtypes.uint64) << 32) | low.cast(dtypes.uint64)


def between(src: Source) -> UOp | None:
    """-1 < x and x < c, on vectors of 32 bits: one unsigned comparison."""
    if src[0].op is not Ops.CMPLT or src[1].op is not Ops.CMPLT:
        return None
    (least, x), (y, most) = src[0].src, src[1].src
    if x is not y or x.dtype.scalar is not dtypes.int32 or x.dtype.lanes == 1:
        return None
    if least.op is not Ops.CONST or least.arg != -1 or most.op is not Ops.CONST:
        return None
    if type(most.arg) is tuple or most.arg < 0:
        return None
    return x.bitcast(dtypes.uint32) < leaves.const(dtypes.uint32, most.arg)
