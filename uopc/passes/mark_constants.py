"""Mark the arguments of kernels that are constant arrays in all launches.

Before (program)                              After (program)
  // kernel ""                                  // kernel ""
    %1 = param "" slot=0 : f32[64]                %1 = param "" slot=0 : f32[64]
    %2 = range 64 axis=0.0 kind=loop : index      %2 = range 64 axis=0.0 kind=loop : index
    %3 = param "" slot=1 : f32[4096]              %3 = param "" slot=1 order=() : f32[4096]
    %4 = mul %2, 64 : index                       %4 = mul %2, 64 : index
    %5 = range 64 axis=1 kind=reduce : index      %5 = range 64 axis=1 kind=reduce : index
    %6 = add %4, %5 : index                       %6 = add %4, %5 : index
    %7 = param "" slot=2 : f32[64]                %7 = param "" slot=2 : f32[64]
    %8 = mul %3[%6], %7[%5] : f32                 %8 = mul %3[%6], %7[%5] : f32
    %9 = reduce.add %8 over %5 : f32              %9 = reduce.add %8 over %5 : f32
    %10 = store %1[%2], %9                        %10 = store %1[%2], %9
    %11 = end %10, %2                             %11 = end %10, %2
    %12 = sink %11 name=""                        %12 = sink %11 name=""
  // program                                    // program
  %13 = buffer slot=0 : f32[64]                 %13 = buffer slot=0 : f32[64]
  %14 = data @bd222cc423e216f0 : f32[64, 64]    %14 = data @bd222cc423e216f0 : f32[64, 64]
  %15 = param x : f32[64]                       %15 = param x : f32[64]
  linear {                                      linear {
    call %12, %13, %14, %15  // ""                call %12, %13, %14, %15  // ""
  }                                             }

A kernel may say of such an argument in which order it reads the elements (the Opt PREPACK), and its
program holds the array in this order. What stays as it is: an array in a file, as nothing of a file
is copied; one of a few cache lines; and one in a kernel without sums, which reads each element
once.
"""

from __future__ import annotations

import dataclasses

from uopc.ir.builder import rebuild
from uopc.ir.builder.programs import with_kernels
from uopc.ir.core import shapes, walk
from uopc.ir.core.data import files
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import arguments
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.contract import Context

# The fewest bytes of an array whose order is worth a choice.
LEAST_BYTES = 1 << 10


def mark_constants(program: UOp, context: Context) -> UOp:
    """The program, with an order in the PARAMs that stand for constant arrays."""
    given: dict[UOp, list[tuple[UOp, ...]]] = {}
    for call in program.src:
        given.setdefault(call.src[0], []).append(arguments(call))
    return with_kernels(program, {k: _marked(k, calls) for k, calls in given.items()})


def _marked(kernel: UOp, calls: list[tuple[UOp, ...]]) -> UOp:
    """The kernel, which is called with these arguments."""
    first = calls[0]
    slots = [i for i, a in enumerate(first) if a.op is Ops.DATA]
    slots = [i for i in slots if all([_is_marked(args[i], first[i]) for args in calls])]
    if not slots or not any([u.op is Ops.REDUCE for u in walk.order(kernel)]):
        return kernel

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        is_whole = u.op is Ops.PARAM and u.arg.slot in slots
        if not is_whole or u.arg.dims != (shapes.size(shapes.shape(first[u.arg.slot])),):
            return None
        return intern(u.op, u.dtype, src, dataclasses.replace(u.arg, order=()), u.tag)

    made = rebuild.rewritten(kernel, change)
    set_origin(made, made.origin or kernel.origin)
    return made


def _is_marked(a: UOp, like: UOp) -> bool:
    """True for a constant array that may be stored in another order, as large as another one."""
    if a.op is not Ops.DATA or a.arg.dims != like.arg.dims:
        return False
    return a.arg.array.nbytes >= LEAST_BYTES and not files.is_mapped(a.arg.array)
