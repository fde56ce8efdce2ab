"""Conjunctions of comparisons, and what they say about the values in them.

A clause `lhs < constant` bounds its left side. Clauses on one left side merge to an interval, and a
clause that the others imply is dropped. `given(u, condition)` simplifies u for the case that the
condition holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, build, dtypes
from uopc.ir.args import VariableArg
from uopc.ir.node import intern
from uopc.ir.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

Interval = tuple[int | None, int | None]  # greatest lower and least upper bound, inclusive
Limits = dict["UOp", Interval]

# Longer conjunctions are left as they are: merging compares clauses with each other.
_MOST_CLAUSES = 64
# Larger values are not simplified for a condition.
_MOST_NODES = 100


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
    positive = terms[min(terms, key=affine.order)] > 0
    lhs = affine.build(0, terms if positive else {m: -f for m, f in terms.items()})
    return lhs, (None, -constant - 1) if positive else (constant + 1, None)


def _meet(a: Interval, b: Interval) -> Interval:
    lows = [v for v in (a[0], b[0]) if v is not None]
    highs = [v for v in (a[1], b[1]) if v is not None]
    return max(lows, default=None), min(highs, default=None)


def limits_of(clauses: list[UOp]) -> Limits:
    """What the clauses together say about each left side."""
    out: Limits = {}
    for clause in clauses:
        bound = bound_of(clause)
        if bound is not None:
            out[bound[0]] = _meet(out.get(bound[0], (None, None)), bound[1])
    return out


def _tightened(m: UOp, limits: Limits) -> tuple[int, int]:
    low, high = analysis.bounds(m)
    first, last = limits.get(m, (None, None))
    return (
        low if first is None else max(low, first),
        high if last is None else min(high, last),
    )


def range_of(u: UOp, limits: Limits) -> tuple[int, int]:
    """The bounds of an index value whose monomials have these limits."""
    low = high = affine.form(u)[0]
    for m, f in affine.form(u)[1].items():
        a, b = _tightened(m, limits)
        low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def merged(u: UOp) -> UOp | None:
    """A conjunction without repeated, implied or contradicting clauses; None when it has none.

    p & p → p;  (x < 5) & (x < 7) → x < 5;  (x < 5) & (7 < x) → False;
    (i < 5) & (4·i + j < 24) → i < 5 where j < 4.
    """
    clauses = clauses_of(u)
    if len(clauses) > _MOST_CLAUSES:
        return None
    limits = limits_of(clauses)
    kept: list[UOp] = []
    for clause in clauses:
        verdict = _verdict(clause, limits)
        if verdict is False or negation(clause) in clauses:
            return build.const_like(u, False)
        if verdict is None:
            kept.append(clause)
    return None if len(kept) == _count(u) else conjunction(kept)


def _count(u: UOp) -> int:
    """How many operands a conjunction has, repeated ones counted."""
    count, stack = 0, [u]
    while stack:
        v = stack.pop()
        if v.op is Ops.AND:
            stack += v.src
        else:
            count += 1
    return count


def conjunction(clauses: list[UOp]) -> UOp:
    """All of the clauses, at least one."""
    out = clauses[0]
    for clause in clauses[1:]:
        lanes = max(out.dtype.lanes, clause.dtype.lanes)
        out = intern(Ops.AND, dtypes.bool_.vec(lanes), (out, clause))
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


# ---------------------------------------------------------------- under a condition
def given(u: UOp, condition: UOp, holds: bool = True) -> UOp | None:
    """`u` simplified for the case that the condition holds (or not); None when it gets no smaller.

    Inside u, each clause is True. Every range, variable or other single value that the clauses
    bound more closely than its own bounds is replaced by a variable with those bounds, and put back
    afterwards.
    """
    from uopc.ir import symbolic

    clauses = clauses_of(condition) if holds else clauses_of(condition, Ops.OR)
    return _under(u, clauses, holds)


def _under(u: UOp, clauses: list[UOp], holds: bool = True) -> UOp | None:
    """`given` for a list of clauses that all hold, or none of them."""
    from uopc.ir import symbolic

    below = analysis.toposort(u)
    if len(below) > _MOST_NODES:
        return None
    known: dict[UOp, UOp] = {}
    for v, w in _known_values(clauses, holds):
        if v in below:
            known.setdefault(v, w)
    if not known:
        return None
    made = symbolic.replaced(u, known)
    back = symbolic.replaced(made, {w: v for v, w in _variables(known, clauses, holds)})
    # Only what is smaller counts: two equal forms must not take turns.
    return back if len(analysis.toposort(back)) < len(below) else None


def _known_values(clauses: list[UOp], holds: bool) -> Iterator[tuple[UOp, UOp]]:
    """The clauses; and index values that they bound, with a variable (constant) that says so."""
    for clause in clauses:
        yield clause, intern(Ops.CONST, clause.dtype, (), holds)
    for lhs, limit in limits_of(clauses if holds else [negation(c) for c in clauses]).items():
        if lhs.dtype is not dtypes.index:
            continue
        own = affine.interval(*affine.form(lhs))
        low, high = _meet_bounds(own, limit)
        if low > high or (low, high) == own:
            continue
        arg = VariableArg(f"given_{lhs.seq}", low, high)
        value = intern(Ops.VARIABLE, dtypes.index, (), arg) if low < high else affine.const(low)
        yield from [(lhs, value)] if lhs.op is not Ops.ADD else _solved(lhs, value)


def _solved(total: UOp, value: UOp) -> Iterator[tuple[UOp, UOp]]:
    """total = value as a statement on one of its monomials: k·m + rest = v  ⇒  m = k·(v − rest)
    for k = ±1. Where the sum occurs, it is then the value."""
    for m, k in affine.form(total)[1].items():
        if abs(k) == 1 and m.op is not Ops.MUL:
            rest = affine.sub(total, affine.scaled(m, k))
            yield m, affine.scaled(affine.sub(value, rest), k)
            return


def negation(clause: UOp) -> UOp:
    """not clause, a comparison of index values turned around."""
    if clause.op is Ops.NEG:
        return clause.src[0]
    if clause.op is Ops.CMPLT and clause.src[0].dtype.kind == "index":
        return affine.less(clause.src[1], affine.plus(clause.src[0], 1))
    return intern(Ops.NEG, clause.dtype, (clause,))
