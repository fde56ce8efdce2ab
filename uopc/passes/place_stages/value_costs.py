"""The facts that decide whether a value is stored.

A value that a user, an output or an effect fixes is stored at any cost. For any other value the
facts are the cost of an element, whether it loops over storage, and the stored values that it
reads. An operand that several operations of an element share is computed, and counted, once.
"""

from __future__ import annotations

from collections.abc import Mapping

from uopc.ir.core import dtypes, shapes
from uopc.ir.core.arena import memo
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices import device as devices
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.analysis.parts import is_stored_by_part
from uopc.passes.effects.versions import EffectsBelow
from uopc.passes.effects.views import effects_by_root, is_view, reshaped_base, roots_of_views
from uopc.passes.place_stages import fusion_cost
from uopc.passes.place_stages.fusion_cost import ValueCost

FORCED = {Ops.CONTIGUOUS: "contiguous", Ops.COPY: "copy to a device"}
_GIVEN = frozenset((Ops.PARAM, Ops.DATA, Ops.CONST, Ops.IOTA))
# If more operands than this are used several times below a value, its users count the cost of the
# value as a whole.
MOST_SHARED = 32
# Operands, and whether they have as many elements as their user.
Operands = dict[UOp, tuple[ValueCost, bool]]
_size = memo(shapes.size)


class Measures:
    """Facts about the values of a graph, sources first. `stored`: more fixed values, and
    reasons."""

    def __init__(self, graph: UOp, order: list[UOp], stored: Mapping[UOp, str]) -> None:
        self.order = order
        self._roots = roots_of_views(order)
        self.places = devices.on_several(graph)  # the device of each value, if there are several
        self.fixed: dict[UOp, str] = dict(stored)  # stored in any case, and why
        # root -> the STOREs and CALLs that write to it
        self.effects = effects_by_root(order, self._roots, written_only=True)
        self.below = EffectsBelow(order) if self.effects else EffectsBelow(())
        self.of: dict[UOp, ValueCost] = {}
        self.several: set[UOp] = set()  # values with several readers
        self._moved: set[UOp] = set()  # values that a movement reads
        self.loops: set[UOp] = set()  # values with loops of their own
        self._fix(graph, stored)
        once: set[UOp] = set()
        for u in order:
            for s in u.src if len(u.src) == 1 else set(u.src):
                (self.several if s in once else once).add(s)
            if u.op.movement:
                self._moved.add(u.src[0])
        for u in order:
            if u.dtype is not dtypes.void:
                self._measure(u)

    # ------------------------------------------------------------ what is stored in any case
    def _fix(self, graph: UOp, given: Mapping[UOp, str]) -> None:
        for u in self.order:
            if u.op is Ops.STORE:
                self._fix_root(u.src[0], "written to")
            elif u.op is Ops.CALL:
                for a in u.src[1:]:
                    self._fix_root(a, "argument of a kernel")
            elif is_stored_by_part(u):
                self.fixed.setdefault(u, f"put together from {len(u.src)} parts")
        forced = [u for u in self.order if u.op in FORCED and not self._is_read_in_place(u)]
        self.fixed |= {u: FORCED[u.op] for u in forced if u not in given}
        for i, v in enumerate(graph.src):
            base = reshaped_base(v)
            if v.dtype is not dtypes.void and not is_view(base):
                self.fixed.setdefault(base, f"output {i}")

    def _is_read_in_place(self, u: UOp) -> bool:
        """True if a COPY is of the caller's memory, which all devices read."""
        if u.op is not Ops.COPY or self.places.get(u.src[0]) is not None or not self.places:
            return False
        return is_view(u.src[0]) and self._roots.get(u.src[0], u.src[0]).op in _GIVEN

    def _fix_root(self, view: UOp, reason: str) -> None:
        """Give storage of its own to a value that is written to, or handed to a kernel."""
        root = self._roots.get(view, view)
        if not root.op.is_storage and root.op is not Ops.VARIABLE:
            self.fixed.setdefault(root, reason)

    # ------------------------------------------------------------ the values
    def _measure(self, u: UOp) -> None:
        op, dims = u.op, shapes.shape(u)
        value = self.of[u] = ValueCost()
        value.elements = most_elements(dims)
        if op.is_storage or u in self.fixed:
            return
        below: Operands = {}
        depth = read = 0
        reads = has_reduce = contracts = contracted = False
        partial = op is Ops.INVALID
        for s in u.src:
            source = self.of.get(s)
            if source is None:  # an effect
                continue
            # An INVALID index reads nothing and gives 0.
            partial = partial or (source.partial and (op is not Ops.INDEX or s is u.src[0]))
            # A SHRINK has some elements of its source, each once.
            same = op is Ops.SHRINK or (
                op is not Ops.EXPAND and _have_as_many(shapes.shape(s), dims)
            )
            below[s] = source, same
            reads = reads or source.reads
            value.over_reduce |= source.over_reduce and not source.loaded
            if same:
                read += source.read
                has_reduce = has_reduce or source.loops_inside
                contracted = contracted or source.contracts
                # Its loop over storage is presumed to be a kernel of its own.
                presumed = source.loaded and source.has_reduce
                contracts = contracts or (source.contracts and not presumed)
            # A loop that serves several elements of its user is not in the user's code.
            if source.depth > depth and (same or not source.loops_inside):
                depth = source.depth
        depth += 1
        value.partial = partial
        if depth > fusion_cost.MOST_DEPTH and not (is_view(u) or value.elements <= 1 or partial):
            self.fixed[u] = f"{fusion_cost.MOST_DEPTH} operations deep"
            return
        value.depth = 0 if op is Ops.AFTER else depth
        value.reads = reads
        if op is Ops.REDUCE:
            value.own = value.cost = self.cost_of_reduce(u)
            has_reduce = has_reduce or reads
            value.over_reduce |= reads
            contracts = contracted = repeats_factors(u.src[0])
        else:
            value.read = min(fusion_cost.MOST_READ + 1, read)
            self._set_cost(u, value, below)
        if has_reduce:
            self._measure_reduce(u, value, below)
        elif u in self._moved and u in self.several:
            value.load_if_stored_for_two()
        if op is Ops.REDUCE or fusion_cost.keeps_order(u):
            value.contracts = contracted if has_reduce and value.loaded else contracts

    def _measure_reduce(self, u: UOp, value: ValueCost, below: Operands) -> None:
        """Measure a value with a loop over storage inside."""
        several = self.several
        over = [(v, same, s in several) for s, (v, same) in below.items() if v.loops_inside]
        if u.op is Ops.REDUCE or any([
            v.sole_reader and same and not more for v, same, more in over
        ]):  # fmt: skip
            value.sole_reader = True  # storing it takes the place of storing that reduce
        elif any([v.shared or more for v, _, more in over]):
            value.shared = True
        value.has_reduce = True
        if u in several:
            value.load_if_stored_for_two()
        if value.loaded or u.op is Ops.REDUCE:
            self.loops.add(u)

    def cost_of_reduce(self, u: UOp) -> float:
        """The cost of a reduce. A sum that reads no storage usually has a closed form."""
        term = self.of[u.src[0]]
        if u.arg.op == "add" and not term.reads:
            return fusion_cost.CLOSED_FORM
        dims = shapes.shape(u.src[0])
        one = (term.own if term.loaded else term.cost) + Ops.ADD.cost
        terms = most_elements(tuple([dims[axis] for axis in u.arg.axes]))
        return min(fusion_cost.ENOUGH, terms * one)

    def _set_cost(self, u: UOp, value: ValueCost, below: Operands) -> None:
        """Set the cost of an element, without and with the operands that have other readers."""
        cost = u.op.cost
        here = u.op.is_alu or u.op is Ops.CAST  # all of its operands are at its own index
        for s, (v, same) in below.items():
            if s.op is Ops.CONST:
                continue
            # A PAD has some elements of its source, each once; a STACK or CAT has all.
            if not same and (u.op is not Ops.PAD or v.loops_inside):
                cost += 1.0
                if u.op in (Ops.STACK, Ops.CAT) and not v.loops_inside:
                    share = v.elements / max(value.elements, 1.0)
                    cost += share * (v.own if v.loaded else v.cost)
            elif not here and not v.loaded:
                cost += v.cost
            elif here and s in self.several:
                value.share(v, itself=True)
            else:
                cost += v.own
                if here and v.common:
                    value.share(v, itself=False)
        value.own = cost
        value.cost = min(fusion_cost.ENOUGH, cost + value.common_cost)
        if len(value.common) > MOST_SHARED:
            value.own, value.common, value.common_cost = value.cost, frozenset(), 0.0


def _have_as_many(dims: shapes.Shape, others: shapes.Shape) -> bool:
    """True if two shapes have the same number of elements."""
    return dims is others or dims == others or bool(_size(dims) == _size(others))
