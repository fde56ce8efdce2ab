"""Stores that wait for each other in a circle: each overwrites what another one still reads.

`a.assign(a + b)` and `b.assign(a - b)`, both of the old values: whichever runs first destroys what
the other one reads. The circle opens if the value of one STORE is computed into storage of its own
before any of them begins.

A launch is anything that becomes a kernel: a STORE, a CALL, a stored value, a copied output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import read_slots
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.versions import NEW, Footprint, LaunchGraph, Span, Version, Versions
from uopc.passes.analysis.views import root_index

# A storage and its version.
Read = tuple["UOp", Version]
# storage -> its reads, as (launch, index)
Demands = Mapping["UOp", Iterable[tuple["UOp", Index]]]

_WHOLE = [(0.0, float("inf"))]


class _Launches:
    """The footprints of all launches. A stored value has a version of its own without effects: with
    a chain each, a version after calls that read n of them would have n chains."""

    def __init__(
        self, order: list[UOp], stored: Mapping[UOp, str], effects: Mapping[UOp, set[UOp]],
        demands: Demands,
    ) -> None:  # fmt: skip
        self.stored, self.effects = stored, effects
        self.versions = Versions()
        self.found: dict[UOp, Footprint] = {}
        self._root: dict[UOp, UOp] = {}
        self._seen: dict[UOp, Version] = {}  # the version of storage, or of an effect
        self._reads: dict[UOp, frozenset[Read]] = {}  # of a value, up to stored values
        self._spans: dict[tuple[UOp, UOp], list[tuple[float, float]]] = {}  # (launch, root)
        for root in effects:
            for launch, index in demands.get(root, ()):
                self._spans.setdefault((launch, root), []).append(_span(root, index))
        written = {e for found in effects.values() for e in found}
        for u in order:
            if u.dtype is not dtypes.void:
                self._visit_value(u)
            else:
                self._visit_effect(u, u in written)
        known: dict[UOp, UOp] = {}
        for root, found in effects.items():
            for e in found:
                begin, end = _written(e, known)
                self.found[e].writes.append(Span(root, begin, end))

    def add(self, u: UOp, sources: Iterable[UOp], after: Version = NEW) -> None:
        """Add a launch that reads the sources and follows a version."""
        reads = self._read(sources)
        spans = [
            Span(root, begin, end, seen)
            for root, seen in reads
            for begin, end in self._spans.get((u, root), _WHOLE)
        ]
        self.found[u] = Footprint(spans, [], [after, *[seen for _, seen in reads]])

    def _read(self, sources: Iterable[UOp]) -> frozenset[Read]:
        return frozenset[Read]().union(*[self._reads.get(s, frozenset()) for s in sources])

    def _visit_value(self, u: UOp) -> None:
        through = u.op.movement or u.op is Ops.AFTER
        root = self._root[u] = self._root[u.src[0]] if through and u not in self.stored else u
        if u in self.stored:
            self.add(u, u.src)
            self._seen[u] = Version({}, -1, 0, (u,), None)
        elif through:
            self._see(u, u.src if u.op is Ops.AFTER else u.src[:1])
        if root in self.effects or root in self.stored:
            self._reads[u] = frozenset(((root, self._seen.get(u, NEW)),))
        elif not u.op.is_storage:
            self._reads[u] = self._read(u.src[:1] if u.op is Ops.AFTER else u.src)

    def _visit_effect(self, u: UOp, writes: bool) -> None:
        self._see(u, u.src[:1] if u.op is Ops.STORE else u.src)
        seen = self._seen.get(u, NEW)
        if u.op is Ops.STORE:
            self.add(u, u.src[1:], seen)
        elif u.op is Ops.CALL:
            slots = read_slots(u.src[0])
            self.add(u, [a for i, a in enumerate(u.src[1:]) if i in slots], seen)
        if writes:
            self._seen[u] = self.versions.after(u, seen)

    def _see(self, u: UOp, sources: Iterable[UOp]) -> None:
        found = [self._seen[s] for s in sources if s in self._seen]
        if found:
            self._seen[u] = self.versions.joined(u, found)


class _Waits:
    """The launches that are not in order yet, each with those before it that are not either."""

    def __init__(self, graph: LaunchGraph) -> None:
        self.overwriting = graph.overwriting
        rank = {u: i for i, u in enumerate(graph.before)}
        self.before = {
            u: dict.fromkeys(sorted(found, key=rank.__getitem__))
            for u, found in graph.before.items()
        }
        self.following: dict[UOp, set[UOp]] = {u: set() for u in self.before}
        for u, found in self.before.items():
            for v in found:
                self.following[v].add(u)
        self.ready = [u for u, found in self.before.items() if not found]

    def circle(self) -> list[UOp]:
        """Launches that wait for each other, each for the one before it; empty without a circle."""
        while self.ready:
            u = self.ready.pop()
            del self.before[u]
            for w in self.following[u]:
                self._drop(u, w)
        path: dict[UOp, None] = {}
        at = next(iter(self.before), None)
        while at is not None and at not in path:  # everything left waits for something left
            path[at] = None
            at = next(iter(self.before[at]))
        found = list(path)
        return found[found.index(at) :][::-1] if at is not None else []

    def _drop(self, u: UOp, w: UOp) -> None:
        """Let `w` no longer wait for `u`."""
        waits = self.before.get(w, {})
        if u in waits:
            del waits[u]
            if not waits:
                self.ready.append(w)

    def copy(self, u: UOp) -> None:
        """Make the value of STORE `u` a launch of its own, which reads; `u` waits for it."""
        value = u.src[1]
        later, self.overwriting[u] = self.overwriting[u], set()
        self.overwriting.setdefault(value, set()).update(later)
        self.following.setdefault(value, set()).update(later, (u,))
        self.following[u] -= later
        if value in self.before:
            for w in (*later, u):
                self.before[w][value] = None
        for w in later:
            self._drop(u, w)


def _written(effect: UOp, known: dict[UOp, UOp]) -> tuple[float, float]:
    """The span of its storage that a launch may write; `known` as for `before_effects`."""
    if effect.op is not Ops.STORE:
        return _WHOLE[0]
    index, _ = index_maps.loop_index(shapes.shape(effect.src[0]))
    root, written, _ = root_index(effect.src[0], index, known)
    return _span(root, written)


def may_overlap(root: UOp, a: Index, b: Index) -> bool:
    """True if two indices into a storage may be equal, by their spans."""
    (low, high), (begin, end) = _span(root, a), _span(root, b)
    return low < end and begin < high


@memo
def _span(root: UOp, index: Index) -> tuple[float, float]:
    plain = [index_maps.ungated(x)[0] for x in index]
    low, high = bounds.bounds(index_maps.flat_index(shapes.shape(root), plain))
    return low, high + 1


def stores_to_copy(
    order: list[UOp],
    outputs: Iterable[UOp],
    stored: Mapping[UOp, str],
    effects: Mapping[UOp, set[UOp]],
    demands: Demands,
    copied: Iterable[UOp],
) -> set[UOp]:
    """STOREs whose values must be copied so that no launches wait for each other in a circle.

    `outputs` are the views that are copied out, `copied` the STOREs that are copied anyway. A
    circle that no copy opens stays: split-kernels reports it.
    """
    if sum(len(found) for found in effects.values()) < 2:
        return set()
    launches = _Launches(order, stored, effects, demands)
    for v in outputs:
        if v not in launches.found:
            launches.add(v, (v,))
    waits = _Waits(LaunchGraph(launches.versions, launches.found))
    for u in copied:
        waits.copy(u)
    chosen: set[UOp] = set()
    while circle := waits.circle():
        pairs = zip(circle, [*circle[1:], circle[0]])
        found = [a for a, b in pairs if a.op is Ops.STORE and b in waits.overwriting[a]]
        if not found:
            break
        waits.copy(found[0])
        chosen.add(found[0])
    return chosen
