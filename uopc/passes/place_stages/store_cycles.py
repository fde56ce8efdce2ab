"""Stores that wait for each other in a circle: each overwrites what another one still reads.

`a.assign(a + b)` and `b.assign(a - b)`, both of the old values: whichever runs first destroys what
the other one reads. The circle opens if the value of one STORE is computed into storage of its own
before any of them begins.

A launch is anything that becomes a kernel: a STORE, a CALL, a stored value, a copied output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import read_slots
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.versions import NEW, Version, Versions, Writers
from uopc.passes.analysis.views import root_index

# A storage and its version.
Read = tuple["UOp", Version]
# storage -> its reads, as (launch, index)
Demands = Mapping["UOp", Iterable[tuple["UOp", Index]]]


@dataclass
class _Launch:
    """A kernel with its inputs: versions to read, stored values, a version to change."""

    reads: frozenset[Read]
    needs: frozenset[UOp]
    after: Version = NEW


class _Waits:
    """Per launch, the launches that come after it, and which of them overwrite what it reads."""

    def __init__(self, launches: Iterable[UOp]) -> None:
        self.following: dict[UOp, set[UOp]] = {u: set() for u in launches}
        self.overwriting: dict[UOp, set[UOp]] = {u: set() for u in launches}
        # For launches that are not in order yet: those before them that are not in order yet.
        self.before: dict[UOp, dict[UOp, None]] = {}
        self.ready: list[UOp] = []
        self.left: Iterator[UOp] = iter(())
        self.at: UOp | None = None

    def begin(self) -> None:
        """Start to put the launches in order."""
        self.before = {u: {} for u in self.following}
        for u, later in self.following.items():
            for w in later:
                self.before[w][u] = None
        self.ready = [u for u, b in self.before.items() if not b]
        self.left = iter(list(self.before))
        self.at = next(self.left, None)

    def circle(self) -> list[UOp]:
        """Launches that wait for each other, each for the one before it; empty without a circle."""
        while self.ready:
            u = self.ready.pop()
            del self.before[u]
            for w in self.following[u]:
                self._drop(u, w)
        while self.at is not None and self.at not in self.before:
            self.at = next(self.left, None)
        path: dict[UOp, None] = {}
        at = self.at
        while at is not None and at not in path:  # everything left waits for something left
            path[at] = None
            at = next(iter(self.before[at]))
        found = list(path)
        return found[found.index(at) :][::-1] if at is not None else []

    def _drop(self, u: UOp, w: UOp) -> None:
        """Let `w` no longer wait for `u`."""
        waits = self.before.get(w)
        if waits is not None and u in waits:
            del waits[u]
            if not waits:
                self.ready.append(w)

    def copy(self, u: UOp) -> None:
        """Make the value of STORE `u` a launch of its own, which reads; `u` waits for it."""
        value = u.src[1]
        later, self.overwriting[u] = self.overwriting[u], set()
        self.following[u] -= later
        self.following.setdefault(value, set()).update(later, (u,))
        self.overwriting.setdefault(value, set()).update(later)
        if value in self.before:
            for w in (*later, u):
                self.before[w][value] = None
        for w in later:
            self._drop(u, w)


class _Reads:
    """The reads of each value, up to stored values; and the launches."""

    def __init__(
        self, order: list[UOp], stored: Mapping[UOp, str], effects: Mapping[UOp, set[UOp]]
    ) -> None:
        self.stored, self.effects = stored, effects
        self.written = {e for found in effects.values() for e in found}
        self.versions = Versions()
        self.root: dict[UOp, UOp] = {}
        self.seen: dict[UOp, Version] = {}  # the version of storage, or of an effect
        self.reads: dict[UOp, frozenset[Read]] = {}
        self.needs: dict[UOp, frozenset[UOp]] = {}
        self.launches: dict[UOp, _Launch] = {}
        for u in order:
            self._visit(u)

    def launch(self, sources: Iterable[UOp], after: Version = NEW) -> _Launch:
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
        if through:
            self._see(u, u.src if u.op is Ops.AFTER else u.src[:1])
        if u in self.stored:
            self.launches[u] = self.launch(u.src)
            self.seen.pop(u, None)
        self._set_reads(u)

    def _set_reads(self, u: UOp) -> None:
        root = self.root[u]
        if root in self.effects:
            self.reads[u] = frozenset(((root, self.seen.get(u, NEW)),))
        if u in self.stored or root in self.effects:
            self.needs[u] = frozenset((root,)) if root in self.stored else frozenset()
        elif u.src and not u.op.is_storage:
            made = self.launch(u.src[:1] if u.op is Ops.AFTER else u.src)
            self.reads[u], self.needs[u] = made.reads, made.needs

    def _visit_effect(self, u: UOp) -> None:
        self._see(u, u.src[:1] if u.op is Ops.STORE else u.src)
        seen = self.seen.get(u, NEW)
        if u.op is Ops.STORE:
            self.launches[u] = made = self.launch(u.src[1:], seen)
            made.needs |= self.needs.get(u.src[0], frozenset())
        elif u.op is Ops.CALL:
            slots = read_slots(u.src[0])
            made = self.launch([a for i, a in enumerate(u.src[1:]) if i in slots], seen)
            made.needs = self.launch(u.src[1:]).needs
            self.launches[u] = made
        if u in self.written:
            self.seen[u] = self.versions.after(u, seen)

    def _see(self, u: UOp, sources: Iterable[UOp]) -> None:
        found = [self.seen[s] for s in sources if s in self.seen]
        if found:
            self.seen[u] = self.versions.joined(u, found)


class _Accesses:
    """The spans of a storage that launches read and write, as far as their indices tell."""

    def __init__(self, demands: Demands) -> None:
        self.demands = demands
        self.spans: dict[UOp, dict[UOp, list[tuple[float, float]]]] = {}
        self.stores: dict[UOp, tuple[float, float]] = {}
        self.known: dict[UOp, UOp] = {}

    def written(self, w: UOp) -> tuple[float, float]:
        """The span of its storage that a launch may write."""
        if w.op is not Ops.STORE:
            return 0, float("inf")
        if w not in self.stores:
            index, _ = index_maps.loop_index(shapes.shape(w.src[0]))
            self.stores[w] = _span(*root_index(w.src[0], index, self.known)[:2])
        return self.stores[w]

    def read(self, reader: UOp, root: UOp) -> list[tuple[float, float]]:
        """The spans of a storage that a launch may read."""
        if root not in self.spans:
            spans = self.spans[root] = {}
            for launch, index in self.demands.get(root, ()):
                spans.setdefault(launch, []).append(_span(root, index))
        return self.spans[root].get(reader, [(0, float("inf"))])


def meet(root: UOp, a: Index, b: Index) -> bool:
    """True if two indices into a storage may meet in an element, by their spans."""
    (low, high), (begin, end) = _span(root, a), _span(root, b)
    return low < end and begin < high


@memo
def _span(root: UOp, index: Index) -> tuple[float, float]:
    plain = [index_maps.ungated(x)[0] for x in index]
    low, high = bounds.bounds(index_maps.flat_index(shapes.shape(root), plain))
    return low, high + 1


def _waits(reads: _Reads, accesses: _Accesses) -> _Waits:
    versions = reads.versions
    waits = _Waits([*reads.launches, *versions.waits])
    rank = {e: i for i, e in enumerate(versions.place)}
    writers: dict[UOp, Writers] = {}
    for root, effects in reads.effects.items():
        ordered = sorted(effects, key=rank.__getitem__)
        writers[root] = Writers(versions, [(w, accesses.written(w)) for w in ordered])
    for u, before in versions.waits.items():
        for e in before:
            waits.following[e].add(u)
    for u, launch in reads.launches.items():
        for v in launch.needs:
            waits.following[v].add(u)
        for root, version in launch.reads:
            for begin, end in accesses.read(u, root):
                found = writers[root].following(version, begin, end)
                waits.overwriting[u].update([w for w in found if w is not u])
            for e in version.last:
                waits.following[e].add(u)
        for e in launch.after.last:
            waits.following[e].add(u)
        waits.following[u] |= waits.overwriting[u]
    return waits


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
    reads = _Reads(order, stored, effects)
    for v in outputs:
        reads.launches.setdefault(v, reads.launch((v,)))
    waits = _waits(reads, _Accesses(demands))
    for u in copied:
        waits.copy(u)
    waits.begin()
    chosen: set[UOp] = set()
    while circle := waits.circle():
        pairs = zip(circle, [*circle[1:], circle[0]])
        found = [a for a, b in pairs if a.op is Ops.STORE and b in waits.overwriting[a]]
        if not found:
            break
        waits.copy(found[0])
        chosen.add(found[0])
    return chosen
