"""Slots for the BUFFERs that a pass makes."""

from __future__ import annotations

import itertools

from uopc.forks import cached_property
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


class Slots:
    """Numbers after those of the graph's own BUFFERs; each call gives the next one."""

    def __init__(self, graph: UOp) -> None:
        self._graph = graph
        self._made = itertools.count()

    def __call__(self) -> int:
        return self.first + next(self._made)

    @cached_property
    def first(self) -> int:
        order = walk.toposort(self._graph, walk.outside_kernels(self._graph))
        return 1 + max([u.arg.slot for u in order if u.op is Ops.BUFFER], default=-1)

    @cached_property
    def outside(self) -> frozenset[UOp]:
        """The BUFFERs that the graph has outside of the bodies of functions."""
        bodies = (Ops.FUNCTION, *walk.CALLED)
        order = walk.toposort(self._graph, lambda u: u is self._graph or u.op not in bodies)
        return frozenset([u for u in order if u.op is Ops.BUFFER])
