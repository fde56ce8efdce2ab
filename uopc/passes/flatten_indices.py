"""The loops and flat indices of a kernel written by hand.

Before (handwritten)                  After (kernel)
  %1 = param "" slot=0 : f32[8, 4]      %1 = param "" slot=0 : f32[32]
  %2 = param "" slot=1 : f32[4, 8]      %2 = range 8 axis=0.0 kind=loop : index
  %3 = permute %2 (1, 0) : f32[8, 4]    %3 = mul %2, 4 : index
  %4 = store %1, %3                     %4 = range 4 axis=0.1 kind=loop : index
  sink %4 name=transpose                %5 = add %3, %4 : index
                                        %6 = param "" slot=1 : f32[32]
                                        %7 = mul %4, 8 : index
                                        %8 = add %2, %7 : index
                                        %9 = store %1[%5], %6[%8]
                                        %10 = end %9, %2, %4
                                        sink %10 name=transpose

Kernels that the scheduler made are flat already; this pass leaves them as they are. In a kernel
written by hand, a store of a value with a shape gets a loop per axis, a STAGE becomes a buffer that
a loop fills, and an INDEX of an expression or a view goes to its sources (`ir/builder/loops.py`).
"""

from __future__ import annotations

import dataclasses

from uopc.errors import UserError
from uopc.ir.builder import index_maps, leaves, rebuild
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import shapes, walk
from uopc.ir.core.level_of import is_shaped
from uopc.ir.core.levels import HANDWRITTEN, KERNEL
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
    if is_shaped(kernel):
        kernel = with_loops(kernel)
        order = walk.order(kernel)
    shaped = {u for u in order if u.op in _STORAGE and len(shapes.shape(u)) != 1}
    if not shaped:
        return kernel

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in shaped:
            size = shapes.size(shapes.shape(u))
            arg, symbolic = leaves.split_dims((size,))
            return intern(u.op, u.dtype, symbolic, dataclasses.replace(u.arg, dims=arg))
        return _flat(u, src) if u.op is Ops.INDEX else None

    return rebuild.rewritten(kernel, change)


def _flat(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """The INDEX of the storage with one component."""
    dims = shapes.shape(before_effects(u.src[0]))
    index, guard = index_maps.plain_index(u.src[1:], index_maps.true())
    flat = index_maps.gated((index_maps.flat_index(dims, index),), guard)
    return intern(Ops.INDEX, u.dtype, (src[0], *flat))


PASS = Pass("flatten-indices", HANDWRITTEN, KERNEL, flatten_indices, "kernel")
