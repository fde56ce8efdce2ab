"""Interleaving: two iterations of a loop side by side, where one waits for its own results.

    for seed: 110 operations, 100 cycles one after the other
    →  for seed by 2: 220 operations, in which two chains take turns

A processor looks a few hundred operations ahead, so it sees the next iterations of a short body but
not of a long one. The longest chain of a long body bounds its time, so two copies take little
longer than one. Functions have chains of their own, and branches that end a list schedule; code
with many independent operations needs no second copy.
"""

from __future__ import annotations

import math

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis import op_costs
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, length_of
from uopc.passes.optimize.schedule.loop_order import copies_taken
from uopc.passes.optimize.schedule.scheduler import Scheduler


def interleave(s: Scheduler) -> None:
    """Copies of the innermost loops whose bodies wait for their results."""
    k = s.facts
    if k.reduces or any([u.op is Ops.BUFFER for u in k.order]):
        return
    for u in k.order:
        if u.op is not Ops.END:
            continue
        loops = [r for r in u.src[1:] if r.arg.kind == "loop"]
        inner = max(loops, key=lambda r: r.arg.axis, default=None)
        n = thresholds.INTERLEAVED
        if inner is not None and (length_of(inner) or 0) > n and _waits(k, inner):
            s.attempt("UPCAST", inner, n)


def _waits(k: KernelFacts, r: UOp) -> bool:
    """True if an iteration waits for its own results, too long to overlap with the next one."""
    body = [u for u in k.order if r in ranges.ranges(u) and u.dtype.scalar is not dtypes.index]
    if any([op_costs.expansion(u) > 1 for u in body]):
        return False
    copies = [copies_taken(k, q) for q in k.axes if q.arg.kind == "upcast"]
    work = 0
    until: dict[UOp, int] = {}  # cycles until the result of a node
    for u in body:
        cycles = op_costs.latency(u)
        work += math.prod([c[u] for c in copies]) if cycles else 0
        until[u] = cycles + max([until.get(s, 0) for s in u.src], default=0)
    waiting = work <= op_costs.ISSUE_WIDTH * max(until.values(), default=0)
    most = op_costs.LONGEST_STRETCH // thresholds.INTERLEAVED
    return waiting and op_costs.SHORTEST_STRETCH <= work <= most
