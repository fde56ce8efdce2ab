"""A value that few elements need, computed under a branch: only where some lane needs it.

The branch is a loop that runs once or not at all, `range cast(any lane of the condition)`, around
the sum of the one value: nothing new for the levels below, and what LLVM gets has no way back. What
is computed inside starts from `after operand, range`, or else it would not depend on the loop and
would stand before it. The sum is one of bits, so that -0.0 and NaN survive.

A branch costs a comparison for each vector. It pays for arms that are long, and not needed in most
vectors; where every vector needs one, nothing is lost but the comparison.
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

    Everything that `compute` uses of the kernel must be among the operands. The result is a float.
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
