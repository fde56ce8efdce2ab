"""Polynomials that bound sizes from above, for all values of their variables.

    (n + 1) // 2 * 8        at most        4·(n - 1) + 8        with n ≥ 1

Such a bound has no quotient, and counts each variable from its least value on, so that no monomial
in it is ever negative. So the greater of two bounds, coefficient by coefficient, bounds both, and a
plan of memory can add and compare bounds in the place of sizes (`backends/memory_plan.py`): its
expressions stay short, and hold at any call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from uopc.ir.core import bounds, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, monomials
from uopc.ir.index.dims import dim_uop, typical

# Coefficients by monomial; that of the constant is by ONE. A variable in a monomial stands for what
# it is above its least value.
Polynomial: TypeAlias = Mapping[UOp, Fraction]
ONE = affine.const(1)


def constant(value: int | Fraction) -> Polynomial:
    """The polynomial of a number."""
    return {ONE: Fraction(value)}


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    """a + b"""
    return {m: a.get(m, Fraction(0)) + b.get(m, Fraction(0)) for m in {**a, **b}}


def greatest(every: Iterable[Polynomial]) -> Polynomial:
    """A bound of several polynomials: the greatest of their coefficients, by monomial."""
    found: dict[UOp, Fraction] = {}
    for p in every:
        for m, c in p.items():
            found[m] = max(c, found.get(m, Fraction(0)))
    return found


def at_most(size: Dim) -> Polynomial:
    """A bound of a size that is never negative; the size itself if that is a polynomial."""
    scale, terms = affine.form(dim_uop(size))
    found = constant(scale)
    for monomial, k in terms.items():
        monomial, k = _turned(monomial, k)
        found = plus(found, _scaled(_most(monomial) if k > 0 else _least(monomial), k))
    return found


def expression(p: Polynomial, alignment: int = 1) -> UOp:
    """The greatest multiple of an alignment, a power of two, that is no more than a polynomial."""
    denominator = _denominator(p)
    total = affine.const(0)
    for m, c in p.items():
        written = functools.reduce(affine.mul, map(_above_least, monomials.factors(m)))
        total = affine.add(total, affine.scaled(written, int(c * denominator)))
    if denominator > 1:
        total = affine.floordiv(total, affine.const(denominator))
    if are_multiples(p, alignment):
        return total
    return monomials.node(Ops.AND, total, affine.const(-alignment))


def whole(p: Polynomial) -> Polynomial:
    """A polynomial whose values, rounded down, are those of another one, rounded up."""
    return plus(p, constant(1 - Fraction(1, _denominator(p))))


def are_multiples(p: Polynomial, alignment: int) -> bool:
    """True if all values of a polynomial are multiples of an alignment."""
    return all([c.denominator == 1 and c.numerator % alignment == 0 for c in p.values()])


def _denominator(p: Polynomial) -> int:
    return math.lcm(*[c.denominator for c in p.values()])


def _scaled(p: Polynomial, k: int | Fraction) -> Polynomial:
    return {m: c * k for m, c in p.items()}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            both = affine.mul(m, n)
            found = plus(found, {both: c * d})
    return found


def _above_least(u: UOp) -> UOp:
    """The value of an atom of a monomial."""
    return affine.plus(u, -u.arg.low) if u.op is Ops.VARIABLE else u


def _is_never_negative(u: UOp) -> bool:
    return bool(bounds.bounds(u)[0] >= 0)


def _turned(monomial: UOp, k: int) -> tuple[UOp, int]:
    """The same multiple of a product without quotients that are never positive, as such factors
    have no bound:  -a // n  →  -((a + n - 1) // n)."""
    atoms = []
    for u in monomials.factors(monomial):
        if u.op is Ops.FLOORDIV and bounds.bounds(u)[1] <= 0 < bounds.bounds(u.src[1])[0]:
            a, n = u.src
            u = monomials.node(Ops.FLOORDIV, affine.sub(affine.plus(n, -1), a), n)
            k = -k
        atoms.append(u)
    return monomials.product(atoms), k


def _most(monomial: UOp) -> Polynomial:
    """A bound of a product of atoms: of atoms that are never negative, the product of bounds."""
    atoms = monomials.factors(monomial)
    is_known = all([a.op is Ops.VARIABLE and not a.arg.computed for a in atoms])
    if not is_known and not all(map(_is_never_negative, atoms)):
        return _itself(monomial)
    return functools.reduce(_product, map(_most_of_atom, atoms))


def _least(monomial: UOp) -> Polynomial:
    """A polynomial that a product of atoms reaches, or a number if no other is known."""
    atoms = monomials.factors(monomial)
    if _is_computed(monomial):
        return constant(min(0, bounds.bounds(monomial)[0]))
    if all([a.op is Ops.VARIABLE for a in atoms]):
        return functools.reduce(_product, map(_most_of_atom, atoms))
    if len(atoms) == 1 and atoms[0].op is Ops.FLOORDIV and affine.is_const(atoms[0].src[1]):
        size, d = atoms[0].src[0], atoms[0].src[1].arg
        terms = affine.form(size)[1]
        if d > 0 and all([m.op is Ops.VARIABLE for m in terms]):  # a quotient loses less than 1
            return _scaled(plus(at_most(size), constant(1 - d)), Fraction(1, d))
    return constant(min(0, bounds.bounds(monomial)[0]))


def _most_of_atom(u: UOp) -> Polynomial:
    """A bound of an index that is no sum or product."""
    if u.op is Ops.BIND:
        return _most_of_atom(u.src[0])
    if u.op is Ops.VARIABLE and u.arg.computed:  # memory is there before its value is known
        return constant(u.arg.high)
    if u.op is Ops.VARIABLE:
        return {u: Fraction(1), ONE: Fraction(u.arg.low)}
    if u.op is Ops.CONST:
        return constant(int(u.arg))
    if u.op is Ops.FLOORDIV and affine.is_const(u.src[1]) and u.src[1].arg > 0:
        return _scaled(at_most(u.src[0]), Fraction(1, u.src[1].arg))
    if u.op is Ops.FLOORMOD and _is_never_negative(u.src[1]):
        return at_most(affine.plus(u.src[1], -1)) if bounds.bounds(u.src[1])[0] else _itself(u)
    if u.op is Ops.MIN:
        return at_most(min(u.src, key=lambda s: (_is_computed(s), typical(s))))
    if u.op is Ops.MAX:
        return greatest(map(at_most, u.src))
    if u.op is Ops.WHERE:
        return greatest(map(at_most, u.src[1:]))
    return _itself(u)


def _is_computed(u: UOp) -> bool:
    """True for an index that depends on a size that the program computes."""
    return any([v.arg.computed for v in walk.variables(u)])


def _itself(u: UOp) -> Polynomial:
    """A bound of an index that becomes one atom. A product is no monomial as it is: variables in
    monomials count from their least values on."""
    low, high = bounds.bounds(u)
    if _is_computed(u):
        return constant(max(high, 0))
    if low >= 0 and u.op is not Ops.MUL:
        return {u: Fraction(1)}
    return {monomials.node(Ops.MAX, u, affine.const(0)): Fraction(1)}
