"""Rules for bits and logic; they merge the operands of conjunctions and disjunctions."""

from __future__ import annotations

import math

from uopc.ir.builder import leaves
from uopc.ir.builder.fold import make, same_kind
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.index.affine import Constraints
from uopc.ir.rewrite.pattern import UPat
from uopc.ir.rewrite.rules import BOOL, INTEGERS, RuleSet, c, d, no, rule, rule_fn, x, y
from uopc.ir.symbolic.assume import under
from uopc.ir.symbolic.conditions import constraint_of, constraints_of, join, negation

# Longer conditions are not merged: merging compares operands with each other.
_MOST_OPERANDS = 64
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
    "merge",
    UPat((Ops.AND, Ops.OR), dtypes.bool_, name="u"),
    tried_on=[
        (x < c) & (x < d),
        (c < x) & (x < d),
        (x < c) & no(x < c),
        ((x < c) & (y < d)) & (x < c),
        (x < c) & (y < x),
        (x < c) & x.ne(d),
        (x < c) & x.eq(d),
        (x < y) & (y < x),
        (x < c) | (x < d),
        (c < x) | (x < d),
        (c < x) | (d < x),
        ((x < c) | (y < d)) | (x < c),
        (x < y) | (y <= x),
        (x < y) | (y < x),
    ],
)
def _merge(u: UOp) -> UOp | None:
    """(x < 5) & (x < 7) & (7 < y) → (x < 5) & (7 < y), (x < 5) | (3 < x) → True"""
    return same_kind(u, merged(u))


@rule_fn("not-comparison", no(UPat((Ops.CMPLT, Ops.CMPLE), src=(x, y), name="u")))
def _not_comparison(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """not x < y → y <= x and not x <= y → y < x, for integers (floats: NaN)"""
    if x.dtype.is_float:
        return None
    return make(Ops.CMPLE if u.op is Ops.CMPLT else Ops.CMPLT, y, x)


CONDITIONS = RuleSet("conditions", over=BOOL, rules=[
    _merge,
    _not_comparison,
    rule("not-equal", no(x.eq(y)), x.ne(y)),
    rule("not-unequal", no(x.ne(y)), x.eq(y)),
])  # fmt: skip


def merged(u: UOp) -> UOp | None:
    """An AND or OR without repeated, implied or contradicting operands; None if it has none.

    p & p → p;  (x < 5) & (x < 7) → x < 5;  (x < 5) & (7 < x) → False;
    (i < 5) & (4·i + j < 24) → i < 5 where j < 4;  (i < 3) & ((i + 11) % 14 < 12) → i < 1;
    (x < 5) | (x < 7) → x < 7;  (x < 5) | (3 < x) → True;  p | not p → True.
    """
    op = u.op
    every = walk.flatten(u, op)
    operands = list(dict.fromkeys(every))
    if len(operands) > _MOST_OPERANDS:
        return None
    # An OR holds unless the negations of its operands all hold.
    conjuncts = operands if op is Ops.AND else [negation(v) for v in operands]
    constraints = constraints_of(conjuncts)
    remaining: list[UOp] = []
    for v, conjunct in zip(operands, conjuncts):
        verdict = _verdict(conjunct, constraints)
        # Comparisons that exclude each other have an empty interval instead.
        if verdict is False or (constraint_of(v) is None and negation(v) in operands):
            return leaves.const_like(u, op is Ops.OR)
        if verdict is None:
            remaining.append(v)
    simpler = _each_under_the_others(remaining) if op is Ops.AND else remaining
    return None if simpler == every else join(op, simpler)


def _each_under_the_others(conjuncts: list[UOp]) -> list[UOp]:
    """Simplify each conjunct on more than one value under the assumption of all other conjuncts."""
    if not 1 < len(conjuncts) <= _MOST_COMPARED:
        return conjuncts
    out = list(conjuncts)
    for i, v in enumerate(conjuncts):
        if any(s.op in _COMPOUND for s in v.src):
            simpler = under(v, [w for j, w in enumerate(out) if j != i])
            out[i] = v if simpler is None else simpler
    return out


_COMPOUND = frozenset((Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD))


def _verdict(conjunct: UOp, constraints: Constraints) -> bool | None:
    """True if the constraints imply a conjunct, False if they contradict it, None if neither."""
    found = constraint_of(conjunct)
    if found is None:
        return _equality_verdict(conjunct, constraints)
    lhs, (low, high) = found
    first, last = constraints[lhs]
    if first > last:
        return False
    if low not in (-math.inf, first) or high not in (math.inf, last):
        return True  # another conjunct on the same left side is stricter
    if lhs.dtype.kind != "index" or lhs.op is not Ops.ADD:
        return None
    least, most = affine.interval(*affine.form(lhs), constraints)
    if low <= least and most <= high:
        return True
    return False if most < low or high < least else None


def _equality_verdict(conjunct: UOp, constraints: Constraints) -> bool | None:
    """The verdict on a = b or a ≠ b if the constraints keep a and b apart."""
    if conjunct.op not in (Ops.CMPEQ, Ops.CMPNE) or conjunct.src[0].dtype.kind != "index":
        return None
    low, high = affine.interval(*affine.form(affine.sub(*conjunct.src)), constraints)
    return None if low <= 0 <= high else conjunct.op is Ops.CMPNE
