"""An index into a view of storage as an index into the storage.

Kernels written by hand index views; the interpreter reads and writes storage alone.
INDEX(PERMUTE(p), i, j) is INDEX(p, j, i), and INDEX(AFTER(RESHAPE(p), e), i, j) is an INDEX of
AFTER(p, e): movement ops become arithmetic on the indices, effects stay.
"""

from __future__ import annotations

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.interpret.step_order import storage


def without_views(root: UOp) -> UOp:
    """The graph with an index into the storage itself for each access; `root` if it has no views.

    InvalidIR where a view is of no storage, UserError where an index has too many components.
    """
    def is_view(u: UOp) -> bool:
        return u.op.movement or u.op is Ops.DETACH

    changed = set()
    for index in [u for u in walk.toposort(root) if u.op is Ops.INDEX]:
        u = index.src[0]
        while u.op is Ops.INDEX or u.op is Ops.AFTER:
            u = u.src[0]
        if is_view(u):
            changed.add(index)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        target = src[0] if src else u
        if u not in changed:
            return target if is_view(u) else None  # the INDEX above accounts for it
        storage(u)
        _, index, guard = index_maps.storage_index(u)
        while target.op is Ops.INDEX:  # a row of the storage
            target = target.src[0]
        return intern(Ops.INDEX, u.dtype, (target, *index_maps.gated(index, guard)), u.arg, u.tag)

    return rebuild.rewritten(root, change) if changed else root
