"""Large outputs of kernels that touch more than the last cache holds are stored past the caches."""

from __future__ import annotations

import math
import sys

from uopc.ir.core import bounds, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import Access, KernelFacts, length_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


def store_past_caches(s: Scheduler, before: KernelFacts) -> None:
    """Large outputs that are written one line after the other go past the last cache. `before` are
    facts from before loops were cut: the kernel accessed the same storage."""
    holds = s.target.last_cache_bytes
    used = {storage_root(a.node) for a in before.accesses}
    if sum([_size(u) for u in used if u.op is Ops.PARAM]) < thresholds.STREAMED_TOTAL * holds:
        return
    k = s.facts
    touched: dict[UOp, int] = {}
    for a in k.accesses:
        storage = storage_root(a.node)
        if storage.op is Ops.PARAM:
            touched[storage] = min(touched.get(storage, 0) + _reached(a), _size(storage))
    if sum(touched.values()) < thresholds.STREAMED_TOTAL * holds:
        return
    for a in k.accesses:
        large = touched.get(storage_root(a.node), 0) * thresholds.STREAMED_SHARE >= holds
        loop = _line_after_line(a, s.target.stream_bytes) if a.written and large else None
        if loop is not None:
            s.attempt("NONTEMPORAL", loop, 0)


def _reached(a: Access) -> int:
    """The most bytes of the elements that an access goes to."""
    count: int = math.prod([bounds.bounds(r.src[0])[1] for r in ranges.ranges(a.flat)])
    return count * a.node.dtype.itemsize


def _size(storage: UOp) -> int:
    """The bytes of storage; the greatest number where they are not known."""
    dims = storage.arg.dims
    known: list[int] = [d for d in dims if isinstance(d, int)]
    return math.prod(known) * storage.dtype.itemsize if len(known) == len(dims) else sys.maxsize


def _line_after_line(a: Access, least: int) -> UOp | None:
    """The innermost loop around an access whose lanes and copies go to neighbours, and on from
    there in the next iteration, in vectors that begin at multiples of `least` bytes."""
    inside = [r for r in ranges.ranges(a.flat) if r.arg.kind in ("lane", "upcast")]
    loops = [r for r in ranges.ranges(a.flat) if r.arg.kind == "loop"]
    if not loops or not any(r.arg.kind == "lane" for r in inside):
        return None
    constant, terms = affine.form(a.flat)
    first = affine.build(constant, {m: k for m, k in terms.items() if m not in inside})
    if affine.divisor(first) * a.node.dtype.itemsize % least:
        return None
    reach = 1
    for step, r in sorted([(a.stride(r) or 0, r) for r in inside], key=lambda pair: pair[0]):
        if step != reach:
            return None
        reach *= length_of(r) or 1
    loop = max(loops, key=lambda r: r.arg.axis)
    return loop if a.stride(loop) == reach else None
