"""A value that few elements need, computed under a branch: only where some lane needs it.

Before (a value for every lane)       After (vector)
  %3 = cmplt 9.0, %2 : boolx8           %3 = cmplt 9.0, %2 : boolx8
  %4 = f %2 : f32x8                     %4 = hreduce.add %3 : bool
  %5 = where %3, %4, %2 : f32x8         %5 = cast %4 : index
                                        %6 = range %5 axis=1 kind=reduce : index
                                        %7 = f (after %2, %6) : f32x8
                                        %8 = reduce.add (bitcast %7) over %6 : u32x8
                                        %9 = where %3, (bitcast %8), %2 : f32x8

The branch is a loop that runs once or not at all: nothing new for the levels below, and LLVM IR
is emitted for it without a way back. What the loop sums up are bits, so that -0.0 and NaN survive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from uopc.ir import analysis, dtypes
from uopc.ir.args import RangeArg, ReduceArg
from uopc.ir.node import intern
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

_BITS = {16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def seldom(condition: UOp, otherwise: UOp, compute: Callable[..., UOp], *operands: UOp) -> UOp:
    """`condition.where(compute(*operands), otherwise)`; compute is run when any lane holds.

    All of what `compute` uses of the kernel must be among the operands: the rest it computes is
    then inside of the branch. The result is a float.
    """
    if condition.op is Ops.CONST:
        return condition.where(compute(*operands), otherwise)
    some = condition
    if condition.dtype.lanes > 1:
        some = intern(Ops.HREDUCE, dtypes.bool_, (condition,), "add")
    # One more than the axes around: no other range of the nest has it.
    axis = 1 + max([r.arg.axis[0] for r in analysis.ranges(some)], default=-1)
    once = intern(Ops.RANGE, dtypes.index, (some.cast(dtypes.index),), RangeArg((axis,), "reduce"))
    value = compute(*[intern(Ops.AFTER, u.dtype, (u, once)) for u in operands])
    bits = value.bitcast(_BITS[value.dtype.bits])
    taken = intern(Ops.REDUCE, bits.dtype, (bits, once), ReduceArg("add"))
    return condition.where(taken.bitcast(value.dtype.scalar), otherwise)
