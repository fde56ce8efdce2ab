"""Write a value with fewer nodes than its normal form has, for `u.simplify()` and `render`.

Passes work on the normal form of `affine.py`, where equal values are one object. The short form
factors sums of dtype index, subtracts negative terms, moves multiples into quotients, and chooses
the sides of comparisons.

    a*16 + c*16          →  (a + c)*16             ((a*-1)%15)*-1     →  a % -15
    a*-3 + b + 5         →  b - a*3 + 5            (a*-1)//3 + a*2    →  (a*5)//3
    a*a*4 + a*-1         →  a*(a*4 - 1)            a < b + 1          →  a <= b

Each candidate is an identity of whole numbers. Take the candidate that saves most nodes, and repeat
as long as a candidate saves any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from uopc.ir.core import shapes, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, monomials
from uopc.ir.index.affine import Form, is_const
from uopc.ir.index.monomials import Terms
from uopc.ir.records import dataclass
from uopc.ir.symbolic.fixpoint import is_sum, needed, simplify

# Larger graphs stay in normal form: the nodes of every candidate are counted.
MOST_NODES = 150
_MOST_TERMS = 10  # longer sums stay as they are
_MOST_COMPARED = 4  # longer comparisons keep their sides
_ROUNDS = 3
_COMPARISONS = frozenset((Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE))
_SUMS = frozenset((Ops.ADD, Ops.SUB))


def simplified(u: UOp) -> UOp:
    """Write the normal form of u short, until nothing changes.

    Forms of one size may alternate, since sums that are in the graph cost nothing. All alternating
    forms then become the same form.
    """
    seen: list[UOp] = []
    while u not in seen:
        seen.append(u)
        u = shorten(simplify(u), u)
    turns = seen[seen.index(u) :]
    if len(turns) == 1:
        return u
    from uopc.ir.text import printer  # seldom needed

    return min(turns, key=lambda v: (size(v), printer.render(v)))


def shorten(root: UOp, original: UOp) -> UOp:
    """An equal graph of no more nodes than `root`, the normal form of `original`."""
    if max(size(root), size(original)) > MOST_NODES:
        return root
    made: list[UOp] = []
    last: _Writer | None = None
    for _ in range(_ROUNDS):
        writer = _Writer(root, original, last)
        made.append(writer.written(root))
        if last is not None and made[-1] is last.short[root]:
            break
        last = writer
    return min([*made, root], key=size)


def size(u: UOp) -> int:
    """The number of nodes of a graph."""
    return len(walk.toposort(u))


@dataclass(frozen=True, slots=True)
class _RewrittenSum:
    """A sum in other terms, perhaps with a product of `inner` and another factor."""

    form: Form
    product: UOp | None = None
    inner: Form = (0, {})


class _Writer:
    """Write the nodes of a graph, sources first. `short` maps each node to its short form.

    Nodes that an earlier writer made for other parts of the graph cost nothing.
    """

    def __init__(self, root: UOp, original: UOp, earlier: _Writer | None) -> None:
        self.root, self.earlier = root, earlier
        self.short: dict[UOp, UOp] = {}
        self.there: set[UOp] = set()
        above = walk.toposort(root if earlier is None else earlier.short[root])
        nodes = [*walk.toposort(original), *above]
        sums = dict.fromkeys([u for u in nodes if u.op in _SUMS and u.dtype.kind == "index"])
        self.parts = [(u, *affine.form(u)) for u in sums]
        self.sums: dict[Any, UOp] = {}

    def written(self, root: UOp) -> UOp:
        stack = [root]
        while stack:
            u = stack[-1]
            missing = [s for s in needed(u) if s not in self.short]
            if missing and u not in self.short:
                stack.extend(missing)
                continue
            stack.pop()
            if u not in self.short:
                self.there, self.sums = self._elsewhere(u), {}
                self.short[u] = self._node(u)
        return self.short[root]

    def _elsewhere(self, u: UOp) -> set[UOp]:
        """The nodes that do not depend on the form of u: nodes below its atoms, and nodes that the
        earlier writer made outside of u."""
        there: dict[UOp, None] = {}
        if self.earlier is not None:
            own, top = self.earlier.short[u], self.earlier.short[self.root]
            walk.toposort(top, gate=lambda v: v is not own, done=there)
            there.pop(own, None)
        stack = list(needed(u))
        while stack:
            v = stack.pop()
            if is_sum(v) or _is_division(v):
                stack.extend(needed(v))
            elif v.op is not Ops.CONST:
                walk.toposort(self.short[v], done=there)
        return set(there)

    def cost(self, u: UOp) -> int:
        """The number of nodes that u adds to the graph."""
        there = self.there
        return sum([v not in there for v in walk.toposort(u, gate=lambda v: v not in there)])

    def cheapest(self, candidates: Iterable[UOp]) -> UOp:
        return min(candidates, key=self.cost)

    def _node(self, u: UOp) -> UOp:
        if u.tag is not None or shapes.shape(u) != ():
            return u
        if is_sum(u):
            return self.sum(*affine.form(u))
        if u.op in _COMPARISONS and u.src[0].dtype.kind == "index":
            return self.cheapest(self._comparisons(u))
        if _is_division(u):
            return self._divided(u)
        if u.op is Ops.STORE and len(u.src) == 2 and _value(u.src[1]) is u.src[0]:
            return intern(Ops.NOOP, u.dtype)  # the stored value is the old one
        src = tuple([self.short[s] for s in u.src])
        return u if src == u.src else intern(u.op, u.dtype, src, u.arg, u.tag)

    # ------------------------------------------------------------ sums
    def sum(self, constant: int, terms: Terms) -> UOp:
        """The shortest sum by repeated choice of the best candidate."""
        key = (constant, *terms.items())
        if key in self.sums:
            return self.sums[key]
        best = self._written(constant, terms)
        while len(terms) <= _MOST_TERMS:
            pairs = [(self._written(*c.form), c) for c in self._candidates(constant, terms)]
            if not pairs:
                break
            made, candidate = min(pairs, key=lambda pair: self.cost(pair[0]))
            if self.cost(made) >= self.cost(best):
                break
            constant, terms = self._refined(candidate)
            best = self.cheapest((made, self._written(constant, terms)))
        self.sums[key] = best
        return best

    def _candidates(self, constant: int, terms: Terms) -> Iterator[_RewrittenSum]:
        """Yield the same sum in other terms."""
        for m, f in terms.items():
            if m.op is Ops.FLOORMOD and _is_division(m):  # −(e % n) = −e % −n
                negated = monomials.node(
                    m.op, affine.scaled(m.src[0], -1), affine.const(-m.src[1].arg)
                )
                rest = {w: k for w, k in terms.items() if w is not m}
                yield _RewrittenSum((constant, rest | {negated: -f}))
            elif _is_division(m):
                yield from map(_RewrittenSum, _absorbed(constant, terms, m, f))
        for g in {abs(f) for f in terms.values()} - {1}:
            yield from self._factored(constant, terms, g)
        for a in self._shared_atoms(terms):
            yield self._common_atom(constant, terms, a)
        for part in self.parts:
            yield from map(_RewrittenSum, self._known_part(constant, terms, *part))

    def _factored(self, constant: int, terms: Terms, g: int) -> Iterator[_RewrittenSum]:
        """a·g + b·(g + 1) + … → (a + b)·g + b + …"""
        group: Terms = {}
        rest: Terms = {}
        for m, f in terms.items():
            k = (f + 1) // g
            r = f - k * g
            if k and abs(r) <= 1:
                group[m], f = k, r
            if f:
                rest[m] = f
        for c in {0, constant // g if constant % g == 0 else 0}:
            if len(group) + bool(c) < 2:
                continue
            left, opposite = constant - c * g, (-c, _scaled(group, -1))
            yield self._product((left, rest), (c, group), affine.const(g), 1)
            yield self._product((left, rest), opposite, affine.const(g), -1)
            yield self._product((left, rest), opposite, affine.const(-g), 1)

    def _common_atom(self, constant: int, terms: Terms, a: UOp) -> _RewrittenSum:
        """a·b·k + a·n → a·(b·k + n)"""
        group: Terms = {}
        rest: Terms = {}
        inner = 0
        for m, f in terms.items():
            atoms = self._atoms(m)
            if a not in atoms:
                rest[m] = f
                continue
            atoms.remove(a)
            if atoms:
                group[monomials.product(atoms)] = f
            else:
                inner = f
        return self._product((constant, rest), (inner, group), self.short[a], 1)

    def _product(self, rest: Form, inner: Form, factor: UOp, sign: int) -> _RewrittenSum:
        """rest + sign·inner·factor, the product as one term."""
        product = monomials.node(Ops.MUL, self._written(*inner), factor)
        self.short[product] = product
        return _RewrittenSum((rest[0], rest[1] | {product: sign}), product, inner)

    def _refined(self, candidate: _RewrittenSum) -> Form:
        """The terms of a candidate, with the inner sum of its product written short."""
        (constant, terms), old = candidate.form, candidate.product
        if old is None:
            return constant, terms
        product = monomials.node(Ops.MUL, self.sum(*candidate.inner), old.src[1])
        self.short[product] = product
        return constant, {product if m is old else m: f for m, f in terms.items()}

    def _atoms(self, m: UOp) -> list[UOp]:
        """The factors of a monomial; a written node is one factor."""
        return [m] if m in self.short else monomials.factors(m)

    def _shared_atoms(self, terms: Terms) -> list[UOp]:
        """The atoms of more than one monomial."""
        users: dict[UOp, int] = {}
        for m in terms:
            for a in dict.fromkeys(self._atoms(m)):
                users[a] = users.get(a, 0) + 1
        return [a for a, count in users.items() if count > 1]

    def _known_part(
        self, constant: int, terms: Terms, part: UOp, c: int, inside: Terms
    ) -> Iterator[Form]:
        """Forms in which a sum that is in the graph anyway is one term; part = Σ inside + c."""
        first = next(iter(inside), None)
        k = terms.get(first, 0) // inside[first] if first is not None else 0
        known = len(inside) > 1 or c
        if k and known and all([terms.get(m, 0) * f > 0 for m, f in _scaled(inside, k).items()]):
            rest = dict(terms)
            affine.accumulate(rest, inside, -k)
            if part not in terms and len(rest) < len(terms) + (len(inside) > 1):
                self.short[part] = part
                yield constant - k * c, rest | {part: k}

    def _written(self, constant: int, terms: Terms) -> UOp:
        """Add the terms in order; subtract negative terms, or add them as products."""
        made = self._plain(constant, terms, Ops.SUB)
        if any([f < -1 for f in terms.values()]):
            made = self.cheapest((made, self._plain(constant, terms, Ops.ADD)))
        return made

    def _plain(self, constant: int, terms: Terms, minus: Op) -> UOp:
        if not terms:
            return affine.const(constant)
        ordered = sorted(terms, key=monomials.term_order)
        added = [m for m in ordered if terms[m] > 0 or (minus is Ops.ADD and terms[m] < -1)]
        addends = [self._term(m, terms[m]) for m in added]
        if not added and constant:
            addends, constant = [affine.const(constant)], 0
        elif not added:
            added = [m for m in ordered if terms[m] < -1][:1]
            if not added:
                total = self._plain(0, _scaled(terms, -1), minus)
                return intern(Ops.NEG, total.dtype, (total,))
            addends = [self._term(added[0], terms[added[0]])]
        out = _fold_operands(Ops.ADD, addends)
        for m in ordered:
            if m not in added:
                out = monomials.node(Ops.SUB, out, self._term(m, -terms[m]))
        return monomials.node(Ops.ADD, out, affine.const(constant)) if constant else out

    def _term(self, m: UOp, k: int) -> UOp:
        made = self.short.get(m)
        if made is None and m.op is Ops.MUL:
            made = _fold_operands(Ops.MUL, [self.short[a] for a in monomials.factors(m)])
        elif made is None:
            made = self._divided(m)
        return made if k == 1 else monomials.node(Ops.MUL, made, affine.const(k))

    # ------------------------------------------------------------ quotients and remainders
    def _divided(self, u: UOp) -> UOp:
        """e // n or −e // −n; e % n."""
        (constant, terms), n = affine.form(u.src[0]), u.src[1].arg
        made = monomials.node(u.op, self.sum(constant, terms), affine.const(n))
        if u.op is not Ops.FLOORDIV:
            return made
        other = self.sum(-constant, _scaled(terms, -1))
        return self.cheapest((made, monomials.node(u.op, other, affine.const(-n))))

    # ------------------------------------------------------------ comparisons
    def _comparisons(self, u: UOp) -> Iterator[UOp]:
        """Σ < limit, Σ = limit or Σ ≠ limit with the terms on one side or the other."""
        constant, terms = affine.form(affine.sub(*u.src))
        yield from self._both_ways(u, terms, -constant)
        if len(terms) > _MOST_COMPARED or u.op is not Ops.CMPLT:
            return
        for n in {abs(f) for f in terms.values()}:
            for form in _in_quotients(terms, -constant, n):
                yield from self._both_ways(u, *form)

    def _both_ways(self, u: UOp, terms: Terms, limit: int) -> Iterator[UOp]:
        left = {m: f for m, f in terms.items() if f > 0}
        right = {m: -f for m, f in terms.items() if f < 0}
        yield from self._sides(u, left, right, limit)
        if u.op is not Ops.CMPLT:
            yield from self._sides(u, right, left, -limit)
        for m, f in terms.items() if 1 < len(terms) <= _MOST_COMPARED else ():
            for k in {-abs(f), 1, -1}:
                yield from self._sides(u, _with(left, m, k), _with(right, m, k), limit)

    def _sides(self, u: UOp, left: Terms, right: Terms, limit: int) -> Iterator[UOp]:
        """left op right + limit"""
        forms = [(u.op, limit)]
        if u.op is Ops.CMPLT:
            forms.append((Ops.CMPLE, limit - 1))
        for op, c in forms:
            yield intern(op, u.dtype, (self.sum(0, left), self.sum(c, right)))
            if c and (right or not left):
                yield intern(op, u.dtype, (self.sum(-c, left), self.sum(0, right)))


def _is_division(u: UOp) -> bool:
    """e // n or e % n for a constant n."""
    return u.op in affine.DIVMOD_OPS and u.dtype.kind == "index" and is_const(u.src[1])


def _value(u: UOp) -> UOp:
    """The address of a loaded value, else the value."""
    return u.src[0] if u.op is Ops.LOAD and len(u.src) == 1 else u


def _fold_operands(op: Op, operands: list[UOp]) -> UOp:
    out = operands[0]
    for v in operands[1:]:
        out = monomials.node(op, out, v)
    return out


def _scaled(terms: Terms, k: int) -> Terms:
    return {m: f * k for m, f in terms.items()}


def _with(terms: Terms, m: UOp, k: int) -> Terms:
    out = dict(terms)
    affine.accumulate(out, {m: k}, 1)
    return out


def _absorbed(constant: int, terms: Terms, q: UOp, k: int) -> Iterator[Form]:
    """k·(e // n) + k·j·m → k·((e + n·j·m) // n) for terms m of e, or for the constant."""
    e, n = q.src
    c, inside = affine.form(e)
    taken = {m: terms[m] // k for m in inside if m in terms and terms[m] % k == 0}
    whole = constant // k if constant % k == 0 else 0
    for moved, j in (taken, 0), ({}, whole), (taken, whole):
        if not moved and not j:
            continue
        wider = dict(inside)
        affine.accumulate(wider, moved, n.arg)
        quotient = monomials.node(Ops.FLOORDIV, affine.build(c + n.arg * j, wider), n)
        rest = {m: f for m, f in terms.items() if m not in moved and m is not q}
        yield constant - k * j, rest | {quotient: k}


def _in_quotients(terms: Terms, limit: int, n: int) -> Iterator[tuple[Terms, int]]:
    """e + n·A < c ⇔ e − c < −n·A ⇔ (e − c)//n + A < 0, and so ⇔ A − (c − 1 − e)//n < 1."""
    whole = {m: f // n for m, f in terms.items() if f % n == 0}
    rest = {m: f for m, f in terms.items() if f % n}
    if n == 1 or not whole or not rest:
        return
    for sign, c, end in (1, -limit, 0), (-1, limit - 1, 1):
        e = affine.build(c % n, _scaled(rest, sign))
        quotient = monomials.node(Ops.FLOORDIV, e, affine.const(n))
        yield whole | {quotient: sign}, end - sign * (c // n)
