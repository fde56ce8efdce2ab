"""The values in doubt: the kernels that result decide whether these are stored.

In doubt is the end of a sum's code if other loops read it than its own, if it would be computed
several times, or if another sum is beside it; and a function that a read computes several times, or
one element at a time, if that is no factor of products, which a tile packs; and a factor in which
elements are repeated beside each other. Each may cost the kernel of its reader the tile, or be
computed too often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uopc.cost.machine import MachineFacts
from uopc.ir.builder import index_maps
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.op_costs import LOAD
from uopc.passes.place_stages import by_cycles, fusion_cost
from uopc.passes.place_stages.demand import Demand
from uopc.passes.place_stages.fusion_cost import StorageChoice
from uopc.passes.place_stages.sums import ends_of_sums
from uopc.passes.place_stages.value_costs import Measures

# Values that cost less than this to compute, 1 µs, are not in doubt.
LEAST_COST = 2e4


class Predicting(NamedTuple):
    """The machine for which cycles are predicted, and the values in doubt that are decided, with
    whether each is stored."""

    machine: MachineFacts
    chosen: Mapping[UOp, bool]

    def doubts(self, facts: Measures) -> Doubts:
        """The values in doubt of a graph, before a walk."""
        return Doubts(facts, self)


class Doubts:
    """The values in doubt that one walk meets, readers first."""

    def __init__(self, facts: Measures, asked: Predicting) -> None:
        self.of, self.asked = facts.of, asked
        self.ends = ends_of_sums(facts.order, facts.of, facts.fixed)
        self.found: dict[UOp, by_cycles.Doubt] = {}
        self.settled: set[UOp] = set()  # values that are computed with a value in doubt
        self.inside: set[UOp] = set()  # the code of values in doubt

    def choice(
        self, u: UOp, demands: list[Demand], evaluations: float, usual: StorageChoice
    ) -> StorageChoice | None:
        """The choice for a value in doubt; None for any other value. `usual`: the choice that
        presumes the schedules of its kernels."""
        if u in self.settled:
            return StorageChoice(False, "computed with its reader")
        self._move_end(u)
        if u in self.inside or not self._is_in_doubt(u, demands, evaluations):
            return None
        value, end = self.of[u], self.ends.get(u)
        if end is not None and not end.beside and by_cycles.is_cheap_store(
            value.elements, evaluations, end.term_bytes, self._storing(u), self.asked.machine
        ):
            return _agreed(usual, True, "stored in far less time than its sum takes")
        usually = usual.stored if end is None else not end.is_host
        chosen = self._decided(u, demands, usual, usually)
        code = {v for v in self._operands(u) if v not in self.ends}
        self.inside |= code
        if not chosen.stored and (end is not None or usual.stored):
            self.settled |= code
        return chosen

    def repeated(self, u: UOp, demands: list[Demand], usual: StorageChoice) -> StorageChoice:
        """The choice for a movement: elements that a RESHAPE repeats beside each other may be
        stored for the products that read them."""
        value = self.of[u]
        if u.op is not Ops.RESHAPE or u.src[0].op is not Ops.EXPAND:
            return usual
        below = [d.moved(index_maps.source_index(u, d.index)[0], d.loops) for d in demands]
        evaluations = sum([d.evaluations for d in below if d.packed and not d.is_affine])
        if evaluations <= value.elements or evaluations * LOAD < LEAST_COST:
            return usual
        return self._decided(u, demands, usual, False)

    def _decided(
        self, u: UOp, demands: list[Demand], usual: StorageChoice, usually: bool
    ) -> StorageChoice:
        """The choice for a value, which is in doubt from now on. `usually`: it is stored unless its
        kernels were asked."""
        stored = self.asked.chosen.get(u, usually)
        self.found[u] = by_cycles.Doubt({d.reader for d in demands}, stored, self._storing(u))
        without = "without" if stored else "with"
        return _agreed(usual, stored, f"its kernels are predicted to take longer {without} storage")

    def _storing(self, u: UOp) -> float:
        return by_cycles.storing(self.of[u].elements * u.dtype.itemsize, self.asked.machine)

    def _is_in_doubt(self, u: UOp, demands: list[Demand], evaluations: float) -> bool:
        value, end = self.of[u], self.ends.get(u)
        recomputed = evaluations > value.elements
        if end is not None:
            if max(evaluations, value.elements) * max(value.cost, end.term_bytes) < LEAST_COST:
                return False
            apart = [d.in_reduce or not d.keeps_loops for d in demands]
            loses = end.shares_factors and (len(demands) > 1 or end.beside or any(apart))
            return recomputed or loses
        if value.cost <= fusion_cost.WINDOW_VALUE:
            return False
        again = [d for d in demands if d.evaluations > value.elements and not d.reuses]
        if again:
            return evaluations * value.cost >= LEAST_COST
        scalar = [d for d in demands if d.is_for_whole_rows and not value.has_reduce]
        lanes = self.asked.machine.vector_bytes / u.dtype.itemsize  # a number takes as long
        saved = lanes * sum([d.evaluations for d in scalar]) - value.elements
        return saved * value.cost >= LEAST_COST

    def _move_end(self, u: UOp) -> None:
        """Let the code of a sum end in the value that is presumed to be stored for two readers, if
        there is one before its end: the next sum packs a function of it as well."""
        end = self.ends.get(u)
        if end is None or end.beside or self.of[u].has_reduce:
            return
        del self.ends[u]
        for s in self._operands(u):
            if self.of[s].loaded and self.of[s].has_reduce:
                self.ends.setdefault(s, end)

    def _operands(self, u: UOp) -> set[UOp]:
        """The values of as many elements from which a value is computed, down to sums and ends."""
        found, stack = set[UOp](), [u]
        while stack:
            v = stack.pop()
            if v.op.is_alu or v.op in (Ops.CAST, Ops.RESHAPE):
                below = [s for s in v.src if s in self.of and s not in found]
                same = [s for s in below if self.of[s].elements == self.of[u].elements]
                found.update(same)
                stack += [s for s in same if s not in self.ends]
        return found


def _agreed(usual: StorageChoice, stored: bool, words: str) -> StorageChoice:
    """The usual choice if it is the same; else the other, with the reason in words."""
    return usual if usual.stored == stored else usual._replace(stored=stored, words=words)
