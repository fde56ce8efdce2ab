"""Give exchanges storage: each is a call that takes what is sent and writes what arrives.

Before (tensor), mesh=m:2
    %1 = param x : f32[4]
    %2 = mul %1, 2.0:f32 : f32[4]
    %3 = allreduce %2 axes=(m,) parts=2 op=add : f32[4]
    sink %3
After (tensor)
    // kernel allreduce_m
      %1 = param "" slot=0 : f32[4]
      %2 = allreduce %1 axes=(m,) parts=2 op=add : f32[4]
      %3 = store %1, %2
      %4 = sink %3 name=allreduce_m
    // program
    %5 = buffer slot=0 : f32[4]
    %6 = param x : f32[4]
    %7 = mul %6, 2.0:f32 : f32[4]
    %8 = store %5, %7
    %9 = after %5, %8 : f32[4]
    %10 = call %4, %9  // allreduce_m
    %11 = after %5, %10 : f32[4]
    sink %11

What is sent is stored. If nobody else reads it, an ALLREDUCE or BROADCAST is in place.
"""

from __future__ import annotations

from collections import Counter

from uopc.ir.builder import kernel, leaves, rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.args import BufferArg, ParamArg
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.slots import Slots
from uopc.passes.contract import Context, Pass

_IN_PLACE = frozenset((Ops.ALLREDUCE, Ops.BROADCAST))


def place_exchanges(graph: UOp, context: Context) -> UOp:
    """The graph with a CALL for each exchange."""
    if GroupOp.Exchange.isdisjoint(walk.ops(graph)):
        return graph
    order, slots = walk.nodes(graph), Slots(graph)
    readers = Counter([s for u in order for s in u.src])

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op not in GroupOp.Exchange:
            return None
        sent = u.src[0]
        storage = _buffer(u, slots())
        alone = readers[sent] == 1 and u.op in _IN_PLACE and sent.op is not Ops.CONTIGUOUS
        if alone and not sent.op.is_storage:
            given = kernel.after(storage, kernel.store(storage, src[0]))
            call = _call(u, (given,), 0)
        else:
            call = _call(u, (storage, intern(Ops.CONTIGUOUS, u.dtype, (src[0],))), 1)
        call.origin = u.origin
        return kernel.after(storage, call)

    return rebuild.rewritten(graph, change, outside_kernels=True)


def _buffer(u: UOp, slot: int) -> UOp:
    dims, symbolic = leaves.split_dims(shapes.shape(u))
    return intern(Ops.BUFFER, u.dtype, symbolic, BufferArg(slot, dims))


def _call(u: UOp, args: tuple[UOp, ...], sent: int) -> UOp:
    """The call of a kernel that is one exchange: it stores to slot 0 what slot `sent` gives."""
    params = []
    for slot, a in enumerate(args):
        dims, symbolic = leaves.split_dims(shapes.shape(a))
        params.append(intern(Ops.PARAM, u.dtype, symbolic, ParamArg("", dims, slot)))
    got = intern(u.op, u.dtype, (params[sent],), u.arg)
    sink = kernel.sink(kernel.store(params[0], got), name=f"{u.op.name}_{'_'.join(u.arg.axes)}")
    return intern(Ops.CALL, dtypes.void, (sink, *args))


PASS = Pass("place-exchanges", TENSOR, TENSOR, place_exchanges, "graph")
