"""The values of an index: their common divisor, or both values if there are only two."""

from __future__ import annotations

import math

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, monomials


def divisor(a: UOp) -> int:
    """The greatest known divisor of every value of an index; 0 for 0."""
    constant, terms = affine.form(a)
    for m, k in terms.items():
        scaled = m.op is Ops.MUL and m.src[1].op is Ops.CONST
        constant = math.gcd(constant, k * m.src[1].arg if scaled else k)
    return abs(constant)


def cases(a: UOp) -> tuple[int, int] | None:
    """The two values of an index that depends only on a condition: if false, and if true. None for
    any other index.

    12 - 5·(2 < i)  →  12, 7
    """
    constant, terms = affine.form(a)
    if len(terms) != 1 or not monomials.is_condition(m := next(iter(terms))):
        return None
    return constant, constant + terms[m]


def greatest(a: UOp) -> int | None:
    """The value of a constant index, or the greater of two values; None for other indices."""
    found = cases(a)
    return _constant_value(a) if found is None else max(found)


def length(a: UOp) -> int | None:
    """The iterations of a loop that ends at an index, if the loop runs at all: a number, or the
    number that is the alternative to 0. None if unknown."""
    found = cases(a)
    return _constant_value(a) if found is None or 0 not in found else max(found)


def _constant_value(a: UOp) -> int | None:
    return int(a.arg) if a.op is Ops.CONST else None
