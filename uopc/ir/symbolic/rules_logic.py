"""Conjunctions and disjunctions of comparisons, merged."""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.symbolic.assume import under
from uopc.ir.symbolic.conditions import (
    _MOST_CLAUSES,
    _MOST_COMPARED,
    Limits,
    bound_of,
    clauses_of,
    junction,
    limits_of,
    negation,
    range_of,
)


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
            return leaves.const_like(u, False)
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
            return leaves.const_like(u, True)
        if verdict is None:
            kept.append(clause)
    return None if len(kept) == _count(u, Ops.OR) else junction(Ops.OR, kept)


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
