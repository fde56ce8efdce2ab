"""The level of a graph, read from its ops."""

from __future__ import annotations

from uopc.ir.core import walk
from uopc.ir.core.levels import KERNEL, LINEAR, PROGRAM, TENSOR, Level
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def level_of(graph: UOp) -> Level:
    """The level of a graph from outside, read from its ops."""
    ops = walk.ops(graph)
    if graph.op is Ops.LINEAR:
        return PROGRAM if Ops.CALL in ops or not graph.src else LINEAR
    if Ops.RANGE in ops or Ops.SPECIAL in ops:
        return KERNEL
    # A kernel writes elements of storage; a tensor graph stores through views.
    stores = [u for u in walk.nodes(graph) if u.op is Ops.STORE] if Ops.STORE in ops else []
    return KERNEL if any([u.src[0].op is Ops.INDEX for u in stores]) else TENSOR
