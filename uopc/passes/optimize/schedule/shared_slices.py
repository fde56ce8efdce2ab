"""Slices of operands in shared memory: how the threads of a block fill a tile together."""

from __future__ import annotations

import math

from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.schedule import gpu_thresholds
from uopc.passes.optimize.schedule.kernel_facts import length_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


def share_fill(s: Scheduler, loops: list[UOp], dtype: DType, threads: int) -> bool:
    """The loops of a fill, fastest last: vectors, then threads, then copies."""
    left, rest = threads, []
    for i, q in enumerate(reversed(loops)):
        inner: UOp | None = q
        if i == 0 and s.attempt("VECTOR", q, max(1, gpu_thresholds.ACCESS_BYTES // dtype.itemsize)):
            inner = s.part(q, 0)
        n = 1 if inner is None else math.gcd(left, length_of(inner) or 1)
        n &= -n  # the greatest power of two
        if n > 1:
            if not s.attempt("LOCAL", inner, n):
                return False
            inner, left = s.part(inner, 0), left // n
        rest.append(inner)
    for part in rest:
        if part is not None and (length_of(part) or 1) > 1:
            s.attempt("UPCAST", part, length_of(part) or 1)
    return True
