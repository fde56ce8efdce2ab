"""Sizes that each call decides, as UOps with known bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from uopc.backends.plan import Dim, DimValue, Shape
from uopc.errors import Unsupported
from uopc.exporting.exported import Exported
from uopc.ir.builder.operands import variable
from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.intervals import Interval
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed

_LEAST, _MOST = dtypes.index.bounds


def expression(size: Dim, f: Exported) -> UOp:
    """A size as an index expression over the names in C. Unsupported if it may exceed 64 bits."""
    if isinstance(size, int):
        return affine.const(size)
    by_name = {s.given: variable(s.name, s.low, s.high) for s in f.sizes}
    by_name |= {x.given: variable(x.value, x.low, x.high) for x in f.lengths}
    return _read(size, by_name)


def with_room(shape: Shape, f: Exported) -> Shape:
    """A shape with the greatest values of the lengths that the function computes."""
    known = {name: affine.const(most) for name, most in f.room.items()}
    made: list[Dim] = []
    for d in shape:
        if not isinstance(d, int) and not known.keys().isdisjoint(d.variables):
            by_name = {s.given: variable(s.given, s.low, s.high) for s in f.sizes} | known
            found = _read(d, by_name)
            d = int(found.arg) if affine.is_const(found) else DimValue.of(found)
        made.append(d)
    return tuple(made)


def work(f: Exported) -> UOp:
    """The bytes of memory for intermediate values, as an expression over the names in C: the most
    of all levels."""
    return _most([expression(v.plan.arena_bytes, f) for v in f.versions])


def promised_work(f: Exported) -> Dim:
    """The same over the user's names, in the form of a plan."""
    by_name = {s.given: variable(s.given, s.low, s.high) for s in f.sizes}
    found = _most([
        affine.const(d) if isinstance(d, int) else _read(d, by_name)
        for d in (v.plan.arena_bytes for v in f.versions)
    ])
    return int(found.arg) if affine.is_const(found) else DimValue.of(found)


def _most(every: list[UOp]) -> UOp:
    """The greatest of some sizes."""
    numbers = [u.arg for u in every if affine.is_const(u)]
    found = list(dict.fromkeys([u for u in every if not affine.is_const(u)]))
    if numbers:
        found.append(affine.const(max(numbers)))
    return reduce(affine.maximum, found)


def _read(size: DimValue, by_name: Mapping[str, UOp]) -> UOp:
    """An expression over these variables. Unsupported if a part of it may exceed 64 bits."""
    made = closed.expression(size.instructions, by_name)
    for u in walk.toposort(made):
        if u.src and not all([_LEAST <= b <= _MOST for b in _bounds(u)]):
            raise Unsupported(
                f"export: the size {size} may not fit 64 bits: give its variables closer bounds"
            )
    return made


def _bounds(u: UOp) -> Interval:
    """The bounds of a value that does not wrap."""
    found = u.op.bounds(u, *[bounds.bounds(s) for s in u.src]) if u.op.bounds else None
    return (-math.inf, math.inf) if found is None else found
