"""Short rows and short reduces become straight code; the loops around them get the lanes."""

from __future__ import annotations

import sys

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import is_arithmetic
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import MOST_STEP
from uopc.passes.optimize.opts import reuse
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.schedule.lane_costs import is_dear, lane_cost
from uopc.passes.optimize.schedule.scheduler import Scheduler


def unroll_short_reduces(s: Scheduler, lanes: int) -> None:
    """Make short reduces straight code, unless a tile keeps their terms in vectors."""
    k, unrolled = s.nest, set["UOp"]()
    short = [
        r for r in reversed(k.axes)
        if r not in k.outputs and (length_of(r) or sys.maxsize) <= thresholds.WHOLE_UNROLL
    ]  # fmt: skip
    _copy_rows_of_reduces(s, short, lanes)
    k = s.nest
    for r in short:
        length = length_of(r) or 1
        if length >= lanes and is_dear(s.nest, r) and _is_reused(s.kernel, r):
            continue
        if length >= lanes and _is_read_alone(s.nest, r, lanes):
            continue
        if _copies_of_longer(k, r, unrolled) > s.machine.accumulators:
            continue
        small = length * k.expanded_size(r, unrolled) <= thresholds.MOST_COPIES
        if small and s.attempt("UNROLL", r, 0):
            unrolled.add(r)


def _is_read_alone(k: Nest, r: UOp, lanes: int) -> bool:
    """True if lanes along a short loop of a longer sum read neighbours, while lanes along any
    output loop would gather. One vector then accumulates the sums of all rows."""
    around = [q for u in k.reduces if r in u.src[1:] for q in u.src[1:] if q is not r]
    if max([length_of(q) or sys.maxsize for q in around], default=0) <= thresholds.WHOLE_UNROLL:
        return False
    inside = k.inside(r)
    least = min([lane_cost(inside, q, lanes) for q in k.outputs], default=float("inf"))
    return lane_cost(inside, r, lanes) <= len(inside) < least


def _copies_of_longer(k: Nest, r: UOp, unrolled: set[UOp]) -> int:
    """The copies, each with an accumulator, that unrolling r would make of a loop of the same sum
    inside of r: the iterations of r times those of loops that are or will be `unrolled`.
    1 if no loop is inside."""
    of_same_sum = {q for u in k.reduces if r in u.src[1:] for q in u.src[1:]}
    if not any([q.arg.kind == "reduce" and q.arg.axis > r.arg.axis for q in of_same_sum]):
        return 1
    return trips([r, *[q for q in of_same_sum if q in unrolled or q.arg.kind == "unroll"]])


def _is_reused(kernel: UOp, r: UOp) -> bool:
    """True if another loop computes the terms of a reduce again."""
    try:
        return len(reuse.find_recomputed(kernel, r)[1]) > 0
    except Refused:
        return False


def _copy_rows_of_reduces(s: Scheduler, reduces: list[UOp], lanes: int) -> None:
    """Copy short loops next to short, dear reduces, if a loop around both can have lanes."""
    for r in reduces:
        k = s.nest
        around = [u for u in k.reduces if r in u.src[1:] and is_dear(k, r)]
        inside = {q for u in around for q in ranges.ranges(u)}
        if not any((length_of(q) or lanes) >= lanes for q in inside):
            continue
        for q in k.outputs:
            length = length_of(q) or sys.maxsize
            small = length * k.expanded_size() <= thresholds.MOST_COPIES
            if q not in inside and length <= thresholds.WHOLE_UNROLL and small:
                s.attempt("UPCAST", q, length)


def copy_thin_rows(s: Scheduler, lanes: int) -> None:
    """Copy the body of a loop over rows of few elements. The lanes are then rows, which are loaded
    and stored as full vectors. This pays if each element takes more than one operation."""
    k = s.nest
    loops = [q for q in k.axes if q.arg.kind in ("loop", "reduce")]
    inner = loops[-1] if loops and all(q in k.outputs for q in loops) else None
    n = length_of(inner) if inner is not None else None
    if inner is None or n is None or not 1 < n <= min(MOST_STEP, lanes - 1):
        return
    rows = [q for q in loops if (length_of(q) or lanes) >= lanes]
    thin = all(a.stride(inner) == 1 and any(a.stride(q) == n for q in rows) for a in k.written)
    work = float(sum([trips(u.src[1:]) for u in k.reduces]))
    for u in k.order:
        chooses = u.op is Ops.WHERE or u.dtype.kind == "bool"  # copies do not choose
        work += u.op.cost if is_arithmetic(u) and ranges.ranges(u) and not chooses else 0
    if thin and work > n and n * k.expanded_size() <= thresholds.MOST_COPIES:
        s.attempt("UPCAST", inner, n)


def fills_rows(k: Nest, r: UOp) -> bool:
    """True if the copies of the body write all elements from one iteration of r to the next."""
    return len(k.written) > 0 and all(
        any(q.arg.kind == "upcast" and a.stride(q) == 1 and length_of(q) == a.stride(r)
            for q in ranges.ranges(a.flat))
        for a in k.written
    )  # fmt: skip
