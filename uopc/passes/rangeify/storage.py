"""Storage while a graph is lowered: the effect that fills each STAGE, and versions of storage.

A view after effects becomes its storage AFTER the lowered effects. An effect that a later one
depends on is left out: 10,000 updates, one after the other, are 10,000 short AFTERs.
"""

from __future__ import annotations

from uopc.errors import InvalidIR
from uopc.ir.builder.index_maps import Index
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.passes.effects.views import root_index, stores_in


class LoweredStorage:
    """`made`: STAGE or STORE -> the effect that fills it, or the storage to read."""

    def __init__(self) -> None:
        self.made: dict[UOp, UOp] = {}
        self._versions: dict[UOp, tuple[UOp, UOp]] = {}  # view -> its root, and that after effects
        self._known: dict[UOp, UOp] = {}

    def after(self, view: UOp) -> UOp:
        """The root of a view, after the effects along the way."""
        path: list[UOp] = []
        while view not in self._versions and not view.op.is_storage and view.op is not Ops.STAGE:
            if not view.src:
                raise _no_view(view)
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
        root, index, guard = root_index(view, index, self._known)
        if not root.op.is_storage and root.op is not Ops.STAGE:
            raise _no_view(root)
        return root, index, guard


def _no_view(u: UOp) -> InvalidIR:
    return InvalidIR(f"rangeify: expected a view of storage, found {u.op!r}{made_at(u)}")


def _version(root: UOp, version: UOp, effects: list[UOp]) -> UOp:
    """A version of some storage, after more effects."""
    new = tuple(dict.fromkeys([e for e in effects if e.op is not Ops.NOOP]))
    if not new:
        return version
    changed = [e.src[1:] if e.op is Ops.CALL else stores_in(e)[0].src[0].src[:1] for e in new]
    stem = root if any([version in found for found in changed]) else version
    return intern(Ops.AFTER, root.dtype, (stem, *new))


def effects_in(roots: tuple[UOp, ...]) -> list[UOp]:
    """The STOREs and CALLs among effects, through GROUP and AFTER."""
    effects = (Ops.STORE, Ops.CALL, Ops.GROUP, Ops.AFTER)
    out: list[UOp] = []
    stack = list(reversed(roots))
    while stack:
        u = stack.pop()
        if u.op in (Ops.GROUP, Ops.AFTER, Ops.SINK):
            stack += [s for s in reversed(u.src) if s.op in effects]
        elif u.op in (Ops.STORE, Ops.CALL):
            out.append(u)
    return out
