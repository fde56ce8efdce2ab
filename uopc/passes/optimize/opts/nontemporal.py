"""NONTEMPORAL: stores that bypass the caches.

    for i: y[i] = f(x[i])   →  the same, its store with the mode `stream`

When a store misses a cache, the cache reads the line first, and drops another line. Both are wasted
if no code reads the new line soon. The stored values do not change; a backend without such stores,
or a store of less than a whole vector, ignores the mode.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import is_overwritten
from uopc.passes.optimize.opts.legality import Refused, check_no_amount, check_not_read


def nontemporal(kernel: UOp, r: UOp, n: int) -> UOp:
    """Make the stores inside of the loop bypass the caches."""
    check_no_amount(n)
    inside = [u for u in nest_of(kernel).stores if r in ranges.ranges(u)]
    stores = [u for u in inside if storage_root(u.src[0]).op is Ops.PARAM]
    if not stores:
        raise Refused("the loop stores no output of the kernel")
    if any(u.arg is not None for u in stores):
        raise Refused("the stores have a mode already")
    if any(is_overwritten(u, q) for u in stores for q in ranges.ranges(u)):
        raise Refused("the iterations of a loop write to one element, in order")
    check_not_read(kernel, stores)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        return intern(u.op, u.dtype, src, "stream", u.tag)

    return rebuild.rewritten(kernel, change, only=set(stores))
