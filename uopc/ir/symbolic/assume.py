"""Simplify a value under the assumption that a condition holds.

The condition constrains sums of dtype index. If a constraint is tighter than the known bounds of a
sum, `assuming` replaces the sum by a variable with the tighter bounds, simplifies, and puts the sum
back. That builds the value twice, and rarely simplifies it. So `Context.decides` first checks, by
intervals alone, that the constraints decide a comparison, quotient, remainder, maximum or minimum.
If the constraints decide nothing, no rule can use them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.args import VariableArg
from uopc.ir.core.intervals import Interval, intersect
from uopc.ir.core.ops import COMPARISONS, Op, Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.index.affine import Constraints, Form
from uopc.ir.index.monomials import Terms
from uopc.ir.records import dataclass
from uopc.ir.symbolic import fixpoint
from uopc.ir.symbolic.conditions import constraints_of, negation

_MOST_NODES = 100  # larger values are not simplified under assumptions
_MOST_CONTEXTS = 100  # inside one value: an operand of a condition has one, under all others
# Both branches are computed, so an access happens under its own gate only, and the length of a loop
# depends on no condition. These stay as they are, and so does a value that shares a changed part.
AS_IS = frozenset([Ops.INDEX, Ops.RANGE, *[op for op in Op.all() if op.is_access]])
_STAND_IN = "given "  # begins the names of variables that stand for a value in an interval
_CONDITIONAL = frozenset((Ops.WHERE, Ops.AND, Ops.OR))
_COMPARISONS = frozenset(COMPARISONS)


def assuming(u: UOp, condition: UOp, holds: bool = True) -> UOp | None:
    """`u` simplified under the assumption that the condition holds (or not); None if the result is
    no smaller."""
    return under(u, walk.flatten(condition, Ops.AND if holds else Ops.OR), holds)


def under(u: UOp, conditions: list[UOp], holds: bool = True) -> UOp | None:
    """`assuming` for several conditions that all hold, or all fail."""
    below = _nodes_assumptions_change(u)
    if below is None:
        return None
    known = {c: intern(Ops.CONST, c.dtype, (), holds) for c in conditions if c in below}
    context = ConstraintScope(_constraints(conditions, holds), below)
    if not (known or context.decides(u)):
        return None
    accesses = [s for v in below if v.op in AS_IS for s in v.src]
    fixed: dict[UOp, None] = {}
    for s in accesses if known else ():
        walk.toposort(s, done=fixed)
    if any([context.decides(s) for s in accesses]) or not fixed.keys().isdisjoint(conditions):
        return None
    return put_in(u, context.facts.values(), known)


def put_in(u: UOp, facts: Iterable[Fact], known: dict[UOp, UOp]) -> UOp | None:
    """`u` simplified with the variables of the facts and the known values put in; None if the
    result is no smaller."""
    there, back = dict(known), {}
    for fact in facts:
        found, put = solved(fact.total, fact.value)
        there.setdefault(found, put)
        if fact.value.op is Ops.VARIABLE:
            back[fact.value] = fact.total
    made = fixpoint.replaced(fixpoint.replaced(u, there, AS_IS), back)
    # A result of the same size is dropped: two equal forms would take turns.
    return made if len(walk.toposort(made)) < len(walk.toposort(u)) else None


@memo
def _nodes_assumptions_change(u: UOp) -> dict[UOp, None] | None:
    """u and the nodes below it that assumptions may change; None if there are too many."""
    found: dict[UOp, None] = {}
    walk.toposort(u, lambda v: v.op not in AS_IS and len(found) <= _MOST_NODES, found)
    return found if len(found) <= _MOST_NODES else None


@memo
def _outside(u: UOp) -> tuple[UOp, ...]:
    """u and the nodes below it, sources first, up to nested conditions."""
    stops = AS_IS | _CONDITIONAL
    return tuple(walk.toposort(u, lambda v: v.op not in stops))


def _constraints(
    conditions: list[UOp], holds: bool, known: Constraints | None = None
) -> Constraints:
    return constraints_of(conditions if holds else map(negation, conditions), known)


def variable(u: UOp, low: int, high: int) -> UOp:
    """A stand-in for u if low ≤ u ≤ high: a constant, or a variable with these bounds."""
    low, high = intersect((low, high), dtypes.index.bounds)
    if low == high:
        return affine.const(low)
    name = f"{_stand_in_of(u)} {low}..{high}"
    return intern(Ops.VARIABLE, u.dtype, (), VariableArg(name, low, high))


def _stand_in_of(u: UOp) -> str:
    """The common first part of the names of all stand-ins for a value and for its stand-ins. So
    nested assumptions give the same stand-in in any order, and the simplified graphs are equal. No
    user's name has a space."""
    if u.op is Ops.VARIABLE and u.arg.name.startswith(_STAND_IN):
        name: str = u.arg.name
        return name[: name.rindex(" ")]
    return f"{_STAND_IN}{content(u)}"


def solved(total: UOp, value: UOp) -> tuple[UOp, UOp]:
    """total = value solved for a monomial: k·m + rest = value ⇒ m = k·(value − rest) if k = ±1.
    Substituting the monomial then turns the sum into the value."""
    m, k = _pivot(total)
    if m is total or abs(k) != 1 or m.op is Ops.MUL:
        return total, value
    rest = affine.sub(total, affine.scaled(m, k))
    return m, affine.scaled(affine.sub(value, rest), k)


def _pivot(total: UOp) -> tuple[UOp, int]:
    """The monomial to solve a sum for, and its coefficient."""
    terms = affine.form(total)[1]
    simple = ((m, k) for m, k in terms.items() if abs(k) == 1 and m.op is not Ops.MUL)
    return next(simple, None) or next(iter(terms.items()), (total, 1))


# ---------------------------------------------------------------- decided by bounds
@dataclass(frozen=True, slots=True)
class Fact:
    """The fact total = value: a variable with the bounds of the total under the assumptions."""

    total: UOp
    value: UOp
    pivot: UOp  # the monomial that the fact is solved for
    factor: int


@memo
def _fact(total: UOp, interval: Interval) -> Fact | None:
    """The fact of a constraint; None if the constraint adds nothing, or cannot hold."""
    if total.dtype is not dtypes.index:
        return None
    own = affine.interval(*affine.form(total))
    low, high = intersect(own, interval)
    if low > high or (low, high) == own:
        return None
    return Fact(total, variable(total, low, high), *_pivot(total))


class ConstraintScope:
    """The constraints that hold in a part of a graph, where some values have tighter bounds."""

    def __init__(
        self,
        constraints: Constraints,
        below: dict[UOp, None],
        counter: itertools.count[int] | None = None,
    ) -> None:
        self.constraints = constraints
        self.facts: dict[UOp, Fact] = {}  # by pivot
        self._counter = itertools.count() if counter is None else counter
        # Values that depend on the facts; variables for those of them with tighter bounds.
        self._touched: set[UOp] = set()
        self._derived: dict[UOp, UOp] = {}
        for constraint in constraints.items():
            fact = _fact(*constraint)
            if fact is not None and fact.pivot in below:
                self.facts.setdefault(fact.pivot, fact)

    def decides(self, u: UOp) -> bool:
        """False if the constraints make no part of u simpler."""
        if not self.facts:
            return False
        touched = self._touched
        for v in _outside(u):
            if v in self.facts:
                touched.add(v)
                if self.facts[v].value.op is Ops.CONST:
                    return True
            elif v.op in _CONDITIONAL:
                if self._decides_inside(v):
                    return True
            elif any([s in touched for s in v.src]):
                touched.add(v)
                if self._decides_node(v):
                    return True
        return False

    def _decides_inside(self, u: UOp) -> bool:
        """`decides` for a selection, AND or OR, with a separate scope for each operand."""
        below = _nodes_assumptions_change(u)
        if below is None or next(self._counter) > _MOST_CONTEXTS:
            return True
        if self.facts.keys().isdisjoint(below):
            return False
        self._touched.add(u)
        if u.op is Ops.WHERE:
            p, x, y = u.src
            return (
                any([self.decides(v) for v in u.src])
                or self._with(walk.flatten(p), True, x).decides(x)
                or self._with(walk.flatten(p, Ops.OR), False, y).decides(y)
            )
        operands = walk.flatten(u, u.op)
        return any([self.decides(v) for v in operands]) or any(
            self._with([w for w in operands if w is not v], u.op is Ops.AND, v).decides(v)
            for v in operands
        )

    def _with(self, conditions: list[UOp], holds: bool, u: UOp) -> ConstraintScope:
        """The scope of u, where further conditions hold (or fail)."""
        constraints = _constraints(conditions, holds, self.constraints)
        return ConstraintScope(constraints, _nodes_assumptions_change(u) or {}, self._counter)

    def form(self, u: UOp) -> Form:
        """u as a sum, with constrained totals replaced by their variables."""
        constant, terms = affine.form(u)
        out = dict(terms)
        for m, f in terms.items():
            fact = self.facts.get(m)
            if fact is not None and f % fact.factor == 0:
                for known, scale in ((fact.total, -f), (fact.value, f)):
                    c, t = affine.form(known)
                    constant += c * (scale // fact.factor)
                    affine.accumulate(out, t, scale // fact.factor)
            elif m in self._derived:
                affine.accumulate(out, {m: -f, self._derived[m]: f}, 1)
        return constant, out

    def _decides_node(self, v: UOp) -> bool:
        """`decides` for one node whose sources depend on the facts."""
        op = v.op
        if v.src[0].dtype.kind != "index":
            return False
        if op in _COMPARISONS:
            return self._decides_comparison(v)
        if op is Ops.FLOORDIV or op is Ops.FLOORMOD:
            a, n = v.src
            if not affine.is_const(n) or n.arg <= 0 or affine.is_decided(*self.form(a), n.arg):
                return True
        elif op is Ops.MUL:
            if v not in affine.form(v)[1]:
                return False  # a part of a sum, which is asked as a whole
        elif op is not Ops.MAX and op is not Ops.MIN:
            return op is Ops.CAST
        x, y = operands = [affine.interval(*self.form(s)) for s in v.src]
        if (op is Ops.MAX or op is Ops.MIN) and not (x[0] < y[1] and y[0] < x[1]):
            return True  # the intervals share at most one end
        own = bounds.bounds(v)
        low, high = intersect(bounds.bounds_from(v, operands), own)
        if own != (low, high) and low < high:
            self._derived[v] = variable(v, low, high)
        return bool(low >= high)

    def _decides_comparison(self, v: UOp) -> bool:
        if any([affine.is_symbolic(affine.form(s)[1]) for s in v.src]):
            return True
        (c, s), (d, t) = [self.form(x) for x in v.src]
        terms: Terms = dict(s)
        affine.accumulate(terms, t, -1)
        constant = c - d - (v.op is Ops.CMPLE)
        low, high = affine.interval(constant, terms)
        if v.op is Ops.CMPEQ or v.op is Ops.CMPNE:
            return low > 0 or high < 0
        return low >= 0 or high < 0 or compare.has_coarser_form(constant, terms)
