"""Rules for quotients and remainders of integers that may wrap.

Those of dtype index have the normal form of `affine.py`. Here a divisor and its multiples must fit
the dtype. Division by zero gives 0, so a rule that cancels a divisor must show that it is not 0.
"""

from __future__ import annotations

from uopc.ir.builder.fold import make
from uopc.ir.core import bounds, intervals
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.rewrite.rules import (
    INTEGERS,
    WRAPPING,
    RuleSet,
    at_least,
    c,
    d,
    divides,
    e,
    exact_product,
    exact_sum,
    fits_product,
    nonzero,
    positive,
    rule,
    rule_fn,
    within,
    x,
    y,
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
])

# Truncating division of natural numbers is flooring division, which has more rules.
TRUNCATING = RuleSet("truncating", over=INTEGERS, rules=[
    rule("quotient",        x.alu(Ops.CDIV, y),      x // y,       when=[*_NATURAL]),
    rule("remainder",       x.alu(Ops.CMOD, y),      x % y,        when=[*_NATURAL]),
])
# fmt: on
