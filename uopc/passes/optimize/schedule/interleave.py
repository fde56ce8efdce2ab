"""Interleaving: several iterations of a loop in one body, if a single iteration waits for its own
results.

    for seed: 110 operations, 100 cycles one after the other
    →  for seed by 2: 220 operations, in which two chains take turns

A processor looks a few hundred operations ahead, so it sees the next iterations of a short body but
not of a long one. The longest chain of a long body bounds its time, so two copies take little
longer than one. Code with many independent operations needs no second copy.

A function of a vector is a chain, too. A processor computes the next chains together with the
first, as long as the waiting operations fit its scheduler queue. N operations enter the queue at r
per cycle, the last at N / r, and leave it as the chain proceeds, the last at L. An operation waits
(L - N / r) / 2 cycles on average, so (r·L - N) / 2 operations wait (Little's law). If N exceeds L,
list scheduling already interleaves the chains of the body.
"""

from __future__ import annotations

import math

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import Chain, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import chain, expansion, is_function
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import op_costs, thresholds
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.schedule.lane_costs import lane_cost
from uopc.passes.optimize.schedule.loop_order import copies_taken
from uopc.passes.optimize.schedule.scheduler import Scheduler

_WITHOUT_FMA = 3  # times the operations of a function on a processor without MULACC


def interleave(s: Scheduler) -> None:
    """Copy the innermost loops whose bodies wait for their results."""
    straight = _is_straight(s.nest)
    for u in s.nest.order:
        loops = [r for r in u.src[1:] if r.arg.kind == "loop"] if u.op is Ops.END else []
        if not loops:
            continue
        inner = max(loops, key=lambda r: r.arg.axis)
        if any([r.arg.kind == "lane" for r in u.src[1:]]) and (n := vectors(s, inner, 1)) > 1:
            if (length_of(inner) or n) >= n:
                s.widen(inner, "UPCAST", n)
        elif straight and _waits(s.nest, inner):
            s.attempt("UPCAST", inner, thresholds.INTERLEAVED)


def vectors(s: Scheduler, r: UOp, lanes: int) -> int:
    """The number of vectors whose functions are interleaved; `lanes` iterations are one vector."""
    k = s.nest
    body = _body(k, r)
    own = not s.target.has_functions and any(map(is_function, body))
    if not own or any([u.op is Ops.REDUCE for u in body]):
        return 1
    work, multiplications, divisions, cycles = _chain(k, body)
    if loads := len([a for a in k.read if a.node in body]):
        work, cycles = work + loads, cycles + Ops.LOAD.latency
    bits = max([u.dtype.scalar.bits for u in body if u.dtype.is_float])
    nbytes, m = s.machine.vector_bytes, s.machine
    units = m.multiply_adds(nbytes)
    busiest = max(multiplications, work / 2, divisions * units * m.division(nbytes, bits))
    rate = units * work / busiest
    if work > cycles or rate * cycles - work < 2 * thresholds.WAITING:
        return 1
    if not s.target.has_fma(dtypes.float32):
        work *= _WITHOUT_FMA
    n = fitting(thresholds.VECTORS_OF_A_FUNCTION, op_costs.LONGEST_STRETCH // work)
    around = [[q for q in ranges.ranges(u) if q.arg.kind == "loop"] for u in body]
    return n if max(map(trips, around)) >= n * lanes * thresholds.RUNS_OF_A_NODE else 1


def is_busy(k: Nest, r: UOp, lanes: int) -> bool:
    """True if an iteration of a loop over vectors has more operations, its loads among them, than
    cycles until its result: other iterations beside it gain nothing."""
    work, _, _, cycles = _chain(k, _body(k, r))
    for a in k.inside(r):
        copies = [length_of(q) or 1 for q in a.loops if q.arg.kind in ("upcast", "unroll")]
        work += int(lane_cost([a], r, lanes)) * math.prod(copies)
    return work > cycles + Ops.LOAD.latency


def _is_straight(k: Nest) -> bool:
    """True if a kernel has no sums and no local storage."""
    return not k.reduces and all([u.op is not Ops.BUFFER for u in k.order])


def _waits(k: Nest, r: UOp) -> bool:
    """True if an iteration without functions waits for its own results longer than the next
    iteration can overlap."""
    body = _body(k, r)
    if (length_of(r) or 0) <= thresholds.INTERLEAVED or any([expansion(u) > 1 for u in body]):
        return False
    work, _, _, cycles = _chain(k, body)
    waiting = work <= op_costs.ISSUE_WIDTH * cycles
    most = op_costs.LONGEST_STRETCH // thresholds.INTERLEAVED
    return waiting and op_costs.SHORTEST_STRETCH <= work <= most


def _body(k: Nest, r: UOp) -> list[UOp]:
    """The nodes in a loop that compute with elements."""
    return [u for u in k.order if r in ranges.ranges(u) and u.dtype.scalar is not dtypes.index]


def _chain(k: Nest, body: list[UOp]) -> Chain:
    """The operations of an iteration."""
    copies = [copies_taken(k, q) for q in k.axes if q.arg.kind in ("upcast", "unroll")]
    work = multiplications = divisions = 0
    until: dict[UOp, int] = {}  # cycles until the result of a node
    for u in body:
        own, times = chain(u), math.prod([c[u] for c in copies])
        work += times * own.operations
        multiplications += times * own.multiplications
        divisions += times * own.divisions
        until[u] = own.cycles + max([until.get(s, 0) for s in u.src], default=0)
    return Chain(work, multiplications, divisions, max(until.values(), default=0))
