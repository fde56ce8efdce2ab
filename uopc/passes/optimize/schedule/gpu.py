"""The GPU schedule: the loops that are blocks, the loops that are threads, and shared reduces.

Its steps read ranges and accesses, as on a CPU, and the described GPU. A contraction gets register
tiles. The threads of a block share long reduces along memory; distant threads share sums over rows.
A transposed read goes through blocks of registers; in other kernels each thread accesses 16 bytes
at a time. The remaining loops are the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uopc.ir.core import bounds, ranges, walk
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import length_of
from uopc.ir.nest.nest import Nest, nest_of
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import covering, fitting
from uopc.passes.analysis.shared_tiles import THREADS
from uopc.passes.analysis.thread_order import block_size
from uopc.passes.contract import Context
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.schedule import gpu_products, gpu_tensor_cores, gpu_thresholds, guards
from uopc.passes.optimize.schedule.scheduler import Scheduler, Step, run


class GpuScheduler(Scheduler):
    """Decisions of early steps that later steps read."""

    row: UOp | None = None  # the loops of a contraction's tile
    column: UOp | None = None
    threads = 0  # that share a reduce; 0 if none does

    def __init__(self, kernel: UOp, context: Context) -> None:
        super().__init__(kernel, context)
        # Of a 16-byte access to the widest elements.
        self.lanes = context.target.lanes(self.nest.element_bits)

    def attempt(self, op: str, r: UOp | None, n: int) -> bool:
        """Apply an Opt if it is legal and the threads of a block stay within the limit."""
        before = self.state
        if not super().attempt(op, r, n):
            return False
        threads = [length_of(q) or 1 for q in self.axes if q.arg.kind in THREADS]
        most = self.gpu.threads_per_block
        if math.prod(threads) > most and block_size(walk.order(self.kernel)) > most:
            self.state = before
            return False
        return True


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """Choose the Opts of a kernel, and return them with the kernel after them."""
    s = GpuScheduler(kernel, context)
    run(STEPS, s)
    return s.opts, s.kernel


# ---------------------------------------------------------------- facts
def _is_plain(k: Nest, r: UOp) -> bool:
    """True if every access moves by one element or none, and no guard depends on the loop."""
    return all(
        a.stride(r) in (0, 1) and (a.gate is None or r not in ranges.ranges(a.gate))
        for a in k.inside(r)
    )


def _is_read_along(k: Nest, r: UOp) -> bool:
    """True if neighbours in a reduce are neighbours in memory, which threads read together."""
    strides = {a.stride(r) for a in k.inside(r)}
    return 1 in strides and strides <= {0, 1}


def _runs(loops: Iterable[UOp]) -> int:
    """The number of times that a body in loops of known lengths runs."""
    return math.prod([length_of(r) or thresholds.TYPICAL_LENGTH for r in loops])


def _around(k: Nest, u: UOp) -> set[UOp]:
    """The output loops in which a reduce runs."""
    return {r for r in k.outputs if r in ranges.ranges(u)}


def _holds_shared_reduce(k: Nest, r: UOp) -> bool:
    """True if the loop contains a reduce that threads share."""
    inside = [u for u in k.reduces if r in ranges.ranges(u)]
    return any(q.arg.kind == "group" for u in inside for q in ranges.closed_ranges(u))


def _loops(k: Nest) -> list[UOp]:
    """The output loops that are not yet blocks, threads, lanes or copies."""
    return [r for r in k.outputs if r.arg.kind == "loop"]


def _unroll_short_reduces(s: GpuScheduler) -> None:
    """Make reduces of a few iterations, such as windows, straight code, the innermost first. All or
    none become straight code, so that equal values are rounded alike."""
    k = s.nest
    most = gpu_thresholds.WHOLE_UNROLL if s.row is None else gpu_thresholds.TILE_UNROLL
    found: dict[UOp, int] = {}  # the iterations of a reduce's loop and those inside of it
    for u in k.reduces:
        own = ranges.closed_ranges(u)
        inside = [v for v in k.reduces if v is not u and not ranges.ranges(v).isdisjoint(own)]
        below = max([n for r, n in found.items() if any(r in v.src[1:] for v in inside)], default=1)
        for r in sorted(own, key=lambda r: r.arg.axis, reverse=True):
            below *= length_of(r) or thresholds.TYPICAL_LENGTH
            found[r] = below
    short = [r for r, n in found.items() if n <= most]
    copies = sum(found[r] * sum(r in ranges.ranges(u) for u in k.order) for r in short)
    for r in short if copies <= thresholds.MOST_COPIES else ():
        s.attempt("UNROLL", r, 0)


# ---------------------------------------------------------------- contractions
def _share_products(s: GpuScheduler) -> bool:
    """Schedule a contraction with tiles of sums, and slices of the factors in shared memory."""
    return gpu_products.choose(s, s.lanes)


def _find_tile(s: GpuScheduler) -> None:
    """The row and column loops of a contraction that reads two arrays."""
    k = s.nest
    if k.contraction is None:
        return
    loops = [r for r in _loops(k) if (length_of(r) or 0) >= 2 * gpu_thresholds.TILE]
    column = next((r for r in k.written_along() if r in loops), None)
    reads = [a for a in k.read if not a.loops.isdisjoint(k.contraction.depth)]
    p = k.contraction.with_column(column)
    if len(reads) == 2 and p is not None:
        s.row, s.column = next((r for r in reversed(p.rows) if r in loops), None), column


def _tile(s: GpuScheduler) -> bool:
    """Give each of 16 by 16 threads a tile of accumulators; other loops fill the block up."""
    if s.row is None or s.column is None:
        return False
    others = [r for r in _loops(s.nest) if r not in (s.row, s.column)]
    left = gpu_thresholds.BLOCK
    for r, op, n in ((s.column, "VECTOR", s.lanes), (s.row, "UPCAST", gpu_thresholds.TILE)):
        if (length_of(r) or 1) % n == 0:
            r = s.cut(r, op, n)
        threads = fitting(16, length_of(r))
        left //= threads if s.attempt("LOCAL", r, threads) else 1
    _fill_block(s, left, others)
    return _grid(s)


# ---------------------------------------------------------------- reduces
def _share_reduces(s: GpuScheduler) -> None:
    """Divide long reduces among the threads of a block."""
    k = s.nest
    reduces = [u for u in k.reduces if ranges.ranges(u) <= set(k.outputs)]
    found: list[tuple[UOp, UOp]] = []
    for u in reduces:  # threads beside a shorter one would do it again each
        leaves_loops = _around(k, u) != set(k.outputs)
        least = gpu_thresholds.LEAST_BESIDE if leaves_loops else gpu_thresholds.LEAST_SHARED
        loops = [r for r in ranges.closed_ranges(u) if r.arg.kind == "reduce"]
        found += [(r, u) for r in loops if (length_of(r) or 0) >= least and _is_read_along(k, r)]
    around = _block_loops(k, reduces, [u for _, u in found])
    if around is None:
        return
    chosen = {r: length_of(r) or 1 for r, u in found if _around(k, u) <= around}
    wide = s.lanes if all(_is_plain(k, r) and n % s.lanes == 0 for r, n in chosen.items()) else 1
    longest = [length_of(r) or 1 for r, u in found if _around(k, u) == around]
    threads = _block_size(s, k, longest, around, wide)
    before = s.state
    for r in chosen:
        q = s.cut(r, "VECTOR", wide)
        if s.attempt("GROUP", q, threads):
            s.threads = threads
            _unroll_share(s, q, "UNROLL", wide)
            _overlap_loads(s, s.outer(q), wide)
    if not s.threads:
        s.state = before


def _unroll_share(s: Scheduler, r: UOp, op: str, wide: int) -> None:
    """Make a thread's short share of a row straight code, so that the share stays in registers."""
    left = s.part(r, 0)
    steps = 0 if left is None else length_of(left) or 0
    if 1 < steps <= gpu_thresholds.ROW_REGISTERS // wide:
        s.attempt(op, left, steps)


def _overlap_loads(s: Scheduler, r: UOp, wide: int) -> None:
    """Unroll some iterations of a reduce, so that a thread waits once for several loads. If the
    reduce computes its terms in several ways, cut it into parts first."""
    is_cut = r in s.axes and guards.specialise(s, [r])
    for q in s.family(r) if is_cut else [r]:
        k, steps = s.nest, length_of(q)
        asked = sum([a.itemsize * wide for a in k.inside(q) if not a.written])
        if steps is None or not asked or q not in k.axes:
            continue
        n = fitting(gpu_thresholds.ROW_REGISTERS // wide, gpu_thresholds.IN_FLIGHT // asked)
        n = fitting(n, steps) if is_cut else n  # a part may have a rest
        while n > 1 and (
            (steps % n and not is_cut) or n * k.expanded_size(q) > thresholds.MOST_COPIES
        ):
            n //= 2
        if n > 1:
            s.widen(q, "UNROLL", n)


def _block_loops(k: Nest, reduces: list[UOp], readable: list[UOp]) -> set[UOp] | None:
    """The loops around a block: the loops around the reduces that the block shares. A block
    recomputes the reduces that use only some of these loops. Allow that only if it adds little
    work, and no reduce is in other loops."""
    loops = {u: _around(k, u) for u in reduces}
    work = {u: _runs(loops[u]) * _runs(ranges.closed_ranges(u)) for u in reduces}
    best: set[UOp] | None = None
    for u in readable:
        inside = [v for v in reduces if loops[v] < loops[u]]
        again = sum(work[v] * _runs(loops[u] - loops[v]) for v in inside)
        beside = any(not loops[v] <= loops[u] and not loops[u] <= loops[v] for v in reduces)
        little = again <= gpu_thresholds.MOST_AGAIN * sum(work.values())
        if not beside and little and (best is None or best < loops[u]):
            best = loops[u]
    return best


def _block_size(
    s: Scheduler, k: Nest, lengths: list[int], around: set[UOp], wide: int
) -> int:
    """The number of threads of a block that share reduces: more if there are few blocks."""
    most = fitting(s.gpu.threads_per_block, gpu_thresholds.capacity(s.gpu) // _runs(around))
    beside = max([length_of(r) or 1 for r in k.outputs if r not in around], default=1)
    little = beside >= gpu_thresholds.LITTLE * max(lengths)
    each = gpu_thresholds.EACH_AGAIN if little else gpu_thresholds.EACH
    least = min(lengths) // (wide * each)
    return max(s.gpu.warp, fitting(max(gpu_thresholds.BLOCK, most), least))


def _share_loops_beside(s: GpuScheduler) -> None:
    """Give the output loops next to a row's shared reduces to the same threads. If most of the
    device would idle, cut these loops, and let each block of a row recompute its reduces."""
    if not s.threads:
        return
    k, lanes = s.nest, s.lanes
    blocks = _runs([r for r in k.outputs if _holds_shared_reduce(k, r)])
    idle = blocks * s.threads < gpu_thresholds.capacity(s.gpu)
    loops = [r for u in k.reduces for r in ranges.closed_ranges(u) if r.arg.kind == "reduce"]
    steps = max([int(bounds.bounds(r.src[0])[1]) for r in loops], default=1)
    for r in [r for r in _loops(k) if not _holds_shared_reduce(k, r)]:
        length = length_of(r) or 1
        q = s.cut(r, "VECTOR", lanes) if length % lanes == 0 and _is_plain(k, r) else r
        if not s.attempt("LOCAL", q, s.threads):
            continue
        left = s.outer(q)
        _unroll_share(s, q, "UPCAST", length // (length_of(q) or 1))
        rest = length_of(left) or 1 if left is not q else 1
        if idle and rest >= gpu_thresholds.LITTLE * steps:
            each = next(n for n in range(steps, rest + 1) if rest % n == 0)
            s.attempt("GRID", s.cut(left, "TILE", each), 0)


def _put_rows_together(s: GpuScheduler) -> None:
    """Put several rows in a block if blocks of one row do not fill an SM and there are many rows.
    All threads must belong to one row, all reduces must lie inside of the row, and no thread loop
    may be around it."""
    gpu, k = s.gpu, s.nest
    around = [r for r in _loops(k) if _holds_shared_reduce(k, r)] if s.threads else []
    if not around or s.threads * gpu.blocks_per_multiprocessor >= gpu.threads_per_multiprocessor:
        return
    row = around[-1]
    threads_around = any(q.arg.kind == "local" for q in k.axes[: k.axes.index(row)])
    if threads_around or not all(row in ranges.ranges(u) for u in k.reduces):
        return
    spare = _runs(around) // (gpu_thresholds.LEAST_BLOCKS * gpu.multiprocessors)
    n = math.gcd(length_of(row) or 1, fitting(gpu_thresholds.BLOCK // s.threads, spare))
    if n > 1:
        s.attempt("LOCAL", row, n)


# ---------------------------------------------------------------- nests beside each other
def _specialise(s: GpuScheduler) -> bool:
    """Make nests with own threads and blocks of the parts of a loop that compute in different ways.
    Nests of reduces that threads share, or could share, are left to later steps."""
    k = s.nest
    is_alone = not k.reduces or (
        _rows_to_share(s, k)[1] < 2 and _column(k) in (None, *k.outputs[-1:])
    )
    if s.threads or not is_alone or not _may_part(s):
        return False
    before = s.state
    loops = list(reversed(_loops(k)))
    each = [[r] for r in loops] if k.reduces else [loops]
    if not any(guards.specialise(s, some) for some in each):
        return False
    _widen_reduces(s, s.nest)
    for i in range(len(s.nest.written)):
        _widen_output(s, k := s.nest, [r for r in _loops(k) if r in _nests(k)[i]])
    nests = _nests(s.nest)
    threads = [1] * len(nests)  # of a block; a loop around several nests has those of the largest
    for r in reversed(_loops(s.nest)):
        inside = [i for i, nest in enumerate(nests) if r in nest]
        largest = max([threads[i] for i in inside])
        n = _local(s, r, gpu_thresholds.BLOCK // largest)
        threads = [largest * n if i in inside else t for i, t in enumerate(threads)]
    _specialise_reduces(s)
    _grid(s)
    if k.reduces and not _have_own_blocks(s.nest):
        s.state = before
        return False
    return True


def _specialise_blocks(s: GpuScheduler) -> None:
    """Cut a loop of blocks where the way to compute its values changes. Each part gets its own
    blocks, with the same threads."""
    before = s.state
    for r in reversed(_blocks(s.nest)) if _may_part(s) else ():
        if guards.specialise(s, [r]) and _grid(s) and _have_own_blocks(s.nest):
            return
        s.state = before


def _specialise_reduces(s: GpuScheduler) -> None:
    """Cut reduces and adjacent loops into parts that compute differently in the same threads."""
    k = s.nest
    blocks = _blocks(k)
    inside = [r for r in k.axes if r.arg.kind in ("loop", "reduce") and r not in blocks]
    guards.specialise(s, reversed(inside))


def _may_part(s: GpuScheduler) -> bool:
    """True if parts of a loop may run in blocks of their own: the kernel has one store, does not
    read the stored array, and fills no local storage."""
    stores = nest_of(s.kernel).stores
    local = any(a.storage.op is Ops.BUFFER for a in s.nest.accesses)
    return len(stores) == 1 and not local and not legality.reads_written(s.kernel, stores)


def _have_own_blocks(k: Nest) -> bool:
    """True if no two nests run one after the other in the same blocks."""
    blocks = [frozenset(r for r in nest if r.arg.kind == "global") for nest in _nests(k)]
    shared = frozenset.intersection(*blocks)
    return all(own - shared for own in blocks)


def _nests(k: Nest) -> list[frozenset[UOp]]:
    """The loops around each store."""
    return [a.loops for a in k.written]


# ---------------------------------------------------------------- outputs
def _share_outputs(s: GpuScheduler) -> None:
    """Divide outputs among independent threads, or among threads that share sums over rows."""
    k = s.nest
    if s.threads or _cross(s, k):
        return
    column = _column(k)
    if column is not None and column is not k.outputs[-1]:
        s.swapped(column, k.outputs[-1])
        k = s.nest
    shared = _share_rows(s, k)
    if not shared:
        _widen_reduces(s, k)
        _widen_output(s, k, k.outputs)
    _fill_block(s, s.gpu.warp if shared else gpu_thresholds.BLOCK, _loops(s.nest))


def _column(k: Nest) -> UOp | None:
    """The output loop for neighbouring threads: the most accesses are neighbours along it."""

    def neighbours(r: UOp) -> int:
        near = [a for a in k.accesses if a.stride(r) == 1]
        return sum([_runs(set(k.axes) & a.loops) for a in near])

    best = max(reversed(_loops(k)), key=neighbours, default=None)
    return best if best is not None and neighbours(best) else None


def _widen_reduces(s: GpuScheduler, k: Nest) -> None:
    """Read the terms that a single thread sums up 16 bytes at a time."""
    for r in k.axes:
        length = length_of(r) or 1
        long = length % s.lanes == 0 and length >= gpu_thresholds.EACH * s.lanes
        if r.arg.kind == "reduce" and long and _is_read_along(k, r) and _is_plain(k, r):
            s.attempt("VECTOR", r, s.lanes)


def _widen_output(s: GpuScheduler, k: Nest, among: list[UOp]) -> None:
    """Access 16 bytes at a time along one of these loops, fewer if copies would fill registers."""
    lanes = s.lanes
    while lanes > 1 and lanes * k.expanded_size() > gpu_thresholds.LANE_NODES:
        lanes //= 2
    for r in k.written_along():
        if r in among and r.arg.kind == "loop" and _is_plain(k, r) and length_of(r) is not None:
            if (length_of(r) or 1) % lanes == 0:
                s.attempt("VECTOR", r, lanes)
            return


def _fill_block(s: Scheduler, left: int, loops: list[UOp]) -> None:
    """Make output loops threads, the innermost first, until a block is full."""
    for r in reversed(loops):
        left //= _local(s, r, left)


def _local(s: Scheduler, r: UOp, most: int) -> int:
    """Make a loop at most `most` threads; return their number."""
    length = length_of(r)
    n = most if length is None else covering(most, length)
    return n if n > 1 and s.attempt("LOCAL", r, n) else 1


def _cross(s: GpuScheduler, k: Nest) -> bool:
    """Give both loops threads (and vectors, if both lengths allow) where reads cross the writes."""
    column = next(iter(k.written_along()), None)
    if column is None or k.reduces:
        return False
    across = [a for a in k.read if a.stride(column) not in (0, 1, None)]
    least = gpu_thresholds.CROSSED_COLUMNS
    for row in reversed(k.outputs):
        pair = [column, row]
        if row is column or not any(a.stride(row) == 1 for a in across):
            continue
        if any((length_of(r) or least) < least for r in pair):
            continue
        if s.lanes > 1 and all((length_of(r) or 1) % s.lanes == 0 for r in pair):
            pair = [s.cut(r, op, s.lanes) for r, op in zip(pair, ("VECTOR", "UPCAST"))]
        for r, n in zip(pair, (least, gpu_thresholds.CROSSED_ROWS)):
            s.attempt("LOCAL", r, covering(n, length_of(r) or n))
        return True
    return False


def _share_rows(s: GpuScheduler, k: Nest) -> bool:
    """Divide a sum over many rows of few columns: distant threads take some rows each."""
    rows, wanted = _rows_to_share(s, k)
    if rows is None or wanted < 2:
        return False
    if _runs(k.outputs) // (s.lanes * s.gpu.warp) >= s.gpu.multiprocessors:
        _widen_output(s, k, k.outputs)
    if not s.attempt("GROUPTOP", rows, fitting(gpu_thresholds.MOST_APART, wanted)):
        return False
    _overlap_loads(s, s.outer(rows), 1)
    return True


def _rows_to_share(s: GpuScheduler, k: Nest) -> tuple[UOp | None, int]:
    """The loop of a sum over rows, and the threads that it keeps busy; 0 for other kernels."""
    column = next(iter(k.written_along()), None)
    if column is None or len(k.reduces) != 1 or not _is_plain(k, column):
        return None, 0
    rows = [r for r in ranges.closed_ranges(k.reduces[0]) if r.arg.kind == "reduce"]
    if len(rows) != 1 or _around(k, k.reduces[0]) != set(k.outputs):
        return None, 0
    fill = gpu_thresholds.capacity(s.gpu) // _runs(k.outputs)
    return rows[0], min(fill, (length_of(rows[0]) or 1) // gpu_thresholds.EACH_ROWS)


def _blocks(k: Nest) -> list[UOp]:
    """The loops for the grid: all remaining ones, or only those around a shared reduce."""
    shared = any(r.arg.kind == "group" for r in k.axes)
    return [r for r in _loops(k) if not shared or _holds_shared_reduce(k, r)]


def _grid(s: GpuScheduler) -> bool:
    """Make the remaining loops the grid."""
    for r in _blocks(s.nest):
        s.attempt("GRID", r, 0)
    return True


STEPS: tuple[Step[GpuScheduler], ...] = (
    Step("use-tensor-cores", gpu_tensor_cores.choose, "completes the schedule"),
    Step("share-products", _share_products, "completes the schedule"),
    Step("find-tile", _find_tile, "a product's reduce is unrolled less, beside its accumulators"),
    Step("unroll-short-reduces", _unroll_short_reduces, "threads share loops that stay loops"),
    Step("tile", _tile, "completes the schedule; the steps below are for other kernels"),
    Step("share-reduces", _share_reduces, "the threads of a reduce decide those of all loops"),
    Step("share-loops-beside", _share_loops_beside, "loops beside a reduce take its threads"),
    Step("put-rows-together", _put_rows_together, "the threads of one row are known"),
    Step("specialise", _specialise, "completes the schedule; no thread waits for another"),
    Step("share-outputs", _share_outputs, "kernels without shared reduces choose threads freely"),
    Step("specialise-blocks", _specialise_blocks, "all parts have the threads of one schedule"),
    Step("specialise-reduces", _specialise_reduces, "the shares of threads and lanes are known"),
    Step("grid", _grid, "completes the schedule; the loops that no thread took are its grid"),
)
