"""Rules for quotients and remainders of integers that may wrap.

Integers of dtype index have the normal form of `affine.py`. Here a divisor and its multiples must
fit the dtype. Division by zero gives 0, so a rule that cancels a divisor must show that it is not
0.
"""

from __future__ import annotations

import math

from uopc.ir.builder.fold import like, make
from uopc.ir.core import bounds, intervals
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.rewrite.rules import (
    INTEGERS,
    WRAPPING,
    RuleSet,
    at_least,
    b,
    c,
    congruent,
    d,
    divides,
    e,
    exact,
    exact_product,
    exact_sum,
    exact_terms,
    fits_product,
    is_product,
    k,
    nonzero,
    positive,
    rule,
    rule_fn,
    within,
    x,
    y,
    z,
)  # fmt: skip


@rule_fn("remainder-shifted", x % c, tried_on=[x % c, (x % d + e) % c])
def _remainder_shifted(x: UOp, c: UOp) -> UOp | None:
    """x % c → x - k*c where k*c <= x < (k+1)*c"""
    if type(c.arg) is not int or c.arg <= 0:
        return None
    low, high = bounds.bounds(x)
    k = low // c.arg
    if k != high // c.arg:
        return None
    least, most = intervals.of_type(c.dtype)
    return make(Ops.SUB, x, k * c.arg) if least <= k * c.arg <= most else None


@rule_fn("addend-of-remainder", (x + c) % d)
def _addend_of_remainder(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x + 7) % 4 → (x + 3) % 4, where neither sum wraps"""
    if d.arg <= 0 or 0 <= c.arg < d.arg or not exact(Ops.ADD, x, c):
        return None
    rest = like(c, c.arg % d.arg)
    return make(Ops.FLOORMOD, make(Ops.ADD, x, rest), d) if exact(Ops.ADD, x, rest) else None


@rule_fn("common-divisor", x // d, tried_on=[(x * c) // d, (x * c + e) // d])
def _common_divisor(x: UOp, d: UOp) -> UOp | None:
    """(x*6 + 5) // 4 → (x*3 + 2) // 2, where nothing wraps"""
    if type(d.arg) is not int or d.arg <= 0:
        return None
    product, rest = x, 0
    if x.op is Ops.ADD and x.src[1].op is Ops.CONST:
        if not exact(Ops.ADD, *x.src):
            return None
        product, rest = x.src[0], x.src[1].arg
    if product.op is not Ops.MUL or product.src[1].op is not Ops.CONST:
        return None
    common = math.gcd(product.src[1].arg, d.arg)
    if common == 1 or not exact(Ops.MUL, *product.src):
        return None
    lesser = make(Ops.MUL, product.src[0], product.src[1].arg // common)
    return make(Ops.FLOORDIV, make(Ops.ADD, lesser, rest // common), d.arg // common)


@rule_fn(
    "recombine-scaled-sums", ((x + d) // c) * k + ((x + e) % c) * b,
    tried_on=[((x + 3) // 2) * 6 + ((x + 1) % 2) * 3],
)  # fmt: skip
def _recombine_scaled_sums(x: UOp, c: UOp, d: UOp, e: UOp, k: UOp, b: UOp) -> UOp | None:
    """((x + 3)//2)*6 + ((x + 1)%2)*3 → (x + 3)*3, where neither sum wraps"""
    if c.arg <= 0 or (d.arg - e.arg) % c.arg or k.arg != c.arg * b.arg:
        return None
    if not (exact(Ops.ADD, x, d) and exact(Ops.ADD, x, e)):
        return None
    return make(Ops.MUL, make(Ops.ADD, x, d), b)


_NATURAL = (at_least(x, 0), at_least(y, 0))

# fmt: off
DIVMOD = RuleSet("divmod", over=WRAPPING, rules=[
    rule("mod-inside",        x % c,                 x,            when=[within(x, 0, c)]),
    # Nested divisions collapse, so that bounds see one divisor.
    rule("div-nested",        (x // c) // d,         x // (c * d),
         when=[positive(c), positive(d), fits_product(c, d)]),
    rule("mod-nested",        (x % c) % d,           x % d,        when=[divides(d, c)]),
    rule("mod-again",         (x % c) % c,           x % c),
    rule("recombine",         (x // c) * c + x % c,  x,            when=[nonzero(c)]),
    # Multiples of the divisor leave the dividend.
    rule("divide-product",    (x * c) // d,          x * (c // d),
         when=[divides(d, c), exact_product(x, c)]),
    rule("remainder-product", (x * c) % d,           0,
         when=[divides(d, c), exact_product(x, c)]),
    rule("divide-sum",        (x + c) // d,          x // d + c // d,
         when=[divides(d, c), exact_sum(x, c)]),
    rule("remainder-sum",     (x + c) % d,           x % d,
         when=[divides(d, c), exact_sum(x, c)]),
    _remainder_shifted,
    _addend_of_remainder,
    _common_divisor,
    # A quotient and the remainder of one sum are that sum, though each has its own shift.
    rule("recombine-scaled",  (x // c) * d + (x % c) * k,           x * k,
         when=[nonzero(c), is_product(d, c, k)]),
    rule("recombine-shifted", (x // c + d) * c + x % c,             x + d * c,
         when=[nonzero(c)]),
    rule("recombine-both",    (x // c + e) * d + (x % c) * k,       x * k + e * d,
         when=[nonzero(c), is_product(d, c, k)]),
    rule("recombine-sums",    ((x + d) // c) * c + (x + e) % c,     x + d,
         when=[congruent(d, e, c), exact_sum(x, d), exact_sum(x, e)]),
    _recombine_scaled_sums,
    # Nested quotients with a constant between them.
    rule("div-nested-sum",    (x // c + d) // e,                    (x + c * d) // (c * e),
         when=[positive(c), positive(e), fits_product(c, e), exact_terms((x, 1), (c, d))]),
    rule("remainder-multiple", (x * c + d) % e,                     d % e,
         when=[divides(e, c), exact_terms((x, c), (d, 1))]),
])

# A factor that dividend and divisor share, though it is no constant.
FACTORS = RuleSet("factors", over=WRAPPING, rules=[
    rule("self",              x // x,                        1,     when=[at_least(x, 1)]),
    rule("self-rest",         x % x,                         0),
    rule("factor",            (x * y) // y,                  x,
         when=[at_least(y, 1), exact_product(x, y)]),
    rule("factor-rest",       (x * y) % y,                   0,     when=[exact_product(x, y)]),
    rule("factor-scaled",     ((x * y) * c) // y,            x * c,
         when=[at_least(y, 1), exact_terms((x, y, c))]),
    rule("factor-scaled-rest", ((x * y) * c) % y,            0,     when=[exact_terms((x, y, c))]),
    rule("addend",            (x * y + z) // y,              x + z // y,
         when=[at_least(y, 1), exact_terms((x, y), (z, 1))]),
    rule("addend-rest",       (x * y + z) % y,               z % y,
         when=[exact_terms((x, y), (z, 1))]),
    rule("addend-scaled-rest", ((x * y) * c + z) % y,        z % y,
         when=[exact_terms((x, y, c), (z, 1))]),
    rule("divisor",           (x * y) // (y * z),            x // z,
         when=[at_least(y, 1), at_least(z, 1), exact_product(x, y), exact_product(y, z)]),
    rule("divisor-rest",      (x * y) % (y * z),             (x % z) * y,
         when=[at_least(y, 1), at_least(z, 1), exact_product(x, y), exact_product(y, z)]),
    rule("divisor-sum",       (x * y + y) // (y * c),        (x + 1) // c,
         when=[at_least(y, 1), positive(c), exact_terms((x, y), (y, 1)), exact_terms((y, c))]),
    rule("divisor-sum-rest",  (x * y + y) % (y * c),         ((x + 1) % c) * y,
         when=[at_least(y, 1), positive(c), exact_terms((x, y), (y, 1)), exact_terms((y, c))]),
    rule("divisor-scaled",    ((x * y) * d) // (y * c),      (x * d) // c,
         when=[at_least(y, 1), positive(c), exact_terms((x, y, d)), exact_terms((x, d)),
               exact_terms((y, c))]),
])

# Truncating division of natural numbers is flooring division, which has more rules.
TRUNCATING = RuleSet("truncating", over=INTEGERS, rules=[
    rule("quotient",        x.alu(Ops.CDIV, y),      x // y,       when=[*_NATURAL]),
    rule("remainder",       x.alu(Ops.CMOD, y),      x % y,        when=[*_NATURAL]),
])
# fmt: on
