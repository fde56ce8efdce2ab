"""The launches of a program: closed stores and calls, with the storage that each accesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import (
    before_effects,
    read_slots,
    storage_root,
    written_arguments,
    written_slots,
)  # fmt: skip
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.passes.effects.versions import NEW, Footprint, Span, Version, Versions
from uopc.passes.effects.views import closed_effects, is_local, stores_in


class StorageUse(NamedTuple):
    """An INDEX into storage as a flat index with a guard. `gathered`: the index itself is read."""

    root: UOp
    flat: UOp
    guard: UOp
    gathered: bool


@dataclass
class KernelCall(Footprint):
    """One closed store or call. `lengths`: the variables it needs that the program computes."""

    effect: UOp
    nodes: list[UOp] = field(default_factory=list)
    accesses: dict[UOp, StorageUse] = field(default_factory=dict)
    lengths: list[UOp] = field(default_factory=list)


class KernelCalls:
    """Every closed store and call, each after those whose results it reads. `lengths`: the storage
    of each variable that the program computes, after the effects that store its value."""

    def __init__(self, graph: UOp, lengths: Mapping[UOp, UOp]) -> None:
        self.versions, self.lengths = Versions(), lengths
        self._seen: dict[UOp, Version] = {}  # of an effect or AFTER
        self.known: dict[UOp, UOp] = {}  # as for `before_effects`
        effects = closed_effects(graph)
        self.found: dict[UOp, KernelCall] = {}
        writers = Counter([r for e in effects for r in self._written(e)])
        for effect in effects:
            made = self._called(effect) if effect.op is Ops.CALL else self._stored(effect)
            self._await_lengths(made)
            seen = self.versions.joined(effect, made.after)
            alone = all([p.root.op is Ops.BUFFER and writers[p.root] == 1 for p in made.writes])
            self._seen[effect] = self.versions.after(effect, seen, not alone)
            self.found[effect] = made

    def _await_lengths(self, call: KernelCall) -> None:
        """Let a call read the values of the variables that the program computes."""
        needed = _variables(call) if self.lengths else ()
        for v, value in self.lengths.items():
            if v not in needed:
                continue
            root, seen = storage_root(value), self.seen(value)
            call.reads.append(Span(root, 0, float("inf"), seen))
            call.after.append(seen)
            call.lengths.append(v)

    def _written(self, effect: UOp) -> Iterable[UOp]:
        """The storage that a closed store or call writes."""
        if effect.op is Ops.CALL:
            targets = written_arguments(effect)
        else:
            targets = [store.src[0].src[0] for store in stores_in(effect)]
        return dict.fromkeys([before_effects(t, self.known) for t in targets])

    def _called(self, effect: UOp) -> KernelCall:
        """A call of a hand-written kernel, which may read and write all of its arguments."""
        written, read = written_slots(effect.src[0]), read_slots(effect.src[0])
        args = [a for a in effect.src[1:] if a.op is not Ops.VARIABLE]
        roots = [before_effects(a, self.known) for a in args]
        spans = [Span(root, 0, float("inf"), self.seen(a)) for root, a in zip(roots, args)]
        reads = [s for i, s in enumerate(spans) if i in read]
        writes = [s for i, s in enumerate(spans) if i in written]
        return KernelCall(reads, writes, [s.seen for s in spans], effect)

    def _stored(self, effect: UOp) -> KernelCall:
        # The storage that a kernel is called with is a leaf.
        nodes = list(walk.toposort(effect, gate=lambda u: u.op is not Ops.AFTER or is_local(u)))
        stores = stores_in(effect)
        targets = dict.fromkeys([store.src[0] for store in stores])
        closed = set(stores)
        accesses: dict[UOp, StorageUse] = {}
        spans: dict[UOp, Span] = {}
        read: set[UOp] = set()  # used other than as the target of a store
        loaded: set[UOp] = set()  # depends on a value that is read
        for u in nodes:
            if u.op is Ops.INDEX:
                storage, index = u.src[0], u.src[1:]
                root = before_effects(storage, self.known)
                flat, guard = _flat(shapes.shape(root), index)
                accesses[u] = StorageUse(root, flat, guard, not loaded.isdisjoint(index))
                if not is_local(storage):
                    low, high = bounds.bounds(flat)
                    spans[u] = Span(root, low, high + 1, self.seen(storage))
                loaded.add(u)
            elif not loaded.isdisjoint(u.src):
                loaded.add(u)
            read.update(u.src[1:] if u in closed else u.src)
        reads = [s for u, s in spans.items() if u not in targets or u in read]
        after = [s.seen for s in spans.values()]
        writes = [spans[t] for t in targets if t in spans]  # what is local is of one launch
        return KernelCall(reads, writes, after, effect, nodes, accesses)

    def seen(self, storage: UOp) -> Version:
        """The version of a storage."""
        chain: list[UOp] = []
        while storage.op is Ops.AFTER and storage not in self._seen:
            chain.append(storage)
            storage = storage.src[0]
        out = self._seen.get(storage, NEW)
        for after in reversed(chain):
            found = [out, *[self._seen[e] for e in after.src[1:]]]
            self._seen[after] = out = self.versions.joined(after, found)
        return out


def _variables(call: KernelCall) -> set[UOp]:
    """The variables that a call needs."""
    nodes = call.nodes or [*walk.order(call.effect.src[0]), *call.effect.src[1:]]
    return {u for u in nodes if u.op is Ops.VARIABLE}


@memo
def _flat(dims: shapes.Shape, index: Index) -> tuple[UOp, UOp]:
    """The flat form of an index into storage of these dimensions, and its guard."""
    plain, guard = index_maps.plain_index(index, index_maps.true())
    return index_maps.flat_index(dims, plain), guard
