"""Stores that wait for each other in a circle, each overwriting what another one still reads.

`a.assign(a + b)` and `b.assign(a - b)`, both of the old values: whichever comes first destroys what
the other one reads. Where the value of one STORE is computed into storage of its own before any of
them begins, the circle is open.

A launch is whatever becomes a kernel: a STORE, a CALL, a stored value, an output that is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uopc.ir import analysis, dtypes, indexing, kernel_params
from uopc.ir.indexing import Index
from uopc.ir.ops import Ops
from uopc.passes.output_storage import STORAGE

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# A storage, and the effects that it has been through, as bits.
Read = tuple["UOp", int]
# Of a storage: for which launch it is read, and at which index.
Demands = Mapping["UOp", Iterable[tuple["UOp", Index]]]


@dataclass
class _Launch:
    """What a kernel waits for: the versions that it reads, stored values, effects as bits."""

    reads: frozenset[Read]
    needs: frozenset[UOp]
    after: int = 0


@dataclass
class _Waits:
    """Launch → the launches that come after it; and those of them that overwrite what it reads."""

    following: dict[UOp, set[UOp]] = field(default_factory=dict)
    overwriting: dict[UOp, set[UOp]] = field(default_factory=dict)

    def circle(self) -> list[UOp]:
        """Launches that wait for each other, each for the one before it; empty if none do."""
        missing = dict.fromkeys(self.following, 0)
        before: dict[UOp, list[UOp]] = {u: [] for u in self.following}
        for u, later in self.following.items():
            for w in later:
                missing[w] += 1
                before[w].append(u)
        ready = [u for u, n in missing.items() if not n]
        while ready:
            u = ready.pop()
            del missing[u]
            for w in self.following[u]:
                missing[w] -= 1
                if not missing[w]:
                    ready.append(w)
        path: dict[UOp, None] = {}
        at = next(iter(missing), None)
        while at is not None and at not in path:  # everything left waits for something left
            path[at] = None
            at = next(u for u in before[at] if u in missing)
        found = list(path)
        return found[found.index(at) :][::-1] if at is not None else []


class _Reads:
    """What each value reads once stored values are cut off, and the launches with that."""

    def __init__(
        self, order: list[UOp], stored: Mapping[UOp, str], effects: Mapping[UOp, set[UOp]]
    ) -> None:
        self.stored, self.effects = stored, effects
        written = {e for found in effects.values() for e in found}
        self.effect_bits = {e: 1 << i for i, e in enumerate(u for u in order if u in written)}
        self.root: dict[UOp, UOp] = {}
        self.seen: dict[UOp, int] = {}  # effects that storage, or an effect, comes after
        self.reads: dict[UOp, frozenset[Read]] = {}
        self.needs: dict[UOp, frozenset[UOp]] = {}
        self.launches: dict[UOp, _Launch] = {}
        for u in order:
            self._visit(u)

    def launch(self, sources: Iterable[UOp], after: int = 0) -> _Launch:
        found = list(sources)
        reads = frozenset[Read]().union(*[self.reads.get(s, frozenset()) for s in found])
        needs = frozenset["UOp"]().union(*[self.needs.get(s, frozenset()) for s in found])
        return _Launch(reads, needs, after)

    def _visit(self, u: UOp) -> None:
        if u.dtype is dtypes.void:
            self._visit_effect(u)
            return
        through = u.op.movement or u.op is Ops.AFTER
        self.root[u] = self.root[u.src[0]] if through and u not in self.stored else u
        self.seen[u] = 0
        if through:
            self.seen[u] = self._seen(u.src if u.op is Ops.AFTER else u.src[:1])
        if u in self.stored:
            self.launches[u] = self.launch(u.src)
            self.seen[u] = 0
        self._set_reads(u)

    def _set_reads(self, u: UOp) -> None:
        root = self.root[u]
        if root in self.effects:
            self.reads[u] = frozenset(((root, self.seen[u]),))
        if u in self.stored or root in self.effects:
            self.needs[u] = frozenset((root,)) if root in self.stored else frozenset()
        elif u.src and u.op not in STORAGE:
            made = self.launch(u.src[:1] if u.op is Ops.AFTER else u.src)
            self.reads[u], self.needs[u] = made.reads, made.needs

    def _visit_effect(self, u: UOp) -> None:
        self.seen[u] = self._seen(u.src[:1] if u.op is Ops.STORE else u.src)
        if u.op is Ops.STORE:
            self.launches[u] = made = self.launch(u.src[1:], self.seen[u])
            made.needs |= self.needs.get(u.src[0], frozenset())
        elif u.op is Ops.CALL:
            slots = {p.arg.slot for p in kernel_params.read_params(u.src[0])}
            made = self.launch([a for i, a in enumerate(u.src[1:]) if i in slots], self.seen[u])
            made.needs = self.launch(u.src[1:]).needs
            self.launches[u] = made
        self.seen[u] |= self.effect_bits.get(u, 0)

    def _seen(self, sources: Iterable[UOp]) -> int:
        out = 0
        for s in sources:
            out |= self.seen.get(s, 0)
        return out


class _Places:
    """Which elements of a storage launches read and write, as far as their indices tell."""

    def __init__(self, demands: Demands) -> None:
        self.demands = demands
        self.spans: dict[UOp, dict[UOp, list[tuple[float, float]]]] = {}
        self.stores: dict[UOp, tuple[float, float]] = {}

    def written(self, w: UOp) -> tuple[float, float]:
        if w.op is not Ops.STORE:
            return 0, float("inf")
        if w not in self.stores:
            view = w.src[0]
            index, _ = indexing.loop_index(analysis.shape(view))
            while view.op.movement or view.op is Ops.AFTER:
                if view.op is not Ops.AFTER:
                    index, _ = indexing.source_index(view, index)
                view = view.src[0]
            self.stores[w] = _span(view, index)
        return self.stores[w]

    def overlap(self, reader: UOp, root: UOp, w: UOp) -> bool:
        """Whether the reader may read an element that `w` writes."""
        if root not in self.spans:
            spans = self.spans[root] = {}
            for launch, index in self.demands.get(root, ()):
                spans.setdefault(launch, []).append(_span(root, index))
        low, high = self.written(w)
        read = self.spans[root].get(reader, [(0, float("inf"))])
        return any(a <= high and low <= b for a, b in read)


def meet(root: UOp, a: Index, b: Index) -> bool:
    """Whether two indices into a storage may be the same element, as far as their spans tell."""
    (low, high), (begin, end) = _span(root, a), _span(root, b)
    return low <= end and begin <= high


def _span(root: UOp, index: Index) -> tuple[float, float]:
    plain = [indexing.ungated(x)[0] for x in index]
    return analysis.bounds(indexing.flat_index(analysis.shape(root), plain))


def _waits(reads: _Reads, places: _Places) -> _Waits:
    waits = _Waits({u: set() for u in reads.launches}, {u: set() for u in reads.launches})
    for u, launch in reads.launches.items():
        seen = launch.after
        for v in launch.needs:
            waits.following[v].add(u)
        for root, version in launch.reads:
            seen |= version
            for w in reads.effects[root]:
                later = w is not u and not reads.effect_bits[w] & version
                if later and places.overlap(u, root, w):
                    waits.overwriting[u].add(w)
        for e in _effects(seen, reads):
            waits.following[e].add(u)
        waits.following[u] |= waits.overwriting[u]
    return waits


def _effects(bits: int, reads: _Reads) -> Iterator[UOp]:
    names = list(reads.effect_bits) if bits else []
    while bits:
        low = bits & -bits
        yield names[low.bit_length() - 1]
        bits ^= low


def stores_to_copy(
    order: list[UOp],
    outputs: Iterable[UOp],
    stored: Mapping[UOp, str],
    effects: Mapping[UOp, set[UOp]],
    demands: Demands,
    copied: Iterable[UOp],
) -> set[UOp]:
    """STOREs whose values must be copied so that no launches wait for each other in a circle.

    `outputs` are the views that are copied out, `copied` what is copied anyway. A circle that no
    copy opens stays: launching finds it.
    """
    if sum(len(found) for found in effects.values()) < 2:
        return set()
    reads = _Reads(order, stored, effects)
    for v in outputs:
        reads.launches.setdefault(v, reads.launch((v,)))
    waits = _waits(reads, _Places(demands))
    for u in copied:
        _copy(waits, u)
    chosen: set[UOp] = set()
    while circle := waits.circle():
        pairs = zip(circle, [*circle[1:], circle[0]])
        found = [a for a, b in pairs if a.op is Ops.STORE and b in waits.overwriting[a]]
        if not found:
            break
        _copy(waits, found[0])
        chosen.add(found[0])
    return chosen


def _copy(waits: _Waits, u: UOp) -> None:
    """The value of STORE `u` is a launch of its own: that one reads, and `u` waits for it."""
    value = u.src[1]
    later = waits.overwriting.pop(u)
    waits.overwriting[u] = set()
    waits.following[u] -= later
    waits.following.setdefault(value, set()).update(later, (u,))
    waits.overwriting.setdefault(value, set()).update(later)
