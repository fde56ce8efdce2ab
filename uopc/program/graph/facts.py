"""Facts of a graph that a request asks for: found in one walk, handed down beside the graph."""

from __future__ import annotations

from uopc.ir.builder.lengths import lengths_of
from uopc.ir.core import walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR, Level
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.device import NAMING, named, names_one
from uopc.ir.forks import cached_property
from uopc.ir.index import size_conditions


class GraphFacts:
    """The facts of a SINK of outputs, or of a kernel. `nodes`: those outside of hand-written
    kernels, sources first; `by_op`: the same by their ops."""

    def __init__(self, graph: UOp) -> None:
        self.graph, self.nodes = graph, walk.nodes(graph)
        self.by_op: dict[Op, list[UOp]] = {}
        for u in self.nodes:
            self.by_op.setdefault(u.op, []).append(u)

    def __reduce__(self) -> tuple[type[GraphFacts], tuple[UOp]]:
        return GraphFacts, (self.graph,)

    def of(self, *ops: Op) -> list[UOp]:
        """The nodes with one of these ops."""
        return [u for op in ops for u in self.by_op.get(op, ())]

    @cached_property
    def level(self) -> Level:
        """The level of the graph."""
        return level_of(self.graph)

    @cached_property
    def params(self) -> list[UOp]:
        """The PARAMs that a call gives. In a tensor graph, a PARAM with a slot belongs to a body
        instead."""
        given = self.level is not TENSOR
        return [u for u in self.of(Ops.PARAM) if given or u.arg.slot < 0]

    @cached_property
    def relying(self) -> list[UOp]:
        """The nodes that may rely on conditions on sizes, also those of hand-written kernels."""
        return size_conditions.relying(self.graph)

    @cached_property
    def variables(self) -> list[UOp]:
        """The VARIABLEs, including those of hand-written kernels."""
        if self.of(Ops.CALL):
            return walk.variables(self.graph)
        return sorted(self.of(Ops.VARIABLE), key=lambda v: str(v.arg.name))

    @cached_property
    def lengths(self) -> list[UOp]:
        """The variables whose values the graph computes, each bound to its value."""
        return lengths_of(self.graph)

    @cached_property
    def results(self) -> list[UOp]:
        """The values that a call returns, in order."""
        given = self.graph.src[len(self.lengths) :]
        return [v for v in given if v.dtype.kind != "void"]

    @cached_property
    def naming(self) -> list[UOp]:
        """The nodes that name a device."""
        return [u for u in self.of(*NAMING) if names_one(u)]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that nodes name, the shortest name first."""
        found = {named(u.arg if u.op is Ops.COPY else u.arg.device) for u in self.naming}
        return tuple(sorted(found, key=lambda n: (len(n), n)))


@memo_last
def facts_of(graph: UOp) -> GraphFacts:
    """The facts of a graph; the facts of a compile's latest graph are cached."""
    return GraphFacts(graph)
