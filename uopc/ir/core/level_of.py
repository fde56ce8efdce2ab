"""The level of a graph, read from its ops."""

from __future__ import annotations

from uopc.ir.core import dtypes, walk
from uopc.ir.core.levels import HANDWRITTEN, KERNEL, LINEAR, PROGRAM, TENSOR, Level
from uopc.ir.core.ops import GroupOp, Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp

# Ops of values with shapes, and ops that take storage itself.
_SHAPED = frozenset([op for op in Op.all() if op.movement]) | GroupOp.Exchange | {
    Ops.ACCUMULATE, Ops.CAT, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.IOTA,
    Ops.PRIMITIVE, Ops.STAGE,
}  # fmt: skip
_TAKES_STORAGE = frozenset([op for op in Op.all() if op.takes_storage]) - {Ops.INDEX}


def level_of(graph: UOp) -> Level:
    """The level of a graph that comes from outside, read from its ops."""
    ops = walk.ops(graph)
    if graph.op is Ops.LINEAR:
        return PROGRAM if Ops.CALL in ops or not graph.src else LINEAR
    if not _is_kernel(graph, ops):
        return TENSOR
    return HANDWRITTEN if is_shaped(graph) else KERNEL


def _is_kernel(graph: UOp, ops: frozenset[Op]) -> bool:
    """True for a graph with loops, with stores to elements, or with stores to params by slot."""
    if Ops.RANGE in ops or Ops.SPECIAL in ops:
        return True
    if Ops.STORE not in ops:
        return False
    # A tensor graph stores through views of params by name; the params of a FUNCTION have slots.
    nodes = walk.nodes(graph)
    if any([u.op is Ops.STORE and u.src[0].op is Ops.INDEX for u in nodes]):
        return True
    return Ops.FUNCTION not in ops and any([u.op is Ops.PARAM and u.arg.slot >= 0 for u in nodes])


def is_shaped(kernel: UOp) -> bool:
    """True if a kernel has values with shapes (whole arrays, rows, views, an INDEX of them), or an
    index of another dtype than index."""
    for u in walk.order(kernel):
        op = u.op
        if op is Ops.INDEX:
            base = before_effects(u.src[0])
            if not base.op.is_storage or len(u.src) <= len(base.arg.dims):
                return True
            if any([s.op.is_storage or s.dtype.scalar is not dtypes.index for s in u.src[1:]]):
                return True
        elif op in _SHAPED:
            return True
        elif op not in _TAKES_STORAGE:
            for s in u.src:
                if s.op.is_storage or (s.op is Ops.AFTER and before_effects(s).op.is_storage):
                    return True
    return False
