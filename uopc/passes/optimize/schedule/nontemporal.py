"""Nontemporal stores for large outputs, if a kernel accesses more bytes than the last cache."""

from __future__ import annotations

import math
import sys

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, values
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.schedule.scheduler import Scheduler


def store_past_caches(s: Scheduler, before: Nest) -> None:
    """Apply NONTEMPORAL to loops that write large outputs line after line. `before`: the kernel
    before its loops were cut, which accesses the same storage."""
    holds = s.target.last_cache_bytes
    used = {a.storage for a in before.accesses}
    if (
        sum([_storage_bytes(u) for u in used if u.op is Ops.PARAM])
        < thresholds.STREAMED_TOTAL * holds
    ):
        return
    k = s.nest
    touched: dict[UOp, int] = {}
    for a in k.accesses:
        storage = a.storage
        if storage.op is Ops.PARAM:
            accessed = trips(ranges.ranges(a.flat)) * a.itemsize
            touched[storage] = min(touched.get(storage, 0) + accessed, _storage_bytes(storage))
    if sum(touched.values()) < thresholds.STREAMED_TOTAL * holds:
        return
    for a in k.written:
        if touched.get(a.storage, 0) * thresholds.STREAMED_SHARE >= holds:
            s.attempt("NONTEMPORAL", _line_after_line(a, s.target.stream_bytes), 0)


def _storage_bytes(storage: UOp) -> int:
    """The bytes of storage; infinite if unknown."""
    dims = storage.arg.dims
    known: list[int] = [d for d in dims if isinstance(d, int)]
    return math.prod(known) * storage.dtype.itemsize if len(known) == len(dims) else sys.maxsize


def _line_after_line(a: Access, least: int) -> UOp | None:
    """The innermost loop whose iterations write consecutive runs, each filled by lanes and copies,
    in vectors that begin at multiples of `least` bytes."""
    moving = ranges.ranges(a.flat)
    inside = [r for r in moving if r.arg.kind in ("lane", "upcast")]
    loops = [r for r in moving if r.arg.kind == "loop"]
    if not loops or not any(r.arg.kind == "lane" for r in inside):
        return None
    constant, terms = a.form
    first = affine.build(constant, {m: k for m, k in terms.items() if m not in inside})
    if values.divisor(first) * a.itemsize % least:
        return None
    reach = 1
    for step, r in sorted([(a.stride(r) or 0, r) for r in inside], key=lambda pair: pair[0]):
        if step != reach:
            return None
        reach *= length_of(r) or 1
    loop = max(loops, key=lambda r: r.arg.axis)
    return loop if a.stride(loop) == reach else None
