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
    exact,
    fits_product,
    nonzero,
    positive,
    rule,
    rule_fn,
    within,
    x,
    y,
)  # fmt: skip


def _exact_factor(x: UOp, c: UOp, d: UOp) -> bool:
    """x·c does not wrap and d divides c."""
    return type(d.arg) is int and d.arg > 0 and c.arg % d.arg == 0 and exact(Ops.MUL, x, c)


@rule_fn("divide-product", (x * c) // d)
def _divide_product(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x * c) // d → x * (c // d) where d divides c and x * c does not wrap"""
    return make(Ops.MUL, x, c.arg // d.arg) if _exact_factor(x, c, d) else None


@rule_fn("remainder-product", (x * c) % d)
def _remainder_product(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x * c) % d → 0 where d divides c and x * c does not wrap"""
    return make(Ops.MUL, x, 0) if _exact_factor(x, c, d) else None


@rule_fn("divide-sum", (x + c) // d)
def _divide_sum(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x + c) // d → x // d + c // d where d divides c and x + c does not wrap"""
    if type(d.arg) is not int or d.arg <= 0 or c.arg % d.arg or not exact(Ops.ADD, x, c):
        return None
    return make(Ops.ADD, make(Ops.FLOORDIV, x, d), c.arg // d.arg)


@rule_fn("remainder-sum", (x + c) % d)
def _remainder_sum(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x + c) % d → x % d where d divides c and x + c does not wrap"""
    if type(d.arg) is not int or d.arg <= 0 or c.arg % d.arg or not exact(Ops.ADD, x, c):
        return None
    return make(Ops.FLOORMOD, x, d)


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
    rule("mod-inside",      x % c,                   x,            when=[within(x, 0, c)]),
    # Nested divisions collapse, so that bounds see one divisor.
    rule("div-nested",      (x // c) // d,           x // (c * d),
         when=[positive(c), positive(d), fits_product(c, d)]),
    rule("mod-nested",      (x % c) % d,             x % d,        when=[divides(d, c)]),
    rule("mod-again",       (x % c) % c,             x % c),
    rule("recombine",       (x // c) * c + x % c,    x,            when=[nonzero(c)]),
    _divide_product, _remainder_product, _divide_sum, _remainder_sum, _remainder_shifted,
])

# Truncating division of natural numbers is flooring division, which has more rules.
TRUNCATING = RuleSet("truncating", over=INTEGERS, rules=[
    rule("quotient",        x.alu(Ops.CDIV, y),      x // y,       when=[*_NATURAL]),
    rule("remainder",       x.alu(Ops.CMOD, y),      x % y,        when=[*_NATURAL]),
])
# fmt: on
