"""Kernels written by hand index views of storage; the interpreter only knows places in storage.

INDEX(PERMUTE(p), i, j) is INDEX(p, j, i), and INDEX(AFTER(RESHAPE(p), e), i, j) is an INDEX of
AFTER(p, e): what moves elements becomes arithmetic on the indices, what orders stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op, Ops
from uopc.ir.verify.nodes import describe

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

_PATH: frozenset[Op] = frozenset((Ops.INDEX, Ops.AFTER, Ops.DETACH))


def without_views(root: UOp) -> UOp:
    """The graph with an index into the storage itself for each access; itself where all have one.

    InvalidIR where a view is of no storage, or has fewer dimensions than it is indexed with.
    """
    order = analysis.toposort(root)
    changed = {u for u in order if u.op is Ops.INDEX and _is_of_view(u)}
    if not changed:
        return root
    views = {v for u in changed for v in _path(u)}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in changed:
            return _direct(u, src[0])
        if u in views and u.op is not Ops.AFTER and not u.op.is_storage:
            return src[0]  # the INDEX above has taken it into account
        return None

    return remake.rewritten(root, change)


def _path(u: UOp) -> list[UOp]:
    """From what an INDEX indexes down to the storage, that included."""
    path = [u.src[0]]
    while path[-1].op.movement or path[-1].op in _PATH:
        path.append(path[-1].src[0])
    return path


def _is_of_view(u: UOp) -> bool:
    return any(v.op.movement or v.op is Ops.DETACH for v in _path(u))


def _direct(u: UOp, storage: UOp) -> UOp:
    """The INDEX `u` as one of `storage`, which is what it indexes without the views."""
    index, guard = u.src[1:], indexing.true()
    *path, base = _path(u)
    if not base.op.is_storage:
        raise InvalidIR(f"{describe(u)}: reads or writes {base.op!r}, which is not storage")
    for view in path:
        if view.op is Ops.INDEX:  # a row: it is indexed further
            index = (*view.src[1:], *index)
            continue
        rank = len(analysis.shape(view))
        if len(index) > rank:
            raise InvalidIR(f"{describe(u)}: {len(index)} indices for {rank} dimensions")
        index += (indexing.zero(),) * (rank - len(index))
        # A component may be INVALID somewhere: there is no access then, whatever view it is of.
        index, guard = _plain(index, guard)
        index, more = indexing.source_index(view, index)
        guard = guard if more is None else indexing.both(guard, more)
    while storage.op is Ops.INDEX:  # a row of the storage itself
        storage = storage.src[0]
    return intern(Ops.INDEX, u.dtype, (storage, *indexing.gated(index, guard)), u.arg, u.tag)


def _plain(index: indexing.Index, guard: UOp) -> tuple[indexing.Index, UOp]:
    """The components without their guards, and all guards together."""
    plain: list[UOp] = []
    for component in index:
        x, condition = indexing.ungated(component)
        plain.append(x)
        guard = guard if condition is None else indexing.both(guard, condition)
    return tuple(plain), guard
