"""Rows that share work: the reads of a stencil, and values that depend on columns alone."""

from __future__ import annotations

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.op_costs import LOAD
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import Access, KernelFacts, length_of, trips
from uopc.passes.optimize.schedule.scheduler import Scheduler

# An element that is read: its storage, the terms of its index that stay as they are, and the rest.
Element = tuple["UOp", frozenset[tuple["UOp", int]], int]


def copy_shared_rows(s: Scheduler, output: UOp | None) -> None:
    """Copies of the output loop, other than `output`, whose rows share most reads."""
    k = s.facts
    size = k.expanded_size()
    best: tuple[float, UOp, int] | None = None
    for q in k.outputs:
        length = length_of(q)
        if q is output or q.arg.kind != "loop" or length is None:
            continue
        n = thresholds.SHARED_ROWS
        while n > 1 and (n > length or n * size > thresholds.MOST_SHARED):
            n //= 2
        alone, each = len(_read(k, q, 1)), len(_read(k, q, n)) / n
        saves = 0 < each <= thresholds.SHARED_READS * alone
        if n > 1 and saves and (best is None or each < best[0]):
            best = each, q, n
    if best is not None:
        s.copy(best[1], best[2])


def _read(k: KernelFacts, q: UOp, n: int) -> set[Element]:
    """The elements that n neighbouring iterations of q read, in all copies of the body."""
    return {e for a in k.inside(q) if not a.written for e in _elements(a, q, n)}


def _elements(a: Access, q: UOp, n: int) -> set[Element]:
    constant, terms = affine.form(a.flat)
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
    """The vectors of `output` side by side. Rows share values that depend on the columns alone and
    are dearer to compute than to load: all vectors of a short row become copies, so that the values
    are computed before all rows; one vector of a long row has copies for a few rows."""
    k, vectors = s.facts, (length_of(output) or 0) // lanes
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
