"""Copies of what is still read of a storage when a store has overwritten it.

Before (tensor)                       After (tensor)
  %1 = param x : i32[4]                 %1 = param x : i32[4]
  %2 = add %1, 1:i32 : i32[4]           %2 = contiguous %1 : i32[4]
  %3 = store %1, %2                     %3 = add %1, 1:i32 : i32[4]
  %4 = after %1, %3 : i32[4]            %4 = store %1, %3
  %5 = add %4, %1 : i32[4]              %5 = after %1, %4 : i32[4]
  sink %5                               %6 = add %5, %2 : i32[4]
                                        sink %6

Only the launches in a circle read the copy. It has the elements that they read: a window of the
storage, or all of it where several windows together have as many.
"""

from __future__ import annotations

import itertools

from uopc.ir.builder import leaves, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root, written_slots
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.effects.store_cycles import LaunchFootprints, Read


class OldValues:
    """Rewrites a graph: `copies` maps each launch to the storage that it reads copies of; `apart`:
    versions that need storage of their own."""

    def __init__(
        self, graph: UOp, launches: LaunchFootprints, copies: dict[UOp, set[Read]], apart: set[Read]
    ) -> None:
        self.graph, self.launches, self.copies, self.apart = graph, launches, copies, apart
        self.done: dict[UOp, UOp] = {}
        self.made: dict[UOp, None] = {}  # the copies
        order = launches.placed.order
        slots = [u.arg.slot for u in order if u.op is Ops.BUFFER]
        self._slots = itertools.count(1 + max(slots, default=-1))
        self._versions: dict[Read, UOp] = {}  # storage for a version
        self._twice: set[UOp] = set()  # effects that are made to two storages
        # The effects before one that is made to two storages, by the storage that both write.
        self._previous: dict[UOp, dict[UOp, UOp]] = {}
        for root, seen in apart:
            self._twice |= set(launches.writes(root, seen.effects))
            for a, b in itertools.pairwise(launches.writes(root)):
                self._previous.setdefault(b, {})[root] = a
        self._picked: dict[UOp, dict[UOp, None]] = {}  # storage -> the views that are copied
        self._cones = {u: self._cone(u) for u in copies}
        for u, cone in self._cones.items():
            self._pick(u, cone)

    def rewritten(self) -> UOp:
        """The graph with its copies, which `made` lists afterwards."""
        done = self.done
        for u in self.launches.placed.order:
            src = tuple([done.get(s, s) for s in u.src])
            if u in self._cones and u not in self.launches.whole:
                values = dict(zip(self._sources(u), self._values(u, self._sources(u))))
                src = tuple([
                    new if i in _targets(u) else values[s]
                    for i, (s, new) in enumerate(zip(u.src, src))
                ])  # fmt: skip
            elif u is self.graph or u in self.launches.placed.copied:
                first = 0 if u is self.graph else 1  # a STORE writes to its first source
                shown = [v for v in u.src[first:] if v in self._cones and v in self.launches.whole]
                known = {v: self._values(v, (v,))[0] for v in shown}
                read = [known.get(v, new) for v, new in zip(u.src[first:], src[first:])]
                src = (*src[:first], *read)
                if u is self.graph:  # memory keeps its last state
                    last = [self.launches.writes(root)[-1] for root, _ in self.apart]
                    src = (*src, *dict.fromkeys([done.get(e, e) for e in last]))
            src = self._in_order(u, src)
            if src != u.src:
                done[u] = made = rebuild.remake(u, src)
                set_origin(made, made.origin or u.origin)
        return done.get(self.graph, self.graph)

    def _in_order(self, u: UOp, src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """The sources of a launch. A value that goes to two storages is computed once, and each
        written storage comes after its earlier effects."""
        targets = _targets(u) if u in self._twice or u in self._previous else set()
        if u in self._twice:
            src = tuple([s if i in targets else self._copy(s) for i, s in enumerate(src)])
        for root, e in self._previous.get(u, {}).items():
            before = self.done.get(e, e)
            src = tuple([
                intern(Ops.AFTER, s.dtype, (s, before))
                if i in targets and storage_root(u.src[i]) is root else s
                for i, s in enumerate(src)
            ])  # fmt: skip
        return src

    # ------------------------------------------------------------ what a launch reads
    def _sources(self, u: UOp) -> tuple[UOp, ...]:
        if u in self.launches.whole:
            return (u,)
        targets = _targets(u)
        return tuple([s for i, s in enumerate(u.src) if i not in targets])

    def _cone(self, u: UOp) -> dict[UOp, None]:
        """The nodes that a launch computes, sources first, with the storage that it reads."""
        cone: dict[UOp, None] = {}
        stored = self.launches.stored
        for s in self._sources(u):
            walk.toposort(s, lambda v: v not in stored and v.op is not Ops.AFTER, cone)
        return cone

    def _pick(self, u: UOp, cone: dict[UOp, None]) -> None:
        """Note the smallest view on each way from storage to what the launch computes."""
        smallest: dict[UOp, tuple[UOp, UOp]] = {}  # view -> storage, the smallest view up to here
        for v in cone:
            read = self.launches.read(v)
            if v.op.movement and v.src[0] in smallest:
                storage, view = smallest[v.src[0]]
                less = most_elements(shapes.shape(v)) < most_elements(shapes.shape(view))
                smallest[v] = storage, v if less else view
            elif read in self.copies[u]:
                smallest[v] = v, v
        used = {s for v in cone if not v.op.movement for s in v.src if v.op is not Ops.AFTER}
        for s in (*used, *self._sources(u)):
            if s in smallest:
                storage, view = smallest[s]
                self._picked.setdefault(storage, {})[view] = None

    def _values(self, u: UOp, sources: tuple[UOp, ...]) -> list[UOp]:
        """The sources of a launch, on copies."""
        cone, copies = self._cones[u], self.copies[u]
        known: dict[UOp, UOp] = {}
        for v in cone:
            read = self.launches.read(v)
            if v in self._picked and read is not None and read in copies:
                known |= self._replacements(v, read)
            elif v not in known and not self._is_inside(v):
                known[v] = self.done.get(v, v)
        return [rebuild.rebuild(s, known) for s in sources]

    def _is_inside(self, v: UOp) -> bool:
        return v not in self.launches.stored and v.op is not Ops.AFTER and bool(v.src)

    def _replacements(self, storage: UOp, read: Read) -> dict[UOp, UOp]:
        """The copies of a version of storage, by the node that they stand for."""
        if read in self.apart:
            return {storage: self._rebased(storage, self._version(read))}
        views = self._picked[storage]
        copied = sum([most_elements(shapes.shape(v)) for v in views])
        if copied >= most_elements(shapes.shape(storage)):
            views = {storage: None}
        made = {v: self._copy(self.done.get(v, v)) for v in views}
        return {storage: self.done.get(storage, storage)} | made

    def _copy(self, value: UOp) -> UOp:
        made = intern(Ops.CONTIGUOUS, value.dtype, (value,))
        self.made[made] = None
        return made

    # ------------------------------------------------------------ versions in storage of their own
    def _version(self, read: Read) -> UOp:
        """Storage that holds a version of another one."""
        if read in self._versions:
            return self._versions[read]
        root, seen = read
        made = self._filled(root, self.done.get(root, root))
        for e in self.launches.writes(root, seen.effects):
            targets = _targets(e)
            src = list(self.done[e].src)
            for i in targets - {0} if e.op is Ops.CALL else targets:
                is_root = storage_root(e.src[i]) is root
                src[i] = self._rebased(e.src[i], made) if is_root else self._unseen(src[i])
            effect = intern(e.op, dtypes.void, tuple(src), e.arg)
            set_origin(effect, e.origin)
            made = intern(Ops.AFTER, root.dtype, (made, effect))
        self._versions[read] = made
        return made

    def _unseen(self, written: UOp) -> UOp:
        """Separate storage for another array that a CALL writes: of the repeated CALL, only the
        version is read."""
        return self._filled(written, self._copy(written))

    def _filled(self, like: UOp, value: UOp) -> UOp:
        """New storage of the kind of another one, after a store of a value."""
        made = leaves.buffer(next(self._slots), like.dtype, shapes.shape(like))
        return intern(Ops.AFTER, like.dtype, (made, intern(Ops.STORE, dtypes.void, (made, value))))

    def _rebased(self, view: UOp, storage: UOp) -> UOp:
        """A view of some storage as the same view of another one."""
        path: list[UOp] = []
        while view.op.movement or view.op is Ops.AFTER:
            if view.op is not Ops.AFTER:
                path.append(view)
            view = view.src[0]
        for v in reversed(path):
            storage = rebuild.remake(v, (storage, *[self.done.get(s, s) for s in v.src[1:]]))
        return storage


def _targets(u: UOp) -> set[int]:
    """The sources of a launch that are not values: the storage that it writes, and a CALL's
    kernel."""
    if u.op is Ops.CALL:
        return {0, *[1 + slot for slot in written_slots(u.src[0])]}
    return {0} if u.op is Ops.STORE else set()
