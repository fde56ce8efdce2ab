"""Loop order: the nest that computes least.

A value is computed in the innermost loop that it depends on. So in kernels with a long body loops
change places if an inner loop would recompute a value; a loop over a flattened shape becomes one
loop per dimension, without divisions; and a short loop that only chooses among values becomes
copies, each with its own value:

    for c, m < 4 + 3·50: y[c, m] = m < 4 ? x[c, m] : m < 54 ? sin(x[m]) · c : …
    →  for m < 4: …; for j < 50: for c: y[c, 4 + j] = sin(x[4 + j]) · c; y[c, 54 + j] = …

In a short body a flattened loop becomes rows if its vectors would cross the ends of rows:

    for i < 150: y[i] = x[i % 50]   →   for o < 3: for j < 50: y[50·o + j] = x[j]
"""

from __future__ import annotations

import itertools

import numpy as np

from uopc.cost.machine import MachineFacts
from uopc.ir.builder import lookup_tables
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.arithmetic import is_arithmetic
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import op_costs, thresholds
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.schedule.lane_costs import lane_cost
from uopc.passes.optimize.schedule.scheduler import Scheduler


def nest(s: Scheduler) -> bool:
    """Order and split the loops of a kernel with a long body and no reduces, give rows loops of
    their own, and copy loops that only choose. True if the kernel now has several nests."""
    k = s.nest
    if any(u.op is Ops.BUFFER for u in k.order):
        return False
    if not all(length_of(r) is not None and r.arg.kind == "loop" for r in k.outputs):
        return False
    if not k.reduces and k.expanded_size() >= thresholds.LONG_BODY:
        _hoist(s, k)
        for r in s.axes:
            _unflatten(s, r)
    elif not k.reduces:
        for r in k.written_along():
            _unflatten_rows(s, r)
    _copy_choices(s)
    return any(o.op == "PEEL" for o in s.opts)


# ---------------------------------------------------------------- the order of loops
def _hoist(s: Scheduler, k: Nest) -> None:
    """Swap pairs of loops while a swap at least halves the work."""
    ends = [u for u in k.order if u.op is Ops.END]
    bytes_written = sum(a.itemsize for a in k.written) * trips(k.axes)
    if len(ends) != 1 or bytes_written > op_costs.CROSSED_BYTES:
        return
    costs: dict[frozenset[UOp], float] = {}  # of the nodes in the same loops
    for u in k.order:
        around = ranges.ranges(u)
        costs[around] = costs.get(around, 0.0) + _cost(u)
    loops, applied = k.axes, len(k.axes) > 1
    while applied:
        swaps = {
            (a, b): [*loops[:a], loops[b], *loops[a + 1 : b], loops[a], *loops[b + 1 :]]
            for a, b in itertools.combinations(range(len(loops)), 2)
        }
        a, b = min(swaps, key=lambda pair: _work(costs, swaps[pair]))
        halved = 2 * _work(costs, swaps[a, b]) <= _work(costs, loops)
        loops, applied = swaps[a, b], halved and s.attempt("SWAP", s.axes[a], b)


def _cost(u: UOp) -> float:
    """The cost of a node alone; most index arithmetic is free."""
    return u.op.cost if is_arithmetic(u) or not u.op.is_alu else 0.0


def _work(costs: dict[frozenset[UOp], float], loops: list[UOp]) -> float:
    """The total cost for this order of loops, outer first."""
    total = 0.0
    for around, cost in costs.items():
        inner = max([i for i, r in enumerate(loops) if r in around], default=-1)
        total += cost * trips(loops[: inner + 1])
    return total


# ---------------------------------------------------------------- flattened loops
def _unflatten(s: Scheduler, r: UOp) -> UOp | None:
    """Split a loop that is used only divided by a constant and modulo that constant into two loops.
    Return the inner loop; None, with nothing applied, for any other loop."""
    first, d = _division(s.nest, r) or (0, 0)
    left = (length_of(r) or 0) - first
    if d == 0 or left % d or left // d < 2:
        return None
    before = s.state
    rest = s.part(r, 1) if first and s.attempt("PEEL", r, first) else r
    if rest is not None and length_of(rest) == left and s.attempt("TILE", rest, d):
        return s.part(rest, 1)
    s.state = before
    return None


def _unflatten_rows(s: Scheduler, r: UOp) -> None:
    """Split a loop into rows and columns if vectors would cross the ends of rows and cost more."""
    k, before = s.nest, s.state
    lanes = s.target.lanes(k.element_bits)
    if not _crosses_rows(k, r, fitting(lanes, length_of(r))):
        return
    row = _unflatten(s, r)
    if row is None:
        return
    both = [q for q in s.axes if q.arg.axis[:-1] == row.arg.axis[:-1]]
    inside = [a for a in s.nest.accesses if not a.loops.isdisjoint(both)]
    work = k.arithmetic(r)
    m = s.machine
    if _element_cost(inside, work, row, lanes, m) >= _element_cost(k.inside(r), work, r, lanes, m):
        s.state = before


def _crosses_rows(k: Nest, r: UOp, lanes: int) -> bool:
    """True if the quotients of a loop change inside of vectors, differently in each vector."""
    first, d = _division(k, r) or (0, 1)
    if (length_of(r) or 0) < 2 * lanes or lanes % d == 0:
        return False
    return first != 0 or d % lanes != 0


def _element_cost(
    accesses: list[Access], work: float, r: UOp, lanes: int, machine: MachineFacts
) -> float:
    """The cost of accesses and operations per iteration of a loop in vectors."""
    length = length_of(r) or 1
    width = fitting(lanes, length)
    known = [a for a in accesses if a.stride(r) is not None]
    gathered = machine.computed_place * (len(accesses) - len(known))
    return (lane_cost(known, r, width) + work) * -(-length // width) / length + gathered


def _division(k: Nest, r: UOp) -> tuple[int, int] | None:
    """The first iteration with a new quotient, and the divisor; None if divisions differ."""
    found: set[tuple[int, int]] = set()
    for u in k.order:
        if u.op not in (Ops.FLOORDIV, Ops.FLOORMOD) or r not in ranges.ranges(u.src[0]):
            continue
        constant, terms = affine.form(u.src[0])
        if u.dtype.scalar is not dtypes.index or u.src[1].op is not Ops.CONST or terms != {r: 1}:
            return None
        found.add((-constant % u.src[1].arg, u.src[1].arg))
    return found.pop() if len(found) == 1 else None


# ---------------------------------------------------------------- loops that choose
def _copy_choices(s: Scheduler) -> None:
    """Copy the body for each iteration of a short loop if most nodes serve few iterations."""
    for r in reversed(s.nest.outputs):
        k = s.nest
        n = length_of(r)
        if r not in k.outputs or n is None or not 1 < n <= op_costs.MOST_CHOICES:
            continue
        if not any(_chooses(u, r) for u in k.order):
            continue
        closed = next(u.src[1:] for u in k.order if u.op is Ops.END and r in u.src[1:])
        inner = {q for q in closed if q.arg.axis >= r.arg.axis}
        inside = [u for u in k.order if inner & ranges.ranges(u)]
        taken = copies_taken(k, r)
        computed = sum(_cost(u) * taken[u] for u in inside)
        pays = 3 * computed <= 2 * n * sum(_cost(u) for u in inside)
        if pays and sum(taken.values()) <= thresholds.MOST_COPIES:
            s.attempt("UPCAST", r, n)


def copies_taken(k: Nest, r: UOp) -> dict[UOp, int]:
    """For each node, the number of a short loop's copies that compute it: a WHERE takes one arm per
    copy, and a node that does not depend on the loop is computed once."""
    n = length_of(r) or 1
    wanted = dict.fromkeys(k.order, 0)  # bit i: in iteration i
    wanted[k.order[-1]] = (1 << n) - 1
    iterations = lookup_tables.Iterations([r])  # what conditions share is computed once
    known: dict[UOp, tuple[int, int]] = {}
    for u in reversed(k.order):
        here = wanted[u]
        if _chooses(u, r):
            if u.src[0] not in known:
                known[u.src[0]] = _holds(u.src[0], iterations, n)
            true, false = known[u.src[0]]
            for s, mask in zip(u.src, (here, here & true, here & false)):
                wanted[s] |= mask
            continue
        for s in u.src:
            wanted[s] |= here
    return {
        u: mask.bit_count() if r in ranges.ranges(u) else min(mask, 1)
        for u, mask in wanted.items()
    }


def _chooses(u: UOp, r: UOp) -> bool:
    """True if a node is a WHERE whose condition depends on the loop and on nothing else."""
    if u.op is not Ops.WHERE or ranges.ranges(u.src[0]) != {r}:
        return False
    nodes = walk.toposort(u.src[0], gate=lambda v: v.op.is_alu)
    return all([v.op.is_alu or v is r or v.op is Ops.CONST for v in nodes])


def _holds(condition: UOp, iterations: lookup_tables.Iterations, n: int) -> tuple[int, int]:
    """Two bit sets of iterations: where a condition may be true, and where it may be false."""
    every = (1 << n) - 1
    holds = iterations.array(condition)
    if holds is None:
        return every, every
    true = sum([1 << i for i in np.flatnonzero(np.broadcast_to(holds, n)).tolist()])
    return true, every - true
