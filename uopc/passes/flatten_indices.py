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

import dataclasses

from uopc.errors import UserError
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.core import shapes, walk
from uopc.ir.core.levels import KERNEL
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.passes.contract import Context, Pass

_STORAGE = (Ops.PARAM, Ops.BUFFER)


def flatten_indices(kernel: UOp, context: Context) -> UOp:
    """The kernel with one flat index per access; the kernel itself if it has that already."""
    order = walk.order(kernel)
    if any([u.op is Ops.END and u.arg is not None for u in order]):
        raise UserError("end: the Opts of a kernel written by hand stand on its SINK")
    shaped = {u for u in order if u.op in _STORAGE and len(shapes.shape(u)) != 1}
    views = any(u.op is Ops.INDEX and before_effects(u.src[0]).op not in _STORAGE for u in order)
    if not shaped and not views:
        return kernel

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in shaped:
            size = shapes.size(shapes.shape(u))
            arg, symbolic = leaves.split_dims((size,))
            return intern(u.op, u.dtype, symbolic, dataclasses.replace(u.arg, dims=arg))
        if u.op.movement:
            return src[0]  # the INDEX above has taken it into account
        if u.op is Ops.INDEX:
            return _flat(u, src)
        return None

    return rebuild.rewritten(kernel, change)


def _flat(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """The INDEX into the storage under it, with one component."""
    base, index, guard = index_maps.storage_index(u)
    if base.op not in _STORAGE:
        raise UserError(f"index: {base.op!r} is not storage")
    flat = index_maps.gated((index_maps.flat_index(shapes.shape(base), index),), guard)
    storage = src[0].src[0] if src[0].op is Ops.INDEX else src[0]
    return intern(Ops.INDEX, u.dtype, (storage, *flat))


PASS = Pass("flatten-indices", KERNEL, KERNEL, flatten_indices, "kernel")
