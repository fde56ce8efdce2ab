"""Values that few elements need, computed under a branch: only where some lane needs them.

A branch costs a comparison per vector. It pays for arms that are long and that most vectors do not
need; where every vector needs them, only the comparison is lost.
"""

from __future__ import annotations

from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def cold_branch(condition: UOp, usual: UOp, corrected: UOp) -> UOp:
    """`usual` where no lane holds `condition`, else all lanes of `corrected`, of the same dtype."""
    if condition.op is Ops.CONST:
        return corrected if condition.arg else usual
    some = condition
    if condition.dtype.lanes > 1:
        some = intern(Ops.HREDUCE, dtypes.bool_, (condition,), "add")
    return intern(Ops.BRANCH, usual.dtype, (usual, some, corrected))
