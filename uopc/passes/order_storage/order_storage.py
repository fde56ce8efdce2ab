"""Choose the order in which stored values have their axes, over their writers and readers.

Before (indexed)                                After (indexed)
  %1 = buffer slot=1 : f32[64]                    %1 = buffer slot=1 : f32[64]
  %2 = range 64 axis=0.0 kind=loop : index        %2 = range 64 axis=0.0 kind=loop : index
  %3 = buffer slot=0 : f32[64, 9]                 %3 = buffer slot=0 : f32[9, 64]
  %4 = range 9 axis=0.1 kind=loop : index         %4 = range 9 axis=0.0 kind=loop : index
  %5 = param w : f32[32, 64]                      %5 = range 64 axis=0.1 kind=loop : index
  %6 = range 32 axis=1 kind=reduce : index        %6 = param w : f32[32, 64]
  %7 = param x : f32[32, 9]                       %7 = range 32 axis=1 kind=reduce : index
  %8 = mul %5[%6, %2], %7[%6, %4] : f32           %8 = param x : f32[32, 9]
  %9 = reduce.add %8 over %6 : f32                %9 = mul %6[%7, %5], %8[%7, %4] : f32
  %10 = store %3[%2, %4], %9                      %10 = reduce.add %9 over %7 : f32
  %11 = end %10, %2, %4                           %11 = store %3[%4, %5], %10
  %12 = after %3, %11 : f32[64, 9]                %12 = end %11, %4, %5
  %13 = range 9 axis=1 kind=reduce : index        %13 = after %3, %12 : f32[9, 64]
  %14 = reduce.max %12[%2, %13] over %13 : f32    %14 = range 9 axis=1 kind=reduce : index
  %15 = store %1[%2], %14                         %15 = reduce.max %13[%14, %2] over %14 : f32
  %16 = end %15, %2                               %16 = store %1[%2], %15
  %17 = after %1, %16 : f32[64]                   %17 = end %16, %2
  sink %17                                        %18 = after %1, %17 : f32[64]
                                                  sink %18

A product has its lanes along the last axis of what it stores. If that is short, or ragged, another
axis fills vectors better; but each reader then finds its neighbours elsewhere. Each nest in given
orders is a small program whose cycles are predicted, with the schedule that it gets, and
`order_choice` finds the orders that cost least for all nests. Only what this pass may change has a
choice: values that nests alone write and read, not arguments, outputs, or what a kernel by hand is
given. On a GPU, and where no cycles are predicted, values stay in the order of their shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from uopc.errors import Error
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.args import RangeArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.nest.accesses import Access, Order
from uopc.ir.nest.contractions import Contraction
from uopc.ir.nest.nest import Nest, nest_of_effect
from uopc.passes.contract import Context
from uopc.passes.effects.views import closed_effects
from uopc.passes.order_storage.order_choice import Chooser, Cycles, plain
from uopc.target import Target


def order_storage(graph: UOp, context: Context) -> UOp:
    """The graph with the axes of its buffers in the chosen orders; `context.notes` say why."""
    order, known = walk.nodes(graph), dict[UOp, UOp]()
    free = _free(order, known) if context.cost is not None else []
    if not free:
        return graph
    nests = [nest_of_effect(u, known) for u in closed_effects(graph) if u.op is not Ops.CALL]
    choices = _choices(nests, free, context.target)
    if not choices:
        return graph
    cycles, least = _predicted(context, known), _least(context)
    chosen = Chooser(nests, choices, cycles, least, _agree).chosen()
    context.notes["orders"] = chosen
    if not chosen:
        return graph
    return _Reordered({u: c.order for u, c in chosen.items()}, nests, known).graph(graph, order)


def _predicted(context: Context, known: dict[UOp, UOp]) -> Cycles:
    """A function that predicts the cycles of a nest whose arrays have other orders."""
    asked: dict[UOp, float] = {}

    def cycles(nest: Nest, orders: Mapping[UOp, Order]) -> float:
        program = _program(nest, orders, known)
        if program not in asked:
            assert context.cost is not None
            try:
                asked[program] = context.cost(program, "order-storage").cycles
            except Error:
                asked[program] = math.inf
        return asked[program]

    return cycles


# Only programs whose cycles are predicted import the cost.
def _least(context: Context) -> Callable[[Nest], float]:
    """A function that bounds the cycles of a nest in any orders."""
    from uopc.cost.bound import least_of_nest
    from uopc.cost.machine import machine_of

    return partial(least_of_nest, m=machine_of(context.target))


def _agree(nest: Nest, orders: Mapping[UOp, Order]) -> bool:
    """True if no loop moves the last axis of one value and only other axes of another value."""
    last, others = list[set[UOp]](), list[set[UOp]]()
    for x in nest.accesses:
        if x.storage in orders:
            *outer, inner = orders[x.storage]
            last.append(set(x.steps[inner]))
            others.append({r for axis in outer for r in x.steps[axis]} - last[-1])
    return all([one.isdisjoint(other) for one in last for other in others])


def _program(nest: Nest, orders: Mapping[UOp, Order], known: dict[UOp, UOp]) -> UOp:
    """The program of a nest alone: the values that it reads are arguments."""
    slots = [u.arg.slot for u in nest.order if u.op is Ops.PARAM]
    free = itertools.count(max(slots, default=-1) + 1)
    alone = _Reordered({u: o for u, o in orders.items() if o != plain(u)}, [], known)
    for a in nest.accesses:
        root, source = a.storage, a.node.src[0]
        if root.op is Ops.BUFFER and source not in alone.done:
            dims = tuple([root.shape[i] for i in orders.get(root, plain(root))])
            slot = next(free)
            alone.done[source] = (
                leaves.with_dims(root, dims) if a.written
                else leaves.param(slot, root.dtype, dims, f"v{slot}")
            )  # fmt: skip
    effect = alone.nest(nest)
    written = alone.done.get(nest.written[0].node.src[0], nest.written[0].storage)
    after = intern(Ops.AFTER, written.dtype, (written, effect))
    return intern(Ops.SINK, dtypes.void, (after,))


def _choices(nests: list[Nest], free: list[UOp], target: Target) -> dict[UOp, list[Order]]:
    """The orders that each value may have, the order of its shape first. Candidate: move last an
    axis of vector length that reduces use differently from the current last axis. Values in nests
    of unknown cost, or with the user's Opts, are missing."""
    axes: dict[UOp, set[int]] = {u: set() for u in free}
    fixed: set[UOp] = set()
    for n in nests:
        accesses = [*n.read, *n.written]
        effect = n.order[-1]
        if not _is_simple(n) or (effect.op is Ops.END and effect.arg is not None):
            fixed.update([x.storage for x in accesses])
            continue
        for x in accesses if n.contractions else ():
            if x.storage in axes:
                lanes = target.lanes(x.storage.dtype.bits)
                long = [i for i, d in enumerate(x.dims[:-1]) if d >= lanes]
                axes[x.storage].update([i for i in long if _splits(n, x, i)])
    return {
        u: [plain(u), *[_with_last(u, axis) for axis in sorted(found)]]
        for u, found in axes.items() if found and u not in fixed
    }  # fmt: skip


def _is_simple(nest: Nest) -> bool:
    """True if costs are known: one store of whole elements, and no reduce in another one."""
    if len(nest.stores) != 1 or any([len(a.index) != len(a.dims) for a in nest.accesses]):
        return False
    above: set[UOp] = set()  # reduces, and what is computed from them
    for u in nest.order:
        if not above.isdisjoint(u.src):
            if u.op is Ops.REDUCE:
                return False
            above.add(u)
        elif u.op is Ops.REDUCE:
            above.add(u)
    return True


def _splits(nest: Nest, x: Access, axis: int) -> bool:
    """True if a sum uses the loops of an axis differently from those of the last axis: it sums over
    them, or only one factor depends on them."""
    one, last = x.steps[axis], x.steps[-1]
    return any([_loop_roles(c, one) != _loop_roles(c, last) for c in nest.contractions])


def _loop_roles(c: Contraction, loops: Iterable[UOp]) -> set[tuple[bool, ...]]:
    """The parts of loops in a sum: rows, columns, or depth."""
    return {(r in c.rows, r in c.columns, r in c.depth) for r in loops}


def _with_last(u: UOp, axis: int) -> Order:
    return (*[i for i in plain(u) if i != axis], axis)


def _free(order: list[UOp], known: dict[UOp, UOp]) -> list[UOp]:
    """The buffers that nests alone read and write, element by element."""
    free = [u for u in order if u.op is Ops.BUFFER and u.arg.space == "global"]
    free = [u for u in free if len(u.shape) > 1]
    fixed: set[UOp] = set()
    for u in order:
        if u.op is Ops.INDEX or u.op is Ops.AFTER:
            continue
        fixed.update([before_effects(s, known) for s in u.src if s.op in (Ops.BUFFER, Ops.AFTER)])
    return [u for u in free if u not in fixed]


class _Reordered:
    """Rewrites a graph so that buffers have other orders."""

    def __init__(
        self, orders: Mapping[UOp, Order], nests: list[Nest], known: dict[UOp, UOp]
    ) -> None:
        self.orders, self.known = orders, known
        self.nests = {n.order[-1]: n for n in nests}
        self.done: dict[UOp, UOp] = {}  # outside of nests

    def graph(self, graph: UOp, order: list[UOp]) -> UOp:
        """The graph, whose nodes are given sources first."""
        outside = (Ops.BUFFER, Ops.AFTER, Ops.CALL, Ops.SINK)
        for u in order:
            made = u
            if u in self.orders:
                made = self._buffer(u)
            elif u in self.nests:
                made = self.nest(self.nests[u])
            elif u.op in outside and (u is graph or u.op is not Ops.SINK):
                src = tuple([self.done.get(s, s) for s in u.src])
                made = u if src == u.src else rebuild.remake(u, src)
            if made is not u:
                set_origin(made, made.origin or u.origin)
                self.done[u] = made
        return self.done.get(graph, graph)

    def _buffer(self, u: UOp) -> UOp:
        return leaves.with_dims(u, tuple([u.shape[i] for i in self.orders[u]]))

    def nest(self, nest: Nest) -> UOp:
        """A closed store, with its loops in the order of the written storage."""
        done, effect = self._loops(nest), nest.order[-1]
        for u in nest.order:
            if u in done:
                continue
            if u in self.done and u.op in (Ops.AFTER, Ops.BUFFER):
                done[u] = self.done[u]
                continue
            src = tuple([done.get(s, s) for s in u.src])
            made = u if src == u.src else rebuild.remake(u, src)
            if u.op is Ops.INDEX:
                order = self.orders.get(before_effects(u.src[0], self.known))
                if order is not None:
                    index, guard = index_maps.plain_index(src[1:], index_maps.true())
                    moved = index_maps.gated(tuple([index[i] for i in order]), guard)
                    made = intern(u.op, u.dtype, (src[0], *moved), u.arg, u.tag)
            elif u is effect and u.op is Ops.END:
                loops = sorted(src[1:], key=lambda r: r.arg.axis)
                made = intern(u.op, u.dtype, (src[0], *loops), u.arg, u.tag)
            if made is not u:
                set_origin(made, made.origin or u.origin)
                done[u] = made
        return done.get(effect, effect)

    def _loops(self, nest: Nest) -> dict[UOp, UOp]:
        """The loops of a store with the numbers of the axes that they count in storage."""
        effect, stores = nest.order[-1], nest.stores
        if effect.op is not Ops.END or len(stores) != 1:
            return {}
        order = self.orders.get(before_effects(stores[0].src[0].src[0], self.known))
        if order is None:
            return {}
        index, _ = index_maps.plain_index(stores[0].src[0].src[1:], index_maps.true())
        found: dict[UOp, UOp] = {}
        for place, axis in enumerate(order):
            for r in ranges.ranges(index[axis]):
                if r in found or r not in effect.src[1:]:
                    return {}
                arg = RangeArg((*r.arg.axis[:-1], place), r.arg.kind)
                found[r] = intern(Ops.RANGE, r.dtype, r.src, arg)
        return found if len(found) == len(effect.src) - 1 else {}
