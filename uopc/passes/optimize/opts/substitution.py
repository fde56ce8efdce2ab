"""The substitution of new ranges for a loop's: what each Opt that splits a loop does to a kernel.

    for r < 64: f(r)   →   for q < 8: f(8·q + lane)                 one Part, in the loop's place
    for r < 10: f(r)   →   for p < 8: f(p); for q < 2: f(8 + q)     Parts, one after another

A Tiled notes single Parts; reading its kernel makes the graph in one walk:

    VECTOR(0, 8), UPCAST(0, 4):   r → 8·q + lane, q → 4·p + copy   is   r → 32·p + 8·copy + lane
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from uopc.forks import cached_property
from uopc.ir.builder import alu, index_maps, leaves, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.contractions import PRODUCTS
from uopc.ir.nest.loops import by_axis
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import ended, identity
from uopc.passes.effects.views import stores_in

LANES = ("lane", "warp")
_COPIES = ("upcast", "unroll", "lane")
# The suffix of the axis of a loop that was renamed for a copy of the body.
_COPY = 2


class Part(NamedTuple):
    """Some iterations of a loop, counted by new ranges: their place in the loop, and the values
    that are known in them. Where a guard does not hold, nothing is accessed."""

    place: UOp
    loops: tuple[UOp, ...]
    known: Mapping[UOp, UOp] = MappingProxyType({})
    guard: UOp | None = None


class Tiled:
    """A kernel, and the noted Parts of its ranges; a Part may be one of a range of another Part."""

    def __init__(self, base: UOp, parts: Mapping[UOp, Part] | None = None) -> None:
        self.base, self.parts = base, parts or {}

    def noting(self, r: UOp, part: Part) -> Tiled:
        """This kernel with one more noted Part."""
        return Tiled(self.base, {**self.parts, r: part})

    @cached_property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name: those of its nest."""
        found = dict.fromkeys(nest_of(self.base).axes)
        for r, part in self.parts.items():
            del found[r]
            found.update(dict.fromkeys(part.loops))
        return sorted(found, key=by_axis)

    @cached_property
    def kernel(self) -> UOp:
        """The graph with all noted Parts."""
        return substituted(self.base, self.parts) if self.parts else self.base

    def loop(self, r: UOp) -> UOp:
        """The range of the base that a range is a part of."""
        return self._loops.get(r, r)

    @cached_property
    def _loops(self) -> dict[UOp, UOp]:
        return _replaced_loops(self.parts)

    def is_compared(self, r: UOp) -> bool:
        """True if a comparison of indices may depend on a range."""
        loop = self.loop(r)
        return any([loop in ranges.ranges(u) for u in nest_of(self.base).comparisons])

    def moves(self, r: UOp) -> bool:
        """True if each store that moves with the loop of r certainly moves with r too: the loop is
        a term of its own in the address."""
        loop = self.loop(r)

        def is_term(index: UOp) -> bool:
            terms = affine.form(index_maps.ungated(index)[0])[1]
            return loop in terms and sum([loop in ranges.ranges(m) for m in terms]) == 1

        stores = [u for u in nest_of(self.base).stores if loop in ranges.ranges(u)]
        indices = [before_effects(u.src[0]).src[1:] for u in stores]
        return r is loop or all(any(map(is_term, index)) for index in indices)

    def has_lanes(self, r: UOp) -> bool:
        """True if values inside of the loop of r have lanes, in the base or by a noted Part."""
        loop = self.loop(r)
        noted = [q for part in self.parts.values() for q in part.loops]
        wide = {self.loop(q) for q in noted if q.arg.kind in LANES}
        around = [nest for nest in nest_of(self.base).around if loop in nest]
        return any(q in wide or q.arg.kind in LANES for nest in around for q in nest)


def split_in(kernel: UOp, r: UOp, parts: Sequence[Part]) -> UOp:
    """The kernel with Parts in place of a loop."""
    return substituted(kernel, {r: parts[0]}) if len(parts) == 1 else _sequence(kernel, r, parts)


# ---------------------------------------------------------------- a Part in the place of a loop
def substituted(kernel: UOp, parts: Mapping[UOp, Part]) -> UOp:
    """The kernel with one Part in place of each of these ranges, made in one walk."""
    found, place = _replaced_loops(parts), dict[UOp, UOp]()
    for r, part in parts.items():
        loop = found.get(r, r)
        place[loop] = rebuild.rebuild(place.get(loop, loop), {r: part.place})
    guards = {r: part.guard for r, part in parts.items() if part.guard is not None}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u in place:
            return place[u]
        if u.op is Ops.INDEX:
            return guarded(u, src, next(g for r, g in guards.items() if r in ranges.ranges(u)))
        body, closed = src[0], dict(zip(u.src[1:], src[1:]))
        for r, part in parts.items():
            if part.guard is None and closed.pop(r, None) is not None:
                closed.update(zip(part.loops, part.loops))
            elif r in closed and u.op is Ops.REDUCE:
                body = _term(u, body, part)
        return _closed(u, body, tuple(closed.values()))

    closing = [u for loop in place for u in nest_of(kernel).closers(loop)]
    accesses = [u for u in walk.order(kernel) if guards and u.op is Ops.INDEX
                and not ranges.ranges(u).isdisjoint(guards)]  # fmt: skip
    return rebuild.rewritten(kernel, change, only={*place, *closing, *accesses})


def _replaced_loops(parts: Mapping[UOp, Part]) -> dict[UOp, UOp]:
    """Each range of the Parts with the range of the kernel that it is a part of."""
    found: dict[UOp, UOp] = {}
    for r, part in parts.items():
        found.update(dict.fromkeys(part.loops, found.get(r, r)))
    return found


def _closed(u: UOp, body: UOp, closed: tuple[UOp, ...]) -> UOp:
    """The END or REDUCE u with another body, of other loops. A REDUCE that threads share becomes
    two: of the values of each thread, and of all threads."""
    threads = tuple([q for q in closed if q.arg.kind in ("group", "grouptop")])
    if u.op is Ops.REDUCE and threads and len(threads) < len(closed):
        own = tuple([q for q in closed if q not in threads])
        body, closed = intern(u.op, u.dtype, (body, *own), u.arg), threads
    return intern(u.op, u.dtype, (body, *closed), u.arg, u.tag)


def guarded(u: UOp, src: tuple[UOp, ...], guard: UOp) -> UOp:
    """The INDEX u on new sources, under a guard besides its own."""
    flat, own = index_maps.ungated(src[1])
    both = guard if own is None else index_maps.both(own, guard)
    return intern(Ops.INDEX, u.dtype, (src[0], *index_maps.gated((flat,), both)))


def _term(reduce: UOp, body: UOp, part: Part) -> UOp:
    """The term of a reduce where the guard holds, its identity elsewhere. In a sum of products both
    factors become 0, so that it stays a sum of products."""
    assert part.guard is not None
    if reduce.arg.op == "add" and body.op in PRODUCTS:
        factors = tuple([_or_zero(f, part.loops[0], part.guard) for f in body.src])
        return intern(body.op, body.dtype, factors)
    return alu.where(part.guard, body, identity(reduce))


def _or_zero(value: UOp, r: UOp, guard: UOp) -> UOp:
    """The value where the guard holds, 0 elsewhere. A guarded access is 0 there already."""
    if value.op is Ops.INDEX and r in ranges.ranges(value):
        return value
    if value.op is Ops.CAST:
        return intern(Ops.CAST, value.dtype, (_or_zero(value.src[0], r, guard),))
    return alu.where(guard, value, leaves.const(value.dtype, 0))


# ---------------------------------------------------------------- Parts one after another
def _sequence(kernel: UOp, r: UOp, parts: Sequence[Part]) -> UOp:
    """The kernel with a loop for each Part, each after the one before, with a copy of the body."""
    number = len(nest_of(kernel).axes)  # grows with every split, and so tells the copies apart

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        body, closed = src[0], src[1:]
        inner = [
            q for q in closed if q is not r and (u.op is Ops.REDUCE or q.arg.axis > r.arg.axis
                                                 or q.arg.kind in _COPIES)
        ]  # fmt: skip
        made = []
        for i, part in enumerate(parts):
            names = copies(body, r, inner, number + i - 1) if i else {}
            b = rebuild.rebuild(body, {**part.known, r: part.place, **names})
            made.append((b, (*part.loops, *[names.get(q, q) for q in inner])))
        if u.op is Ops.REDUCE:
            return functools.reduce(functools.partial(_both, u), [_reduced(u, *m) for m in made])
        stored = [m for m in made if not _stores_nothing(m[0])] or made[:1]
        group = intern(Ops.GROUP, dtypes.void, tuple([ended(b, *around) for b, around in stored]))
        outer = [q for q in closed if q is not r and q not in inner]
        return ended(group, *outer)

    return rebuild.rewritten(kernel, change, only=nest_of(kernel).closers(r))


def _stores_nothing(body: UOp) -> bool:
    """True for stores under a guard that never holds."""
    if body.op is Ops.STORE:
        return any([x.op is Ops.INVALID for x in body.src[0].src[1:]])
    return body.op in (Ops.GROUP, Ops.END) and all(map(_stores_nothing, stores_in(body)))


def _reduced(u: UOp, body: UOp, closed: tuple[UOp, ...]) -> UOp:
    """The REDUCE of a part; its body if that is the identity, or an extremum of equal values."""
    again = u.arg.op in ("max", "min") and all(bounds.bounds(q.src[0])[0] > 0 for q in closed)
    if body is identity(u) or (body.op is Ops.CONST and again):
        return body
    return intern(u.op, u.dtype, (body, *closed), u.arg)


def _both(u: UOp, one: UOp, two: UOp) -> UOp:
    """The REDUCE u of two parts."""
    if one is identity(u):
        return two
    return one if two is identity(u) else alu.alu(one, Op.by_name(u.arg.op), two)


def copies(body: UOp, r: UOp, inner: Sequence[UOp], number: int) -> dict[UOp, UOp]:
    """New ranges for the loops inside of a copied body: each range has one place in the nest."""
    found = dict.fromkeys(inner)
    for u in walk.toposort(body):
        if u.op in (Ops.END, Ops.REDUCE) and r in ranges.ranges(u):
            found.update(dict.fromkeys(ranges.closed_ranges(u)))
    return rebuild.renamed_ranges({q: (*q.arg.axis, _COPY, number) for q in found if q is not r})
