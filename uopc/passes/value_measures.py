"""What is known of every value before it is decided what is stored.

What a user, an output or an effect fixes is stored whatever it costs. Of the rest: what an element
costs, whether a loop over storage is inside, what it reads. An operand that several operations of
one element use counts once: it is computed once at that index.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from uopc.ir import analysis, dtypes
from uopc.ir.ops import Ops
from uopc.passes import storage_cost
from uopc.passes.demand import count
from uopc.passes.output_storage import (
    STORAGE,
    is_view,
    reshaped_base,
    roots_of_views,
    written_views,
)

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

FORCED = {Ops.CONTIGUOUS: "contiguous", Ops.COPY: "copy to a device"}
# Beyond this many operands that are used more than once below a value, they are no longer told
# apart: what stands on the value counts it as a whole.
MOST_SHARED = 32
# What has each element of its source at most once, but not as many.
_IN_PART = (Ops.PAD, Ops.SHRINK)
_NONE: frozenset[UOp] = frozenset()


class Measures:
    """Facts about the values of a graph, sources first; `stored` are fixed, for reasons given."""

    def __init__(
        self, graph: UOp, order: list[UOp], stored: Mapping[UOp, str] = MappingProxyType({})
    ) -> None:
        self.order = order
        self._roots = roots_of_views(order)
        self.fixed: dict[UOp, str] = dict(stored)  # what is stored in any case, and why
        self.effects: dict[UOp, set[UOp]] = {}  # root -> the STOREs and CALLs that write to it
        self.cost: dict[UOp, float] = {}
        self.light: dict[UOp, float] = {}  # cost if every reduce below were stored
        self.read: dict[UOp, int] = {}  # stored values it reads if every reduce below were stored
        # Values that read storage; reduces; contractions; over a reduce that has other readers too.
        self.reads, self.reduces, self.contractions, self.shared = (set["UOp"]() for _ in range(4))
        # Values over a reduce that nothing else reads; and what is stored unless its readers want
        # but parts of it: to them it is a load. These and all REDUCEs are loops of their own.
        self._alone, self._presumed, self.loops = (set["UOp"]() for _ in range(3))
        self._depth: dict[UOp, int] = {}
        # Of a value: its cost without operands that have other readers too, and those operands.
        self._own: dict[UOp, tuple[float, float]] = {}  # cost, light
        self._common: dict[UOp, frozenset[UOp]] = {}
        self._readers: dict[UOp, int] = {}
        self._moved: set[UOp] = set()  # read at other places than its readers write
        self._loaded: set[UOp] = set()  # stored, if what is presumed of its readers is right
        self._fix(graph)
        for u in order:
            for s in set(u.src):
                self._readers[s] = self._readers.get(s, 0) + 1
            if u.op.movement:
                self._moved.add(u.src[0])
        for u in order:
            if u.dtype is not dtypes.void:
                self._measure(u)
        self.loops = {u for u in self.reduces if u.op is Ops.REDUCE} | self._presumed
        for v in self._presumed:
            self.reduces.add(v)
            if storage_cost.contains_contraction(v, self.contractions):
                self.contractions.add(v)

    # ------------------------------------------------------------ what is stored in any case
    def _fix(self, graph: UOp) -> None:
        for u in self.order:
            if u.op is Ops.STORE:
                self._fix_root(u.src[0], "written to")
            elif u.op is Ops.CALL:
                for a in u.src[1:]:
                    self._fix_root(a, "argument of a kernel")
            if u.op in (Ops.STORE, Ops.CALL):
                for v in written_views(u):
                    self.effects.setdefault(self._roots.get(v, v), set()).add(u)
            elif storage_cost.is_stored_by_part(u):
                self.fixed.setdefault(u, f"put together from {len(u.src)} parts")
        for u in self.order:
            if u.op in FORCED:
                self.fixed[u] = FORCED[u.op]
        for i, v in enumerate(graph.src):
            base = reshaped_base(v)
            if v.dtype is not dtypes.void and not is_view(base):
                self.fixed.setdefault(base, f"output {i}")

    def _fix_root(self, view: UOp, reason: str) -> None:
        """A value that is written to, or handed to a kernel, has storage of its own."""
        root = self._roots.get(view, view)
        if root.op not in STORAGE and root.op is not Ops.VARIABLE:
            self.fixed.setdefault(root, reason)

    # ------------------------------------------------------------ the values
    def _measure(self, u: UOp) -> None:
        if u.op in STORAGE or u in self.fixed:
            self._measure_stored(u)
            return
        depth = 1 + max([self._depth_below(s, u) for s in u.src], default=0)
        if u.op is Ops.AFTER:  # a view of storage
            depth = 0
        if depth > storage_cost.MOST_DEPTH and not is_view(u) and count(analysis.shape(u)) > 1:
            self.fixed[u] = f"{storage_cost.MOST_DEPTH} operations deep"
            self._measure_stored(u)
            return
        self._depth[u] = depth
        self._set_cost(u)
        self.read[u] = storage_cost.stored_read(u, [self.read.get(s, 0) for s in u.src])
        if any([s in self.reads for s in u.src]):
            self.reads.add(u)
        if storage_cost.contains_reduce(u, self.reduces, self.reads):
            self._measure_reduce(u)
        elif u in self._moved and self._readers[u] > 1 and self._is_stored_for_two(u, False):
            self._load(u)
        if u not in self._presumed and storage_cost.contains_contraction(u, self.contractions):
            self.contractions.add(u)

    def _depth_below(self, s: UOp, u: UOp) -> int:
        """How deep a source is in the code of its user: a loop that serves several elements of it
        is not in there."""
        if s in self.reduces and not storage_cost.as_many(s, u):
            return 0
        return self._depth.get(s, 0)

    def _measure_reduce(self, u: UOp) -> None:
        """A value with a loop over storage inside."""
        below = [s for s in u.src if s in self.reduces]
        own = [s for s in below if s in self._alone and self._readers[s] == 1]
        if u.op is Ops.REDUCE or any([storage_cost.as_many(s, u) for s in own]):
            self._alone.add(u)  # storing it takes the place of storing that reduce
        elif any([s in self.shared or self._readers[s] > 1 for s in below]):
            self.shared.add(u)
        if self._readers.get(u, 0) > 1 and self._is_stored_for_two(u):
            self._presumed.add(u)
            self.shared.discard(u)
            self._load(u)
        else:
            self.reduces.add(u)

    def _load(self, u: UOp) -> None:
        """Readers find a value in memory, most likely: to them it costs a load."""
        self._loaded.add(u)
        self._depth[u] = 0
        self._own[u], self._common[u] = (storage_cost.LOAD, storage_cost.LOAD), _NONE
        self.light[u], self.read[u] = storage_cost.LOAD, 1

    def _is_stored_for_two(self, u: UOp, has_reduce: bool = True) -> bool:
        """Whether a value is stored if two readers want all of it."""
        if u in self.shared and storage_cost.is_light(self.light[u], self.read[u]):
            return False
        elements = float(count(analysis.shape(u)))
        value = storage_cost.Value(elements, self.cost[u], has_reduce)
        return storage_cost.choose_storage(value, 2 * elements, 2).stored

    def _measure_stored(self, u: UOp) -> None:
        """What readers find is in memory."""
        self._depth[u] = 0
        self.cost[u] = self.light[u] = storage_cost.LOAD
        self._own[u], self._common[u] = (storage_cost.LOAD, storage_cost.LOAD), _NONE
        self.read[u] = 1
        self.reads.add(u)

    def _set_cost(self, u: UOp) -> None:
        if u.op is Ops.REDUCE:
            own, common = self._cost_of_reduce(u), _NONE
        else:
            own, common = self._parts(u)
        cost, light = own
        for v in common:
            cost, light = cost + self._own[v][0], light + self._own[v][1]
        cost, light = min(storage_cost.ENOUGH, cost), min(storage_cost.ENOUGH, light)
        if len(common) > MOST_SHARED:
            own, common = (cost, light), _NONE
        self.cost[u], self.light[u] = cost, light
        self._own[u], self._common[u] = own, common

    def _cost_of_reduce(self, u: UOp) -> tuple[float, float]:
        """A sum of what is not read has a closed form, mostly."""
        if u.arg.op == "add" and u.src[0] not in self.reads:
            return storage_cost.CLOSED_FORM, storage_cost.LOAD
        return storage_cost.cost_of_reduce(u, self._inside(u.src[0])[0]), storage_cost.LOAD

    def _inside(self, s: UOp) -> tuple[float, float]:
        """What an element costs in the code of a reader, as `cost` and `light`."""
        return self._own[s] if s in self._loaded else (self.cost[s], self.light[s])

    def _parts(self, u: UOp) -> tuple[tuple[float, float], frozenset[UOp]]:
        """The cost of an element without the operands that have other readers, and those.

        Only arithmetic has all its operands at its own index.
        """
        cost = light = storage_cost.op_cost(u)
        common = _NONE
        here = u.op.is_alu or u.op is Ops.CAST
        for s in u.src if len(u.src) == 1 else dict.fromkeys(u.src):
            if s.op is Ops.CONST or s not in self.cost:
                continue
            repeated = not storage_cost.as_many(s, u)
            if repeated and not (u.op in _IN_PART and s not in self.reduces):
                cost, light = cost + storage_cost.CHEAP, light + storage_cost.CHEAP
            elif not here:
                inside = self._inside(s)
                cost, light = cost + inside[0], light + inside[1]
            elif self._readers[s] > 1:
                common = common | self._common[s] | {s}
            else:
                cost, light = cost + self._own[s][0], light + self._own[s][1]
                common = common | self._common[s]
        return (cost, light), common
