"""Comparisons of index values, folded by bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.ir.core import bounds, dtypes, intervals
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, monomials
from uopc.ir.index.affine import boolean, build, const, form, interval, plus, scaled, sub
from uopc.ir.index.monomials import Terms


# ---------------------------------------------------------------- comparison
def less(a: UOp, b: UOp) -> UOp:
    """a < b as a bool UOp, folded by bounds.

    An undecided comparison has a canonical form: divided by the common factor of its terms, without
    terms too small to matter, negative terms on the right, constants on the right if possible.
    """
    gap = sub(a, b)  # a < b  ⇔  gap < 0
    constant, terms = form(gap)
    low, high = _interval(gap)
    if high < 0:
        return boolean(True)
    if low >= 0:
        return boolean(False)
    if affine.is_symbolic(terms):
        if _interval(sub(affine.upper(a), b))[1] < 0:
            return boolean(True)
        if _interval(sub(affine.upper(b), a))[1] <= 0:
            return boolean(False)
    terms, limit = _coarse(terms, -constant)
    whole = _undivided(terms, limit)
    return _compared(Ops.CMPLT, terms, limit) if whole is None else whole


def _interval(gap: UOp) -> intervals.Interval:
    """The least and greatest value of a sum. If bounds by term do not decide the sign, also take
    out common factors and write quotients with remainders."""
    constant, terms = form(gap)
    low, high = interval(constant, terms)
    if low <= 0 <= high and len(terms) > 1:
        if any([m.op is Ops.MUL for m in terms]):
            low, high = intervals.intersect((low, high), bounds.bounds(gap))
        quotients = [m for m in terms if m.op is Ops.FLOORDIV and affine.is_const(m.src[1])]
        for q in quotients:
            rest = _with_remainder(q, terms)
            if rest is not None:
                more = interval(constant + rest[0], rest[1])
                low, high = intervals.intersect((low, high), more)
    return low, high


def _with_remainder(q: UOp, terms: Terms) -> affine.Form | None:
    """Apply k·n·(e // n) − k·e + A = A − k·(e % n): the addend of the constant, and the other
    terms."""
    e, n = q.src[0], q.src[1].arg
    k, left = divmod(terms[q], n) if n > 0 else (0, 1)
    constant, inside = form(e)
    if left or any([terms.get(m) != -k * f for m, f in inside.items()]):
        return None
    remainder = affine.floormod(e, q.src[1])
    rest = {m: f for m, f in terms.items() if m is not q and m not in inside}
    affine.accumulate(rest, {remainder: -k}, 1)
    return k * constant, rest


def _undivided(terms: Terms, limit: int) -> UOp | None:
    """A comparison with one quotient, without division: for n > 0 and any integers,

    e//n + A < c ⇔ e + n·A < n·c;   A − e//n < c ⇔ e//n ≥ A − c + 1 ⇔ n·A − e < n·(c − 1) + 1.
    """
    quotients = [m for m in terms if m.op is Ops.FLOORDIV and affine.is_const(m.src[1])]
    if len(quotients) != 1:
        return None
    (q,) = quotients
    k, n = terms[q], q.src[1].arg
    if abs(k) != 1 or n <= 0 or monomials.limit_of(terms) * n >= monomials.LARGEST_TERM:
        return None
    out = {m: f * n for m, f in terms.items() if m is not q}
    constant, inside = form(q.src[0])
    affine.accumulate(out, inside, k)
    end = n * limit if k > 0 else n * (limit - 1) + 1
    return less(build(k * constant, out), const(end))


def _compared(op: Op, terms: Terms, limit: int) -> UOp:
    """The comparison Σ op limit, with positive terms left and negative terms right."""
    left = {m: f for m, f in terms.items() if f > 0}
    right = {m: -f for m, f in terms.items() if f < 0}
    a, b = (build(0, left), build(limit, right)) if left else (const(-limit), build(0, right))
    return intern(op, dtypes.bool_.vec(max(a.dtype.lanes, b.dtype.lanes)), (a, b))


def _coarse(terms: Terms, limit: int) -> tuple[Terms, int]:
    """g·A + r < limit with 0 ≤ r < g becomes A < ⌈limit / g⌉ if r cannot matter.

    With limit = g·q + s, 0 ≤ s < g: for s = 0 it is A < q; for r < s always, A < q + 1; for
    r ≥ s > 0 always, A < q.
    """
    for g in sorted({abs(f) for f in terms.values()}, reverse=True):
        if g == 1:
            break
        rest = {m: f % g for m, f in terms.items() if f % g}
        low, high = interval(0, rest)
        q, s = divmod(limit, g)
        if low >= 0 and high < g and (s == 0 or high < s or low >= s):
            coarse = {m: f // g for m, f in terms.items() if f // g}
            return _coarse(coarse, q + 1 if high < s else q)
    g = math.gcd(*terms.values())
    return ({m: f // g for m, f in terms.items()}, -(-limit // g)) if g > 1 else (terms, limit)


def has_coarser_form(constant: int, terms: Terms) -> bool:
    """True if Σ + constant < 0 has a form with smaller factors or fewer terms."""
    return _coarse(terms, -constant) != (terms, -constant)


def equal(a: UOp, b: UOp) -> UOp:
    """a = b as a bool UOp: folded by bounds and common factors, else in the form of `less`."""
    gap = sub(a, b)
    constant, terms = form(gap)
    low, high = _interval(gap)
    g = math.gcd(*terms.values())
    if low > 0 or high < 0 or (g and constant % g):
        return boolean(False)
    if not terms:
        return boolean(True)
    if terms[min(terms, key=monomials.term_order)] < 0:
        g = -g
    return _compared(Ops.CMPEQ, {m: f // g for m, f in terms.items()}, -constant // g)


def unequal(a: UOp, b: UOp) -> UOp:
    """a ≠ b as a bool UOp."""
    same = equal(a, b)
    if same.op is Ops.CONST:
        return boolean(not same.arg)
    return intern(Ops.CMPNE, same.dtype, same.src)


# The builder of the canonical UOp, by op, for operands of dtype index.
OPS: dict[Op, Callable[..., UOp]] = {
    Ops.ADD: affine.add,
    Ops.SUB: sub,
    Ops.MUL: affine.mul,
    Ops.NEG: lambda a: scaled(a, -1),
    Ops.FLOORDIV: affine.floordiv,
    Ops.FLOORMOD: affine.floormod,
    Ops.CMPLT: less,
    Ops.CMPLE: lambda a, b: less(a, plus(b, 1)),
    Ops.CMPEQ: equal,
    Ops.CMPNE: unequal,
}
