"""Index arithmetic in a normal form: constant + Σ coefficient·monomial.

A value of dtype index is kept as one canonical UOp, so that equal expressions are one object:
an ADD chain of monomials in a fixed order (each an atom, or a product of atoms, times a constant)
with the constant last. Atoms are ranges, variables, and whatever the form cannot see through:
quotients and remainders, loads, selections. Integers of dtype index never wrap.

`form(u)` reads a UOp as that sum; `add`, `mul`, `floordiv`, `floormod`, `less` build canonical
UOps. Sums are collected n-ary, so a long chain costs its length, not its square.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from uopc.ir import analysis, dtypes
from uopc.ir.node import intern
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

Terms = dict["UOp", int]
Form = tuple[int, Terms]

_LINEAR_OPS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))


def const(value: int) -> UOp:
    return intern(Ops.CONST, dtypes.index, (), value)


def _key(u: UOp) -> tuple[int, str, int]:
    """Order of monomials: ranges by axis, variables by name, the rest by creation."""
    if u.op is Ops.RANGE:
        return 0, ",".join(f"{a:06d}" for a in u.arg.axis), u.seq
    if u.op is Ops.VARIABLE:
        return 2, u.arg.name, 0
    return (3 if u.op is Ops.LANES else 1), "", u.seq


def factors(u: UOp) -> list[UOp]:
    """The atoms of a monomial."""
    return [*factors(u.src[0]), u.src[1]] if u.op is Ops.MUL else [u]


def _product(atoms: list[UOp]) -> UOp:
    """The canonical monomial of some atoms."""
    atoms = sorted(atoms, key=_key)
    out = atoms[0]
    for a in atoms[1:]:
        out = _node(Ops.MUL, out, a)
    return out


def _node(op: Ops | object, a: UOp, b: UOp) -> UOp:
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return intern(op, dtypes.index.vec(lanes), (a, b))  # type: ignore[arg-type]


# ---------------------------------------------------------------- reading
def form(u: UOp) -> Form:
    """(constant, {monomial: coefficient}) of a UOp of dtype index. Do not change the dict."""
    found: Form | None = u._form
    if found is not None:
        return found
    if u.op not in _LINEAR_OPS:
        u._form = found = (u.arg, {}) if _is_const(u) else (0, {_atom(u): 1})
        return found
    return _read(u)


def _is_const(u: UOp) -> bool:
    return u.op is Ops.CONST and type(u.arg) is int


def _atom(u: UOp) -> UOp:
    return u


def _read(root: UOp) -> Form:
    """Collect a tree of + - and products; the whole tree at once, n-ary."""
    constant, terms = 0, dict[UOp, int]()
    stack: list[tuple[UOp, int]] = [(root, 1)]
    while stack:
        u, scale = stack.pop()
        if u.op is Ops.ADD:
            stack += [(u.src[1], scale), (u.src[0], scale)]
        elif u.op is Ops.SUB:
            stack += [(u.src[1], -scale), (u.src[0], scale)]
        elif u.op is Ops.NEG:
            stack.append((u.src[0], -scale))
        elif u.op is Ops.MUL:
            c, t = _multiply(form(u.src[0]), form(u.src[1]))
            constant += c * scale
            _accumulate(terms, t, scale)
        else:
            c, t = form(u)
            constant += c * scale
            _accumulate(terms, t, scale)
    root._form = found = (constant, terms)
    return found


def _accumulate(into: Terms, terms: Terms, scale: int) -> None:
    for m, k in terms.items():
        k = into.get(m, 0) + k * scale
        if k:
            into[m] = k
        else:
            del into[m]


def _multiply(a: Form, b: Form) -> Form:
    if not b[1]:
        a, b = b, a
    if not a[1]:  # a constant times a sum
        k = a[0]
        return (b[0] * k, {m: f * k for m, f in b[1].items()} if k else {})
    terms: Terms = {}
    _accumulate(terms, a[1], b[0])
    _accumulate(terms, b[1], a[0])
    for m, f in a[1].items():
        for n, g in b[1].items():
            _accumulate(terms, {_product(factors(m) + factors(n)): f * g}, 1)
    return a[0] * b[0], {m: k for m, k in terms.items() if k}


# ---------------------------------------------------------------- writing
def build(constant: int, terms: Terms) -> UOp:
    """The canonical UOp of a sum."""
    if any(m.op is Ops.FLOORMOD for m in terms):
        extra, terms = _recombine(dict(terms))
        constant += extra
    if not terms:
        return const(constant)
    order = sorted(terms, key=_key) if len(terms) > 1 else list(terms)
    out: UOp | None = None
    for m in order:
        k = terms[m]
        piece = m if k == 1 else _node(Ops.MUL, m, const(k))
        out = piece if out is None else _node(Ops.ADD, out, piece)
    assert out is not None
    if constant:
        out = _node(Ops.ADD, out, const(constant))
    if out._form is None:
        out._form = (constant, terms)
    return out


def _recombine(terms: Terms) -> Form:
    """k·n·(e // n) + k·(e % n)  →  k·e, as far as it goes."""
    constant = 0
    for m in list(terms):
        if m.op is not Ops.FLOORMOD or m not in terms:
            continue
        e, n = m.src
        whole, want = intern(Ops.FLOORDIV, m.dtype, (e, n)), terms[m]
        if n.op is Ops.CONST:
            want *= n.arg
        else:
            whole = _product(factors(whole) + factors(n))
        if terms.get(whole) != want:
            continue
        k = terms.pop(m)
        del terms[whole]
        c, inner = form(e)
        _accumulate(terms, inner, k)
        again, terms = _recombine(terms)
        return constant + c * k + again, terms
    return constant, terms


def canonical(u: UOp) -> UOp:
    """The canonical UOp of an index expression whose atoms are canonical."""
    return build(*form(u))


def add(a: UOp, b: UOp) -> UOp:
    if _is_const(b) and b.arg == 0:
        return a
    (c, s), (d, t) = form(a), form(b)
    if not t and not s:
        return const(c + d)
    terms = dict(s)
    _accumulate(terms, t, 1)
    return build(c + d, terms)


def sub(a: UOp, b: UOp) -> UOp:
    (c, s), (d, t) = form(a), form(b)
    terms = dict(s)
    _accumulate(terms, t, -1)
    return build(c - d, terms)


def mul(a: UOp, b: UOp) -> UOp:
    return build(*_multiply(form(a), form(b)))


def plus(a: UOp, k: int) -> UOp:
    c, t = form(a)
    return build(c + k, t) if k else a


# ---------------------------------------------------------------- quotient and remainder
def floordiv(a: UOp, n: UOp) -> UOp:
    return divmod_(a, n)[0]


def floormod(a: UOp, n: UOp) -> UOp:
    return divmod_(a, n)[1]


def divmod_(a: UOp, n: UOp) -> tuple[UOp, UOp]:
    """(a // n, a % n), both rounded toward −∞; (0, 0) for n = 0."""
    if not _is_const(n):
        return _divmod_symbolic(a, n)
    k = n.arg
    if k <= 0:
        if k == 0:
            return const(0), const(0)
        if not form(a)[1]:
            c = form(a)[0]
            return const(c // k), const(c % k)
        return _opaque(a, n)
    return _divmod_const(a, k)


def _opaque(a: UOp, n: UOp) -> tuple[UOp, UOp]:
    return _node(Ops.FLOORDIV, a, n), _node(Ops.FLOORMOD, a, n)


def _divmod_const(a: UOp, n: int) -> tuple[UOp, UOp]:
    if n == 1:
        return a, const(0)
    low, high = analysis.bounds(a)
    if low // n == high // n:
        return const(low // n), plus(a, -(low // n) * n)
    constant, terms = form(a)
    whole: Terms = {}
    rest: Terms = {}
    for m, f in terms.items():
        if f % n == 0:
            whole[m] = f // n
        else:
            rest[m] = f
    left = constant % n
    quotient = build((constant - left) // n, whole)
    q, r = _divmod_rest(build(left, rest), n)
    return add(quotient, q), r


def _divmod_rest(a: UOp, n: int) -> tuple[UOp, UOp]:
    """a divmod n where no coefficient of a is a multiple of n and 0 ≤ constant < n."""
    low, high = analysis.bounds(a)
    if low // n == high // n:
        return const(low // n), plus(a, -(low // n) * n)
    constant, terms = form(a)
    g = math.gcd(n, *terms.values())
    if g > 1:  # g·u + c  →  (u + c//g) divmod n/g, the remainder scaled back
        scaled = build(constant // g, {m: f // g for m, f in terms.items()})
        q, r = _divmod_const(scaled, n // g)
        return q, add(mul(r, const(g)), const(constant % g))
    split = _split_by_bounds(constant, terms, n)
    if split is not None:
        return split
    if not constant and len(terms) == 1 and next(iter(terms.values())) == 1:
        return _divmod_atom(next(iter(terms)), n)
    return _opaque(a, const(n))


def _split_by_bounds(constant: int, terms: Terms, n: int) -> tuple[UOp, UOp] | None:
    """Terms with a coefficient above n give part of it to the quotient when the rest stays in
    [0, n): f·m = (f // n)·n·m + (f % n)·m."""
    if not any(abs(f) > n for f in terms.values()):
        return None
    small = build(constant, {m: f % n for m, f in terms.items() if f % n})
    low, high = analysis.bounds(small)
    if low < 0 or high >= n:
        return None
    return build(0, {m: f // n for m, f in terms.items() if f // n}), small


def _divmod_atom(m: UOp, n: int) -> tuple[UOp, UOp]:
    """Nested quotients and remainders: (e//c)//n → e//(c·n); (e%c)%n → e%n where n divides c."""
    if m.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _is_const(m.src[1]) and m.src[1].arg > 0:
        e, c = m.src[0], m.src[1].arg
        if m.op is Ops.FLOORDIV:
            return _divmod_const(e, c * n)[0], _node(Ops.FLOORMOD, m, const(n))
        if c % n == 0:
            return _node(Ops.FLOORDIV, m, const(n)), _divmod_const(e, n)[1]
    return _opaque(m, const(n))


def _divmod_symbolic(a: UOp, n: UOp) -> tuple[UOp, UOp]:
    """Terms that hold n as a factor leave; the rest is all remainder when provably in [0, n)."""
    divisor = factors(n) if n.op in (Ops.MUL, Ops.VARIABLE) else None
    scale = 1
    if divisor is not None and divisor[-1].op is Ops.CONST:
        divisor, scale = divisor[:-1], divisor[-1].arg
    constant, terms = form(a)
    whole: Terms = {}
    rest: Terms = {}
    extra = 0
    for m, f in terms.items():
        left = _cancel(m, divisor) if divisor is not None and f % scale == 0 else None
        if left is None:
            rest[m] = f
        elif left.op is Ops.CONST:
            extra += f // scale
        else:
            _accumulate(whole, {left: f // scale}, 1)
    quotient, remainder = build(extra, whole), build(constant, rest)
    if analysis.bounds(remainder)[0] >= 0 and at_most(remainder, plus(n, -1)):
        return quotient, remainder
    q, r = _opaque(remainder, n)
    return add(quotient, q), r


def _cancel(m: UOp, divisor: list[UOp]) -> UOp | None:
    """The monomial without the divisor's atoms (1 when nothing is left), or None."""
    atoms = factors(m)
    for d in divisor:
        if d not in atoms:
            return None
        atoms.remove(d)
    return _product(atoms) if atoms else const(1)


# ---------------------------------------------------------------- comparison
def upper(a: UOp) -> UOp:
    """A symbolic upper bound: positive terms at their greatest, ranges at end - 1."""
    constant, terms = form(a)
    out = const(constant)
    for m, f in terms.items():
        out = add(out, mul(_upper_monomial(m) if f > 0 else _lower_monomial(m), const(f)))
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


def at_most(a: UOp, b: UOp) -> bool:
    """Whether a ≤ b is proved by bounds, symbolically where it takes it."""
    gap = sub(b, a)
    if analysis.bounds(gap)[0] >= 0:
        return True
    return bool(analysis.bounds(sub(b, upper(a)))[0] >= 0)


def less(a: UOp, b: UOp) -> UOp:
    """a < b as a bool UOp: folded by bounds, else (terms) < (constant) over their common factor."""
    gap = sub(a, b)  # a < b  ⇔  gap < 0
    low, high = analysis.bounds(gap)
    if high < 0 or at_most(plus(a, 1), b):
        return intern(Ops.CONST, dtypes.bool_, (), True)
    if low >= 0 or at_most(b, a):
        return intern(Ops.CONST, dtypes.bool_, (), False)
    constant, terms = form(gap)
    g = math.gcd(*terms.values())
    if g > 1:
        terms = {m: f // g for m, f in terms.items()}
    limit = -(constant // g)  # Σ < -constant/g, rounded up
    lhs = build(0, terms)
    lanes = dtypes.bool_.vec(lhs.dtype.lanes)
    return intern(Ops.CMPLT, lanes, (lhs, const(limit)))
