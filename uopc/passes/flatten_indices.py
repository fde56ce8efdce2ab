"""One flat index for each access of a kernel written by hand.

Before (kernel)                          After (kernel)
  %1 = param "" slot=0 : f32[8, 4]         %1 = param "" slot=0 : f32[32]
  %2 = range 8 axis=1 kind=loop : index    %2 = range 4 axis=0 kind=loop : index
  %3 = range 4 axis=0 kind=loop : index    %3 = range 8 axis=1 kind=loop : index
  %4 = param "" slot=1 : f32[4, 8]         %4 = mul %3, 4 : index
  %5 = store %1[%2, %3], %4[%3, %2]        %5 = add %2, %4 : index
  %6 = end %5, %3, %2                      %6 = param "" slot=1 : f32[32]
  sink %6 name=transpose                   %7 = mul %2, 8 : index
                                           %8 = add %7, %3 : index
                                           %9 = store %1[%5], %6[%8]
                                           %10 = end %9, %2, %3
                                           sink %10 name=transpose

Kernels that the scheduler made are flat already; this pass leaves them as they are. An INDEX of an
INDEX merges: the second one indexes the row that the first one selected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.errors import UserError
from uopc.ir import analysis, build, indexing, remake
from uopc.ir.args import ParamArg
from uopc.ir.levels import KERNEL
from uopc.ir.node import intern
from uopc.ir.ops import Ops
from uopc.passes.contract import Context, Pass

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def flatten_indices(kernel: UOp, context: Context) -> UOp:
    order = analysis.toposort(kernel)
    shaped = {u for u in order if u.op is Ops.PARAM and len(analysis.shape(u)) != 1}
    nested = any(u.op is Ops.INDEX and u.src[0].op is Ops.INDEX for u in order)
    if not shaped and not nested:
        return kernel
    dims = {u: analysis.shape(u) for u in order}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in shaped:
            size = analysis.size(dims[u])
            arg, symbolic = build.split_dims((size,))
            return intern(Ops.PARAM, u.dtype, symbolic, ParamArg(u.arg.name, arg, u.arg.slot))
        if u.op is Ops.INDEX:
            return _flat(u, src, dims)
        return None

    return remake.rewritten(kernel, change)


def _flat(u: UOp, src: tuple[UOp, ...], dims: dict[UOp, analysis.Shape]) -> UOp:
    """The INDEX into the storage under it, with one component; rows keep what is left of theirs."""
    indices: list[UOp] = []
    base = u
    while base.op is Ops.INDEX:
        indices = [*base.src[1:], *indices]
        base = base.src[0]
    storage = src[0].src[0] if src[0].op is Ops.INDEX else src[0]
    rank = len(dims[base])
    indices += [indexing.zero()] * (rank - len(indices))
    if len(indices) > rank:
        raise UserError(f"index: {len(indices)} indices for storage of {rank} dimensions")
    guard = indexing.true()
    plain = []
    for component in indices:
        x, condition = indexing.ungated(component)
        plain.append(x)
        guard = guard if condition is None else indexing.both(guard, condition)
    place = indexing.gated((indexing.flat_index(dims[base], plain),), guard)
    return intern(Ops.INDEX, u.dtype, (storage, *place))


PASS = Pass("flatten-indices", KERNEL, KERNEL, flatten_indices, "kernel")
