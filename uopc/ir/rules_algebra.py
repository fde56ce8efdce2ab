"""Rules for arithmetic, comparison, logic, selection of the greater, and casts.

Sums and products of dtype index are in the normal form of `affine.py` before these rules run, and
constants with constants, x+0, x*1 and the like are folded by the builders: neither is repeated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from uopc.ir import analysis, build, dtypes
from uopc.ir.clauses import merged_clauses
from uopc.ir.ops import Ops
from uopc.ir.pattern import UPat
from uopc.ir.rules import (
    ANY, BOOL, FLOAT, INTEGERS, WRAPPING, RuleSet, at_least, c, combine, d, divides, exact, like,
    make, never_wraps, nonzero, p, q, rule, rule_fn, same_kind, x, y, z,
)  # fmt: skip

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def no(a: UPat) -> UPat:
    """not a"""
    return -a


# ---------------------------------------------------------------- sums and products that may wrap
# fmt: off
SUMS = RuleSet("sums", over=WRAPPING, rules=[
    # Like terms. Multiplication distributes over addition modulo 2^bits.
    rule("twice",              x + x,                 x * 2),
    rule("like-terms",         x * c + x * d,         x * (c + d)),
    rule("like-term",          x * c + x,             x * (c + 1)),
    rule("like-terms-behind",  (y + x * c) + x * d,   y + x * (c + d)),
    rule("like-term-behind",   (y + x * c) + x,       y + x * (c + 1)),
    rule("term-like-behind",   (y + x) + x * c,       y + x * (c + 1)),
    rule("twice-behind",       (y + x) + x,           y + x * 2),
    # Constants gather at the end of sums and products.
    rule("sum-constants",      (x + c) + d,           x + (c + d)),
    rule("sum-constant-last",  (x + c) + y,           (x + y) + c),
    rule("factor-constants",   (x * c) * d,           x * (c * d)),
    rule("factor-last",        (x * c) * y,           (x * y) * c),
    # Differences: a constant is added, a negation is taken in.
    rule("minus-constant",     x - c,                 x + (0 - c)),
    rule("minus-itself",       x - x,                 0),
    rule("minus-negative",     x - (-y),              x + y),
    rule("plus-negative",      x + (-y),              x - y),
    rule("add-back",           (x - y) + y,           x),
    rule("take-away",          (x + y) - y,           x),
    rule("take-from-sum",      x - (x + y),           -y),
    rule("negative-twice",     -(-x),                 x),
    rule("negative-product",   (-x) * c,              x * (0 - c)),
    rule("times-minus-one",    x * -1,                -x),
    rule("negative-difference", -(x - y),             y - x),
])

BITS = RuleSet("bits", over=WRAPPING, rules=[
    rule("and-itself",         x & x,                 x),
    rule("or-itself",          x | x,                 x),
    rule("xor-itself",         x ^ x,                 0),
    rule("and-constants",      (x & c) & d,           x & (c & d)),
    rule("or-constants",       (x | c) | d,           x | (c | d)),
    rule("xor-constants",      (x ^ c) ^ d,           x ^ (c ^ d)),
    rule("xor-back",           (x ^ y) ^ y,           x),
    rule("absorb-or",          (x | y) & x,           x),
    rule("absorb-and",         (x & y) | x,           x),
])
# fmt: on


@rule_fn("mask-shifted-out", (x & c) >> d)
def mask_shifted_out(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x & c) >> d → x >> d where c only clears bits that the shift drops"""
    width = x.dtype.bits
    if type(c.arg) is not int or type(d.arg) is not int or not 0 <= d.arg < width:
        return None
    dropped = (1 << d.arg) - 1
    return make(Ops.SHR, x, d) if (c.arg | dropped) & ((1 << width) - 1) == (1 << width) - 1 else None


@rule_fn("shift-twice", UPat((Ops.SHL, Ops.SHR), src=(UPat((Ops.SHL, Ops.SHR), src=(x, c), name="a"), d), name="u"))
def shift_twice(x: UOp, c: UOp, d: UOp, a: UOp, u: UOp) -> UOp | None:
    """(x << c) << d → x << (c + d); the same for >>, while the sum is less than the width"""
    if a.op is not u.op or type(c.arg) is not int or type(d.arg) is not int:
        return None
    total = c.arg + d.arg
    if c.arg < 0 or d.arg < 0 or total >= x.dtype.bits:
        return None
    return combine(u.op, (x, like(d, total)))


SHIFTS = RuleSet("shifts", over=WRAPPING, rules=[mask_shifted_out, shift_twice])


# ---------------------------------------------------------------- comparisons
@rule_fn("decided", UPat((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE), name="u"))
def decided(u: UOp) -> UOp | None:
    """a < b → True or False where bounds decide it"""
    low, high = analysis.bounds(u)
    return like(u, bool(low)) if low == high else None


@rule_fn("constant-value", UPat((
    Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.MUL,
    Ops.ADD, Ops.SUB, Ops.SHL, Ops.SHR, Ops.CAST), name="u"))
def constant_value(u: UOp) -> UOp | None:
    """a node whose least and greatest value are one → that constant"""
    if u.dtype.is_float or u.src[-1].dtype.is_float:
        return None
    low, high = analysis.bounds(u)
    return like(u, low) if low == high else None


@rule_fn("constant-aside", UPat((Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE), src=[x + c, d], name="u"))
def constant_aside(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    """x + c < d → x < d - c, and the like, where neither side can wrap"""
    if not (exact(Ops.ADD, x, c) and exact(Ops.SUB, d, c)):
        return None
    rest = make(Ops.SUB, d, c)
    return combine(u.op, (x, rest) if u.src[1] is d else (rest, x))


COMPARISONS = RuleSet("comparisons", over=INTEGERS, rules=[
    decided,
    rule("less-than-itself", x < x, False),
    rule("at-most-itself", x <= x, True),
    rule("equal-to-itself", x.eq(x), True),
    rule("unequal-to-itself", x.ne(x), False),
    # One form for comparisons with a constant: strict. Bounds decide c = greatest before.
    rule("at-most-constant", x <= c, x < c + 1, when=[never_wraps(Ops.ADD, c, 1)]),
    rule("at-least-constant", c <= x, c + -1 < x, when=[never_wraps(Ops.SUB, c, 1)]),
    constant_aside,
])

FLOAT_COMPARISONS = RuleSet("float-comparisons", over=FLOAT, rules=[
    rule("less-than-itself", x < x, False),
])
