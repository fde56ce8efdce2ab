"""Conjunctions of comparisons, and what they say about the values in them.

A clause `lhs < constant` bounds its left side. Clauses on one left side merge to an interval, and a
clause that the others imply is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import alu as build
from uopc.ir.builder.fold import combine, make
from uopc.ir.core import analysis
from uopc.ir.core.node import intern, remembered
from uopc.ir.core.ops import Op, Ops
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Interval = tuple[int | None, int | None]  # greatest lower and least upper bound, inclusive
Limits = dict["UOp", Interval]

# Longer conjunctions are left as they are: merging compares clauses with each other.
_MOST_CLAUSES = 64
_MOST_COMPARED = 8


def clauses_of(u: UOp, op: Op = Ops.AND) -> list[UOp]:
    """The operands of a tree of one logical op, left to right, each once."""
    out: dict[UOp, None] = {}
    stack = [u]
    while stack:
        v = stack.pop()
        if v.op is op:
            stack += [v.src[1], v.src[0]]
        else:
            out[v] = None
    return list(out)


@remembered
def bound_of(clause: UOp) -> tuple[UOp, Interval] | None:
    """What a comparison of integers bounds, and how: Σ < c or c < Σ; else None."""
    if clause.op is not Ops.CMPLT or not clause.src[0].dtype.is_integral:
        return None
    a, b = clause.src
    if affine.is_const(b):
        return a, (None, b.arg - 1)
    if affine.is_const(a):
        return b, (a.arg + 1, None)
    if a.dtype.kind != "index":
        return None
    # Terms on both sides: one sum, whose first term is positive
    constant, terms = affine.form(affine.sub(a, b))
    if not terms:
        return None
    positive = terms[min(terms, key=affine.order)] > 0
    lhs = affine.build(0, terms if positive else {m: -f for m, f in terms.items()})
    return lhs, (None, -constant - 1) if positive else (constant + 1, None)


def meet(a: Interval, b: Interval) -> Interval:
    """Both bounds at once."""
    lows = [v for v in (a[0], b[0]) if v is not None]
    highs = [v for v in (a[1], b[1]) if v is not None]
    return max(lows, default=None), min(highs, default=None)


def limits_of(clauses: list[UOp]) -> Limits:
    """What the clauses together say about each left side."""
    out: Limits = {}
    for clause in clauses:
        bound = bound_of(clause)
        if bound is not None:
            lhs, limit = bound
            out[lhs] = meet(out[lhs], limit) if lhs in out else limit
    return out


def within(bounds: tuple[int, int], limit: Interval) -> tuple[int, int]:
    """The bounds where the limit holds; empty where low > high."""
    (low, high), (first, last) = bounds, limit
    return (
        low if first is None else max(low, first),
        high if last is None else min(high, last),
    )


def range_of(u: UOp, limits: Limits) -> tuple[int, int]:
    """The bounds of an index value whose monomials have these limits."""
    low = high = affine.form(u)[0]
    for m, f in affine.form(u)[1].items():
        a, b = within(analysis.bounds(m), limits.get(m, (None, None)))
        low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def merged(u: UOp) -> UOp | None:
    """A conjunction without repeated, implied or contradicting clauses; None when it has none.

    p & p → p;  (x < 5) & (x < 7) → x < 5;  (x < 5) & (7 < x) → False;
    (i < 5) & (4·i + j < 24) → i < 5 where j < 4;  (i < 3) & ((i + 11) % 14 < 12) → i < 1.
    """
    clauses = clauses_of(u)
    if len(clauses) > _MOST_CLAUSES:
        return None
    limits = limits_of(clauses)
    kept: list[UOp] = []
    for clause in clauses:
        verdict = _verdict(clause, limits)
        if verdict is False or _is_denied(clause, clauses):
            return build.const_like(u, False)
        if verdict is None:
            kept.append(clause)
    simpler = _each_under_the_others(kept)
    return (
        None if simpler == kept and len(kept) == _count(u, Ops.AND) else junction(Ops.AND, simpler)
    )


def _is_denied(clause: UOp, clauses: list[UOp]) -> bool:
    """Whether the opposite of a clause stands beside it; bounds contradict each other as bounds."""
    return bound_of(clause) is None and negation(clause) in clauses


def _each_under_the_others(clauses: list[UOp]) -> list[UOp]:
    """Clauses on more than one value, each simplified for the case that all others hold."""
    from uopc.ir.symbolic.assume import under

    if not 1 < len(clauses) <= _MOST_COMPARED:
        return clauses
    out = list(clauses)
    for i, clause in enumerate(clauses):
        if any(s.op in _COMPOUND for s in clause.src):
            simpler = under(clause, [c for j, c in enumerate(out) if j != i])
            out[i] = clause if simpler is None else simpler
    return out


_COMPOUND = frozenset((Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD))


def _count(u: UOp, op: Op) -> int:
    """How many operands a tree of one op has, repeated ones counted."""
    count, stack = 0, [u]
    while stack:
        v = stack.pop()
        if v.op is op:
            stack += v.src
        else:
            count += 1
    return count


def united(u: UOp) -> UOp | None:
    """A disjunction without repeated or covered clauses; None when it has none.

    (x < 5) | (x < 7) → x < 7;  (x < 5) | (3 < x) → True;  p | not p → True.
    """
    clauses = clauses_of(u, Ops.OR)
    if len(clauses) > _MOST_CLAUSES:
        return None
    # The complement of each side is what none of its clauses allows.
    limits = limits_of([negation(c) for c in clauses])
    kept: list[UOp] = []
    for clause in clauses:
        verdict = _verdict(negation(clause), limits)
        if verdict is False or _is_denied(clause, clauses):
            return build.const_like(u, True)
        if verdict is None:
            kept.append(clause)
    return None if len(kept) == _count(u, Ops.OR) else junction(Ops.OR, kept)


def junction(op: Op, clauses: list[UOp]) -> UOp:
    """All of the clauses (or any of them), at least one."""
    out = clauses[0]
    for clause in clauses[1:]:
        out = combine(op, (out, clause))
    return out


def _verdict(clause: UOp, limits: Limits) -> bool | None:
    """What the other clauses make of one: always so, never so, or None: it says something new."""
    bound = bound_of(clause)
    if bound is None:
        return _equality_verdict(clause, limits)
    lhs, (low, high) = bound
    first, last = limits[lhs]
    if first is not None and last is not None and first > last:
        return False
    if (low is not None and low != first) or (high is not None and high != last):
        return True  # another clause on the same left side says more
    if lhs.dtype.kind != "index" or lhs.op is not Ops.ADD:
        return None
    least, most = range_of(lhs, {m: i for m, i in limits.items() if m is not lhs})
    if low is not None:
        return True if least >= low else False if most < low else None
    assert high is not None
    return True if most <= high else False if least > high else None


def _equality_verdict(clause: UOp, limits: Limits) -> bool | None:
    """a = b or a ≠ b where the clauses keep a and b apart."""
    if clause.op not in (Ops.CMPEQ, Ops.CMPNE) or clause.src[0].dtype.kind != "index":
        return None
    low, high = range_of(affine.sub(*clause.src), limits)
    return None if low <= 0 <= high else clause.op is Ops.CMPNE


@remembered
def negation(clause: UOp) -> UOp:
    """not clause, a comparison of index values turned around."""
    if clause.op is Ops.NEG:
        return clause.src[0]
    if clause.op is Ops.CMPLT and clause.src[0].dtype.kind == "index":
        return affine.less(clause.src[1], affine.plus(clause.src[0], 1))
    if clause.op is Ops.CMPLT and clause.src[0].dtype.is_int:
        return _turned(*clause.src)
    return intern(Ops.NEG, clause.dtype, (clause,))


def _turned(a: UOp, b: UOp) -> UOp:
    """not a < b for integers that may wrap: with a constant strict, as comparisons are kept."""
    low, high = a.dtype.bounds
    if affine.is_const(a) and a.arg < high:
        return make(Ops.CMPLT, b, a.arg + 1)
    if affine.is_const(b) and b.arg > low:
        return make(Ops.CMPLT, b.arg - 1, a)
    return make(Ops.CMPLE, b, a)
