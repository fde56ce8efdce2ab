"""Stores that wait for each other in a cycle: each overwrites a value that another still reads.

`a.assign(a + b)` and `b.assign(a - b)`, both of the old values: whichever runs first destroys what
the other one reads. So does `a.assign(a + 1) + a` alone: the sum waits for the store, and reads
what it overwrites. The cycle opens if the values that are still read are copied first.

Two assignments to one version of an array, `a.assign(b) + a.assign(c)`, are two histories of it.
Memory shows one of them, with both stores as found; a version that it never shows gets storage of
its own, to which its stores are made too.

A launch is anything that becomes a kernel: a STORE, a CALL, a stored value, a copied output.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import read_slots, written_slots
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.passes.effects.versions import (
    NEW,
    EffectsBelow,
    Footprint,
    LaunchGraph,
    Span,
    Version,
    Versions,
)
from uopc.passes.effects.views import root_index

# A storage and its version.
Read = tuple["UOp", Version]
# storage -> its reads, as (launch, index)
Demands = Mapping["UOp", Iterable[tuple["UOp", Index]]]


class Placed(NamedTuple):
    """A graph, sources first, with decisions: stored values and reasons, the effects on each
    storage, the demands on it, copied outputs, and STOREs whose values are stored first."""

    order: list[UOp]
    stored: Mapping[UOp, str]
    effects: Mapping[UOp, set[UOp]]
    below: EffectsBelow
    demands: Demands
    outputs: list[UOp]
    copied: set[UOp]


_WHOLE = [(0.0, float("inf"))]


class LaunchFootprints:
    """The footprints of all launches."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.whole = {*placed.outputs, *[s for u in placed.copied for s in u.src[1:]]}
        self.stored, self.effects, below = placed.stored, placed.effects, placed.below
        self.versions = Versions()
        self.versions.numbers = below.numbers
        self.versions.below = {e: below.bits[e] ^ (1 << i) for e, i in below.numbers.items()}
        self.found: dict[UOp, Footprint] = {}
        self._root: dict[UOp, UOp] = {}
        self._seen: dict[UOp, Version] = {}  # the version of storage, or of an effect
        self._reads: dict[UOp, frozenset[Read]] = {}  # of a value, up to stored values
        self._spans: dict[tuple[UOp, UOp], list[tuple[float, float]]] = {}  # (launch, root)
        for root in self.effects:
            for launch, index in placed.demands.get(root, ()):
                self._spans.setdefault((launch, root), []).append(_span(root, index))
        for u in placed.order if self.effects else ():  # else nothing is overwritten
            if u.dtype is not dtypes.void:
                self._visit_value(u)
            else:
                self._visit_effect(u)
        known: dict[UOp, UOp] = {}
        for root, found in self.effects.items():
            for e in found:
                begin, end = _written(e, known)
                self.found[e].writes.append(Span(root, begin, end))
        for v in placed.outputs:
            self.add(v, (v,))

    def writes(self, root: UOp, effects: int = -1) -> list[UOp]:
        """The STOREs and CALLs that write to a storage among some effects, in the order found."""
        written = self.effects[root]
        return [
            e for i, e in enumerate(self.placed.below.effects) if effects >> i & 1 and e in written
        ]

    def read(self, u: UOp) -> Read | None:
        """The storage and version that a view shows; None for other values."""
        root = self._root.get(u, u)
        if root in self.effects and (u in self._root or u.op.is_storage):
            return root, self._seen.get(u, NEW)
        return None

    def can_read_copies(self, u: UOp) -> bool:
        """True if a launch may read copies of storage: it is more than a copy, and no hand-written
        kernel that changes the storage it reads."""
        if u.op is not Ops.CALL:
            return not self.is_copy(u)
        return set(written_slots(u.src[0])).isdisjoint(read_slots(u.src[0]))

    def is_copy(self, u: UOp) -> bool:
        """True if a launch copies a view, and computes nothing."""
        return u in self.whole and self.read(u) is not None

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
            self._seen[u] = Version(0, (u,))
        elif through:
            self._see(u, u.src if u.op is Ops.AFTER else u.src[:1])
        if root in self.effects or root in self.stored:
            self._reads[u] = frozenset(((root, self._seen.get(u, NEW)),))
        elif not u.op.is_storage:
            self._reads[u] = self._read(u.src[:1] if u.op is Ops.AFTER else u.src)

    def _visit_effect(self, u: UOp) -> None:
        self._see(u, u.src[:1] if u.op is Ops.STORE else u.src)
        seen = self._seen.get(u, NEW)
        if u in self.placed.copied:
            values = [s for s in u.src[1:] if s.op is not Ops.CONST]
            for s in values:
                if s not in self.found:
                    self.add(s, (s,))
            self.found[u] = Footprint([], [], [seen, *[Version(0, (s,)) for s in values]])
        elif u.op is Ops.STORE:
            self.add(u, u.src[1:], seen)
        elif u.op is Ops.CALL:
            slots = read_slots(u.src[0])
            self.add(u, [a for i, a in enumerate(u.src[1:]) if i in slots], seen)
        if u in self.versions.numbers:
            self._seen[u] = Version(self.placed.below.bits[u], (u,), seen)

    def _see(self, u: UOp, sources: Iterable[UOp]) -> None:
        found = [self._seen[s] for s in sources if s in self._seen]
        if found:
            self._seen[u] = self.versions.joined(u, found)


@dataclass(eq=False)
class _Copy:
    """The launch that copies what others still read of a version of some storage."""

    read: Read


Launch = UOp | _Copy


class _UnorderedLaunches:
    """The launches without an order so far, each with the unordered launches before it."""

    def __init__(self, graph: LaunchGraph) -> None:
        self.overwriting: dict[Launch, set[UOp]] = dict(graph.overwriting.items())
        rank: dict[Launch, int] = {u: i for i, u in enumerate(graph.before)}
        self.before: dict[Launch, dict[Launch, None]] = {
            u: dict.fromkeys(sorted(found, key=rank.__getitem__))
            for u, found in graph.before.items()
        }
        self.following: dict[Launch, dict[Launch, None]] = {u: {} for u in self.before}
        for u, found in self.before.items():
            for v in found:
                self.following[v][u] = None
        self.ready: list[Launch] = [u for u, found in self.before.items() if not found]

    def circle(self) -> list[Launch]:
        """Launches that wait for each other, each for the one before it; empty without a circle."""
        while self.ready:
            u = self.ready.pop()
            self.before.pop(u, None)
            for w in self.following[u]:
                self._drop(u, w)
        path: dict[Launch, None] = {}
        at = next(iter(self.before), None)
        while at is not None and at not in path:  # everything left waits for something left
            path[at] = None
            at = next(iter(self.before[at]))
        found = list(path)
        return found[found.index(at) :][::-1] if at is not None else []

    def _drop(self, u: Launch, w: Launch) -> None:
        """Let `w` no longer wait for `u`."""
        waits = self.before.get(w, {})
        if u in waits:
            del waits[u]
            if not waits:
                self.ready.append(w)

    def add(self, copy: _Copy) -> None:
        """Add a copy, which waits for what made the version."""
        self.before[copy] = {u: None for u in copy.read[1].last if u in self.before}
        self.overwriting[copy], self.following[copy] = set(), {}
        for u in self.before[copy]:
            self.following[u][copy] = None
        if not self.before[copy]:
            self.ready.append(copy)

    def move(self, u: Launch, copy: _Copy, later: set[UOp], kept: set[UOp]) -> None:
        """Let a launch read a copy: launches `later` overwrite what is copied, and `kept` what the
        launch still reads itself."""
        if copy in self.before:
            for w in (*later, u):
                if w in self.before:
                    self.before[w][copy] = None
                    self.following[copy][w] = None
        self.overwriting[copy] |= later
        gone, self.overwriting[u] = self.overwriting[u] - kept, self.overwriting[u] & kept
        for w in gone:
            self._drop(u, w)

    def free(self, u: Launch) -> None:
        """Let a launch wait for nothing, and nothing wait for it to read."""
        for w in self.overwriting[u]:
            self._drop(u, w)
        self.overwriting[u] = set()
        self.before[u] = {}
        self.ready.append(u)


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


def opened(launches: LaunchFootprints) -> tuple[dict[UOp, set[Read]], set[Read]]:
    """The copies without which launches wait for each other in a circle: per launch, the versions
    of which it reads copies; and the versions that memory never shows.

    A circle that nothing opens stays: split-kernels reports it.
    """
    chained: dict[UOp, None] = {}
    while True:
        copies, apart = _opened(launches, chained)
        found = dict.fromkeys(root for root, _ in apart if root not in chained)
        if not found:
            return copies, apart
        chained |= found


def _opened(
    launches: LaunchFootprints, chained: Iterable[UOp]
) -> tuple[dict[UOp, set[Read]], set[Read]]:
    """One round of `opened`, with the writes to `chained` storages kept in the order in which they
    were found: if memory cannot show all versions, it shows those of this order."""
    if not launches.effects:
        return {}, set()
    graph = LaunchGraph(launches.versions, launches.found)
    for root in chained:
        for a, b in itertools.pairwise(launches.writes(root)):
            graph.before[b].add(a)
            graph.overwriting[a].discard(b)  # it waits for more than a read
    waits = _UnorderedLaunches(graph)
    made: dict[Read, _Copy] = {}
    copies: dict[UOp, set[Read]] = {}
    apart: set[Read] = set()
    while circle := waits.circle():
        pairs = list(zip(circle, [*circle[1:], circle[0]]))
        found = [(a, b) for a, b in pairs if b in waits.overwriting.get(a, ())]
        readers = [
            (a, b) for a, b in found
            if isinstance(a, UOp) and isinstance(b, UOp) and launches.can_read_copies(a)
        ]  # fmt: skip
        shown = [a for a, _ in found if isinstance(a, _Copy) or launches.is_copy(a)]
        if readers:
            _copy_reads(*readers[0], launches, graph, waits, made, copies)
        elif shown:
            if isinstance(u := shown[0], UOp):
                copies[u] = {(p.root, p.seen) for p in launches.found[u].reads}
                apart |= copies[u]
            else:
                apart.add(u.read)
            waits.free(u)
        else:
            break
    return copies, apart


def _copy_reads(
    u: UOp, w: UOp, launches: LaunchFootprints, graph: LaunchGraph, waits: _UnorderedLaunches,
    made: dict[Read, _Copy], copies: dict[UOp, set[Read]],
) -> None:  # fmt: skip
    """Let a launch read copies of the storage that another launch, which must come later,
    overwrites."""
    footprint = launches.found[u]
    done = copies.setdefault(u, set())
    left = [p for p in footprint.reads if (p.root, p.seen) not in done]
    for read in dict.fromkeys([(p.root, p.seen) for p in left if w in graph.overwriters((p,))]):
        if read not in made:
            made[read] = _Copy(read)
            waits.add(made[read])
        done.add(read)
        moved = [p for p in left if (p.root, p.seen) == read]
        left = [p for p in left if (p.root, p.seen) != read]
        later, kept = graph.overwriters(moved) - {u}, graph.overwriters(left)
        waits.move(u, made[read], later, kept)
