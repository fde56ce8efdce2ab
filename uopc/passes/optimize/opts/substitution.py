"""Substitute new ranges for a loop's range. Each Opt that splits a loop changes a kernel this way.

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

from uopc.ir.builder import alu, index_maps, leaves, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.forks import cached_property
from uopc.ir.index import affine, compare
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.contractions import PRODUCTS
from uopc.ir.nest.loops import by_axis, is_free
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import ended, identity
from uopc.passes.effects.views import stores_in

LANES = ("lane", "warp")
_COPIES = ("upcast", "unroll", "lane")
# The suffix of the axis of a loop that was renamed for a copy of the body.
_COPY = 2


class Part(NamedTuple):
    """Some iterations of a loop, counted by new ranges: their place in the loop, and the values
    that are known in them. If the guard does not hold, nothing is accessed."""

    place: UOp
    loops: tuple[UOp, ...]
    known: Mapping[UOp, UOp] = MappingProxyType({})
    guard: UOp | None = None


class Tiled:
    """A kernel with the noted Parts of its ranges; a Part may split a range of another Part."""

    def __init__(self, base: UOp, parts: Mapping[UOp, Part] | None = None) -> None:
        self.base, self.parts = base, parts or {}

    def noting(self, r: UOp, part: Part) -> Tiled:
        """Note one more Part of this kernel."""
        return Tiled(self.base, {**self.parts, r: part})

    @cached_property
    def axes(self) -> list[UOp]:
        """The ranges of the nest, which an Opt can name."""
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
        """True if each store that moves with the loop of r certainly moves with r too: the address
        has the loop as a term of its own."""
        loop = self.loop(r)
        stores = [u for u in nest_of(self.base).stores if loop in ranges.ranges(u)]
        return r is loop or all(Access(before_effects(u.src[0])).stride(loop) for u in stores)

    def has_lanes(self, r: UOp) -> bool:
        """True if values inside of the loop of r have lanes, in the base or in a noted Part."""
        loop = self.loop(r)
        noted = [q for part in self.parts.values() for q in part.loops]
        wide = {self.loop(q) for q in noted if q.arg.kind in LANES}
        around = [nest for nest in nest_of(self.base).around if loop in nest]
        return any(q in wide or q.arg.kind in LANES for nest in around for q in nest)


def split_in(kernel: UOp, r: UOp, parts: Sequence[Part]) -> UOp:
    """Put Parts in place of a loop."""
    return substituted(kernel, {r: parts[0]}) if len(parts) == 1 else _sequence(kernel, r, parts)


# ---------------------------------------------------------------- a Part in the place of a loop
def substituted(kernel: UOp, parts: Mapping[UOp, Part]) -> UOp:
    """Put one Part in place of each of these ranges, in one walk."""
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
            if r not in closed:
                continue
            if part.guard is not None and u.op is Ops.REDUCE:
                body = _term(u, body, part)
            if part.guard is None or part.place is not part.loops[0]:  # else the loop grows
                del closed[r]
                closed.update(zip(part.loops, part.loops))
        return _closed(u, body, tuple(closed.values()))

    closing = [u for loop in place for u in nest_of(kernel).closers(loop)]
    accesses = [u for u in walk.order(kernel) if guards and u.op is Ops.INDEX
                and not ranges.ranges(u).isdisjoint(guards)]  # fmt: skip
    return rebuild.rewritten(kernel, change, only={*place, *closing, *accesses})


def _replaced_loops(parts: Mapping[UOp, Part]) -> dict[UOp, UOp]:
    """Map each range of the Parts to the kernel's range that it splits."""
    found: dict[UOp, UOp] = {}
    for r, part in parts.items():
        found.update(dict.fromkeys(part.loops, found.get(r, r)))
    return found


def _closed(u: UOp, body: UOp, closed: tuple[UOp, ...]) -> UOp:
    """Rebuild the END or REDUCE u with another body and other loops. If threads share a REDUCE,
    make two: one over the values of each thread, and one over all threads."""
    threads = tuple([q for q in closed if q.arg.kind in ("group", "grouptop")])
    if u.op is Ops.REDUCE and threads and len(threads) < len(closed):
        own = tuple([q for q in closed if q not in threads])
        body, closed = intern(u.op, u.dtype, (body, *own), u.arg), threads
    return intern(u.op, u.dtype, (body, *closed), u.arg, u.tag)


def guarded(u: UOp, src: tuple[UOp, ...], guard: UOp) -> UOp:
    """Rebuild the INDEX u on new sources, and add `guard` to its own guard."""
    flat, own = index_maps.ungated(src[1])
    both = guard if own is None else index_maps.both(own, guard)
    return intern(Ops.INDEX, u.dtype, (src[0], *index_maps.gated((flat,), both)))


def _term(reduce: UOp, body: UOp, part: Part) -> UOp:
    """The term of a reduce if the guard holds, else the identity. In a sum of products both factors
    become 0, so that the sum keeps its form."""
    assert part.guard is not None
    if reduce.arg.op == "add" and body.op in PRODUCTS:
        factors = tuple([_or_zero(f, part.loops[0], part.guard) for f in body.src])
        return intern(body.op, body.dtype, factors)
    return alu.where(part.guard, body, identity(reduce))


def _or_zero(value: UOp, r: UOp, guard: UOp) -> UOp:
    """The value if the guard holds, else 0. A guarded access already is 0 there."""
    if value.op is Ops.INDEX and r in ranges.ranges(value):
        return value
    if value.op is Ops.CAST:
        return intern(Ops.CAST, value.dtype, (_or_zero(value.src[0], r, guard),))
    return alu.where(guard, value, leaves.const(value.dtype, 0))


# ---------------------------------------------------------------- Parts one after another
def _sequence(kernel: UOp, r: UOp, parts: Sequence[Part]) -> UOp:
    """Make a loop for each Part, one after another, each with a copy of the body."""
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
            own = _guarded_in_rest(body, r, part) if i and is_free(part.loops[0]) else body
            b = rebuild.rebuild(own, {**part.known, r: part.place, **names})
            made.append((b, (*part.loops, *[names.get(q, q) for q in inner])))
        if u.op is Ops.REDUCE:
            return functools.reduce(functools.partial(_both, u), [_reduced(u, *m) for m in made])
        stored = [m for m in made if not _stores_nothing(m[0])] or made[:1]
        group = intern(Ops.GROUP, dtypes.void, tuple([ended(b, *around) for b, around in stored]))
        outer = [q for q in closed if q is not r and q not in inner]
        return ended(group, *outer)

    return rebuild.rewritten(kernel, change, only=nest_of(kernel).closers(r))


def _guarded_in_rest(body: UOp, r: UOp, part: Part) -> UOp:
    """The body of a rest, with a guard for each access that does not move with the rest: where the
    rest has no iterations, its first element may be outside, and is read before the loop.

    x[r // 4] in the last n % 4 of n iterations  →  x[n // 4] where 0 < n % 4
    """

    def stands(u: UOp) -> bool:
        divided = [v for v in walk.toposort(u.src[1]) if v.op in affine.DIVMOD_OPS]
        if not any([r in ranges.ranges(v) for v in divided]):
            return False
        return ranges.ranges(rebuild.rebuild(u, {r: part.place})).isdisjoint(part.loops)

    still = {u for u in walk.toposort(body) if u.op is Ops.INDEX and stands(u)}
    runs = compare.less(affine.const(0), part.loops[0].src[0])
    return rebuild.rewritten(body, lambda u, src: guarded(u, src, runs), only=still)


def _stores_nothing(body: UOp) -> bool:
    """True if all stores are under a guard that never holds."""
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
    """Combine two parts of the REDUCE u."""
    if one is identity(u):
        return two
    return one if two is identity(u) else alu.alu(one, Op.by_name(u.arg.op), two)


def copies(body: UOp, r: UOp, inner: Sequence[UOp], number: int) -> dict[UOp, UOp]:
    """New ranges for the loops inside of a copied body: a range occurs at one place of a nest."""
    found = dict.fromkeys(inner)
    for u in walk.toposort(body):
        if u.op in (Ops.END, Ops.REDUCE) and r in ranges.ranges(u):
            found.update(dict.fromkeys(ranges.closed_ranges(u)))
    return rebuild.renamed_ranges({q: (*q.arg.axis, _COPY, number) for q in found if q is not r})
