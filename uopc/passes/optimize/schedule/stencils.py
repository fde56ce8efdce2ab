"""Copies of rows that share work: reads of a stencil, and values that depend only on columns."""

from __future__ import annotations

import math

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.loops import length_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.op_costs import LOAD
from uopc.passes.optimize.opts.compute_at import stencils
from uopc.passes.optimize.schedule.scheduler import Scheduler

# An element that is read: its storage, the terms of its index that stay as they are, and the rest.
Element = tuple["UOp", frozenset[tuple["UOp", int]], int]


def copy_shared_rows(s: Scheduler, output: UOp | None) -> None:
    """Copy the output loop, other than `output`, whose rows share most reads: as a rule if a row
    then needs half of its reads, or else as an alternative."""
    k = s.nest
    lanes = [] if output is None else s.family(output)
    rows = [q for q in k.outputs if q not in lanes and q.arg.kind == "loop"]
    size = k.expanded_size()
    best = min([(*_sharing(k, q, size), q) for q in rows], key=lambda found: found[0], default=None)
    if best is None or best[1] == 1:
        return
    half = 2 * best[0] <= 1
    if s.pick("shared rows", half, not half):
        s.copy(best[2], best[1])


def _sharing(k: Nest, q: UOp, size: int) -> tuple[float, int]:
    """The share of its reads that a row needs if rows are computed together, and their number; 1 if
    rows share no reads. A copy has `size` nodes."""
    length = length_of(q)
    n = thresholds.SHARED_ROWS if length is not None else 1
    while n > 1 and (n > (length or 1) or n * size > thresholds.MOST_SHARED):
        n //= 2
    alone, each = len(_read_elements(k, q, 1)), len(_read_elements(k, q, n)) / n
    return (each / alone, n) if n > 1 and 0 < each < alone else (math.inf, 1)


def compute_rows_once(s: Scheduler) -> bool:
    """Compute the producer of a stencil into a tile for some rows, if that halves the kernel's
    cost. Return True if there is such a producer."""
    k, before = s.nest, s.state
    rows = [r for r in k.outputs if r.arg.kind == "loop"][:-1]
    if not rows or k.reduces or len(k.written) != 1 or not stencils(s.kernel, rows[-1]):
        return False
    least, best = _cost(k) / 2, before
    block = s.widen(rows[-1], "TILE", thresholds.SHARED_ROWS)
    cut = s.state
    for n in range(len(stencils(s.kernel, block)) if block is not None else 0):
        if s.attempt("COMPUTE_AT", block, n) and (cost := _cost(s.nest)) < least:
            least, best = cost, s.state
        s.state = cut
    s.state = best
    if best is before or block is None:
        return False
    axis = (*block.arg.axis[:-1], 1)
    for q in [q for q in s.axes if q.arg.axis == axis]:
        s.copy(q, _sharing(s.nest, q, s.nest.expanded_size(q))[1])
    return True


def _cost(k: Nest) -> float:
    """The cost of all operations of a kernel, counted as often as they run."""
    return sum([u.op.cost * trips(ranges.ranges(u)) for u in k.order])


def _read_elements(k: Nest, q: UOp, n: int) -> set[Element]:
    """The elements that n neighbouring iterations of q read, over all copies of the body."""
    return {e for a in k.inside(q) if not a.written for e in _elements(a, q, n)}


def _elements(a: Access, q: UOp, n: int) -> set[Element]:
    constant, terms = a.form
    if any(m is not q and q in ranges.ranges(m) for m in terms):
        return {(a.node, frozenset(), i) for i in range(n)}  # not known to be the same ones
    offsets = {constant}
    others: list[tuple[UOp, int]] = []
    for m, step in terms.items():
        copied = m.op is Ops.RANGE and m.arg.kind in ("upcast", "unroll")
        count = n if m is q else length_of(m) if copied else None
        if count is None:
            others.append((m, step))
        else:
            offsets = {o + step * i for o in offsets for i in range(count)}
    return {(a.node.src[0], frozenset(others), o) for o in offsets}


def copy_rows_of_columns(s: Scheduler, output: UOp, lanes: int) -> int:
    """The number of vectors of `output` to unroll, so that values that depend only on the column
    and are dearer than a load are computed once for several rows. In a short row all vectors become
    copies; for a long row, copy a few rows instead and return 1."""
    k, vectors = s.nest, (length_of(output) or 0) // lanes
    outside = [q for q in k.outputs if q.arg.axis < output.arg.axis and q.arg.kind == "loop"]
    if trips(outside) < thresholds.RUNS_OF_A_NODE:
        return 1
    fixed = [u for u in k.order if u.op.is_alu and u.dtype.is_float]
    fixed = [u for u in fixed if output in (found := ranges.ranges(u)) and not found & {*outside}]
    if max([u.op.cost for u in fixed], default=0.0) <= LOAD:
        return 1
    size = k.expanded_size()
    if vectors <= thresholds.HOISTED and vectors * size <= thresholds.MOST_SHARED:
        return max(1, vectors)
    if thresholds.HOISTED_ROWS * size <= thresholds.MOST_SHARED:
        s.copy(max(outside, key=k.axes.index), thresholds.HOISTED_ROWS)
    return 1
