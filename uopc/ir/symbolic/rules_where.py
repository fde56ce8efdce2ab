"""Rules for selection: a WHERE with similar branches becomes arithmetic or logic.

No rule here moves INVALID: `builder/fold.py` moves p.where(a, INVALID) outward through arithmetic
and selections until a store or an index takes it.
"""

from __future__ import annotations

from uopc.ir.builder import fold
from uopc.ir.builder.fold import make, same_kind, select
from uopc.ir.builder.rebuild import remake
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.rewrite.pattern import UPat
from uopc.ir.rewrite.rules import (
    ANY,
    BOOL,
    INDEX,
    INTEGERS,
    RuleSet,
    c,
    d,
    e,
    has_value,
    no,
    p,
    q,
    rule,
    rule_fn,
    x,
    y,
    z,
)  # fmt: skip
from uopc.ir.symbolic.assume import assuming

_ELEMENTWISE = [op for op in Op.all() if op.is_alu and op is not Ops.WHERE]
_UNARY = tuple([op for op in _ELEMENTWISE if op.arity == (1, 1)])
_BINARY = tuple([op for op in _ELEMENTWISE if op.arity == (2, 2)])


@rule_fn(
    "either-not",
    p.where(x, q.where(y, x)),
    tried_on=[p.where(x, (z < c).where(y, x)), p.where(x, z.eq(c).where(y, x)),
              (z <= c).where(x, q.where(y, x)), no(p).where(x, q.where(y, x))],
)  # fmt: skip
def _either_not(p: UOp, q: UOp, x: UOp, y: UOp) -> UOp | None:
    """p.where(x, q.where(y, x)) → (p | no(q)).where(x, y), or (no(p) & q).where(y, x)"""
    if _negates_free(q):
        return select(make(Ops.OR, p, make(Ops.NEG, q)), x, y)
    return select(make(Ops.AND, make(Ops.NEG, p), q), y, x) if _negates_free(p) else None


@rule_fn(
    "both-not",
    p.where(q.where(y, x), y),
    tried_on=[p.where((z < c).where(y, x), y), p.where(z.eq(c).where(y, x), y),
              (z <= c).where(q.where(y, x), y), no(p).where(q.where(y, x), y)],
)  # fmt: skip
def _both_not(p: UOp, q: UOp, x: UOp, y: UOp) -> UOp | None:
    """p.where(q.where(y, x), y) → (p & no(q)).where(x, y), or (no(p) | q).where(y, x)"""
    if _negates_free(q):
        return select(make(Ops.AND, p, make(Ops.NEG, q)), x, y)
    return select(make(Ops.OR, make(Ops.NEG, p), q), y, x) if _negates_free(p) else None


def _negates_free(p: UOp) -> bool:
    """True if the opposite of a condition needs no further operation."""
    if p.op is Ops.CMPLT or p.op is Ops.CMPLE:
        return not p.src[0].dtype.is_float  # NaN
    return p.op in (Ops.CMPEQ, Ops.CMPNE, Ops.NEG)


# fmt: off
WHERE = RuleSet("where", over=ANY, rules=[
    rule("not",             no(p).where(x, y),                  p.where(y, x), when=[has_value(y)]),
    rule("same-condition",  p.where(p.where(x, y), z),          p.where(x, z)),
    rule("same-below",      p.where(x, p.where(y, z)),          p.where(x, z)),
    # Two conditions for one alternative: one selection, and the conditions join.
    rule("both",            p.where(q.where(x, y), y),          (p & q).where(x, y)),
    _both_not,
    rule("either",          p.where(x, q.where(x, y)),          (p | q).where(x, y)),
    _either_not,
])

WHERE_BOOL = RuleSet("where-bool", over=BOOL, rules=[
    rule("is-condition",    p.where(True, False),               p),
    rule("is-opposite",     p.where(False, True),               no(p)),
    rule("and",             p.where(x, False),                  p & x,      when=[has_value(x)]),
    rule("or",              p.where(True, x),                   p | x,      when=[has_value(x)]),
    rule("implies",         p.where(x, True),                   no(p) | x,  when=[has_value(x)]),
    rule("but-not",         p.where(False, x),                  no(p) & x,  when=[has_value(x)]),
])

SELECT_GREATER = RuleSet("select-greater", over=INTEGERS, rules=[
    rule("max",             (x < y).where(y, x),                x.maximum(y)),
    rule("min",             (x < y).where(x, y),                x.minimum(y)),
])
# fmt: on


@rule_fn(
    "max-of-forms",
    UPat(Ops.CMPLT, name="p").where(y, z).named("u"),
    tried_on=[
        (x < y).where(x, y),
        (x < y).where(y, x),
        (x < c).where(x, c),
        (c < x).where(x, c),
        (x < c + 1).where(x, c),
        (x < c).where(c + -1, x),
    ],
)
def _max_of_forms(p: UOp, y: UOp, z: UOp, u: UOp) -> UOp | None:
    """(y - z < 0).where(y, z) → min(y, z), also for other forms of the condition"""
    if y.op is Ops.INVALID or z.op is Ops.INVALID or p.src[0].dtype.kind != "index":
        return None
    gap, cond = affine.sub(y, z), affine.sub(*p.src)  # the condition is cond < 0
    if gap is cond or gap is affine.plus(cond, 1):  # y < z, or y <= z: there both are the same
        return same_kind(u, make(Ops.MIN, y, z))
    opposite = affine.scaled(cond, -1)
    if gap is opposite or gap is affine.plus(opposite, -1):  # y > z, or y >= z
        return same_kind(u, make(Ops.MAX, y, z))
    return None


@rule_fn(
    "under-condition",
    p.where(x, y).named("u"),
    tried_on=[
        (x < c).where(x % d, y),
        (c < x).where(x // d, y),
        (x < c).where(y, x % d + x),
        p.where(q.where(x, y), z),
        p.where(p.where(x, y) + z, p.where(y, x) * z),
        (p & q).where(p.where(x, y), z),
        (p | q).where(x, p.where(z, y)),
    ],
)
def _under_condition(p: UOp, x: UOp, y: UOp, u: UOp) -> UOp | None:
    """(i < 5).where(i % 5, y) → (i < 5).where(i, y): branches are simplified under the condition"""
    if p.op is Ops.CONST or not (x.src or y.src):
        return None
    a = assuming(x, p) if x.src else None
    b = assuming(y, p, holds=False) if y.src else None
    if a is None and b is None:
        return None
    return same_kind(u, select(p, x if a is None else a, y if b is None else b))


SELECT_INDEX = RuleSet("select-index", over=INDEX, rules=[_max_of_forms])
UNDER_CONDITION = RuleSet("under-condition", over=ANY, rules=[_under_condition])


# ---------------------------------------------------------------- arithmetic on selections
_PICKED = p.where(c, d)


@rule_fn(
    "into-constants",
    UPat.any(UPat(_UNARY, src=(_PICKED,), name="u"), UPat(_BINARY, src=[_PICKED, e], name="u")),
)
def _into_constants(u: UOp, p: UOp, c: UOp, d: UOp, e: UOp | None = None) -> UOp | None:
    """p.where(1, 0) * 5 → p.where(5, 0), p.where(1, 0) != 0 → p.where(True, False)"""
    made = [remake(u, tuple([s if s is e else v for s in u.src])) for v in (c, d)]
    if any(m.op is not Ops.CONST for m in made):
        return None
    return same_kind(u, make(Ops.WHERE, p, *made))


@rule_fn("cast-constants", p.where(c, d).cast(name="u"))
def _cast_constants(p: UOp, c: UOp, d: UOp, u: UOp) -> UOp | None:
    """float(p.where(1, 0)) → p.where(1.0, 0.0)"""
    t = u.dtype.scalar
    return same_kind(u, make(Ops.WHERE, p, fold.cast(c, t), fold.cast(d, t)))


@rule_fn(
    "together",
    UPat(_BINARY, src=(UPat(Ops.WHERE), UPat(Ops.WHERE)), name="u"),
    tried_on=[
        UPat(_BINARY, src=(p.where(x, c), p.where(y, d))),
        UPat(_BINARY, src=(p.where(c, x), p.where(d, y))),
        UPat(_BINARY, src=(p.where(x, c), p.where(d, y))),
    ],
)
def _together(u: UOp) -> UOp | None:
    """p.where(x, 0) + p.where(y, 1) → p.where(x + y, 1) where one pair of branches folds, and
    p.where(x, 0) + p.where(0, y) → p.where(x, y)"""
    a, b = u.src
    if a.src[0] is not b.src[0]:
        return None
    pairs = [(a.src[i], b.src[i]) for i in (1, 2)]
    if not any(x.op is Ops.CONST or y.op is Ops.CONST for x, y in pairs):
        return None
    made = [remake(u, pair) for pair in pairs]
    if all([m.op is u.op and m.src == pair for m, pair in zip(made, pairs)]):
        return None
    return same_kind(u, make(Ops.WHERE, a.src[0], *made))


SELECTIONS = RuleSet("selections", over=ANY, rules=[_into_constants, _cast_constants, _together])
