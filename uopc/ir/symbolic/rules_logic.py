"""Rules for bits and logic; they merge the clauses of conjunctions and disjunctions."""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.builder.fold import make, same_kind
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.rewrite.pattern import UPat
from uopc.ir.rewrite.rules import BOOL, INTEGERS, RuleSet, c, d, no, rule, rule_fn, x, y
from uopc.ir.symbolic.assume import under
from uopc.ir.symbolic.conditions import (
    Limits,
    bound_of,
    clauses_of,
    junction,
    limits_of,
    negation,
    range_of,
)

# Longer conditions are not merged: merging compares clauses with each other.
_MOST_CLAUSES = 64
_MOST_COMPARED = 8

# fmt: off
LATTICE = RuleSet("lattice", over=INTEGERS | BOOL, rules=[
    rule("and-itself",          x & x,                x),
    rule("or-itself",           x | x,                x),
    rule("and-again",           (x & y) & y,          x & y),
    rule("or-again",            (x | y) | y,          x | y),
    rule("xor-itself",          x ^ x,                0),
    rule("xor-back",            (x ^ y) ^ y,          x),
    rule("and-constants",       (x & c) & d,          x & (c & d)),
    rule("or-constants",        (x | c) | d,          x | (c | d)),
    rule("xor-constants",       (x ^ c) ^ d,          x ^ (c ^ d)),
    rule("absorb-or",           (x | y) & x,          x),
    rule("absorb-and",          (x & y) | x,          x),
])

LOGIC = RuleSet("logic", over=BOOL, rules=[
    rule("not-not",             no(no(x)),            x),
    rule("and-not",             x & no(x),            False),
    rule("or-not",              x | no(x),            True),
    rule("neither",             no(x) & no(y),        no(x | y)),
    rule("not-both",            no(x) | no(y),        no(x & y)),
    rule("and-or-not",          x & (no(x) | y),      x & y),
    rule("or-and-not",          x | (no(x) & y),      x | y),
    # Arithmetic and comparison of bools in terms of logic.
    rule("add",                 x + y,                x | y),
    rule("mul",                 x * y,                x & y),
    rule("maximum",             x.maximum(y),         x | y),
    rule("minimum",             x.minimum(y),         x & y),
    rule("sub",                 x - y,                x ^ y),
    rule("differs-from-true",   x.ne(True),           no(x)),
    rule("differs-from-false",  x.ne(False),          x),
    rule("is-true",             x.eq(True),           x),
    rule("is-false",            x.eq(False),          no(x)),
    rule("differs",             x.ne(y),              x ^ y),
    rule("same",                x.eq(y),              no(x ^ y)),
    rule("xor-true",            x ^ True,             no(x)),
    rule("less",                x < y,                no(x) & y),
    rule("at-most",             x <= y,               no(x) | y),
])
# fmt: on


@rule_fn(
    "clauses",
    UPat(Ops.AND, dtypes.bool_, name="u"),
    tried_on=[
        (x < c) & (x < d),
        (c < x) & (x < d),
        (x < c) & no(x < c),
        ((x < c) & (y < d)) & (x < c),
        (x < c) & (y < x),
        (x < c) & x.ne(d),
        (x < c) & x.eq(d),
        (x < y) & (y < x),
    ],
)
def _clauses(u: UOp) -> UOp | None:
    """(x < 5) & (x < 7) & (7 < y) → (x < 5) & (7 < y)"""
    return same_kind(u, merged(u))


@rule_fn(
    "either-clause",
    UPat(Ops.OR, dtypes.bool_, name="u"),
    tried_on=[
        (x < c) | (x < d),
        (c < x) | (x < d),
        (c < x) | (d < x),
        ((x < c) | (y < d)) | (x < c),
        (x < y) | (y <= x),
        (x < y) | (y < x),
    ],
)
def _either_clause(u: UOp) -> UOp | None:
    """(x < 5) | (x < 7) → x < 7, (x < 5) | (3 < x) → True"""
    return same_kind(u, merged(u))


@rule_fn("not-comparison", no(UPat((Ops.CMPLT, Ops.CMPLE), src=(x, y), name="u")))
def _not_comparison(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """not x < y → y <= x and not x <= y → y < x, for integers (floats: NaN)"""
    if x.dtype.is_float:
        return None
    return make(Ops.CMPLE if u.op is Ops.CMPLT else Ops.CMPLT, y, x)


CLAUSES = RuleSet("clauses", over=BOOL, rules=[
    _clauses,
    _either_clause,
    _not_comparison,
    rule("not-equal", no(x.eq(y)), x.ne(y)),
    rule("not-unequal", no(x.ne(y)), x.eq(y)),
])  # fmt: skip


def merged(u: UOp) -> UOp | None:
    """An AND or OR without repeated, implied or contradicting clauses; None if it has none.

    p & p → p;  (x < 5) & (x < 7) → x < 5;  (x < 5) & (7 < x) → False;
    (i < 5) & (4·i + j < 24) → i < 5 where j < 4;  (i < 3) & ((i + 11) % 14 < 12) → i < 1;
    (x < 5) | (x < 7) → x < 7;  (x < 5) | (3 < x) → True;  p | not p → True.
    """
    op = u.op
    clauses = clauses_of(u, op)
    if len(clauses) > _MOST_CLAUSES:
        return None
    # An OR holds unless the negations of its clauses all hold.
    said = clauses if op is Ops.AND else [negation(c) for c in clauses]
    limits = limits_of(said)
    kept: list[UOp] = []
    for clause, meaning in zip(clauses, said):
        verdict = _verdict(meaning, limits)
        if verdict is False or _is_denied(clause, clauses):
            return leaves.const_like(u, op is Ops.OR)
        if verdict is None:
            kept.append(clause)
    simpler = _each_under_the_others(kept) if op is Ops.AND else kept
    unchanged = simpler == kept and len(kept) == _count(u, op)
    return None if unchanged else junction(op, simpler)


def _is_denied(clause: UOp, clauses: list[UOp]) -> bool:
    """Whether the opposite of a clause is another clause. Bounds are compared as limits instead."""
    return bound_of(clause) is None and negation(clause) in clauses


def _each_under_the_others(clauses: list[UOp]) -> list[UOp]:
    """The clauses, each on more than one value simplified under the assumption of all others."""
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
    """The number of operands of a tree of one op, with repeated ones."""
    count, stack = 0, [u]
    while stack:
        v = stack.pop()
        if v.op is op:
            stack += v.src
        else:
            count += 1
    return count


def _verdict(clause: UOp, limits: Limits) -> bool | None:
    """True if the limits imply a clause, False if they contradict it, None if they do neither."""
    bound = bound_of(clause)
    if bound is None:
        return _equality_verdict(clause, limits)
    lhs, (low, high) = bound
    first, last = limits[lhs]
    if first is not None and last is not None and first > last:
        return False
    if (low is not None and low != first) or (high is not None and high != last):
        return True  # another clause on the same left side is stricter
    if lhs.dtype.kind != "index" or lhs.op is not Ops.ADD:
        return None
    least, most = range_of(lhs, {m: i for m, i in limits.items() if m is not lhs})
    if low is not None:
        return True if least >= low else False if most < low else None
    assert high is not None
    return True if most <= high else False if least > high else None


def _equality_verdict(clause: UOp, limits: Limits) -> bool | None:
    """The verdict on a = b or a ≠ b if the limits keep a and b apart."""
    if clause.op not in (Ops.CMPEQ, Ops.CMPNE) or clause.src[0].dtype.kind != "index":
        return None
    low, high = range_of(affine.sub(*clause.src), limits)
    return None if low <= 0 <= high else clause.op is Ops.CMPNE
