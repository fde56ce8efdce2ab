"""Stores that go to memory past the caches.

    for i: y[i] = f(x[i])   →  the same, its store of mode `stream`

A cache that misses reads a line before it is written, and drops others for it: both are for nothing
where nobody reads the line soon. What is stored does not change; a backend without such stores, or
a store that is no whole vector, ignores the mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.passes.analysis.loops import is_overwritten
from uopc.passes.optimize.opts.legality import Refused

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def nontemporal(kernel: UOp, r: UOp, n: int) -> UOp:
    """The kernel with the stores inside of the loop past the caches."""
    if n != 0:
        raise Refused(f"the amount is {n}, expected 0")
    order = analysis.order(kernel)
    stores = {u for u in order if u.op is Ops.STORE and r in analysis.ranges(u)}
    stores = {u for u in stores if storage_root(u.src[0]).op is Ops.PARAM}
    if not stores:
        raise Refused("nothing of the kernel's output is stored in the loop")
    if any(u.arg is not None for u in stores):
        raise Refused("the stores have a mode already")
    if any(is_overwritten(u, q) for u in stores for q in analysis.ranges(u)):
        raise Refused("its iterations write to one place: the next one waits for the last")
    written = {storage_root(u.src[0]) for u in stores}
    read = {s for u in order for s in (u.src[1:] if u.op is Ops.STORE else u.src)}
    if any(u.op is Ops.INDEX and storage_root(u) in written for u in read):
        raise Refused("the kernel reads what it writes")

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return intern(u.op, u.dtype, src, "stream", u.tag) if u in stores else None

    return remake.rewritten(kernel, change)
