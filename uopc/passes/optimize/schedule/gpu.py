"""The GPU schedule: which loops are blocks, which are threads, and which reduces threads share.

Its steps read ranges and accesses, as on a CPU, and the described part. A contraction gets register
tiles. The threads of a block share long reduces along memory, and threads that are far apart share
sums over rows. A transposed read goes through blocks of registers; other threads take 16 bytes
each. The remaining loops are the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.ir.builder import index_maps
from uopc.ir.core import bounds, ranges
from uopc.ir.core.args import Opt
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.contraction import find_contraction
from uopc.passes.contract import Context
from uopc.passes.optimize.schedule import gpu_tensor_cores, gpu_thresholds, thresholds
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, covering, fitting, length_of
from uopc.passes.optimize.schedule.scheduler import Scheduler, Step, walk


@dataclass
class Plan:
    """Decisions of the steps that later steps read."""

    s: Scheduler
    lanes: int  # of a 16-byte access to the widest elements
    row: UOp | None = None  # the loops of a contraction's tile
    column: UOp | None = None
    threads: int = 0  # that share a reduce; 0 where none does


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    s = Scheduler(kernel, context)
    walk(STEPS, Plan(s, context.target.lanes(s.facts.element_bits)))
    return s.opts, s.kernel


# ---------------------------------------------------------------- facts
def _stored(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring iterations write neighbouring places."""
    return any(a.stride(r) == 1 for a in k.accesses if a.written)


def _is_plain(k: KernelFacts, r: UOp) -> bool:
    """Whether every access moves by one element or none, and no guard depends on the loop."""
    for a in k.inside(r):
        gate = index_maps.ungated(a.node.src[1])[1]
        if a.stride(r) not in (0, 1) or (gate is not None and r in ranges.ranges(gate)):
            return False
    return True


def _count(loops: set[UOp]) -> int:
    """How often a body runs in loops of known lengths."""
    return math.prod([length_of(r) or thresholds.TYPICAL_LENGTH for r in loops])


def _around(k: KernelFacts, u: UOp) -> set[UOp]:
    """The output loops in which a reduce runs."""
    return {r for r in k.outputs if r in ranges.ranges(u)}


def _unroll_short_reduces(plan: Plan) -> None:
    """Reduces of a few iterations, such as windows, become straight code, the innermost first: all
    of them or none, so that equal values are rounded alike."""
    s, k = plan.s, plan.s.facts
    most = gpu_thresholds.WHOLE_UNROLL if plan.row is None else gpu_thresholds.TILE_UNROLL
    found: dict[UOp, int] = {}  # the iterations of a reduce's loop and those inside of it
    for u in k.reduces:
        below = max([n for r, n in found.items() if _is_inside(k, r, u)], default=1)
        for r in sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis, reverse=True):
            below *= length_of(r) or thresholds.TYPICAL_LENGTH
            found[r] = below
    short = [r for r, n in found.items() if n <= most]
    copies = sum(found[r] * sum(r in ranges.ranges(u) for u in k.order) for r in short)
    if copies <= thresholds.MOST_COPIES:
        for r in short:
            s.attempt("UNROLL", r, 0)


def _is_inside(k: KernelFacts, r: UOp, u: UOp) -> bool:
    """Whether a reduce over r is computed in the loops of another one."""
    return any(
        v is not u and r in v.src[1:] and set(ranges.closed_ranges(u)) & ranges.ranges(v)
        for v in k.reduces
    )


# ---------------------------------------------------------------- contractions
def _find_tile(plan: Plan) -> None:
    """The row and column loops of a contraction that reads two arrays."""
    k = plan.s.facts
    p = find_contraction(k.reduces[0]) if len(k.reduces) == 1 else None
    if p is None:
        return
    wanted = 2 * gpu_thresholds.TILE
    loops = [r for r in k.outputs if r.arg.kind == "loop" and (length_of(r) or 0) >= wanted]
    column = next((r for r in reversed(loops) if _stored(k, r)), None)
    inside = set(ranges.closed_ranges(p.reduce))
    reads = [a for a in k.accesses if not a.written and inside & ranges.ranges(a.node)]
    if len(reads) == 2 and column in (*p.rows, *p.columns):
        rows = p.columns if column in p.rows else p.rows
        plan.row, plan.column = next((r for r in reversed(rows) if r in loops), None), column


def _tile(plan: Plan) -> bool:
    """A tile of accumulators in each thread, and 16 by 16 threads; where the loops are shorter,
    also neighbours in the others."""
    s, row, column, lanes = plan.s, plan.row, plan.column, plan.lanes
    if row is None or column is None:
        return False
    left, others = gpu_thresholds.BLOCK, [r for r in _loops(s) if r not in (row, column)]
    for r, op, n in ((column, "VECTOR", lanes), (row, "UPCAST", gpu_thresholds.TILE)):
        if (length_of(r) or 1) % n == 0:
            r = s.cut(r, op, n)
        threads = fitting(16, length_of(r))
        left //= threads if s.attempt("LOCAL", r, threads) else 1
    _threads(s, left, others)
    return _grid(plan)


# ---------------------------------------------------------------- reduces
def _share_reduces(plan: Plan) -> None:
    """Long reduces among threads."""
    s, k, lanes = plan.s, plan.s.facts, plan.lanes
    reduces = [u for u in k.reduces if ranges.ranges(u) <= set(k.outputs)]
    found = [
        (r, u) for u in reduces for r in ranges.closed_ranges(u)
        if r.arg.kind == "reduce" and (length_of(r) or 0) >= _least_shared(k, u) and _is_read(k, r)
    ]  # fmt: skip
    around = _block_loops(k, reduces, [u for _, u in found])
    if around is None:
        return
    chosen = {r: length_of(r) or 1 for r, u in found if _around(k, u) <= around}
    wide = lanes if all(_is_plain(k, r) and n % lanes == 0 for r, n in chosen.items()) else 1
    threads = _team(s, k, found, around, wide)
    before = s.state
    for r in chosen:
        q = s.cut(r, "VECTOR", wide) if wide > 1 else r
        if s.attempt("GROUP", q, threads):
            plan.threads = threads
            _keep(s, q, "UNROLL", wide)
            _ahead(s, s.outer(q), wide)
    if not plan.threads:
        s.state = before


def _keep(s: Scheduler, r: UOp, op: str, wide: int) -> None:
    """What a thread has of a row, where it is little, becomes straight code: loads wait together,
    and what is read or computed again over the same row stays in registers."""
    left = s.part(r, 0)
    steps = (length_of(left) or 0) if left is not None else 0
    if left is not None and 1 < steps <= gpu_thresholds.KEPT // wide:
        s.attempt(op, left, steps)


def _ahead(s: Scheduler, r: UOp, wide: int) -> None:
    """Some iterations of a reduce together, so that a thread waits once for several loads."""
    k, steps = s.facts, length_of(r)
    asked = sum([a.node.dtype.itemsize * wide for a in k.inside(r) if not a.written])
    if steps is None or not asked or r not in k.axes:
        return
    n = fitting(gpu_thresholds.KEPT // wide, gpu_thresholds.IN_FLIGHT // asked)
    while n > 1 and (steps % n or n * k.expanded_size(r) > thresholds.MOST_COPIES):
        n //= 2
    if n > 1:
        s.attempt("UNROLL", r, n)


def _least_shared(k: KernelFacts, u: UOp) -> int:
    """How long a reduce must be: less where threads beside it would do it again each."""
    beside = _around(k, u) != set(k.outputs)
    return gpu_thresholds.LEAST_BESIDE if beside else gpu_thresholds.LEAST_SHARED


def _block_loops(k: KernelFacts, reduces: list[UOp], readable: list[UOp]) -> set[UOp] | None:
    """The loops around a block: those of the reduces that it shares. What belongs to fewer loops is
    done again by each block, so it must be little: a row, and no column beside a row's reduce."""
    loops = {u: _around(k, u) for u in reduces}
    work = {u: _count(loops[u]) * _count(set(ranges.closed_ranges(u))) for u in reduces}
    best: set[UOp] | None = None
    for u in readable:
        inside = [v for v in reduces if loops[v] < loops[u]]
        again = sum(work[v] * _count(loops[u] - loops[v]) for v in inside)
        beside = any(not loops[v] <= loops[u] and not loops[u] <= loops[v] for v in reduces)
        if beside or again > gpu_thresholds.MOST_AGAIN * sum(work.values()):
            continue
        if best is None or best < loops[u]:
            best = loops[u]
    return best


def _team(
    s: Scheduler, k: KernelFacts, found: list[tuple[UOp, UOp]], around: set[UOp], wide: int
) -> int:
    """Threads of a block that share reduces: more where there are few blocks."""
    gpu = s.gpu
    lengths = {r: length_of(r) or 1 for r, u in found if _around(k, u) == around}
    blocks = _count(around)
    most = fitting(gpu.threads_per_block, gpu_thresholds.capacity(gpu) // blocks)
    beside = max([length_of(r) or 1 for r in k.outputs if r not in around], default=1)
    little = beside >= gpu_thresholds.LITTLE * max(lengths.values())
    each = gpu_thresholds.EACH_AGAIN if little else gpu_thresholds.EACH
    least = min(lengths.values()) // (wide * each)
    return max(gpu_thresholds.WARP, fitting(max(gpu_thresholds.BLOCK, most), least))


def _is_read(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring values of a reduce are neighbours in memory, so that threads read them
    together."""
    strides = {a.stride(r) for a in k.inside(r)}
    return 1 in strides and strides <= {0, 1}


def _share_loops_beside(plan: Plan) -> None:
    """Output loops beside the shared reduces of their row, for the same threads. Where that leaves
    most of the device idle they are cut, and each block of one row does its reduces."""
    s, threads, lanes = plan.s, plan.threads, plan.lanes
    gpu, k = s.gpu, s.facts
    if not threads:
        return
    blocks = _count({r for r in k.outputs if _holds_reduce(k, r)})
    steps = _reduce_steps(k)
    for r in [r for r in k.outputs if r.arg.kind == "loop" and not _holds_reduce(k, r)]:
        length = length_of(r) or 1
        q = r
        if lanes > 1 and length % lanes == 0 and _is_plain(k, r):
            q = s.cut(r, "VECTOR", lanes)
        if not s.attempt("LOCAL", q, threads):
            continue
        left = s.outer(q)
        _keep(s, q, "UPCAST", length // (length_of(q) or 1))
        rest = length_of(left) or 1 if left is not q else 1
        idle = blocks * threads < gpu_thresholds.capacity(gpu)
        if idle and rest >= gpu_thresholds.LITTLE * steps:
            each = next(n for n in range(steps, rest + 1) if rest % n == 0)
            s.attempt("GRID", s.cut(left, "TILE", each) if each > 1 else left, 0)


def _put_rows_together(plan: Plan) -> None:
    """Several rows per block where blocks of one row do not fill an SM, and there are many."""
    s, threads = plan.s, plan.threads
    gpu, k = s.gpu, s.facts
    if not threads:
        return
    around = [r for r in k.outputs if r.arg.kind == "loop" and _holds_reduce(k, r)]
    if not around or threads * gpu.blocks_per_multiprocessor >= gpu.threads_per_multiprocessor:
        return
    if not _is_outside(k, around[-1]):
        return
    spare = _count(set(around)) // (gpu_thresholds.LEAST_BLOCKS * gpu.multiprocessors)
    n = math.gcd(length_of(around[-1]) or 1, fitting(gpu_thresholds.BLOCK // threads, spare))
    if n > 1:
        s.attempt("LOCAL", around[-1], n)


def _is_outside(k: KernelFacts, r: UOp) -> bool:
    """Whether all threads that there are belong to one iteration of r: every reduce is in it, and
    no thread around it."""
    inside = all(r in ranges.ranges(u) for u in k.reduces)
    return inside and not any(q.arg.kind == "local" for q in k.axes[: k.position(r)])


def _reduce_steps(k: KernelFacts) -> int:
    """The iterations of the longest shared reduce in one thread."""
    inner = [r for u in k.reduces for r in ranges.closed_ranges(u) if r.arg.kind == "reduce"]
    return max([int(bounds.bounds(r.src[0])[1]) for r in inner], default=1)


# ---------------------------------------------------------------- outputs
def _share_outputs(plan: Plan) -> None:
    """Blocks of independent threads, or of threads that share sums over rows."""
    s, k, lanes = plan.s, plan.s.facts, plan.lanes
    if plan.threads or _cross(s, k, lanes):
        return
    column = _column(k)
    if column is not None and column is not k.outputs[-1]:
        s.swapped(column, k.outputs[-1])
        k = s.facts
    left = gpu_thresholds.WARP if _share_rows(s, k, lanes) else gpu_thresholds.BLOCK
    if left == gpu_thresholds.BLOCK:
        _widen_reduces(s, k, lanes)
        _widen_output(s, k, lanes)
    _threads(s, left, _loops(s))


def _column(k: KernelFacts) -> UOp | None:
    """The output loop that threads side by side take: along it the most accesses are neighbours."""
    best, found = 0, None
    for r in reversed([r for r in k.outputs if r.arg.kind == "loop"]):
        near = [a for a in k.accesses if a.stride(r) == 1]
        total = sum([_count(set(k.axes) & ranges.ranges(a.node)) for a in near])
        if total > best:
            best, found = total, r
    return found


def _widen_reduces(s: Scheduler, k: KernelFacts, lanes: int) -> None:
    """16-byte reads of what a thread sums up alone."""
    for r in k.axes:
        length = length_of(r) or 1
        long = length % lanes == 0 and length >= gpu_thresholds.EACH * lanes
        if r.arg.kind == "reduce" and long and _is_read(k, r) and _is_plain(k, r):
            s.attempt("VECTOR", r, lanes)


def _widen_output(s: Scheduler, k: KernelFacts, lanes: int) -> None:
    """16-byte accesses of an output loop; less, or none, where each lane computes so much that
    copies of it would fill the registers."""
    while lanes > 1 and lanes * k.expanded_size() > gpu_thresholds.LANE_NODES:
        lanes //= 2
    for r in reversed(k.outputs):
        length = length_of(r)
        if r.arg.kind == "loop" and _stored(k, r) and _is_plain(k, r) and length is not None:
            if length % lanes == 0 and length >= lanes and lanes > 1:
                s.attempt("VECTOR", r, lanes)
            return


def _loops(s: Scheduler) -> list[UOp]:
    """The output loops that are still loops."""
    return [r for r in s.facts.outputs if r.arg.kind == "loop"]


def _threads(s: Scheduler, left: int, loops: list[UOp]) -> None:
    """Output loops as threads, the innermost first, until a block is full."""
    for r in reversed(loops):
        length = length_of(r)
        n = left if length is None else covering(left, length)
        if n > 1 and s.attempt("LOCAL", r, n):
            left //= n


def _cross(s: Scheduler, k: KernelFacts, lanes: int) -> bool:
    """A read along another loop than the one that is written along: both in a block's threads, and
    in each thread where both are vectors."""
    column = next((r for r in reversed(k.outputs) if _stored(k, r)), None)
    if column is None or k.reduces:
        return False
    for row in reversed(k.outputs):
        if row is column or not any(
            a.stride(row) == 1 and a.stride(column) not in (0, 1, None)
            for a in k.accesses if not a.written
        ):  # fmt: skip
            continue
        pair, least = [column, row], gpu_thresholds.CROSSED_COLUMNS
        if any((length_of(r) or least) < least for r in pair):
            continue
        if lanes > 1 and all((length_of(r) or 1) % lanes == 0 for r in pair):
            pair = [s.cut(r, op, lanes) for r, op in zip(pair, ("VECTOR", "UPCAST"))]
        for r, n in zip(pair, (gpu_thresholds.CROSSED_COLUMNS, gpu_thresholds.CROSSED_ROWS)):
            s.attempt("LOCAL", r, covering(n, length_of(r) or n))
        return True
    return False


def _share_rows(s: Scheduler, k: KernelFacts, lanes: int) -> bool:
    """A sum over rows where there are too few columns for all threads: threads of one column that
    are far apart have some rows each."""
    gpu = s.gpu
    column = next((r for r in reversed(k.outputs) if _stored(k, r)), None)
    if column is None or len(k.reduces) != 1 or not _is_plain(k, column):
        return False
    if _around(k, k.reduces[0]) != set(k.outputs):
        return False
    rows = [r for r in ranges.closed_ranges(k.reduces[0]) if r.arg.kind == "reduce"]
    columns = _count(set(k.outputs))
    length = max([length_of(r) or 1 for r in rows], default=1)
    wanted = min(gpu_thresholds.capacity(gpu) // columns, length // gpu_thresholds.EACH_ROWS)
    if len(rows) != 1 or wanted < 2:
        return False
    if columns // (lanes * gpu_thresholds.WARP) >= gpu.multiprocessors:
        _widen_output(s, k, lanes)
    if not s.attempt("GROUPTOP", rows[0], fitting(gpu_thresholds.MOST_APART, wanted)):
        return False
    _ahead(s, s.outer(rows[0]), 1)
    return True


def _grid(plan: Plan) -> bool:
    """The remaining loops as the grid; where a reduce is shared, only those around it."""
    s, k = plan.s, plan.s.facts
    shared = any(r.arg.kind == "group" for r in k.axes)
    for r in [r for r in k.outputs if r.arg.kind == "loop"]:
        if not shared or _holds_reduce(k, r):
            s.attempt("GRID", r, 0)
    return True


def _holds_reduce(k: KernelFacts, r: UOp) -> bool:
    """Whether threads that share a reduce would be inside of the loop."""
    return any(
        q.arg.kind == "group" and r in ranges.ranges(u)
        for u in k.reduces
        for q in ranges.closed_ranges(u)
    )


STEPS: tuple[Step[Plan], ...] = (
    Step("use-tensor-cores", lambda p: gpu_tensor_cores.choose(p.s), "completes the schedule"),
    Step("find-tile", _find_tile, "a product's reduce is unrolled less, beside its accumulators"),
    Step("unroll-short-reduces", _unroll_short_reduces, "threads share loops that stay loops"),
    Step("tile", _tile, "completes the schedule; the steps below are for other kernels"),
    Step("share-reduces", _share_reduces, "the threads of a reduce decide those of all loops"),
    Step("share-loops-beside", _share_loops_beside, "loops beside a reduce take its threads"),
    Step("put-rows-together", _put_rows_together, "the threads of one row are known"),
    Step("share-outputs", _share_outputs, "kernels without shared reduces choose threads freely"),
    Step("grid", _grid, "completes the schedule; the loops that no thread took are its grid"),
)
