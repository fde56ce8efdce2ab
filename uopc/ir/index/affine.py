"""Index arithmetic in a normal form: constant + Σ coefficient·monomial.

A value of dtype index is kept as one canonical UOp, so that equal expressions are one object:
an ADD chain of monomials in a fixed order (each an atom, or a product of atoms, times a constant)
with the constant last. Atoms are ranges, variables, and whatever the form cannot see through:
quotients and remainders, loads, selections. Integers of dtype index never wrap.

`form(u)` reads a UOp as that sum; `add`, `mul`, `floordiv`, `floormod`, `less`, `equal` build
canonical UOps (quotients and remainders: `division.py`). Sums are collected n-ary, so a long chain
costs its length, not its square.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uopc.ir.core import analysis, dtypes
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

Terms = dict["UOp", int]
Form = tuple[int, Terms]

_LINEAR_OPS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))
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


# Constants nearer to 0 than this are made once and kept.
_SMALL = 1025


def _true(value: bool) -> UOp:
    return intern(Ops.CONST, dtypes.bool_, (), value)


def order(u: UOp) -> tuple[Any, ...]:
    """Order of monomials: ranges by axis, hardware indices by name, the rest by creation,
    variables by name, lanes."""
    if u.op is Ops.RANGE:
        return 0, u.arg.axis, u.seq
    if u.op is Ops.SPECIAL:
        return 1, u.arg, u.seq
    if u.op is Ops.VARIABLE:
        return 3, u.arg.name, u.seq
    return (4 if u.op is Ops.LANES else 2), u.seq


def factors(u: UOp) -> list[UOp]:
    """The atoms of a monomial."""
    out = []
    while u.op is Ops.MUL:
        u, last = u.src
        out.append(last)
    out.append(u)
    out.reverse()
    return out


def product(atoms: list[UOp]) -> UOp:
    """The canonical monomial of some atoms."""
    atoms = sorted(atoms, key=order)
    out = atoms[0]
    for a in atoms[1:]:
        out = node(Ops.MUL, out, a)
    return out


def node(op: Op, a: UOp, b: UOp) -> UOp:
    """The op on two index values, as it is."""
    t = a.dtype if a.dtype.lanes >= b.dtype.lanes else b.dtype
    made = intern(op, t, (a, b))
    if a._shape == () == b._shape:
        made._shape = ()
    return made


# ---------------------------------------------------------------- reading
def form(u: UOp) -> Form:
    """(constant, {monomial: coefficient}) of a UOp of dtype index. Do not change the dict."""
    found: Form | None = u._form
    if found is not None:
        return found
    if u.op in _LINEAR_OPS:
        return _read(u)
    u._form = found = (u.arg, {}) if is_const(u) else (0, {u: 1})
    return found


def is_const(u: UOp) -> bool:
    return u.op is Ops.CONST and type(u.arg) is int


def _unread(u: UOp) -> bool:
    return u._form is None and u.op in _LINEAR_OPS


def _read(root: UOp) -> Form:
    """Collect a graph of + - · at once. Products first, then sums, each node once."""
    order = list(analysis.toposort(root, gate=_unread))
    for u in order:
        if u.op is Ops.MUL and u._form is None and not _scaled(u):
            u._form = _multiply(_collect(u.src[0]), _collect(u.src[1]))
    return _collect(root)


def _scaled(u: UOp) -> bool:
    return is_const(u.src[1]) or is_const(u.src[0])


def _collect(root: UOp) -> Form:
    """The form of a graph of + - and products with constants, users before sources."""
    if not _unread(root):
        return form(root)
    constant = 0
    terms: Terms = {}
    scale = {root: 1}
    for u in reversed(analysis.toposort(root, gate=_unread)):
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
    root._form = found = (constant, terms)
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


def _multiply(a: Form, b: Form) -> Form:
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
    """A form as factors of a monomial."""
    u = build(*f)
    return [u] if u.op is not Ops.MUL or is_const(u.src[1]) else factors(u)


# ---------------------------------------------------------------- writing
def build(constant: int, terms: Terms) -> UOp:
    """The canonical UOp of a sum."""
    mods = [m for m in terms if m.op is Ops.FLOORMOD]
    if mods and len(terms) > 1:
        from uopc.ir.index import division

        extra, terms = division.recombine(dict(terms), mods)
        constant += extra
    if not terms:
        return const(constant)
    out: UOp | None = None
    for m in sorted(terms, key=order) if len(terms) > 1 else terms:
        k = terms[m]
        piece = m if k == 1 else node(Ops.MUL, m, const(k))
        out = piece if out is None else node(Ops.ADD, out, piece)
    assert out is not None
    if constant:
        out = node(Ops.ADD, out, const(constant))
    if out._form is None:
        out._form = (constant, terms)
    return out


def canonical(u: UOp) -> UOp:
    """The canonical UOp of an index expression whose atoms are canonical."""
    if u.op not in _LINEAR_OPS:
        return u
    return build(*form(u))


def add(a: UOp, b: UOp) -> UOp:
    """The canonical a + b."""
    (c, s), (d, t) = form(a), form(b)
    if not t:
        return build(c + d, s) if d or a.op in _LINEAR_OPS else a
    if not s:
        return build(c + d, t) if c or b.op in _LINEAR_OPS else b
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
    return build(*_multiply(form(a), form(b)))


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


def divmod_(a: UOp, n: UOp) -> tuple[UOp, UOp]:
    """(a // n, a % n), both rounded toward −∞; (0, 0) for n = 0."""
    from uopc.ir.index import division

    return division.divmod_(a, n)


# ---------------------------------------------------------------- bounds
def interval(constant: int, terms: Terms) -> tuple[int, int]:
    """The least and greatest value of a sum, each monomial taken on its own."""
    low = high = constant
    for m, f in terms.items():
        a, b = m._bounds or analysis.bounds(m)
        low, high = (low + f * a, high + f * b) if f > 0 else (low + f * b, high + f * a)
    return low, high


def is_multiple(a: UOp, n: int) -> bool:
    """Whether n is known to divide every value of an index."""
    rest = floormod(a, const(n))
    return is_const(rest) and rest.arg == 0


def divisor(a: UOp) -> int:
    """The greatest number known to divide every value of an index; 0 for 0."""
    constant, terms = form(a)
    return math.gcd(constant, *[k * _multiple(m) for m, k in terms.items()])


def _multiple(m: UOp) -> int:
    scaled = m.op is Ops.MUL and m.src[1].op is Ops.CONST
    return int(m.src[1].arg) if scaled else 1


def upper(a: UOp) -> UOp:
    """A symbolic upper bound: positive terms at their greatest, ranges at end - 1."""
    constant, terms = form(a)
    out = const(constant)
    for m, f in terms.items():
        out = add(out, scaled(_upper_monomial(m) if f > 0 else _lower_monomial(m), f))
    return out


def _upper_monomial(m: UOp) -> UOp:
    out = const(1)
    for a in factors(m):
        if a.op is Ops.RANGE:
            a = plus(a.src[0], -1)
        elif a.op is Ops.FLOORMOD and analysis.bounds(a.src[1])[0] > 0:
            a = plus(a.src[1], -1)
        elif analysis.bounds(a)[0] < 0:
            return m
        elif a.op is not Ops.VARIABLE:
            a = const(analysis.bounds(a)[1])
        out = mul(out, a)
    return out


def _lower_monomial(m: UOp) -> UOp:
    atoms = factors(m)
    if all(analysis.bounds(a)[0] >= 0 for a in atoms):
        if all(a.op is Ops.VARIABLE for a in atoms):
            return m
        return const(math.prod(analysis.bounds(a)[0] for a in atoms))
    return m


def is_symbolic(terms: Terms) -> bool:
    """Whether bounds as numbers may miss what bounds as expressions prove."""
    for m in terms:
        for a in factors(m) if m.op is Ops.MUL else (m,):
            if a.op is Ops.VARIABLE or (a.op is Ops.RANGE and not is_const(a.src[0])):
                return True
            if a.op in DIVMOD_OPS and not is_const(a.src[1]):
                return True
    return False


def at_most(a: UOp, b: UOp) -> bool:
    """Whether a ≤ b is proved by bounds, symbolically where it takes it."""
    gap = sub(b, a)
    if interval(*form(gap))[0] >= 0:
        return True
    return is_symbolic(form(gap)[1]) and bool(interval(*form(sub(b, upper(a))))[0] >= 0)


# ---------------------------------------------------------------- comparison
def less(a: UOp, b: UOp) -> UOp:
    """a < b as a bool UOp, folded by bounds.

    What is left has one form: divided by the common factor of its terms, without terms too small
    to matter, negative terms moved to the right side, the constant on the right if it has a choice.
    """
    gap = sub(a, b)  # a < b  ⇔  gap < 0
    constant, terms = form(gap)
    low, high = interval(constant, terms)
    if high < 0:
        return _true(True)
    if low >= 0:
        return _true(False)
    if is_symbolic(terms):
        if at_most(plus(a, 1), b):
            return _true(True)
        if at_most(b, a):
            return _true(False)
    return _below(terms, -constant)


def _below(terms: Terms, limit: int) -> UOp:
    """Σ < limit, where neither always nor never so."""
    terms, limit = _coarse(terms, limit)
    whole = _undivided(terms, limit)
    return _compared(Ops.CMPLT, terms, limit) if whole is None else whole


def _undivided(terms: Terms, limit: int) -> UOp | None:
    """A comparison with one quotient, without division: for n > 0 and any integers,

    e//n + A < c ⇔ e + n·A < n·c;   A − e//n < c ⇔ e//n ≥ A − c + 1 ⇔ n·A − e < n·(c − 1) + 1.
    """
    quotients = [m for m in terms if m.op is Ops.FLOORDIV and is_const(m.src[1])]
    if len(quotients) != 1:
        return None
    (q,) = quotients
    k, n = terms[q], q.src[1].arg
    if abs(k) != 1 or n <= 0 or limit_of(terms) * n >= LARGEST_TERM:
        return None
    out = {m: f * n for m, f in terms.items() if m is not q}
    constant, inside = form(q.src[0])
    accumulate(out, inside, k)
    end = n * limit if k > 0 else n * (limit - 1) + 1
    return less(build(k * constant, out), const(end))


# Coefficients grow through nested quotients although sums stay small. No term comes near 64 bits:
# the two sides of a comparison would wrap on their own.
LARGEST_TERM = 1 << 56


def limit_of(terms: Terms) -> int:
    """The greatest magnitude of a term."""
    return max([max(map(abs, analysis.bounds(m))) * abs(f) for m, f in terms.items()], default=0)


def _compared(op: Op, terms: Terms, limit: int) -> UOp:
    """Σ op limit, with positive terms left and negative ones right."""
    left = {m: f for m, f in terms.items() if f > 0}
    right = {m: -f for m, f in terms.items() if f < 0}
    a, b = (build(0, left), build(limit, right)) if left else (const(-limit), build(0, right))
    return intern(op, dtypes.bool_.vec(max(a.dtype.lanes, b.dtype.lanes)), (a, b))


def _coarse(terms: Terms, limit: int) -> tuple[Terms, int]:
    """g·A + r < limit with 0 ≤ r < g becomes A < ⌈limit / g⌉ where r cannot matter.

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


def has_small_terms(constant: int, terms: Terms) -> bool:
    """Whether terms of Σ + constant < 0 are too small to matter."""
    return len(_coarse(terms, -constant)[0]) < len(terms)


def equal(a: UOp, b: UOp) -> UOp:
    """a = b as a bool UOp: folded by bounds and common factors, else in the form of `less`."""
    constant, terms = form(sub(a, b))
    low, high = interval(constant, terms)
    g = math.gcd(*terms.values())
    if low > 0 or high < 0 or (g and constant % g):
        return _true(False)
    if not terms:
        return _true(True)
    if terms[min(terms, key=order)] < 0:
        g = -g
    return _compared(Ops.CMPEQ, {m: f // g for m, f in terms.items()}, -constant // g)


def unequal(a: UOp, b: UOp) -> UOp:
    """a ≠ b as a bool UOp."""
    same = equal(a, b)
    if same.op is Ops.CONST:
        return _true(not same.arg)
    return intern(Ops.CMPNE, same.dtype, same.src)


def _at_most(a: UOp, b: UOp) -> UOp:
    return less(a, plus(b, 1))


def _negative(a: UOp) -> UOp:
    return scaled(a, -1)


# What builds the canonical UOp of an op on operands of dtype index.
OPS: dict[Op, Callable[..., UOp]] = {
    Ops.ADD: add,
    Ops.SUB: sub,
    Ops.MUL: mul,
    Ops.NEG: _negative,
    Ops.FLOORDIV: floordiv,
    Ops.FLOORMOD: floormod,
    Ops.CMPLT: less,
    Ops.CMPLE: _at_most,
    Ops.CMPEQ: equal,
    Ops.CMPNE: unequal,
}
