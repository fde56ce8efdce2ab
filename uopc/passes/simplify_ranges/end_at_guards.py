"""A loop ends where the guard of its stores ceases to hold, if that is the same place in all of it.

    for r < n: y[p + r] = f(r) if r + p < 512   →   for r < min(n, 512 - p): y[p + r] = f(r)

The place is one of sizes: rows that are written into a cache from `position` on, which may not hold
all of them. A guard stands in the way of tiles and vectors, the end of a loop does not. Where the
place is a number, the loop is cut there: see `passes/optimize/schedule/guards.py`.
"""

from __future__ import annotations

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed
from uopc.ir.nest.accesses import Access
from uopc.passes.analysis.loops import make_range


def end_at_guards(kernel: UOp) -> UOp:
    """End each output loop at the guard that all of its stores share."""
    stores = [u for u in walk.order(kernel) if u.op is Ops.STORE]
    gates = {u: Access(before_effects(u.src[0]), u).gate for u in stores}
    loops = dict.fromkeys([
        r for gate in gates.values() if gate is not None
        for r in ranges.ranges(gate) if r.arg.kind == "loop"
    ])  # fmt: skip
    for r in loops:
        inside = [gate for u, gate in gates.items() if r in ranges.ranges(u)]
        found = [[] if gate is None else walk.flatten(gate) for gate in inside]
        for u in found[0]:
            end = _end(u, r)
            if end is not None and all([u in conditions for conditions in found]):
                length = affine.maximum(affine.minimum(r.src[0], end), affine.const(0))
                shorter = make_range(length, r.arg.axis, r.arg.kind)
                return end_at_guards(rebuild.rebuild(kernel, {u: index_maps.true(), r: shorter}))
    return kernel


def _end(u: UOp, r: UOp) -> UOp | None:
    """The end of the iterations in which a comparison holds, if it is one of sizes alone."""
    if u.op is not Ops.CMPLT:
        return None
    end = affine.add(affine.sub(u.src[1], u.src[0]), r)  # r < end
    return end if walk.variables(end) and closed.is_closed(end) else None
