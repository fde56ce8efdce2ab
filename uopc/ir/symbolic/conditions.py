"""Clauses of a condition, and the limits that they set to values.

A clause `lhs < constant` limits its left side. The limits of clauses on one left side meet in one
interval.
"""

from __future__ import annotations

from uopc.ir.builder.fold import combine, make
from uopc.ir.core import bounds
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare

Interval = tuple[int | None, int | None]  # inclusive; None: no bound on this side
Limits = dict["UOp", Interval]


def clauses_of(u: UOp, op: Op = Ops.AND) -> list[UOp]:
    """The distinct operands of a tree of one logical op, left to right."""
    out: dict[UOp, None] = {}
    stack = [u]
    while stack:
        v = stack.pop()
        if v.op is op:
            stack += [v.src[1], v.src[0]]
        else:
            out[v] = None
    return list(out)


@memo
def bound_of(clause: UOp) -> tuple[UOp, Interval] | None:
    """The sum and its limit if a clause is Σ < c or c < Σ on integers, else None."""
    if clause.op is not Ops.CMPLT or not clause.src[0].dtype.is_integral:
        return None
    a, b = clause.src
    if affine.is_const(b):
        return a, (None, b.arg - 1)
    if affine.is_const(a):
        return b, (a.arg + 1, None)
    if a.dtype.kind != "index":
        return None
    # Terms on both sides become one sum whose first term is positive.
    constant, terms = affine.form(affine.sub(a, b))
    if not terms:
        return None
    positive = terms[min(terms, key=affine.order)] > 0
    lhs = affine.build(0, terms if positive else {m: -f for m, f in terms.items()})
    return lhs, (None, -constant - 1) if positive else (constant + 1, None)


def meet(a: Interval, b: Interval) -> Interval:
    """The interval where both limits hold."""
    lows = [v for v in (a[0], b[0]) if v is not None]
    highs = [v for v in (a[1], b[1]) if v is not None]
    return max(lows, default=None), min(highs, default=None)


def limits_of(clauses: list[UOp]) -> Limits:
    """The limit that the clauses together set to each left side."""
    out: Limits = {}
    for clause in clauses:
        bound = bound_of(clause)
        if bound is not None:
            lhs, limit = bound
            out[lhs] = meet(out[lhs], limit) if lhs in out else limit
    return out


def within(bounds: tuple[int, int], limit: Interval) -> tuple[int, int]:
    """The bounds narrowed to the limit; empty if low > high."""
    (low, high), (first, last) = bounds, limit
    return (
        low if first is None else max(low, first),
        high if last is None else min(high, last),
    )


def range_of(u: UOp, limits: Limits) -> tuple[int, int]:
    """The bounds of an index value if its monomials keep to these limits."""
    low = high = affine.form(u)[0]
    for m, f in affine.form(u)[1].items():
        a, b = within(bounds.bounds(m), limits.get(m, (None, None)))
        low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def junction(op: Op, clauses: list[UOp]) -> UOp:
    """The clauses joined by one logical op. There is at least one."""
    out = clauses[0]
    for clause in clauses[1:]:
        out = combine(op, (out, clause))
    return out


@memo
def negation(clause: UOp) -> UOp:
    """The opposite of a clause; of a comparison, the comparison turned around."""
    if clause.op is Ops.NEG:
        return clause.src[0]
    if clause.op is Ops.CMPLT and clause.src[0].dtype.kind == "index":
        return compare.less(clause.src[1], affine.plus(clause.src[0], 1))
    if clause.op is Ops.CMPLT and clause.src[0].dtype.is_int:
        return _turned(*clause.src)
    return intern(Ops.NEG, clause.dtype, (clause,))


def _turned(a: UOp, b: UOp) -> UOp:
    """b <= a for integers that may wrap, strict if one side is a constant, as in normal form."""
    low, high = a.dtype.bounds
    if affine.is_const(a) and a.arg < high:
        return make(Ops.CMPLT, b, a.arg + 1)
    if affine.is_const(b) and b.arg > low:
        return make(Ops.CMPLT, b.arg - 1, a)
    return make(Ops.CMPLE, b, a)
