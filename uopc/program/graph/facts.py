"""Facts of a graph that a request asks for: found in one walk, handed down beside the graph."""

from __future__ import annotations

from uopc.forks import cached_property
from uopc.ir.core import walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.level_of import level_of
from uopc.ir.core.levels import TENSOR, Level
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.device import named, names_one


class GraphFacts:
    """The facts of a SINK of outputs, or of a kernel. `by_op`: its nodes outside of hand-written
    kernels by their ops, sources first."""

    def __init__(self, graph: UOp) -> None:
        self.graph = graph
        self.by_op: dict[Op, list[UOp]] = {}
        for u in walk.nodes(graph):
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
        """The PARAMs that a call gives: in a tensor graph, a PARAM with a slot is the argument of a
        body."""
        given = self.level is not TENSOR
        return [u for u in self.of(Ops.PARAM) if given or u.arg.slot < 0]

    @property
    def variables(self) -> list[UOp]:
        """The VARIABLEs, also of hand-written kernels."""
        return walk.variables(self.graph)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that nodes name, the shortest name first."""
        naming = filter(names_one, self.of(Ops.COPY, Ops.PARAM, Ops.BUFFER))
        found = {named(u.arg if u.op is Ops.COPY else u.arg.device) for u in naming}
        return tuple(sorted(found, key=lambda n: (len(n), n)))


@memo_last
def facts_of(graph: UOp) -> GraphFacts:
    """The facts of a graph; those of the latest graph of a compile are cached."""
    return GraphFacts(graph)
