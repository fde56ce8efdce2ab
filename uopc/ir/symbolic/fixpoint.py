"""The walk of `simplify`: bring a graph into normal form by folding and by rules.

Each node is made again on its simplified sources, which folds constants, identities and index
arithmetic. Then rules are tried on the node until no rule fits. A node keeps its result, so
simplifying it again costs nothing. `simplify.py` lists the rule sets.

A sum of dtype index is read at once, down to its atoms: inner nodes of the sum are not simplified.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping

from uopc.ir.builder import leaves
from uopc.ir.builder.fold import combine, is_partial, select
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import Fired, current_listener
from uopc.ir.core.uop import UOp, intern, set_origin, set_simple
from uopc.ir.index import affine, monomials
from uopc.ir.rewrite import statistics
from uopc.ir.rewrite.engine import EndlessRewriteError, substitute
from uopc.ir.rewrite.matcher import PatternMatcher
from uopc.ir.rewrite.rules import ANY, Domain, RuleSet, matcher

# The rules by the kind of numbers that a node computes with: few rules hold for all kinds. Some
# rules call `simplify`, so their files import this one, and `simplify.py` hands the rules in.
RULES_FOR: dict[str, PatternMatcher] = {}


def use(sets: Iterable[RuleSet]) -> None:
    """The rule sets that `simplify` tries, in this order."""
    for domain in Domain:
        rules = matcher(*[s for s in sets if domain in s.over])
        RULES_FOR.update(dict.fromkeys(domain.kinds, rules))
    RULES_FOR["void"] = matcher(*[s for s in sets if s.over == ANY])


def kind_of(u: UOp) -> str:
    """The kind of the numbers that a node compares; for other nodes, the kind of the value."""
    return u.src[0].dtype.kind if u.op.dtype == "bool" else u.dtype.kind


_LINEAR = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))
# More rewrites of one node in a row mean that rules undo each other.
_LONGEST_CHAIN = 1000


def simplify(root: UOp) -> UOp:
    """An equal graph in normal form: not larger, and simplify(simplify(u)) is simplify(u).

    Integers of a fixed width wrap, floats keep every IEEE result. Any level; never recursive.
    """
    found = root._simple
    if found is None:
        _simplify(root)
        found = root._simple
    return root if found is True else found


def _simplify(root: UOp) -> None:
    """Set `_simple` of `root` and of all nodes that it needs."""
    tables = {kind: statistics.table_of(rules) for kind, rules in RULES_FOR.items()}
    listener = current_listener()
    stack = [root]
    # node → the node it became, until that is simplified
    became: dict[UOp, UOp] = {}
    chain: dict[UOp, int] = {}
    while stack:
        u = stack[-1]
        if u._simple is not None:
            stack.pop()
            continue
        if u in became:
            to = became.pop(u)
            set_simple(u, to if to._simple is True else to._simple)
            continue
        missing = [s for s in needed(u) if s._simple is None]
        if missing:
            stack.extend(reversed(missing))
            continue
        made = _remade(u)
        if made is not u and (
            made._simple is not None or not all([s._simple is True for s in needed(made)])
        ):
            _follow(u, made, became, stack)
            continue
        match = tables[kind_of(made)][made.op] if made.tag is None else None
        hit = None if match is None else match(made, None)
        if hit is None:
            set_simple(made, True)
            if made is not u:
                set_simple(u, made)
            continue
        if listener is not None:
            listener(Fired("simplify", hit[1], made, hit[0]))
        chain[hit[0]] = length = chain.get(u, 0) + 1
        if length > _LONGEST_CHAIN:
            raise EndlessRewriteError(f"simplify never ends at {u.op!r}: {hit[1].label}")
        _follow(u, hit[0], became, stack)


def _follow(u: UOp, to: UOp, became: dict[UOp, UOp], stack: list[UOp]) -> None:
    """Let the result for `to` be the result for `u`."""
    if to.origin is None:
        set_origin(to, u.origin)
    became[u] = to
    stack.append(to)


def is_sum(u: UOp) -> bool:
    return u.op in _LINEAR and u.dtype.scalar is dtypes.index


def needed(u: UOp) -> tuple[UOp, ...] | list[UOp]:
    """The nodes to simplify before u: its sources, or the atoms of a sum."""
    if not is_sum(u):
        return u.src
    return [a for m in affine.form(u)[1] for a in monomials.factors(m) if a is not u]


def _remade(u: UOp) -> UOp:
    """u rebuilt on the simplified forms of the nodes it needs, then folded unless it has a tag."""
    if is_sum(u):
        made, dims = _collected(u), shapes.shape(u)
        return made if shapes.shape(made) == dims else leaves.full(made, dims)
    src = u.src
    if any([s._simple is not True for s in src]):
        src = tuple([s if s._simple is True else s._simple for s in src])
    if u.tag is None:
        made = remake(u, src)
        if made.dtype is u.dtype:
            return made
    return u if src is u.src else intern(u.op, u.dtype, src, u.arg, u.tag)


def _collected(u: UOp) -> UOp:
    """A sum on its simplified atoms."""
    constant, terms = affine.form(u)
    atoms = needed(u)
    if any([a._simple is not True or a.op is Ops.WHERE or a.op is Ops.INVALID for a in atoms]):
        return _selected([affine.const(constant), *[_term(m, k) for m, k in terms.items()]])
    return affine.build(constant, terms)


def _term(m: UOp, k: int) -> UOp:
    out = affine.const(k)
    for a in monomials.factors(m):
        out = combine(Ops.MUL, (out, simplify(a)))
    return out


def _selected(addends: list[UOp]) -> UOp:
    """Make a sum; add up constants, and selections under one condition.

    p.where(x, 0)·3 + y + p.where(z, 1) → p.where(3·x + z, 1) + y
    p.where(x, 0) + p.where(0, z) → p.where(x, z)
    """
    constant = 0
    terms: monomials.Terms = {}
    for v in addends:
        if is_partial(v):
            return functools.reduce(lambda a, b: combine(Ops.ADD, (a, b)), addends)
        c, t = affine.form(v)
        constant += c
        affine.accumulate(terms, t, 1)
    selections = [m for m in terms if m.op is Ops.WHERE]
    for a, b in itertools.combinations(selections, 2):
        branches = list(zip(a.src[1:], b.src[1:]))
        known = any([affine.is_const(x) and affine.is_const(y) for x, y in branches])
        known |= all([_is_zero(x) or _is_zero(y) for x, y in branches])
        if known and a.src[0] is b.src[0]:
            j, k = terms[a], terms[b]
            sums = [affine.add(affine.scaled(x, j), affine.scaled(y, k)) for x, y in branches]
            one = select(a.src[0], *sums)
            rest = {m: f for m, f in terms.items() if m is not a and m is not b}
            return affine.add(affine.build(constant, rest), one)
    return affine.build(constant, terms)


def _is_zero(u: UOp) -> bool:
    return affine.is_const(u) and u.arg == 0


def replaced(root: UOp, mapping: Mapping[UOp, UOp], as_is: frozenset[Op] = frozenset()) -> UOp:
    """`root` with every key of the mapping replaced, except below nodes of the ops `as_is`, then
    simplified."""
    return simplify(substitute(root, mapping, walk=True, as_is=as_is))
