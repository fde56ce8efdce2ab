"""Stored elements that no reader uses are not computed: a guard of the store leaves them out.

Before (indexed)                                After (indexed)
  %1 = buffer slot=1 : f32[64]                    %1 = buffer slot=1 : f32[64]
  %2 = range 64 axis=0.0 kind=loop : index        %2 = range 64 axis=0.0 kind=loop : index
  %3 = buffer slot=0 : f32[64, 64]                %3 = range 64 axis=1 kind=reduce : index
  %4 = range 64 axis=0.1 kind=loop : index        %4 = add %2, 1 : index
  %5 = cast %4 : i32                              %5 = cmplt %3, %4 : bool
  %6 = cast %2 : i32                              %6 = buffer slot=0 : f32[64, 64]
  %7 = cmple %5, %6 : bool                        %7 = range 64 axis=0.1 kind=loop : index
  %8 = param x : f32[64, 4]                       %8 = cmplt %7, %4 : bool
  %9 = range 4 axis=1 kind=reduce : index         %9 = where %8, %2, invalid : index
  %10 = param y : f32[4, 64]                      %10 = param x : f32[64, 4]
  %11 = mul %8[%2, %9], %10[%9, %4] : f32         %11 = range 4 axis=1 kind=reduce : index
  %12 = reduce.add %11 over %9 : f32              %12 = param y : f32[4, 64]
  %13 = where %7, %12, -inf:f32 : f32             %13 = mul %10[%2, %11], %12[%11, %7] : f32
  %14 = store %3[%2, %4], %13                     %14 = reduce.add %13 over %11 : f32
  %15 = end %14, %2, %4                           %15 = store %6[%9, %7], %14
  %16 = after %3, %15 : f32[64, 64]               %16 = end %15, %2, %7
  %17 = range 64 axis=1 kind=reduce : index       %17 = after %6, %16 : f32[64, 64]
  %18 = reduce.max %16[%2, %17] over %17 : f32    %18 = where %5, %17[%2, %3], -inf:f32 : f32
  %19 = store %1[%2], %18                         %19 = reduce.max %18 over %3 : f32
  %20 = end %19, %2                               %20 = store %1[%2], %19
  %21 = after %1, %20 : f32[64]                   %21 = end %20, %2
  sink %21                                        %22 = after %1, %21 : f32[64]
                                                  sink %22

A mask that comparisons of loops decide, in a stored value, moves to where the value is read: the
store then needs its guard alone, and each reader selects. In general the guard is what holds for
all reads: of each node, the pass knows comparisons that hold wherever its value matters, as a WHERE
selects it, and writes them with the loops of the store. `optimize` cuts loops where such a guard
begins to hold, so that tiles outside of it are neither computed nor stored. Only sums are worth a
guard, if it leaves out enough tiles; a mask of -inf moves as well if products with it then are.
Outputs, arguments, and what kernels by hand take are stored whole, as are integers, which may be
indices. Reads have no guards: memory that nobody wrote is read where a selection drops it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from uopc.ir.builder import alu, index_maps, rebuild
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.records import dataclass
from uopc.passes.analysis.contraction import MOST_ROWS, MOST_VECTORS
from uopc.passes.contract import Context
from uopc.passes.trim_stores import constant_masks, trim_sums
from uopc.passes.trim_stores.conditions import Conditions, both, either, guard_of, required


def trim_stores(graph: UOp, context: Context) -> UOp:
    """The graph with guards on stores whose other elements nobody reads, and on terms of sums."""
    graph = constant_masks.as_comparisons(graph)
    if Ops.WHERE not in walk.ops(graph):
        return graph
    return trim_sums.trim_sums(_guarded(_masks_at_reads(graph, context), context))


def _guarded(graph: UOp, context: Context) -> UOp:
    """The graph with the guards."""
    found = _stores(graph)
    guards: dict[UOp, UOp] = {}
    for s, conditions in _needed_conditions(graph, found).items():
        guard = guard_of(conditions, _tile(s, context))
        if guard is not None:
            guards[s.store] = guard

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        target = src[0]
        index = index_maps.gated(target.src[1:], guards[u])
        target = intern(Ops.INDEX, target.dtype, (target.src[0], *index))
        return intern(Ops.STORE, u.dtype, (target, *src[1:]), u.arg)

    return rebuild.rewritten(graph, change, outside_kernels=True, only=guards) if guards else graph


# ---------------------------------------------------------------- stored values
@dataclass(frozen=True)
class _FilledBuffer:
    """A buffer that one loop nest fills, each element once. Readers index `after`."""

    after: UOp
    store: UOp
    loops: tuple[UOp | None, ...]  # of each dimension; None for one of a single element

    @property
    def value(self) -> UOp:
        return self.store.src[1]

    @property
    def rows(self) -> list[UOp]:
        """The loops but for the last one."""
        return [r for r in self.loops if r is not None][:-1]

    def at(self, condition: UOp, index: tuple[UOp, ...]) -> UOp:
        """A condition on the loops of the store, for the element that an index reads."""
        loops = {r: x for r, x in zip(self.loops, index) if r is not None}
        return rebuild.rebuild(condition, loops)


def _tile(s: _FilledBuffer, context: Context) -> dict[UOp, int]:
    """The iterations of each loop in a register tile of a stored sum."""
    loops = [r for r in s.loops if r is not None]
    columns = MOST_VECTORS * context.target.lanes(s.value.dtype.bits)
    return {**dict.fromkeys(s.rows, MOST_ROWS), loops[-1]: columns}


def _stores(graph: UOp) -> dict[UOp, _FilledBuffer]:
    """The stored values by their AFTER: of floats, which no index can be, and of a reduce, which is
    worth a guard; elements read them, and nothing else."""
    order, known = walk.nodes(graph), dict[UOp, UOp]()
    found: dict[UOp, _FilledBuffer] = {}
    fixed: set[UOp] = set()
    for u in order:
        if u.op is Ops.AFTER:
            base, stored = u.src[0], _stored(u)
            if stored is None or base in found:
                fixed.add(before_effects(u, known))
            else:
                found[base] = stored
        elif u.op is not Ops.INDEX:
            used = [s for s in u.src if s.op in (Ops.BUFFER, Ops.AFTER)]
            fixed.update([before_effects(s, known) for s in used])
    return {s.after: s for base, s in found.items() if base not in fixed}


def _stored(after: UOp) -> _FilledBuffer | None:
    """The single loop nest behind an AFTER, if it stores all elements of a new buffer, and computes
    a reduce for each."""
    buffer, *effects = after.src
    if buffer.op is not Ops.BUFFER or buffer.arg.space != "global" or not buffer.dtype.is_float:
        return None
    if len(effects) != 1 or effects[0].op is not Ops.END or effects[0].arg is not None:
        return None
    store, *closed = effects[0].src
    if store.op is not Ops.STORE or store.src[0].src[0] is not buffer or len(store.src) != 2:
        return None
    index = store.src[0].src[1:]
    loops = [x if x.op is Ops.RANGE else None for x in index]
    plain = all(r is not None or affine.is_const(x) for r, x in zip(loops, index))
    if not plain or {r for r in loops if r is not None} != set(closed):
        return None
    own = ranges.ranges(store.src[0])
    below = walk.toposort(store.src[1], gate=lambda u: u.op not in (Ops.AFTER, Ops.BUFFER))
    dear = any([u.op is Ops.REDUCE and own <= ranges.ranges(u) for u in below])
    return _FilledBuffer(after, store, tuple(loops)) if dear else None


# ---------------------------------------------------------------- masks of stored values
def _masks_at_reads(graph: UOp, context: Context) -> UOp:
    """Values stored without a mask that a comparison of their loops is; each reader has it."""
    masks: dict[UOp, tuple[_FilledBuffer, UOp, UOp]] = {}  # by AFTER: mask, number outside
    inside: dict[UOp, int] = {}  # by STORE: the operand of its WHERE that is left
    multiplied = _multiplied(graph)
    for after, s in _stores(graph).items():
        taken = _taken_apart(s, context, after in multiplied)
        if taken is not None:
            mask, outside, left = taken
            masks[after] = (s, mask, outside)
            if left is not None:
                inside[s.store] = left
    if not masks:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in inside:
            value = src[1]  # on masks that moved before
            if value.op is not Ops.WHERE or value.src[0] is not u.src[1].src[0]:
                return None
            return intern(Ops.STORE, u.dtype, (src[0], value.src[inside[u]]), u.arg)
        if u.op is not Ops.INDEX or u.src[0] not in masks:
            return None
        s, mask, outside = masks[u.src[0]]
        index, _ = index_maps.plain_index(src[1:], index_maps.true())
        return alu.where(s.at(mask, index), rebuild.remake(u, src), outside)

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _multiplied(graph: UOp) -> set[UOp]:
    """The stored values that are factors of sums of products, directly or through functions."""
    products = [u.src[0] for u in walk.nodes(graph) if u.op is Ops.REDUCE and u.arg.op == "add"]
    inner = (Ops.REDUCE, Ops.AFTER)
    below = [
        walk.toposort(u, gate=lambda v: v.op not in inner) for u in products if u.op is Ops.MUL
    ]
    return {u.src[0] for order in below for u in order if u.op is Ops.INDEX}


def _taken_apart(
    s: _FilledBuffer, context: Context, multiplied: bool
) -> tuple[UOp, UOp, int | None] | None:
    """The mask of a value, the number outside of the mask, and the remaining operand of its WHERE:
    None keeps the WHERE, because the mask is only part of its condition. None without a mask, and
    if the mask hides too little of the value and, if the number is -inf, of products of it."""
    u = s.value
    if u.op is not Ops.WHERE or not any(v.op is Ops.CONST for v in u.src[1:]):
        return None
    inside, outside = (1, 2) if u.src[2].op is Ops.CONST else (2, 1)
    own = {r for r in s.loops if r is not None}
    others: list[UOp] = []
    found = required(u.src[0], inside == 1, others)
    conditions = {
        terms: c for terms, c in found.items()
        if all([m in own or not ranges.ranges(m) for m, _ in terms])
    }  # fmt: skip
    mask = guard_of(conditions, _tile(s, context))
    if mask is None and multiplied and u.src[outside].arg == -math.inf:
        mask = trim_sums.guard_of_weights(conditions, s.rows)
    if mask is None or u.src[inside].op is Ops.CONST:
        return None
    return mask, u.src[outside], None if others or conditions != found else inside


# ---------------------------------------------------------------- what is read
def _needed_conditions(
    graph: UOp, stored: Mapping[UOp, _FilledBuffer]
) -> dict[_FilledBuffer, Conditions]:
    """The conditions of each stored value that hold for all elements that a result depends on."""
    wanted: dict[UOp, Conditions] = {}  # of each node: where its value matters
    found: dict[_FilledBuffer, Conditions] = {}

    def want(u: UOp, conditions: Conditions) -> None:
        wanted[u] = either(wanted[u], conditions) if u in wanted else conditions

    by_store = {s.store: s for s in stored.values()}
    for u in reversed(walk.nodes(graph)):
        own = wanted.pop(u, {})
        if u.op is Ops.WHERE and u.dtype.scalar is not dtypes.index:
            want(u.src[0], own)
            for s, holds in zip(u.src[1:], (True, False)):
                want(s, both(own, required(u.src[0], holds)) if s.op is not Ops.CONST else {})
        elif u.op is Ops.INDEX:
            value = stored.get(u.src[0])
            if value is not None:
                read = _at_store(value, u.src[1:], own)
                found[value] = either(found[value], read) if value in found else read
            for x in u.src[1:]:
                want(x, {})
        elif u in by_store:
            want(u.src[0], {})
            want(u.src[1], found.get(by_store[u], {}))
        else:
            keeps = u.op.is_alu or u.op in (Ops.CAST, Ops.BITCAST, Ops.REDUCE)
            for x in u.src:
                want(x, own if keeps and x.op is not Ops.RANGE else {})
    return found


def _at_store(s: _FilledBuffer, index: tuple[UOp, ...], conditions: Conditions) -> Conditions:
    """Turn conditions on the loops of a read into conditions on the loops of the store; none that
    depend on other loops, which may be the same nodes as loops of the store."""
    plain, guard = index_maps.plain_index(index, index_maps.true())
    conditions = both(conditions, required(guard, True))
    loops: dict[UOp, affine.Form] = {}
    for w, x in zip(s.loops, plain):
        constant, terms = affine.form(x)
        moving = [m for m in terms if ranges.ranges(m)]
        r = moving[0] if len(moving) == 1 else None
        if w is not None and r is not None and r.op is Ops.RANGE and terms[r] == 1:
            rest = {m: -k for m, k in terms.items() if m is not r}
            loops.setdefault(r, (-constant, {**rest, w: 1}))
    found: Conditions = {}
    own = {r for r in s.loops if r is not None}
    for key, constant in conditions.items():
        out: dict[UOp, int] = {}
        for m, k in key:
            shift, inner = loops.get(m, (0, {m: 1}))
            constant += k * shift
            affine.accumulate(out, inner, k)
        known = all([m in loops or not ranges.ranges(m) for m, _ in key])
        if known and not own.isdisjoint(out):
            moved = frozenset(out.items())
            found[moved] = max(constant, found.get(moved, constant))
    return found
