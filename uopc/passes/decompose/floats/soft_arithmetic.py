"""Arithmetic that some machines have no instruction for: a*b + c with one rounding (x86 before
AVX2), and floats rounded to integers (x86 before SSE4.1)."""

from __future__ import annotations

import math

from uopc.ir.builder.float_bits import sign_of, to_odd, with_sign
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

_SPLIT = 2.0**27 + 1  # splits a float64 into two halves of 26 bits
_TINY = 2.0**-600  # no product of two finite numbers times this is infinite
_LARGE, _SCALE = 2.0**900, 2.0**100  # beyond this, parts could overflow: all is scaled by that


def unfused(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """A MULACC of floats as products and sums that round each."""
    if u.op is not Ops.MULACC or not u.dtype.is_float:
        return None
    a, b, c = src
    if u.dtype.bits == 64:
        return _fused(a, b, c)
    a, b, c = [x.cast(dtypes.float64) for x in src]
    return _odd_sum(a * b, c).cast(u.dtype.scalar)  # such a product is exact


def rounded_by_sums(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """FLOOR, CEIL, TRUNC or ROUND by sums. From 2^52 on (2^23 in float32) all floats are integers,
    so adding that rounds, ties to even. A zero has the sign of what was rounded."""
    if u.op not in (Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND):
        return None
    a = src[0]
    whole, size = 2.0 ** (52 if a.dtype.bits == 64 else 23), abs(a)
    near = (size + whole) - whole
    down = (near > size).where(near - 1.0, near)
    up = (near < size).where(near + 1.0, near)
    if u.op is Ops.TRUNC:
        near = down
    elif u.op is not Ops.ROUND:
        near = (a < 0.0).where(*((up, down) if u.op is Ops.FLOOR else (down, up)))
    return (size < whole).where(with_sign(near, sign_of(a)), a)


def _fused(a: UOp, b: UOp, c: UOp) -> UOp:
    """a*b + c rounded once.

    The product and the sums are split into exact parts; the small parts are added with rounding to
    odd, so only the last sum rounds. Infinities have no parts: there the plain sum is right. The
    plain sum also gives a zero its sign; where a product other than 0 underflows, the product does.
    """
    underflows = c.eq(0.0) & a.ne(0.0) & b.ne(0.0)
    zero = underflows.where(a * b, a * b + c)
    huge = (abs(a) > _LARGE) | (abs(b) > _LARGE) | (abs(c) > _LARGE)
    down, up = huge.where(a.const_like(1 / _SCALE), 1.0), huge.where(a.const_like(_SCALE), 1.0)
    larger = abs(a) > abs(b)
    a, b, c = larger.where(a * down, a), larger.where(b, b * down), c * down
    high, low = _product(a, b)
    middle, lost = _sum(c, low)
    total, rest = _sum(high, middle)
    exact = total + _odd_sum(lost, rest)
    small = (abs(c) < math.inf).where(c.const_like(1.0), _TINY)  # next to an infinite c
    made = exact.eq(exact).where(exact, (a * small) * (b * small) + c) * up
    return made.eq(0.0).where(zero, made)


def accurate(a: UOp, b: UOp, c: UOp) -> UOp:
    """a*b + c of float64 with the error of one rounding, for numbers and products between 1e-290
    and 1e290, and zeros."""
    high, low = _product(a, b)
    total, lost = _sum(high, c)
    lost = lost + low
    return lost.eq(0.0).where(total, total + lost)  # a zero keeps its sign


def _sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """a + b, and the rounding error."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)


def _product(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """a * b, and the rounding error."""
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    total = a * b
    return total, al * bl - (((total - ah * bh) - al * bh) - ah * bl)


def _halves(a: UOp) -> tuple[UOp, UOp]:
    moved = a * _SPLIT
    high = moved - (moved - a)
    return high, a - high


def _odd_sum(a: UOp, b: UOp) -> UOp:
    """a + b rounded to odd."""
    total, lost = _sum(a, b)
    return to_odd(total, (lost < 0.0) | (lost > 0.0), (lost < 0.0).eq(total < 0.0))
