"""Turn shapes into loops: every stored value becomes a loop nest that writes its buffer.

Before (tensor)                             After (indexed)
  %1 = param x : f32[4, 8]                    %1 = buffer slot=0 : f32[8]
  %2 = permute %1 (1, 0) : f32[8, 4]          %2 = range 8 axis=0.0 kind=loop : index
  %3 = reduce.add %2 axes=(1,) : f32[8]       %3 = param x : f32[4, 8]
  %4 = stage %3 reason="output 0" : f32[8]    %4 = range 4 axis=1 kind=reduce : index
  sink %4                                     %5 = reduce.add %3[%4, %2] over %4 : f32
                                              %6 = store %1[%2], %5
                                              %7 = end %6, %2
                                              %8 = after %1, %7 : f32[8]
                                              sink %8

`ir/builder/elements.py` lowers the values.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from uopc.ir.builder import index_maps, leaves
from uopc.ir.builder.elements import Elements, Needs, valid_part
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.analysis.parts import MOST_TOGETHER, share_work
from uopc.passes.analysis.user_opts import Opts
from uopc.passes.contract import Context
from uopc.passes.rangeify.storage import LoweredStorage, effects_in


class _ValueLowering(Elements):
    """Lowers one stored value, which reads storage as it is after effects."""

    def __init__(self, storage: LoweredStorage) -> None:
        super().__init__()
        self.storage = storage

    def reduced(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """One REDUCE for all guards that say nothing of its index."""
        needed = index_maps.guard_at(index, guard)
        if needed is not guard:
            return (yield [(u, index, needed)])[0]
        return (yield from super().reduced(u, index, guard))

    def read(self, u: UOp, index: Index, guard: UOp) -> UOp:
        """An access to storage through the views that lead to it."""
        if u.op is Ops.AFTER:
            root, index, more = self.storage.access(u, index)
            target = self.storage.after(u)
            index = index_maps.gated(index, index_maps.both(guard, more))
            return intern(Ops.INDEX, root.dtype, (target, *index))
        target = self.storage.made.get(u, u)
        return intern(Ops.INDEX, u.dtype, (target, *index_maps.gated(index, guard)))


def _closed_stores(
    pairs: list[tuple[UOp, UOp]], ranges: tuple[UOp, ...], origin: Any, opts: Opts = None
) -> UOp:
    """Targets and values, stored in one loop nest: an END holds Opts, or several stores."""
    stores = []
    for target, value in pairs:
        if value.op is not Ops.INVALID:
            stores.append(intern(Ops.STORE, dtypes.void, (target, value)))
            set_origin(stores[-1], origin)
    if not stores:
        return intern(Ops.NOOP, dtypes.void)
    body = stores[0] if len(stores) == 1 else intern(Ops.GROUP, dtypes.void, tuple(stores))
    if not ranges and opts is None and len(stores) == 1:
        return body
    return intern(Ops.END, dtypes.void, (body, *ranges), opts)


def _lower_stage(u: UOp, slot: int, storage: LoweredStorage, limit: Limit) -> UOp:
    """A new buffer, filled: AFTER(BUFFER, END(STORE)), with a store for each part of many."""
    dims = shapes.shape(u)
    buffer = leaves.buffer(slot, u.dtype, dims, u.arg.space, u.arg.device)
    if 0 in dims:
        return buffer
    effects = []
    for parts in _stored_parts(u, storage, limit):
        shape = shapes.shape(parts[0][0])
        if 0 not in shape:
            index, ranges = index_maps.loop_index(shape)
            lowering, pairs = _ValueLowering(storage), []
            for part, begin in parts:
                value, valid = valid_part(lowering.lower((part, index, index_maps.true())))
                written = index_maps.gated(_index_of_whole(u.src[0], begin, index), valid)
                pairs.append((intern(Ops.INDEX, u.dtype, (buffer, *written)), value))
            effects.append(_closed_stores(pairs, ranges, u.src[0].origin, u.arg.opts))
    return intern(Ops.AFTER, u.dtype, (buffer, *dict.fromkeys(effects)))


def _stored_parts(
    stage: UOp, storage: LoweredStorage, limit: Limit
) -> list[list[tuple[UOp, shapes.Dim | None]]]:
    """Per loop nest, the values stored: the value itself, or one or several parts by begin."""
    value = stage.src[0]
    together = _together(stage, storage)
    within = limit.allows(stage, [value], storage.made)
    if not together and not stage.arg.by_part and within:
        return [[(value, None)]]
    if value.op not in (Ops.STACK, Ops.CAT):
        return [[(value, None)]]
    parts = [(s, begin) for s, begin, _ in index_maps.cut_in_parts(value)[1]]
    nests: list[list[tuple[UOp, shapes.Dim | None]]] = []
    for part in parts:
        nest = [*nests[-1], part] if nests else [part]
        few = len(nest) <= max(together, 1)
        if nests and few and (within or limit.allows(stage, [s for s, _ in nest], storage.made)):
            nests[-1] = nest
        else:
            nests.append([part])
    return nests


def _together(stage: UOp, storage: LoweredStorage) -> int:
    """The number of parts stored in one nest if a value is stored by part; 0 if the user's Opts are
    for its loops. Parts of one element, like states of a rollout, become statements in a row."""
    value = stage.src[0]
    if value.op not in (Ops.STACK, Ops.CAT) or stage.arg.opts is not None:
        return 0
    if all(d == 1 for s in value.src for d in shapes.shape(s)):
        if not stage.arg.by_part and not share_work(value.src, storage.made):
            return 0
        order = walk.toposort(value, gate=lambda u: u not in storage.made)
        return 0 if any(u.op is Ops.REDUCE for u in order) else len(value.src)
    part_shapes = {shapes.shape(s) for s in value.src}
    if len(part_shapes) > 1 or (value.op is Ops.CAT and not stage.arg.by_part):
        return 0
    return MOST_TOGETHER if share_work(value.src, storage.made) else 0


def _index_of_whole(value: UOp, begin: shapes.Dim | None, index: Index) -> Index:
    """The index into a value, given one into the part of it that begins there."""
    if begin is None:
        return index
    first = dim_uop(begin)
    if value.op is Ops.STACK:
        return (first, *index)
    axis: int = value.arg
    return (*index[:axis], affine.add(index[axis], first), *index[axis + 1 :])


def _lower_store(u: UOp, storage: LoweredStorage) -> UOp:
    """A write through a view into the storage it is rooted in."""
    dims = shapes.shape(u.src[0])
    if 0 in dims:
        return intern(Ops.NOOP, dtypes.void)
    lowering = _ValueLowering(storage)
    tiles = [s for s in u.src[1:] if s.op is Ops.STAGE and s.arg.space != "global"]
    first = max([len(shapes.shape(s)) for s in tiles], default=0)  # after the loops that fill them
    index, ranges = index_maps.loop_index(dims, first)
    root, written, guard = storage.access(u.src[0], index)
    inputs = [(s, index_maps.broadcast_index(index, shapes.shape(s)), guard) for s in u.src[1:]]
    value, *gates = [lowering.lower(k) for k in inputs]
    value, valid = valid_part(value)
    guard = functools.reduce(index_maps.both, [*gates, valid], guard)
    into = storage.after(u.src[0])
    target = intern(Ops.INDEX, root.dtype, (into, *index_maps.gated(written, guard)))
    return _closed_stores([(target, value)], ranges, u.origin)


def rangeify(graph: UOp, context: Context) -> UOp:
    """The SINK of the program's outputs and effects, each with the loops that fill it."""
    order = walk.nodes(graph)
    slots = itertools.count(1 + max((u.arg.slot for u in order if u.op is Ops.BUFFER), default=-1))
    storage, limit = LoweredStorage(), Limit.of(context)
    made = storage.made
    for u in order:
        if u.op is Ops.STAGE:
            made[u] = _lower_stage(u, next(slots), storage, limit)
        elif u.op is Ops.STORE:
            made[u] = _lower_store(u, storage)
        elif u.op is Ops.CALL and u.src[0].op in walk.CALLED:
            args = [a if a.op is Ops.VARIABLE else storage.after(a) for a in u.src[1:]]
            made[u] = intern(Ops.CALL, dtypes.void, (u.src[0], *args), u.arg, u.tag)
            set_origin(made[u], u.origin)
    roots = []
    for v in graph.src:
        if v.dtype is dtypes.void:
            roots += [made[e] for e in effects_in((v,))]
        else:
            roots.append(made[v] if v in made else storage.after(v))
    return intern(Ops.SINK, dtypes.void, tuple(roots), graph.arg)
