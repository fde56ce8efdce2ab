"""The CPU schedule: the steps that choose a kernel's Opts, and the reasons for their order.

Every step reads the kernel's ranges and accesses, and the described machine; none asks which method
built the graph. `STEPS` is the schedule; `uopc.passes.optimize.opts.table` says what each Opt does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from uopc.ir.core import ranges
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context
from uopc.passes.optimize.schedule import column_sums, contraction, loop_order, thresholds
from uopc.passes.optimize.schedule.guards import cut_at_guards, follow_bounds
from uopc.passes.optimize.schedule.interleave import interleave
from uopc.passes.optimize.schedule.kernel_facts import (
    KernelFacts,
    fitting,
    is_arithmetic,
    is_dear,
    length_of,
    most_of,
)
from uopc.passes.optimize.schedule.lanes import (
    output_lanes,
    reduce_lanes,
    vectorise_nests,
    vectorise_output,
    vectorise_producers,
    vectorise_reduce,
)
from uopc.passes.optimize.schedule.nontemporal import store_past_caches
from uopc.passes.optimize.schedule.register_tiles import rows_inside, tile_beside_lanes
from uopc.passes.optimize.schedule.scheduler import Scheduler, Step, walk
from uopc.passes.optimize.schedule.short_rows import copy_thin_rows, unroll_short_reduces
from uopc.passes.optimize.schedule.stencils import copy_rows_of_columns, copy_shared_rows
from uopc.passes.optimize.schedule.transposes import copy_crossed


@dataclass
class Plan:
    """Decisions of the steps that later steps read."""

    s: Scheduler
    before: KernelFacts  # from before loops are cut for lanes
    nests: bool = False  # loops were cut into nests of their own
    sums: bool = False  # the kernel is a sum in memory
    lanes: int = 1  # of a vector of the widest elements
    output: UOp | None = None  # the output loop that gets lanes
    reduces: list[UOp] = field(default_factory=list)  # the reduce loops that get lanes
    row: UOp | None = None  # the row loop of a register tile
    rows: int = 1
    vectors: int = 1  # of the tile, or of the output loop side by side
    dot: UOp | None = None  # the row loop of sums along the lanes that share an operand
    reused: list[UOp] = field(default_factory=list)  # reduces whose terms are kept in a tile


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    s = Scheduler(kernel, context)
    walk(STEPS, Plan(s, s.facts))
    return s.opts, s.kernel


# ---------------------------------------------------------------- loops outside, threads
def _order_loops(plan: Plan) -> None:
    plan.nests = loop_order.nest(plan.s)


def _put_columns_outside(plan: Plan) -> None:
    plan.sums = column_sums.columns_outside(plan.s)
    contraction.columns_outside(plan.s)


def _share_among_threads(plan: Plan) -> None:
    """The outermost output loop among threads, where there is work enough."""
    k, threads = plan.s.facts, plan.s.context.threads
    if threads < 2:
        return
    outer = next((r for r in k.outputs if (length_of(r) or threads) >= threads), None)
    if outer is not None and _work(k) >= thresholds.THREAD_WORK:
        plan.s.attempt("THREAD", outer, threads)


def _work(k: KernelFacts) -> float:
    """Operations on elements, each as often as its own loops run; a function counts as several."""
    total = 0.0
    for u in k.order:
        if u.op in (Ops.STORE, Ops.REDUCE) or is_arithmetic(u):
            times = u.op.cost or 1.0
            for r in ranges.ranges(u.src[0] if u.op is Ops.REDUCE else u):
                times *= most_of(r)
            total += times
    return total


# ---------------------------------------------------------------- schedules of their own
def _sum_in_memory(plan: Plan) -> bool:
    if not plan.sums:
        return False
    s = plan.s
    lanes = s.target.lanes(s.facts.element_bits)
    loops = column_sums.in_memory(s)
    for q in [q for r in loops for q in s.family(r)]:
        vectorise_output(s, q, lanes, 1)
    return bool(loops)


def _contract(plan: Plan) -> bool:
    s = plan.s
    if not contraction.choose(s):
        return False
    vectorise_producers(s)
    if any(o.op == "REDUCE_OUT" for o in s.opts):
        vectorise_nests(s, s.target.lanes(s.facts.element_bits))
    return True


# ---------------------------------------------------------------- lanes, tiles and copies
def _unroll_short_reduces(plan: Plan) -> None:
    plan.lanes = plan.s.target.lanes(plan.s.facts.element_bits)
    unroll_short_reduces(plan.s, plan.lanes)


def _choose_lanes(plan: Plan) -> None:
    k = plan.before = plan.s.facts
    plan.output = output_lanes(plan.s, k.outputs, plan.lanes)
    plan.reduces = reduce_lanes(k, plan.lanes, plan.output)


def _choose_tile(plan: Plan) -> None:
    k = plan.before
    plan.row, plan.rows, plan.vectors = tile_beside_lanes(
        k, plan.output, plan.reduces, plan.lanes
    )
    if plan.row is not None and plan.output is not None:
        plan.row, plan.output = rows_inside(plan.s, k, plan.row, plan.output)


def _reuse_terms(plan: Plan) -> None:
    plan.reused = contraction.reuse_terms(plan.s, plan.reduces)


def _vectorise_reduces(plan: Plan) -> None:
    plan.dot = contraction.dot_rows(plan.before, plan.reduces)
    for r in plan.reduces:
        single = plan.dot is not None or r in plan.reused
        vectorise_reduce(plan.s, r, plan.lanes, 1 if single else thresholds.ACCUMULATORS)


def _copy_rows(plan: Plan) -> None:
    """Rows side by side: of sums along lanes, of a register tile, or of what shares its reads."""
    s, output, lanes = plan.s, plan.output, plan.lanes
    if plan.dot is not None:
        s.widen(plan.dot, "UPCAST", thresholds.DOT_ROWS)
        return
    if plan.row is not None:
        for q in s.family(plan.row):
            s.widen(q, "UPCAST", fitting(plan.rows, length_of(q)))
        return
    turned = copy_crossed(s, output, lanes)
    if turned is None:
        copy_shared_rows(s, output)
    plan.output = output = output if turned is None else turned
    if output is not None:
        down = column_sums.reduces_down(s.facts, output)
        plan.vectors = (
            column_sums.sum_side_by_side(s, down, output, lanes) if down
            else copy_rows_of_columns(s, output, lanes)
        )  # fmt: skip


def _vectorise_output(plan: Plan) -> None:
    s, output = plan.s, plan.output
    if output is None:
        return
    if is_dear(s.kernel, output):
        for q in s.family(output):
            follow_bounds(s, q, plan.lanes, plan.vectors)
    for q in s.family(output):
        vectorise_output(s, q, plan.lanes, plan.vectors)


def _vectorise_nests(plan: Plan) -> None:
    if plan.nests:
        vectorise_nests(plan.s, plan.lanes)


STEPS: tuple[Step[Plan], ...] = (
    Step("order-loops", _order_loops, "all later steps read the loops in their final order"),
    Step("put-columns-outside", _put_columns_outside, "threads share the outermost loop"),
    Step("share-among-threads", _share_among_threads, "later steps cut the chunk of one thread"),
    Step("sum-in-memory", _sum_in_memory, "completes the schedule; its columns have their place"),
    Step("contract", _contract, "completes the schedule; the steps below are for other kernels"),
    Step("unroll-short-reduces", _unroll_short_reduces, "lanes are for loops that stay loops"),
    Step("copy-thin-rows", lambda p: copy_thin_rows(p.s, p.lanes), "copied loops get no lanes"),
    Step("choose-lanes", _choose_lanes, "tiles and copies are chosen beside the lanes"),
    Step("choose-tile", _choose_tile, "it may swap rows and columns, which are whole loops still"),
    Step("reuse-terms", _reuse_terms, "a tile is filled by a whole loop, before guards cut it"),
    Step("cut-at-guards", lambda p: cut_at_guards(p.s, p.output, p.reused),
         "lanes of a part without guards need no masks"),
    Step("vectorise-reduces", _vectorise_reduces, "rows side by side share the vectors of reduces"),
    Step("copy-rows", _copy_rows, "the number of copies limits the vectors of the output"),
    Step("vectorise-output", _vectorise_output, "lanes are inside of all copies"),
    Step("vectorise-nests", _vectorise_nests, "only nests that have no lanes yet get some"),
    Step("interleave", lambda p: interleave(p.s), "the length of a body includes its copies"),
    Step("store-past-caches", lambda p: store_past_caches(p.s, p.before),
         "lanes and copies decide what a store writes"),
)  # fmt: skip
