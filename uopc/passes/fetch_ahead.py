"""Sums along the rows of a large array fetch the rows of the next iteration.

Before (vector)                              After (vector)
  %1 = param "" slot=0 : f32[256]              %1 = param "" slot=0 : f32[256]
  %2 = range 256 axis=0.0 kind=loop : index    %2 = range 256 axis=0.0 kind=loop : index
  %3 = param "" slot=1 : f32[524288]           %3 = param "" slot=1 : f32[524288]
  %4 = mul %2, 2048 : index                    %4 = mul %2, 2048 : index
  %5 = range 2 axis=0.1 kind=reduce : index    %5 = range 2 axis=0.1 kind=reduce : index
  %6 = mul %5, 8 : index                       %6 = mul %5, 8 : index
  %7 = add %4, %6 : index                      %7 = add %4, %6 : index
  %8 = load %3[%7]:f32x8 : f32x8               %8 = load %3[%7]:f32x8 ahead=2048 : f32x8
  %9 = reduce.add %8 over %5 : f32x8           %9 = reduce.add %8 over %5 : f32x8
  %10 = hreduce.add %9 : f32                   %10 = hreduce.add %9 : f32
  %11 = store %1[%2], %10                      %11 = store %1[%2], %10
  %12 = end %11, %2                            %12 = end %11, %2
  sink %12 name=r_256_2048                     sink %12 name=r_256_2048

A processor fetches what follows in a row, but begins anew at each page and each row. Here it is
told what a LOAD needs one turn of the loop over rows later: `ahead`, in elements. This pays for
arrays that the second-level cache does not hold and whose elements are each read once, by a load
that moves with all loops; what is fetched is a small part of that cache.
"""

from __future__ import annotations

from collections.abc import Collection

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, walk
from uopc.ir.core.levels import VECTOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.contract import Context, Pass

_LEAST = 8  # bytes of a load: a line takes at most eight
_SHARE = 4  # most that is fetched: the second-level cache / n


def fetch_ahead(kernel: UOp, context: Context) -> UOp:
    """The kernel with `ahead` on the loads of large arrays that sums along rows read."""
    target, order = context.target, walk.order(kernel)
    if target.gpu is not None or not context.optimize:
        return kernel
    large = [u for u in order if u.op is Ops.PARAM and bounds.most_bytes(u) > target.l2_bytes]
    if not large or all([u.op is not Ops.REDUCE for u in order]):
        return kernel
    made = {}
    for nest in [u for u in order if u.op is Ops.END]:
        inside = walk.toposort(nest.src[0], gate=lambda u: u.op is not Ops.END)
        loops = [r for r in inside if r.op is Ops.RANGE and r.arg.kind == "loop"]
        for u in inside:
            if u.op is Ops.LOAD and len(u.src) == 1 and u.src[0].src[0] in large:
                ahead = _ahead(u, loops)
                if 0 < ahead * u.dtype.itemsize <= target.l2_bytes // _SHARE:
                    made[u] = ahead

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        return intern(Ops.LOAD, u.dtype, src, made[u], u.tag)

    return rebuild.rewritten(kernel, change, only=set(made)) if made else kernel


def _ahead(load: UOp, loops: Collection[UOp]) -> int:
    """The elements from what a load reads to what it reads one iteration of its last loop later; 0
    if it reads few bytes, not along a sum, or the same again."""
    steps = affine.form(load.src[0].src[1])[1]
    kinds = [r.arg.kind for r in steps if r.op is Ops.RANGE]
    wide = load.dtype.itemsize * load.dtype.lanes >= _LEAST
    if not wide or not loops or "reduce" not in kinds or not set(loops) <= steps.keys():
        return 0
    return steps[max(loops, key=lambda r: r.arg.axis)]


PASS = Pass("fetch-ahead", VECTOR, VECTOR, fetch_ahead, "kernel")
