"""Conditions: their operands, their negation, and the constraints that they set on values.

A comparison `lhs < constant` constrains its left side to an interval. Conditions on one left side
constrain it to the intersection of their intervals.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from uopc.ir.builder.fold import combine, make
from uopc.ir.core.arena import memo
from uopc.ir.core.intervals import EVERYTHING, Interval, intersect
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare, monomials
from uopc.ir.index.affine import Constraints


def join(op: Op, operands: list[UOp]) -> UOp | None:
    """A tree of one op on the operands; None if there are none."""
    return functools.reduce(lambda a, b: combine(op, (a, b)), operands) if operands else None


@memo
def constraint_of(condition: UOp) -> tuple[UOp, Interval] | None:
    """The sum and its interval if a condition is Σ < c or c < Σ on integers, else None."""
    if condition.op is not Ops.CMPLT or not condition.src[0].dtype.is_integral:
        return None
    a, b = condition.src
    if affine.is_const(b):
        return a, (-math.inf, b.arg - 1)
    if affine.is_const(a):
        return b, (a.arg + 1, math.inf)
    if a.dtype.kind != "index":
        return None
    # Terms on both sides become one sum whose first term is positive.
    constant, terms = affine.form(affine.sub(a, b))
    if not terms:
        return None
    positive = terms[min(terms, key=monomials.term_order)] > 0
    lhs = affine.build(0, terms if positive else {m: -f for m, f in terms.items()})
    return lhs, (-math.inf, -constant - 1) if positive else (constant + 1, math.inf)


def constraints_of(conjuncts: Iterable[UOp], known: Constraints | None = None) -> Constraints:
    """The constraints of all conditions together, added to the known constraints."""
    out = dict(known or {})
    for condition in conjuncts:
        found = constraint_of(condition)
        if found is not None:
            lhs, interval = found
            out[lhs] = intersect(out.get(lhs, EVERYTHING), interval)
    return out


@memo
def negation(condition: UOp) -> UOp:
    """The opposite of a condition; for a comparison, a comparison with swapped sides."""
    if condition.op is Ops.NEG:
        return condition.src[0]
    if condition.op is Ops.CMPLT and condition.src[0].dtype.kind == "index":
        return compare.less(condition.src[1], affine.plus(condition.src[0], 1))
    if condition.op is Ops.CMPLT and condition.src[0].dtype.is_int:
        return _at_most(condition.src[1], condition.src[0])
    return intern(Ops.NEG, condition.dtype, (condition,))


def _at_most(a: UOp, b: UOp) -> UOp:
    """a <= b for integers that may wrap, strict if one side is a constant, as in normal form."""
    low, high = a.dtype.bounds
    if affine.is_const(b) and b.arg < high:
        return make(Ops.CMPLT, a, b.arg + 1)
    if affine.is_const(a) and a.arg > low:
        return make(Ops.CMPLT, a.arg - 1, b)
    return make(Ops.CMPLE, a, b)
