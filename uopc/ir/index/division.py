"""Quotient and remainder of sums, in the normal form of `affine.py`.

Each step below is an identity of floor division for n > 0, proved beside it. Write a = Σ fᵢ·mᵢ + c.
Throughout, floor((n·A + b) / n) = A + floor(b / n) for integers A, b, and the remainder is that of
b; a negative divisor turns into a positive one by a // n = −a // −n and a % n = −(−a % −n).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from uopc.ir.core import analysis
from uopc.ir.core.node import remembered
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.ir.index.affine import Form, Terms, build, const, form, interval, is_const

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Pair = tuple["UOp", "UOp"]


def divmod_(a: UOp, n: UOp) -> Pair:
    """(a // n, a % n), both rounded toward −∞; (0, 0) for n = 0."""
    if not is_const(n):
        # Where n may be 0 both are 0 by definition, and no identity holds.
        return _by_symbol(a, n) if analysis.bounds(n)[0] > 0 else _signed_symbol(a, n)
    if n.arg > 0:
        return _by_const(a, n.arg)
    if n.arg == 0:
        return const(0), const(0)
    q, r = _by_const(affine.scaled(a, -1), -n.arg)
    return q, affine.scaled(r, -1)


def _signed_symbol(a: UOp, n: UOp) -> Pair:
    found = _by_constant_quotient(a, n) if analysis.bounds(n)[1] < 0 else None
    return _opaque(a, n) if found is None else found


def _opaque(a: UOp, n: UOp) -> Pair:
    return affine.node(Ops.FLOORDIV, a, n), affine.node(Ops.FLOORMOD, a, n)


# ---------------------------------------------------------------- by a constant
@remembered
def _by_const(a: UOp, n: int) -> Pair:
    """Multiples of n leave for the quotient; what stays has |fᵢ| < n and 0 ≤ c < n."""
    if n == 1:
        return a, const(0)
    constant, terms = form(a)
    low, high = interval(constant, terms)
    if low // n == high // n:
        return const(low // n), affine.plus(a, -(low // n) * n)
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
    return affine.add(build(constant // n, whole), q), r


def _rest(a: UOp, n: int) -> Pair:
    constant, terms = form(a)
    low, high = interval(constant, terms)
    if low // n == high // n:
        return const(low // n), affine.plus(a, -(low // n) * n)
    found = _residues(constant, terms, n) or _common(constant, terms, n)
    if found is not None:
        return found
    return _quotient(a, constant, terms, n), _remainder(a, constant, terms, n)


def _residues(constant: int, terms: Terms, n: int) -> Pair | None:
    """The whole answer where other residues of the coefficients give all values one quotient."""
    choice = _one_quotient(constant, terms, n)
    if choice is None:
        return None
    k = interval(constant, choice)[0] // n
    moved = {m: (f - choice[m]) // n for m, f in terms.items() if f != choice[m]}
    return build(k, moved), build(constant - k * n, choice)


def _one_quotient(constant: int, terms: Terms, n: int) -> Terms | None:
    """Other residues of the coefficients that keep the sum between two multiples of n.

    f ≡ f − n (mod n), so a = n·A + b with b = Σ gᵢ·mᵢ + c for any choice of gᵢ ≡ fᵢ.
    """
    positive = {m: f % n for m, f in terms.items()}
    if _least_width(positive, n) >= n:
        return None
    nearest = {m: f - n if 2 * f > n else f for m, f in positive.items()}
    below = {m: f - n if 2 * f >= n else f for m, f in positive.items()}
    negative = {m: f - n for m, f in positive.items()}
    for choice in (nearest, below, positive, negative):
        low, high = interval(constant, choice)
        if low // n == high // n:
            return choice
    return None


def _least_width(residues: Terms, n: int) -> int:
    """How far apart values of the sum are at least, over all choices of residues."""
    width = 0
    for m, f in residues.items():
        low, high = analysis.bounds(m)
        width += min(f, n - f) * (high - low)
    return width


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
    return q, affine.add(affine.scaled(r, g), build(constant % g, small))


def _common_factor(constant: int, terms: Terms, n: int) -> int:
    """The greatest g | n for which what g leaves of the coefficients stays within 0 ≤ b < g."""
    for g in sorted({math.gcd(f, n) for f in terms.values()} - {1}, reverse=True):
        low, high = interval(constant % g, {m: f % g for m, f in terms.items() if f % g})
        if low >= 0 and high < g:
            return g
    return 1


def is_decided(constant: int, terms: Terms, n: int) -> bool:
    """Whether a sum divided by n > 0 has a simpler quotient or remainder than the op says."""
    rest = {m: f % n if f > 0 else -(-f % n) for m, f in terms.items() if f % n}
    constant %= n
    low, high = interval(constant, rest)
    return (
        low // n == high // n
        or _one_quotient(constant, rest, n) is not None
        or _common_factor(constant, rest, n) > 1
    )


def _quotient(a: UOp, constant: int, terms: Terms, n: int) -> UOp:
    """Nested: (e//k + b) // n = (e + k·b) // (k·n), since e//k + b = (e + k·b) // k and dividing
    twice is dividing by the product;  (e % k) // n = (e // n) % (k/n) for n | k."""
    for m in sorted([m for m, f in terms.items() if f == 1], key=affine.order):
        k = _positive_divisor(m)
        if m.op is Ops.FLOORDIV and 0 < k * n <= _LARGEST_DIVISOR and not _mixed(terms, m):
            rest = build(constant * k, {w: f * k for w, f in terms.items() if w is not m})
            return _by_const(affine.add(m.src[0], rest), k * n)[0]
        if m.op is Ops.FLOORMOD and len(terms) == 1 and constant == 0 and k > 0 and k % n == 0:
            return _by_const(_by_const(m.src[0], n)[0], k // n)[1]
    return affine.node(Ops.FLOORDIV, a, const(n))


def _mixed(terms: Terms, quotient: UOp) -> bool:
    """Whether the remainder of the same division is in the sum: a reshape to a shape that does not
    fit. Nothing cancels in a longer quotient then; it is one division more, of larger numbers."""
    return any([w.op is Ops.FLOORMOD and w.src == quotient.src for w in terms])


def _remainder(a: UOp, constant: int, terms: Terms, n: int) -> UOp:
    """f·(e % k) ≡ f·e (mod n) where n | f·k: a remainder inside a remainder goes."""
    inner = {m: f for m, f in terms.items() if _is_inner_mod(m, f, n)}
    if not inner:
        return affine.node(Ops.FLOORMOD, a, const(n))
    bare: Terms = {m: f for m, f in terms.items() if m not in inner}
    for m, f in inner.items():
        c, t = form(m.src[0])
        constant += c * f
        affine.accumulate(bare, t, f)
    return _by_const(build(constant, bare), n)[1]


def _is_inner_mod(m: UOp, f: int, n: int) -> bool:
    return m.op is Ops.FLOORMOD and _positive_divisor(m) * f % n == 0 < _positive_divisor(m)


def _positive_divisor(m: UOp) -> int:
    """The divisor of an e // k or e % k with a constant k > 0, else 0."""
    if m.op is not Ops.FLOORDIV and m.op is not Ops.FLOORMOD:
        return 0
    return max(m.src[1].arg, 0) if is_const(m.src[1]) else 0


# ---------------------------------------------------------------- by an expression
def _by_symbol(a: UOp, n: UOp) -> Pair:
    """n > 0 is not a constant: take out multiples of n as a polynomial, then a common factor."""
    q = _multiples(form(a), form(n))
    r = affine.sub(a, affine.mul(q, n))
    if affine.interval(*form(r))[0] >= 0 and affine.at_most(r, affine.plus(n, -1)):
        return q, r
    if len(form(n)[1]) > 1 or form(n)[0]:  # only a whole division makes it simpler
        q, r = const(0), a
    more, r = _by_constant_quotient(r, n) or _over_common(r, n)
    return affine.add(q, more), r


def _multiples(a: Form, n: Form) -> UOp:
    """The sum of monomials that, times the longest monomial of n, occur in a."""
    lead = max(n[1], key=lambda m: (len(affine.factors(m)), -m.seq))
    k, divisor = n[1][lead], affine.factors(lead)
    constant = 0
    terms: Terms = {}
    for m, f in a[1].items():
        left = _cancel(m, divisor) if f % k == 0 else None
        if left is not None and left.op is Ops.CONST:
            constant += f // k
        elif left is not None:
            affine.accumulate(terms, {left: f // k}, 1)
    return build(constant, terms)


def _cancel(m: UOp, divisor: list[UOp]) -> UOp | None:
    """The monomial without the divisor's atoms (1 when nothing is left), or None."""
    atoms = affine.factors(m)
    for d in divisor:
        if d not in atoms:
            return None
        atoms.remove(d)
    return affine.product(atoms) if atoms else const(1)


def _by_constant_quotient(a: UOp, n: UOp) -> Pair | None:
    low, high = analysis.bounds(affine.node(Ops.FLOORDIV, a, n))
    if low != high:
        return None
    return const(low), affine.sub(a, affine.scaled(n, low))


def _over_common(a: UOp, n: UOp) -> Pair:
    """a = g·A + c, n = g·N, 0 ≤ c < g:  a // n = A // N,  a % n = g·(A % N) + c."""
    (constant, terms), (c, divisor) = form(a), form(n)
    g = math.gcd(c, *divisor.values(), *terms.values())
    if g <= 1:
        return _opaque(a, n)
    coarse = build(constant // g, {m: f // g for m, f in terms.items()})
    smaller = build(c // g, {m: f // g for m, f in divisor.items()})
    q, r = divmod_(coarse, smaller)
    return q, affine.plus(affine.scaled(r, g), constant % g)


# ---------------------------------------------------------------- recombination
def recombine(terms: Terms, mods: list[UOp]) -> Form:
    """Put quotients and remainders of the same thing back together, as far as it goes.

    k·(e % n) + k·n·(e // n) → k·e;   k·(e % n) + k·n·((e // n) % d) → k·(e % (n·d)).
    """
    constant = 0
    for m in mods:
        k = terms.get(m, 0)
        if k:
            c, gained = _put_back(m, k, terms)
            constant += c
            if any([w.op in affine.DIVMOD_OPS for w in gained]):  # what was tried may fit now
                again = [w for w in terms if w.op is Ops.FLOORMOD]
                c, terms = recombine(terms, again)
                constant += c
    return constant, terms


def _put_back(m: UOp, k: int, terms: Terms) -> Form:
    """Try one k·(e % n); changes `terms`, gives the constant and the terms that came in."""
    e, n = m.src
    if not is_const(n):
        return _put_back_symbolic(m, k, terms)
    step = k * n.arg
    near = [w for w, f in terms.items() if f == step and w.op in affine.DIVMOD_OPS and w is not m]
    if not near:
        return 0, {}
    c, whole = form(divmod_(e, n)[0])
    if all(terms.get(w) == step * f for w, f in whole.items() if w.op in affine.DIVMOD_OPS):
        return _exchange(terms, {m: k} | {w: step * f for w, f in whole.items()}, -c * step, e, k)
    quotient = build(c, whole)
    for w in near:
        d = _positive_divisor(w)
        if w.op is Ops.FLOORMOD and d and _by_const(quotient, d)[1] is w:
            merged = _by_const(e, n.arg * d)[1]
            return _exchange(terms, {m: k, w: step}, 0, merged, k)
    return 0, {}


def _put_back_symbolic(m: UOp, k: int, terms: Terms) -> Form:
    """The same where n is a product of atoms, so that n·(e // n) is a monomial."""
    e, n = m.src
    whole = affine.node(Ops.FLOORDIV, e, n)
    if analysis.bounds(n)[0] <= 0 or n.op is Ops.ADD:
        return 0, {}
    atoms = affine.factors(n)
    scale = atoms.pop().arg if is_const(atoms[-1]) else 1
    both = affine.product([whole, *atoms])
    if terms.get(both) != k * scale:
        return 0, {}
    return _exchange(terms, {m: k, both: k * scale}, 0, e, k)


# Divisors multiply where quotients nest. Beyond this they stay apart, so that no term of what is
# divided comes near 64 bits.
_LARGEST_DIVISOR = 1 << 24


def _exchange(terms: Terms, out: Terms, constant: int, into: UOp, k: int) -> Form:
    """terms − out + k·into; the constant that comes with it, and the new terms.

    Refused where a term could come near 64 bits: coefficients grow through nested quotients
    although the sum stays small, and the two sides of a comparison would wrap on their own.
    """
    c, gained = form(into)
    after = dict(terms)
    affine.accumulate(after, out, -1)
    affine.accumulate(after, gained, k)
    if affine.limit_of(after) >= affine.LARGEST_TERM:
        return 0, {}
    terms.clear()
    terms.update(after)
    return constant + c * k, gained
