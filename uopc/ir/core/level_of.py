"""What a graph that came from outside is: its ops say it."""

from __future__ import annotations

from uopc.ir.core import walk
from uopc.ir.core.levels import KERNEL, LINEAR, PROGRAM, TENSOR, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def level_of(graph: UOp) -> Level:
    """The level of a graph that came from outside: its ops say it."""
    ops = walk.ops(graph)
    if graph.op is Ops.LINEAR:
        return PROGRAM if Ops.CALL in ops or not graph.src else LINEAR
    # A kernel writes elements of storage; a tensor graph stores through views.
    if Ops.RANGE in ops or Ops.SPECIAL in ops or _stores_elements(graph):
        return KERNEL
    return TENSOR


def _stores_elements(graph: UOp) -> bool:
    nodes = walk.nodes(graph) if Ops.STORE in walk.ops(graph) else []
    return any([u.op is Ops.STORE and u.src[0].op is Ops.INDEX for u in nodes])
