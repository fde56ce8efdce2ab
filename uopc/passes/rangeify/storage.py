"""What rangeify has made of the storage in a graph: what fills it, and its versions.

A view after effects is its storage AFTER the lowered effects. Those that a later one stands on are
left out: 10,000 updates, each of what the one before left, are 10,000 short AFTERs.
"""

from __future__ import annotations

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder.index_maps import Index
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.views import stores_in

_EFFECTS = frozenset((Ops.STORE, Ops.CALL, Ops.GROUP, Ops.AFTER))


class LoweredStorage:
    """`made`: STAGE or STORE -> the effect that fills it, or what to read."""

    def __init__(self) -> None:
        self.made: dict[UOp, UOp] = {}
        self._versions: dict[UOp, tuple[UOp, UOp]] = {}  # view -> its root, and that after effects
        self._known: dict[UOp, UOp] = {}

    def after(self, view: UOp) -> UOp:
        """The root of a view, after the effects along the way."""
        path: list[UOp] = []
        while view not in self._versions and not view.op.is_storage and view.op is not Ops.STAGE:
            path.append(view)
            view = view.src[0]
        root = self.made.get(view, view)
        root, version = self._versions.get(view, (root, root))
        for u in reversed(path):
            if u.op is Ops.AFTER:
                found = [self.made[e] for e in effects_in(u.src[1:]) if e in self.made]
                version = _version(root, version, found)
            self._versions[u] = root, version
        return version

    def access(self, view: UOp, index: Index) -> tuple[UOp, Index, UOp]:
        """The storage (or STAGE) under a view, the index into it, the guard of PADs on the way."""
        guard = indexing.true()
        view = before_effects(view, self._known)
        while not view.op.is_storage and view.op is not Ops.STAGE:
            if not view.op.movement:
                raise InvalidIR(f"rangeify: expected a view of storage, found {view.op!r}")
            index, more = indexing.source_index(view, index)
            guard = guard if more is None else indexing.both(guard, more)
            view = before_effects(view.src[0], self._known)
        return view, index, guard


def _version(root: UOp, version: UOp, effects: list[UOp]) -> UOp:
    """A version of some storage, after more effects."""
    new = tuple(dict.fromkeys([e for e in effects if e.op is not Ops.NOOP]))
    if not new:
        return version
    stem = root if any([version in _changed(e) for e in new]) else version
    return intern(Ops.AFTER, root.dtype, (stem, *new))


def _changed(effect: UOp) -> tuple[UOp, ...]:
    """The versions of storage that a lowered effect is applied to."""
    if effect.op is Ops.CALL:
        return effect.src[1:]
    return stores_in(effect)[0].src[0].src[:1]


def effects_in(roots: tuple[UOp, ...]) -> list[UOp]:
    """The STOREs and CALLs among effects, through GROUP and AFTER."""
    out: list[UOp] = []
    stack = list(reversed(roots))
    while stack:
        u = stack.pop()
        if u.op in (Ops.GROUP, Ops.AFTER, Ops.SINK):
            stack += [s for s in reversed(u.src) if s.op in _EFFECTS]
        elif u.op in (Ops.STORE, Ops.CALL):
            out.append(u)
    return out
