"""Rules for selection, and for INVALID, "no value".

INVALID stays through arithmetic, so WHERE(p, a, INVALID) moves outward until a WHERE, a store or an
index takes it. Where both branches of a WHERE are of one kind it becomes arithmetic or logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, build, clauses, dtypes
from uopc.ir.node import intern
from uopc.ir.ops import Op, Ops
from uopc.ir.pattern import UPat
from uopc.ir.rules import (
    ANY, BOOL, INDEX, INTEGERS, RuleSet, c, combine, convert, d, like, make, no, p, q, rule,
    rule_fn, same_kind, x, y, z,
)  # fmt: skip

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

_ELEMENTWISE = tuple([op for op in Op.all() if op.is_alu and op is not Ops.WHERE])
_BINARY = tuple([op for op in _ELEMENTWISE if op.arity == 2])
_nothing = UPat(Ops.INVALID, name="nothing")

# fmt: off
WHERE = RuleSet("where", over=ANY, rules=[
    rule("not",             no(p).where(x, y),                  p.where(y, x)),
    rule("same-condition",  p.where(p.where(x, y), z),          p.where(x, z)),
    rule("same-below",      p.where(x, p.where(y, z)),          p.where(x, z)),
    # Two conditions for one alternative: one selection, and the conditions join.
    rule("both",            p.where(q.where(x, y), y),          (p & q).where(x, y)),
    rule("both-not",        p.where(q.where(y, x), y),          (p & no(q)).where(x, y)),
    rule("either",          p.where(x, q.where(x, y)),          (p | q).where(x, y)),
    rule("either-not",      p.where(x, q.where(y, x)),          (p | no(q)).where(x, y)),
])

WHERE_BOOL = RuleSet("where-bool", over=BOOL, rules=[
    rule("is-condition",    p.where(True, False),               p),
    rule("is-opposite",     p.where(False, True),               no(p)),
    rule("and",             p.where(x, False),                  p & x),
    rule("or",              p.where(True, x),                   p | x),
    rule("implies",         p.where(x, True),                   no(p) | x),
    rule("but-not",         p.where(False, x),                  no(p) & x),
])

SELECT_GREATER = RuleSet("select-greater", over=INTEGERS, rules=[
    rule("max",             (x < y).where(y, x),                x.maximum(y)),
    rule("min",             (x < y).where(x, y),                x.minimum(y)),
])
# fmt: on


@rule_fn("max-of-forms", UPat(Ops.WHERE, dtypes.index, src=(x < c, y, z), name="u"))
def _max_of_forms(x: UOp, c: UOp, y: UOp, z: UOp, u: UOp) -> UOp | None:
    """(y - z < 0).where(y, z) → min(y, z), also when the condition is written x < c"""
    if y.op is Ops.INVALID or z.op is Ops.INVALID:
        return None
    gap, cond = affine.sub(y, z), affine.sub(x, c)  # the condition is cond < 0
    if gap is cond or gap is affine.plus(cond, 1):  # y < z, or y <= z: there both are the same
        return same_kind(u, make(Ops.MIN, y, z))
    opposite = affine.scaled(cond, -1)
    if gap is opposite or gap is affine.plus(opposite, -1):  # y > z, or y >= z
        return same_kind(u, make(Ops.MAX, y, z))
    return None


@rule_fn("under-condition", UPat(Ops.WHERE, dtypes.index, src=(p, x, y), name="u"))
def _under_condition(p: UOp, x: UOp, y: UOp, u: UOp) -> UOp | None:
    """(i < 5).where(i % 5, y) → (i < 5).where(i, y): the branch is simplified for its condition"""
    if p.op is Ops.CONST or x.op in (Ops.CONST, Ops.INVALID):
        return None
    made = clauses.given(x, p)
    return None if made is None else same_kind(u, make(Ops.WHERE, p, made, y))


SELECT_INDEX = RuleSet("select-index", over=INDEX, rules=[_max_of_forms, _under_condition])


# ---------------------------------------------------------------- arithmetic on selections
def _constants(u: UOp) -> bool:
    """Whether both branches of a WHERE are constants."""
    return u.src[1].op is Ops.CONST and u.src[2].op is Ops.CONST


@rule_fn("into-constants", UPat(_ELEMENTWISE, name="u"))
def _into_constants(u: UOp) -> UOp | None:
    """p.where(1, 0) * 5 → p.where(5, 0): operands are constants and one selection of constants"""
    chosen = [s for s in u.src if s.op is Ops.WHERE]
    if len(chosen) != 1 or not _constants(chosen[0]):
        return None
    if any(s.op is not Ops.CONST for s in u.src if s is not chosen[0]):
        return None
    a, b = [
        combine(u.op, tuple([chosen[0].src[i] if s is chosen[0] else s for s in u.src]))
        for i in (1, 2)
    ]
    if a.op is not Ops.CONST or b.op is not Ops.CONST:
        return None
    return same_kind(u, make(Ops.WHERE, chosen[0].src[0], a, b))


@rule_fn("cast-constants", p.where(c, d).cast(name="u"))
def _cast_constants(p: UOp, c: UOp, d: UOp, u: UOp) -> UOp | None:
    """float(p.where(1, 0)) → p.where(1.0, 0.0)"""
    t = u.dtype.scalar
    return same_kind(u, make(Ops.WHERE, p, build.cast(c, t), build.cast(d, t)))


@rule_fn("together", UPat(_BINARY, src=(UPat(Ops.WHERE), UPat(Ops.WHERE)), name="u"))
def _together(u: UOp) -> UOp | None:
    """p.where(x, 0) + p.where(y, 1) → p.where(x + y, 1) where one pair of branches folds"""
    a, b = u.src
    if a.src[0] is not b.src[0]:
        return None
    if not any(a.src[i].op is Ops.CONST and b.src[i].op is Ops.CONST for i in (1, 2)):
        return None
    made = [combine(u.op, (a.src[i], b.src[i])) for i in (1, 2)]
    return same_kind(u, make(Ops.WHERE, a.src[0], *made))


SELECTIONS = RuleSet("selections", over=ANY, rules=[_into_constants, _cast_constants, _together])


# ---------------------------------------------------------------- no value
def _invalid(u: UOp) -> UOp:
    return intern(Ops.INVALID, u.dtype)


@rule_fn("arithmetic", UPat(_ELEMENTWISE, name="u"))
def _arithmetic(u: UOp) -> UOp | None:
    """INVALID + x → INVALID, p.where(x, INVALID) + y → p.where(x + y, INVALID)"""
    for i, s in enumerate(u.src):
        if s.op is Ops.INVALID:
            return same_kind(u, _invalid(u))
        if s.op is Ops.WHERE and s.src[2].op is Ops.INVALID:
            inner = combine(u.op, (*u.src[:i], s.src[1], *u.src[i + 1 :]))
            return same_kind(u, make(Ops.WHERE, s.src[0], inner, _invalid(u)))
    return None


@rule_fn("cast", p.where(x, _nothing).cast(name="u"))
def _cast(p: UOp, x: UOp, nothing: UOp, u: UOp) -> UOp | None:
    """float(p.where(x, INVALID)) → p.where(float(x), INVALID)"""
    return same_kind(u, make(Ops.WHERE, p, convert(x, u.dtype), _invalid(u)))


@rule_fn("condition", p.where(q, _nothing).where(x, y).named("u"))
def _condition(p: UOp, q: UOp, x: UOp, y: UOp, nothing: UOp, u: UOp) -> UOp | None:
    """a condition without a value gives none: p.where(q, INVALID).where(x, y) → …"""
    return same_kind(u, make(Ops.WHERE, p, make(Ops.WHERE, q, x, y), _invalid(u)))


NO_VALUE = RuleSet("no-value", over=ANY, rules=[
    _arithmetic, _cast, _condition,
    rule("first", p.where(UPat(Ops.INVALID, name="z"), x), no(p).where(x, z)),
])  # fmt: skip
