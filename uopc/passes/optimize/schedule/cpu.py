"""The CPU schedule: the steps that choose a kernel's Opts, and the reasons for their order.

Every step reads the kernel's ranges and accesses, and the described machine; none asks which method
built the graph. `STEPS` is the schedule; `uopc.passes.optimize.opts.table` explains each Opt.
"""

from __future__ import annotations

from uopc.cost.machine import MachineFacts
from uopc.ir.core import bounds, ranges
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import is_arithmetic
from uopc.ir.nest.loops import length_of, trips
from uopc.passes.analysis import thresholds
from uopc.passes.contract import Context
from uopc.passes.optimize.schedule import (
    alternatives,
    column_sums,
    contraction,
    cpu_tiles,
    lanes,
    loop_order,
    sharing,
    windows,
)
from uopc.passes.optimize.schedule.guards import cut_at_guards, follow_bounds
from uopc.passes.optimize.schedule.interleave import interleave, is_busy
from uopc.passes.optimize.schedule.lane_costs import is_dear
from uopc.passes.optimize.schedule.nontemporal import store_past_caches
from uopc.passes.optimize.schedule.reduce_tiles import tile_beside_lanes
from uopc.passes.optimize.schedule.scheduler import Scheduler, Step
from uopc.passes.optimize.schedule.short_rows import copy_thin_rows, unroll_short_reduces
from uopc.passes.optimize.schedule.stencils import (
    compute_rows_once,
    copy_rows_of_columns,
    copy_shared_rows,
)
from uopc.passes.optimize.schedule.transposes import copy_crossed, tile_crossed


class CpuScheduler(Scheduler):
    """Decisions of early steps that later steps read."""

    nests = False  # loops were cut into nests of their own
    sums = False  # the kernel is a sum in memory
    lanes = 1  # of a vector of the widest elements
    output: UOp | None = None  # the output loop that gets lanes
    columns = False  # they are summed side by side, neighbours
    row: UOp | None = None  # the row loop of a register tile
    rows = vectors = 1  # of the tile; `vectors` of the output loop side by side without a tile
    dot: UOp | None = None  # the row loop of sums along the lanes that share an operand

    def __init__(self, kernel: UOp, context: Context) -> None:
        super().__init__(kernel, context)
        self.before = self.nest  # from before loops are cut for lanes
        self.reduces: list[UOp] = []  # the reduce loops that get lanes
        self.reused: list[UOp] = []  # reduces whose terms are stored in a tile


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """Choose the Opts of a kernel, and return them with the kernel after them. None for a kernel
    with a loop that never runs: addresses in there fold to any value, and what no longer moves with
    the loop is read before it."""
    s = CpuScheduler(kernel, context)
    if all([bounds.bounds(r.src[0])[1] > 0 for r in s.axes]):
        s = alternatives.choose(STEPS, s)
    return s.opts, s.kernel


def offered_opts(kernel: UOp, context: Context) -> list[tuple[Opt, ...]]:
    """The lists of Opts with each option that a decision offers: a search begins with these."""
    return [s.opts for s in alternatives.offered(STEPS, CpuScheduler(kernel, context))]


# ---------------------------------------------------------------- loops outside, threads
def _order_loops(s: CpuScheduler) -> None:
    s.nests = loop_order.nest(s)


def _put_columns_outside(s: CpuScheduler) -> None:
    s.sums = column_sums.columns_outside(s)


def _share_among_threads(s: CpuScheduler) -> None:
    """Divide an output loop among threads if there is enough work."""
    if s.context.threads < 2:
        return
    work = 0.0  # operations on elements, each as often as its own loops run
    for u in s.nest.order:
        if u.op in (Ops.STORE, Ops.REDUCE) or is_arithmetic(u):
            around = ranges.ranges(u.src[0] if u.op is Ops.REDUCE else u)
            work += (u.op.cost or 1.0) * trips(around)
    if work >= thread_work(s.machine):
        sharing.share(s)


def thread_work(machine: MachineFacts) -> float:
    """The least operations for which threads are used: a share of those that one thread does while
    others wake up."""
    return thresholds.WAKING_SHARE * machine.parked * machine.multiply_bytes / 4


# ---------------------------------------------------------------- schedules of their own
def _sum_in_memory(s: CpuScheduler) -> bool:
    if not s.sums:
        return False
    width = s.target.lanes(s.nest.element_bits)
    loops = column_sums.in_memory(s)
    if loops:
        cut_at_guards(s, None, [])
    for q in [q for r in loops for q in s.family(r)]:
        lanes.vectorise_output(s, q, width, 1)
    return bool(loops)


def _multiply_tiles(s: CpuScheduler) -> bool:
    if not cpu_tiles.choose(s):
        return False
    lanes.vectorise_producers(s)
    return True


def _contract(s: CpuScheduler) -> bool:
    if not contraction.choose(s):
        return False
    lanes.vectorise_producers(s)
    if any(o.op == "REDUCE_OUT" for o in s.opts):
        lanes.vectorise_nests(s, s.target.lanes(s.nest.element_bits))
    interleave(s)
    return True


# ---------------------------------------------------------------- lanes, tiles and copies
def _compute_rows_once(s: CpuScheduler) -> None:
    s.nests = compute_rows_once(s) or s.nests


def _unroll_short_reduces(s: CpuScheduler) -> None:
    s.lanes = s.target.lanes(s.nest.element_bits)
    unroll_short_reduces(s, s.lanes)


def _choose_lanes(s: CpuScheduler) -> None:
    s.output = lanes.output_lanes(s, s.nest.outputs, s.lanes)
    lanes.constants_in_lanes(s, s.output, s.lanes)
    k = s.before = s.nest
    s.reduces = lanes.reduce_lanes(k, s.lanes, s.output)


def _choose_tile(s: CpuScheduler) -> None:
    if s.output is not None:
        s.row, s.output, s.rows, s.vectors = tile_beside_lanes(s, s.output, s.reduces, s.lanes)


def _reuse_terms(s: CpuScheduler) -> None:
    s.reused = contraction.reuse_terms(s, s.reduces)


def _vectorise_reduces(s: CpuScheduler) -> None:
    s.dot = contraction.dot_rows(s.before, s.reduces)
    k = s.nest  # of all reduces: finding them takes a walk of the kernel
    for r in s.reduces:
        if s.dot is not None and lanes.vectorise_words(s, r, s.dot, s.lanes):
            continue
        single = s.dot is not None or r in s.reused
        wide = lanes.narrow_lanes(s, k, r, s.lanes)
        single = single or is_busy(k, r, wide)
        lanes.vectorise_reduce(s, r, wide, 1 if single else s.machine.accumulators)


def _copy_rows(s: CpuScheduler) -> None:
    """Unroll rows: of sums along lanes, of a register tile, or of rows that share reads."""
    if s.dot is not None:
        s.widen(s.dot, "UPCAST", thresholds.DOT_ROWS)
        return
    if s.row is not None:
        s.copy(s.row, s.rows)
        return
    inside = tile_crossed(s, s.output, s.lanes)
    if inside is not None:
        s.output = inside
        return
    crossed = copy_crossed(s, s.output, s.lanes)
    if crossed is None:
        copy_shared_rows(s, s.output)
    s.output = s.output if crossed is None else crossed
    if s.output is not None:
        vectors = column_sums.sum_side_by_side(s, s.output, s.lanes)
        s.columns = vectors > 0 and column_sums.are_neighbours(s, s.output)
        s.vectors = vectors or copy_rows_of_columns(s, s.output, s.lanes)
        single = crossed is None and s.vectors == 1 and not s.nest.reduces
        if single and not is_dear(s.nest, s.output):
            s.vectors = s.pick("vectors", 1, thresholds.COLUMN_VECTORS)


def _vectorise_output(s: CpuScheduler) -> None:
    if s.output is None:
        return
    if is_dear(s.nest, s.output):
        for q in s.family(s.output):
            follow_bounds(s, q, s.lanes, s.vectors)
    parts, nests = s.family(s.output), s.nest.around
    runs = {q: max([trips(nest) for nest in nests if q in nest], default=1) for q in parts}
    for q in parts:
        is_rare = thresholds.CHUNK_PARTS * runs[q] < max(runs.values())
        vectors = 1 if is_rare else s.vectors  # at a border copies are code for little time
        if s.columns and length_of(q) is not None:  # a sum reads all rows again for each part
            lanes.column_lanes(s, q, s.lanes, vectors)
        else:
            lanes.vectorise_output(s, q, s.lanes, vectors)


def _vectorise_nests(s: CpuScheduler) -> None:
    if s.nests:
        lanes.vectorise_nests(s, s.lanes)


STEPS: tuple[Step[CpuScheduler], ...] = (
    Step("order-loops", _order_loops, "all later steps read the loops in their final order"),
    Step("put-columns-outside", _put_columns_outside, "threads share the outermost loop"),
    Step("share-among-threads", _share_among_threads, "later steps cut the chunk of one thread"),
    Step("sum-in-memory", _sum_in_memory, "completes the schedule; its columns are outside"),
    Step("multiply-tiles", _multiply_tiles, "completes the schedule, on a matrix unit"),
    Step("contract", _contract, "completes the schedule; the steps below are for other kernels"),
    Step("share-windows", windows.choose, "completes the schedule of sums that have no tile"),
    Step("compute-rows-once", _compute_rows_once, "the loops that fill a tile get lanes, too"),
    Step("unroll-short-reduces", _unroll_short_reduces, "lanes are for loops that stay loops"),
    Step("copy-thin-rows", lambda s: copy_thin_rows(s, s.lanes), "copied loops get no lanes"),
    Step("choose-lanes", _choose_lanes, "tiles and copies are chosen beside the lanes"),
    Step("choose-tile", _choose_tile, "it may swap rows and columns, which are whole loops still"),
    Step("reuse-terms", _reuse_terms, "a tile is filled by a whole loop, before guards cut it"),
    Step("cut-at-guards", lambda s: cut_at_guards(s, s.output, s.reused),
         "lanes of a part without guards need no masks"),
    Step("vectorise-reduces", _vectorise_reduces, "rows side by side share the vectors of reduces"),
    Step("copy-rows", _copy_rows, "the number of copies limits the vectors of the output"),
    Step("vectorise-output", _vectorise_output, "lanes are inside of all copies"),
    Step("vectorise-nests", _vectorise_nests, "only nests that have no lanes yet get some"),
    Step("interleave", interleave, "the length of a body includes its copies"),
    Step("store-past-caches", lambda s: store_past_caches(s, s.before),
         "lanes and copies decide the bytes of a store"),
)  # fmt: skip
