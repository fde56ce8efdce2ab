"""Monomials of index values: atoms, or products of atoms in a fixed order, without coefficients."""

from __future__ import annotations

from typing import Any

from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.uop import UOp, intern, set_shape

Terms = dict["UOp", int]  # coefficients by monomial


def term_order(u: UOp) -> tuple[Any, ...]:
    """Order of monomials, the same in every process: ranges by axis, hardware indices by name, the
    rest by the ranges in them, variables by name, lanes."""
    if u.op is Ops.RANGE:
        return 0, u.arg.axis
    if u.op is Ops.SPECIAL:
        return 1, u.arg
    if u.op is Ops.VARIABLE:
        return 3, u.arg.name
    axes = sorted([r.arg.axis for r in ranges.ranges(u)])
    return (4 if u.op is Ops.LANES else 2), axes, u.op.name, content(u)


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
    atoms = sorted(atoms, key=term_order)
    out = atoms[0]
    for a in atoms[1:]:
        out = node(Ops.MUL, out, a)
    return out


def node(op: Op, a: UOp, b: UOp) -> UOp:
    """A node of the op on two index values, not normalised."""
    t = a.dtype if a.dtype.lanes >= b.dtype.lanes else b.dtype
    made = intern(op, t, (a, b))
    if a._shape == () == b._shape:
        set_shape(made, ())
    return made


def is_condition(m: UOp) -> bool:
    """True for a condition as a number: 1 if the condition holds, else 0."""
    return m.op is Ops.CAST and m.src[0].dtype is dtypes.bool_


# Coefficients grow through nested quotients although sums stay small. No term comes near 64 bits:
# the two sides of a comparison would wrap on their own.
LARGEST_TERM = 1 << 56


def limit_of(terms: Terms) -> int:
    """The greatest magnitude of a term."""
    return max([max(map(abs, bounds.bounds(m))) * abs(f) for m, f in terms.items()], default=0)
