"""A value that few elements need, computed under a branch: only where some lane needs it.

The branch is a loop that runs once or not at all, `range cast(any lane of the condition)`, and what
it gives is a sum: the usual bits and, from the loop, what they change by. So nothing is new for the
levels below, -0.0 and NaN survive, and linearize makes a register of it that holds the usual value
until the branch sets it. What is computed inside starts from `after operand, range`, or else it
would not depend on the loop and would stand before it.

A branch costs a comparison for each vector. It pays for arms that are long, and not needed in most
vectors; where every vector needs one, nothing is lost but the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import RangeArg, ReduceArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

_BITS = {16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def is_branch(r: UOp) -> bool:
    """A loop that runs once or not at all."""
    return analysis.bounds(r.src[0]) == (0, 1)


def branch_axis(operands: Iterable[UOp]) -> int:
    """The axis of a branch on some values: no other range of the nest has it, and one less is left
    for a branch around several."""
    return 2 + max([r.arg.axis[0] for u in operands for r in analysis.ranges(u)], default=-1)


def seldom(condition: UOp, usual: UOp, correct: Callable[..., UOp], *operands: UOp) -> UOp:
    """`usual` where no lane holds `condition`, else all lanes of `correct(usual, *operands)`.

    Everything else that `correct` uses of the kernel must be among the operands. The result is a
    float. What the lanes are chosen by is compared again inside: no mask is kept for it.
    """
    if condition.op is Ops.CONST:
        return correct(usual, *operands) if condition.arg else usual
    some = condition
    if condition.dtype.lanes > 1:
        some = intern(Ops.HREDUCE, dtypes.bool_, (condition,), "add")
    arg = RangeArg((branch_axis((some,)),), "reduce")
    once = intern(Ops.RANGE, dtypes.index, (some.cast(dtypes.index),), arg)
    inside = [intern(Ops.AFTER, u.dtype, (u, once)) for u in operands]
    before = usual.bitcast(_BITS[usual.dtype.bits])
    after = correct(usual, *inside).bitcast(before.dtype.scalar)
    change = intern(Ops.SUB, before.dtype, (after, before))
    changed = intern(Ops.REDUCE, before.dtype, (change, once), ReduceArg("add"))
    return intern(Ops.ADD, before.dtype, (before, changed)).bitcast(usual.dtype.scalar)
