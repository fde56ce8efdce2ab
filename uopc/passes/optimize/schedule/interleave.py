"""Two iterations of a loop side by side, where one waits for its results.

    for seed: 110 operations, 100 cycles one after the other
    →  for seed by 2: 220 operations, in which two chains take turns

A processor looks a few hundred operations ahead: it sees the next iterations of a short body, and
hardly the next one of a long body. What `latency_order` orders by the longest way is then bound by
that way, and two copies of it take little longer than one. Functions bring chains of their own, and
their branches end what is ordered; wide code has enough to do.
"""

from __future__ import annotations

import math

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis import op_costs
from uopc.passes.optimize.schedule import thresholds as machine
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, length_of
from uopc.passes.optimize.schedule.loop_order import copies_taken
from uopc.passes.optimize.schedule.scheduler import Chooser


def interleave(chooser: Chooser) -> None:
    """Copies of the innermost loops whose bodies wait for their results."""
    k = chooser.facts
    if k.reduces or any([u.op is Ops.BUFFER for u in k.order]):
        return
    for u in k.order:
        if u.op is not Ops.END:
            continue
        loops = [r for r in u.src[1:] if r.arg.kind == "loop"]
        inner = max(loops, key=lambda r: r.arg.axis, default=None)
        if inner is not None and (length_of(inner) or 0) > machine.INTERLEAVED and _waits(k, inner):
            chooser.attempt("UPCAST", inner, machine.INTERLEAVED)


def _waits(k: KernelFacts, r: UOp) -> bool:
    """Whether an iteration is too long for a processor to see the next, and has less to do than the
    time until its result is there allows."""
    body = [u for u in k.order if r in ranges.ranges(u) and u.dtype.scalar is not dtypes.index]
    if any([op_costs.expansion(u) > 1 for u in body]):
        return False
    copies = [copies_taken(k, q) for q in k.axes if q.arg.kind == "upcast"]
    work = 0
    until: dict[UOp, int] = {}  # cycles until the result of a node is there
    for u in body:
        cycles = op_costs.latency(u)
        work += math.prod([c[u] for c in copies]) if cycles else 0
        until[u] = cycles + max([until.get(s, 0) for s in u.src], default=0)
    waiting = work <= op_costs.ISSUE_WIDTH * max(until.values(), default=0)
    most = op_costs.LONGEST_STRETCH // machine.INTERLEAVED
    return waiting and op_costs.SHORTEST_STRETCH <= work <= most
