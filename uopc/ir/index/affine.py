"""Index arithmetic in a normal form: constant + Σ coefficient·monomial.

A value of dtype index is kept as one canonical UOp, so that equal expressions are one object: an
ADD chain of monomials in a fixed order (each an atom, or a product of atoms, times a constant) with
the constant last. Atoms are ranges, variables, and opaque nodes: quotients and remainders, loads,
selections. Integers of dtype index never wrap.

`form(u)` reads a UOp as such a sum; `add`, `mul`, `floordiv`, `floormod`, `less`, `equal` build
canonical UOps (`less` and `equal` are in `compare.py`). A chain of additions is read at once, in
time linear in its length.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from uopc.ir.core import bounds, dtypes, intervals, ranges, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.intervals import Interval
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.uop import UOp, intern, set_form
from uopc.ir.index.monomials import (
    LARGEST_TERM,
    Terms,
    factors,
    is_condition,
    limit_of,
    node,
    product,
    term_order,
)

Form = tuple[int, Terms]
Constraints = dict["UOp", Interval]  # values that lie in an interval
LINEAR_OPS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))
DIVMOD_OPS = frozenset((Ops.FLOORDIV, Ops.FLOORMOD))
# A product of two sums with more terms than this is an atom: writing out (a+b)·(c+d)·… doubles the
# terms with every factor.
_MOST_PRODUCTS = 36
_small: dict[int, UOp] = {}


def const(value: int) -> UOp:
    """The constant of dtype index."""
    found = _small.get(value)
    if found is None:
        found = intern(Ops.CONST, dtypes.index, (), value)
        if -_SMALL < value < _SMALL:
            _small[value] = found
    return found


_SMALL = 1025  # constants nearer to 0 than this are made once and kept


def boolean(value: bool) -> UOp:
    return intern(Ops.CONST, dtypes.bool_, (), value)


# ---------------------------------------------------------------- reading
def form(u: UOp) -> Form:
    """(constant, {monomial: coefficient}) of a UOp of dtype index. Do not change the dict."""
    found: Form | None = u._form
    if found is not None:
        return found
    if u.op in LINEAR_OPS:
        return _read_form(u)
    set_form(u, found := (u.arg, {}) if is_const(u) else (0, {u: 1}))
    return found


def is_const(u: UOp) -> bool:
    return u.op is Ops.CONST and type(u.arg) is int


def _unread(u: UOp) -> bool:
    return u._form is None and u.op in LINEAR_OPS


def _read_form(root: UOp) -> Form:
    """Read a graph of + - · at once: products first, then sums, each node once."""
    order = list(walk.toposort(root, gate=_unread))
    for u in order:
        if u.op is Ops.MUL and u._form is None and not any(map(is_const, u.src)):
            set_form(u, multiply(_collect(u.src[0]), _collect(u.src[1])))
    return _collect(root)


def _collect(root: UOp) -> Form:
    """The form of a graph of + - and products with constants, users before sources."""
    if not _unread(root):
        return form(root)
    constant = 0
    terms: Terms = {}
    scale = {root: 1}
    for u in reversed(walk.toposort(root, gate=_unread)):
        k = scale.pop(u, 0)
        if k == 0:
            continue
        if not _unread(u):
            c, t = form(u)
            constant += c * k
            accumulate(terms, t, k)
            continue
        a, b = u.src[0], u.src[-1]
        if u.op is Ops.MUL:
            a, f = (a, b.arg) if is_const(b) else (b, a.arg)
            scale[a] = scale.get(a, 0) + k * f
            continue
        scale[a] = scale.get(a, 0) + (-k if u.op is Ops.NEG else k)
        if u.op is not Ops.NEG:
            scale[b] = scale.get(b, 0) + (-k if u.op is Ops.SUB else k)
    set_form(root, found := (constant, terms))
    return found


def accumulate(into: Terms, terms: Terms, scale: int) -> None:
    """into += scale · terms"""
    for m, k in terms.items():
        k = into.get(m, 0) + k * scale
        if k:
            into[m] = k
        else:
            into.pop(m, None)


def _scale(f: Form, k: int) -> Form:
    return f[0] * k, {m: c * k for m, c in f[1].items()} if k else {}


def multiply(a: Form, b: Form) -> Form:
    """The form of a product."""
    if not b[1]:
        return _scale(a, b[0])
    if not a[1]:
        return _scale(b, a[0])
    if (len(a[1]) + 1) * (len(b[1]) + 1) > _MOST_PRODUCTS:
        return 0, {product([*_whole(a), *_whole(b)]): 1}
    terms: Terms = {}
    accumulate(terms, a[1], b[0])
    accumulate(terms, b[1], a[0])
    for m, f in a[1].items():
        for n, g in b[1].items():
            accumulate(terms, {product(factors(m) + factors(n)): f * g}, 1)
    return a[0] * b[0], terms


def _whole(f: Form) -> list[UOp]:
    """A form as factors of one monomial."""
    u = build(*f)
    return [u] if u.op is not Ops.MUL or is_const(u.src[1]) else factors(u)


# ---------------------------------------------------------------- writing
def build(constant: int, terms: Terms) -> UOp:
    """The canonical UOp of a sum."""
    if len(terms) > 1:
        mods = [m for m in terms if m.op is Ops.FLOORMOD]
        if mods:
            extra, terms = recombine(dict(terms), mods)
            constant += extra
        quotients = [m for m in terms if m.op is Ops.FLOORDIV]
        if len(quotients) > 1:
            extra, terms = _join_shifted(dict(terms), quotients)
            constant += extra
        if any([m.op is Ops.MIN for m in terms]):
            extra, terms = _exchange_least(terms)
            constant += extra
    if not terms:
        return const(constant)
    out: UOp | None = None
    for m in sorted(terms, key=term_order) if len(terms) > 1 else terms:
        k = terms[m]
        term = m if k == 1 else node(Ops.MUL, m, const(k))
        out = term if out is None else node(Ops.ADD, out, term)
    assert out is not None
    if constant:
        out = node(Ops.ADD, out, const(constant))
    if out._form is None:
        set_form(out, (constant, terms))
    return out


def add(a: UOp, b: UOp) -> UOp:
    """The canonical a + b."""
    (c, s), (d, t) = form(a), form(b)
    if not t:
        return build(c + d, s) if d or a.op in LINEAR_OPS else a
    if not s:
        return build(c + d, t) if c or b.op in LINEAR_OPS else b
    terms = dict(s)
    accumulate(terms, t, 1)
    return build(c + d, terms)


def sub(a: UOp, b: UOp) -> UOp:
    """The canonical a - b."""
    (c, s), (d, t) = form(a), form(b)
    terms = dict(s)
    accumulate(terms, t, -1)
    return build(c - d, terms)


def mul(a: UOp, b: UOp) -> UOp:
    return build(*multiply(form(a), form(b)))


def scaled(a: UOp, k: int) -> UOp:
    """a · k"""
    return build(*_scale(form(a), k))


def plus(a: UOp, k: int) -> UOp:
    c, t = form(a)
    return build(c + k, t) if k else a


# ---------------------------------------------------------------- quotient and remainder
def floordiv(a: UOp, n: UOp) -> UOp:
    """a // n rounded toward −∞; 0 for n = 0."""
    return divmod_(a, n)[0]


def floormod(a: UOp, n: UOp) -> UOp:
    """a − n·(a // n); 0 for n = 0."""
    return divmod_(a, n)[1]


# ---------------------------------------------------------------- bounds
def interval(
    constant: int, terms: Terms, constraints: Constraints | None = None
) -> tuple[int, int]:
    """The least and greatest value of a sum under constraints; each monomial is bounded alone."""
    low = high = constant
    for m, f in terms.items():
        a, b = m._bounds or bounds.bounds(m)
        if constraints is not None and m in constraints:
            a, b = intervals.intersect((a, b), constraints[m])
        low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def is_multiple(a: UOp, n: int) -> bool:
    """True if n surely divides every value of an index."""
    rest = floormod(a, const(n))
    return is_const(rest) and rest.arg == 0


def upper(a: UOp) -> UOp:
    """A symbolic upper bound: positive terms at their greatest, ranges at end - 1."""
    constant, terms = form(a)
    for m, f in reversed(terms.items()):
        if f > 0 and m.op is Ops.RANGE and ranges.ranges(m.src[0]):  # k + j is < n if j < n - k
            return upper(add(a, scaled(sub(plus(m.src[0], -1), m), f)))
    out = const(constant)
    for m, f in terms.items():
        out = add(out, scaled(_upper_monomial(m) if f > 0 else _lower_monomial(m), f))
    return out


def _upper_monomial(m: UOp) -> UOp:
    out = const(1)
    for a in factors(m):
        if a.op is Ops.RANGE:
            a = plus(a.src[0], -1)
        elif a.op is Ops.FLOORMOD and bounds.bounds(a.src[1])[0] > 0:
            a = plus(a.src[1], -1)
        elif bounds.bounds(a)[0] < 0:
            return m
        elif a.op is not Ops.VARIABLE:
            a = const(bounds.bounds(a)[1])
        out = mul(out, a)
    return out


def _lower_monomial(m: UOp) -> UOp:
    atoms = factors(m)
    if all(bounds.bounds(a)[0] >= 0 for a in atoms):
        if all(a.op is Ops.VARIABLE for a in atoms):
            return m
        return const(math.prod(bounds.bounds(a)[0] for a in atoms))
    return m


def maximum(a: UOp, b: UOp) -> UOp:
    """The greater of two values, in the form of `_extreme`."""
    if at_most(b, a):
        return a
    return b if at_most(a, b) else _extreme(Ops.MAX, a, b)


def minimum(a: UOp, b: UOp) -> UOp:
    """The less of two values, in the form of `_extreme`."""
    if at_most(a, b):
        return a
    return b if at_most(b, a) else _extreme(Ops.MIN, a, b)


def _extreme(op: Op, a: UOp, b: UOp) -> UOp:
    """max(a + c, b + c) = max(a, b) + c: the less of the constants is 0 in the node, which has a
    constant second.

    max(n - 1, 0)  →  max(n, 1) - 1
    """
    shift = min(form(a)[0], form(b)[0])
    a, b = plus(a, -shift), plus(b, -shift)
    if is_const(a) or (not is_const(b) and term_order(b) < term_order(a)):
        a, b = b, a
    return plus(node(op, a, b), shift)


def _exchange_least(terms: Terms) -> Form:
    """Write k·min(a, b) as k·(a + b) - k·max(a, b) where a sum becomes shorter.

    n - min(n, 1)  →  max(n, 1) - 1
    """
    constant = 0
    for m in [m for m in terms if m.op is Ops.MIN]:
        k, after = terms.get(m, 0), dict(terms)  # 0 after another exchange took m out, too
        (c, s), (d, t) = form(m.src[0]), form(m.src[1])
        greatest = form(_extreme(Ops.MAX, *m.src))
        after.pop(m, None)
        for part, factor in ((s, k), (t, k), (greatest[1], -k)):
            accumulate(after, part, factor)
        if len(after) < len(terms):
            terms, constant = after, constant + k * (c + d - greatest[0])
    return constant, terms


def is_symbolic(terms: Terms) -> bool:
    """True if bounds as expressions may prove more than bounds as numbers."""
    for m in terms:
        for a in factors(m) if m.op is Ops.MUL else (m,):
            if a.op is Ops.VARIABLE or (a.op is Ops.RANGE and not is_const(a.src[0])):
                return True
            if a.op in DIVMOD_OPS and not is_const(a.src[1]):
                return True
    return False


def at_most(a: UOp, b: UOp) -> bool:
    """True if bounds, as numbers or as expressions, prove a ≤ b."""
    gap = sub(b, a)
    if interval(*form(gap))[0] >= 0:
        return True
    return is_symbolic(form(gap)[1]) and bool(interval(*form(sub(b, upper(a))))[0] >= 0)


Pair = tuple["UOp", "UOp"]


def divmod_(a: UOp, n: UOp) -> Pair:
    """(a // n, a % n), both rounded toward −∞; (0, 0) for n = 0."""
    if not is_const(n):
        low, high = bounds.bounds(n)
        if low > 0:
            return _by_symbol(a, n)
        # If n may be 0, no identity holds: both results are 0 for n = 0.
        found = _by_constant_quotient(a, n) if high < 0 else None
        return found or _opaque(a, n)
    if n.arg > 0:
        return _by_const(a, n.arg)
    if n.arg == 0:
        return const(0), const(0)
    q, r = _by_const(scaled(a, -1), -n.arg)
    return q, scaled(r, -1)


def _opaque(a: UOp, n: UOp) -> Pair:
    return node(Ops.FLOORDIV, a, n), node(Ops.FLOORMOD, a, n)


# ---------------------------------------------------------------- by a constant
@memo
def _by_const(a: UOp, n: int) -> Pair:
    """Multiples of n go to the quotient; the rest has |fᵢ| < n and 0 ≤ c < n."""
    if n == 1:
        return a, const(0)
    constant, terms = form(a)
    low, high = interval(constant, terms)
    if low // n == high // n:
        return const(low // n), plus(a, -(low // n) * n)
    if 0 <= constant < n and all(-n < f < n for f in terms.values()):
        return _rest(a, n)
    whole: Terms = {}
    rest: Terms = {}
    for m, f in terms.items():
        k = f // n if f > 0 else -(-f // n)
        if k:
            whole[m] = k
        if f != k * n:
            rest[m] = f - k * n
    q, r = _rest(build(constant % n, rest), n)
    return add(build(constant // n, whole), q), r


def _rest(a: UOp, n: int) -> Pair:
    constant, terms = form(a)
    low, high = interval(constant, terms)
    if low // n == high // n:
        return const(low // n), plus(a, -(low // n) * n)
    if len(terms) == 1 and is_condition(m := next(iter(terms))):
        k, more = constant // n, (constant + terms[m]) // n - constant // n
        q, r = [{m: f} if f else {} for f in (more, terms[m] - more * n)]
        return build(k, q), build(constant - k * n, r)
    choice = _one_quotient(constant, terms, n)
    if choice is not None:
        k = interval(constant, choice)[0] // n
        moved = {m: (f - choice[m]) // n for m, f in terms.items() if f != choice[m]}
        return build(k, moved), build(constant - k * n, choice)
    found = _common(constant, terms, n)
    return found or (_quotient(a, constant, terms, n), _remainder(a, constant, terms, n))


def _one_quotient(constant: int, terms: Terms, n: int) -> Terms | None:
    """Choose residues of the coefficients that keep the sum between neighbouring multiples of n.

    f ≡ f − n (mod n), so a = n·A + b with b = Σ gᵢ·mᵢ + c for any choice of gᵢ ≡ fᵢ.
    """
    positive = {m: f % n for m, f in terms.items()}
    if sum([_width(m) * min(f, n - f) for m, f in positive.items()]) >= n:  # for any residues
        return None
    nearest = {m: f - n if 2 * f > n else f for m, f in positive.items()}
    below = {m: f - n if 2 * f >= n else f for m, f in positive.items()}
    negative = {m: f - n for m, f in positive.items()}
    for choice in (nearest, below, positive, negative):
        low, high = interval(constant, choice)
        if low // n == high // n:
            return choice
    return None


def _width(m: UOp) -> int:
    low, high = bounds.bounds(m)
    return int(high - low)


def _common(constant: int, terms: Terms, n: int) -> Pair | None:
    """a = g·A + b with g | n and 0 ≤ b < g:  a // n = A // (n/g),  a % n = g·(A % (n/g)) + b.

    Proof: a // n = ((g·A + b) // g) // (n/g) = A // (n/g); the remainder is a less n times that.
    """
    g = _common_factor(constant, terms, n)
    if g == 1:
        return None
    coarse = build(constant // g, {m: f // g for m, f in terms.items() if f // g})
    q, r = _by_const(coarse, n // g)
    small = {m: f % g for m, f in terms.items() if f % g}
    return q, add(scaled(r, g), build(constant % g, small))


def _common_factor(constant: int, terms: Terms, n: int) -> int:
    """The greatest g | n for which the coefficients modulo g give a sum 0 ≤ b < g."""
    for g in sorted({math.gcd(f, n) for f in terms.values()} - {1}, reverse=True):
        low, high = interval(constant % g, {m: f % g for m, f in terms.items() if f % g})
        if low >= 0 and high < g:
            return g
    return 1


def is_decided(constant: int, terms: Terms, n: int) -> bool:
    """True if a sum divided by n > 0 has a simpler quotient or remainder."""
    rest = {m: f % n if f > 0 else -(-f % n) for m, f in terms.items() if f % n}
    constant %= n
    low, high = interval(constant, rest)
    return (
        low // n == high // n
        or (len(rest) == 1 and is_condition(next(iter(rest))))
        or _one_quotient(constant, rest, n) is not None or _common_factor(constant, rest, n) > 1
    )


def _quotient(a: UOp, constant: int, terms: Terms, n: int) -> UOp:
    """Nested: (e//k + b) // n = (e + k·b) // (k·n), since e//k + b = (e + k·b) // k and dividing
    twice is dividing by the product;  (e % k) // n = (e // n) % (k/n) for n | k."""
    for m in sorted([m for m, f in terms.items() if f == 1], key=term_order):
        k = _positive_divisor(m)
        # With the remainder of the same division in the sum, merging quotients cancels nothing.
        mixed = any([w.op is Ops.FLOORMOD and w.src == m.src for w in terms])
        if m.op is Ops.FLOORDIV and 0 < k * n <= _LARGEST_DIVISOR and not mixed:
            rest = build(constant * k, {w: f * k for w, f in terms.items() if w is not m})
            return _by_const(add(m.src[0], rest), k * n)[0]
        if m.op is Ops.FLOORMOD and len(terms) == 1 and constant == 0 and k > 0 and k % n == 0:
            return _by_const(_by_const(m.src[0], n)[0], k // n)[1]
    return node(Ops.FLOORDIV, a, const(n))


def _remainder(a: UOp, constant: int, terms: Terms, n: int) -> UOp:
    """f·(e % k) ≡ f·e (mod n) where n | f·k: an inner remainder drops out."""
    mods = {m: f for m, f in terms.items() if m.op is Ops.FLOORMOD}
    inner = {m: f for m, f in mods.items() if f * (k := _positive_divisor(m)) % n == 0 < k}
    if not inner:
        return node(Ops.FLOORMOD, a, const(n))
    bare: Terms = {m: f for m, f in terms.items() if m not in inner}
    for m, f in inner.items():
        c, t = form(m.src[0])
        constant += c * f
        accumulate(bare, t, f)
    return _by_const(build(constant, bare), n)[1]


def _positive_divisor(m: UOp) -> int:
    """The divisor of an e // k or e % k with a constant k > 0, else 0."""
    if m.op is not Ops.FLOORDIV and m.op is not Ops.FLOORMOD:
        return 0
    return max(m.src[1].arg, 0) if is_const(m.src[1]) else 0


# ---------------------------------------------------------------- by an expression
def _by_symbol(a: UOp, n: UOp) -> Pair:
    """For n > 0 that is not constant: split off polynomial multiples of n, then a common factor."""
    q = _multiples(form(a), form(n))
    r = sub(a, mul(q, n))
    if interval(*form(r))[0] >= 0 and at_most(r, plus(n, -1)):
        return q, r
    if len(form(n)[1]) > 1 or form(n)[0]:  # only an exact division is simpler
        q, r = const(0), a
    more, r = _by_constant_quotient(r, n) or _over_common(r, n)
    return add(q, more), r


def _multiples(a: Form, n: Form) -> UOp:
    """The sum of the monomials whose product with n's longest monomial occurs in a."""
    lead = max(n[1], key=lambda m: (len(factors(m)), -content(m)))
    k, divisor = n[1][lead], factors(lead)
    constant = 0
    terms: Terms = {}
    for m, f in a[1].items():
        left = _cancel(m, divisor) if f % k == 0 else None
        if left is not None and left.op is Ops.CONST:
            constant += f // k
        elif left is not None:
            accumulate(terms, {left: f // k}, 1)
    return build(constant, terms)


def _cancel(m: UOp, divisor: list[UOp]) -> UOp | None:
    """The monomial without the divisor's atoms (1 if none is left); None if an atom is missing."""
    atoms = factors(m)
    for d in divisor:
        if d not in atoms:
            return None
        atoms.remove(d)
    return product(atoms) if atoms else const(1)


def _by_constant_quotient(a: UOp, n: UOp) -> Pair | None:
    low, high = bounds.bounds(node(Ops.FLOORDIV, a, n))
    if low != high:
        return None
    return const(low), sub(a, scaled(n, low))


def _over_common(a: UOp, n: UOp) -> Pair:
    """a = g·A + c, n = g·N, 0 ≤ c < g:  a // n = A // N,  a % n = g·(A % N) + c."""
    (constant, terms), (c, divisor) = form(a), form(n)
    g = math.gcd(c, *divisor.values(), *terms.values())
    if g <= 1:
        return _over_atom(a, n) or _opaque(a, n)
    coarse = build(constant // g, {m: f // g for m, f in terms.items()})
    smaller = build(c // g, {m: f // g for m, f in divisor.items()})
    q, r = divmod_(coarse, smaller)
    return q, plus(scaled(r, g), constant % g)


def _over_atom(a: UOp, n: UOp) -> Pair | None:
    """a = s·A, n = s·N for an atom s > 0:  a // n = A // N,  a % n = s·(A % N)."""
    (constant, terms), (c, divisor) = form(a), form(n)
    if constant or c or not terms:
        return None
    for s in factors(next(iter(divisor))):
        if bounds.bounds(s)[0] > 0:
            smaller = [_divided(t, s) for t in (terms, divisor)]
            if None not in smaller:
                q, r = divmod_(*[build(*form) for form in smaller if form is not None])
                return q, mul(r, s)
    return None


def _divided(terms: Terms, atom: UOp) -> Form | None:
    """Divide a sum by an atom; None unless each term has the atom."""
    constant = 0
    out: Terms = {}
    for m, f in terms.items():
        left = _cancel(m, [atom])
        if left is None:
            return None
        if left.op is Ops.CONST:
            constant += f * left.arg
        else:
            accumulate(out, {left: f}, 1)
    return constant, out


# ---------------------------------------------------------------- recombination
def recombine(terms: Terms, mods: list[UOp]) -> Form:
    """Join quotients and remainders of the same value.

    k·(e % n) + k·n·(e // n) → k·e;   k·(e % n) + k·n·((e // n) % d) → k·(e % (n·d)).
    """
    constant = 0
    for m in mods:
        k = terms.get(m, 0)
        if k:
            c, gained = _put_back(m, k, terms)
            constant += c
            if any([w.op in DIVMOD_OPS for w in gained]):  # earlier ones may fit now
                again = [w for w in terms if w.op is Ops.FLOORMOD]
                c, terms = recombine(terms, again)
                constant += c
    return constant, terms


def _put_back(m: UOp, k: int, terms: Terms) -> Form:
    """Try one k·(e % n): change `terms`, and return the constant and the terms to add."""
    e, n = m.src
    if not is_const(n):
        return _put_back_symbolic(m, k, terms)
    step = k * n.arg
    near = [w for w, f in terms.items() if f == step and w.op in DIVMOD_OPS and w is not m]
    if not near:
        return 0, {}
    c, whole = form(divmod_(e, n)[0])
    if all(terms.get(w) == step * f for w, f in whole.items() if w.op in DIVMOD_OPS):
        return _exchange(terms, {m: k} | {w: step * f for w, f in whole.items()}, -c * step, e, k)
    quotient = build(c, whole)
    for w in near:
        d = _positive_divisor(w)
        if w.op is Ops.FLOORMOD and d and _by_const(quotient, d)[1] is w:
            merged = floormod(e, const(n.arg * d))  # n may be negative
            return _exchange(terms, {m: k, w: step}, 0, merged, k)
    return 0, {}


def _put_back_symbolic(m: UOp, k: int, terms: Terms) -> Form:
    """`_put_back` if n is a product of atoms, so that n·(e // n) is a monomial."""
    e, n = m.src
    whole = node(Ops.FLOORDIV, e, n)
    if bounds.bounds(n)[0] <= 0 or n.op is Ops.ADD:
        return 0, {}
    atoms = factors(n)
    scale = atoms.pop().arg if is_const(atoms[-1]) else 1
    both = product([whole, *atoms])
    if terms.get(both) != k * scale:
        return 0, {}
    return _exchange(terms, {m: k, both: k * scale}, 0, e, k)


def _join_shifted(terms: Terms, quotients: list[UOp]) -> Form:
    """Join quotients of one value at even distances: e // n + (e + s) // n + … → e // s.

    Hermite's identity, for k quotients and n = k·s: ⌊x⌋ + ⌊x + 1/k⌋ + … + ⌊x + (k−1)/k⌋ = ⌊k·x⌋,
    with x = e / n.
    """
    alike: dict[tuple[int, bool, Hashable], dict[int, UOp]] = {}  # the quotients of e by shift
    for m in quotients:
        e, n = m.src
        if is_const(n) and n.arg > 1:
            shift, rest = form(e)
            alike.setdefault((n.arg, terms[m] > 0, frozenset(rest.items())), {})[shift] = m
    for (size, _, _), at in alike.items():
        for k in range(min(len(at), _MOST_SHIFTS), 1, -1):
            for first in sorted(at) if size % k == 0 else ():
                shifts = range(first, first + size, size // k)
                if not all([i in at for i in shifts]):
                    continue
                joined = _by_const(at[first].src[0], size // k)[0]
                f = min([terms[at[i]] for i in shifts], key=abs)
                before = dict(terms)
                constant, _ = _exchange(terms, {at[i]: f for i in shifts}, 0, joined, f)
                if terms != before:  # the new quotient may fit others
                    left = [m for m in terms if m.op is Ops.FLOORDIV]
                    more, terms = _join_shifted(terms, left)
                    return constant + more, terms
    return 0, terms


_MOST_SHIFTS = 64
# Nested quotients with a product of divisors above this do not merge, so that no term of the
# dividend comes near 64 bits.
_LARGEST_DIVISOR = 1 << 24


def _exchange(terms: Terms, out: Terms, constant: int, into: UOp, k: int) -> Form:
    """Change `terms` to terms − out + k·into. Return the constant to add, and the new terms.

    Refused if a term could come near 64 bits, see LARGEST_TERM.
    """
    c, gained = form(into)
    after = dict(terms)
    accumulate(after, out, -1)
    accumulate(after, gained, k)
    if limit_of(after) >= LARGEST_TERM:
        return 0, {}
    terms.clear()
    terms.update(after)
    return constant + c * k, gained
