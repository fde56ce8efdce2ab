"""Choose a kernel's Opts for a GPU: which loops are blocks, which are threads, who shares a reduce.

Reads ranges and indices, as `choose_opts` does for a CPU, and the described part. A contraction
gets register tiles; long reduces along memory are shared by the threads of a block, sums over rows
by threads that are far apart; a transposed read goes through blocks of registers; else threads take
16 bytes each. The rest of the loops is the grid.
"""

from __future__ import annotations

import math

from uopc.ir.builder import index_maps as indexing
from uopc.ir.core import bounds, ranges
from uopc.ir.core.args import Opt
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.contraction import find_contraction
from uopc.passes.contract import Context
from uopc.passes.optimize.schedule import (
    gpu_tensor_cores as choose_tensor_opts,
)
from uopc.passes.optimize.schedule import (
    gpu_thresholds as gpu_machine,
)
from uopc.passes.optimize.schedule import (
    thresholds as machine,
)
from uopc.passes.optimize.schedule.kernel_facts import (
    KernelFacts,
    element_bits,
    expanded_size,
    length_of,
)
from uopc.passes.optimize.schedule.scheduler import Chooser


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    chooser = Chooser(kernel, context)
    if choose_tensor_opts.choose(chooser):
        return tuple(chooser.opts), chooser.kernel
    k = chooser.facts
    lanes = context.target.lanes(element_bits(k))
    row, column = _contraction(k)
    tiled = row is not None
    _unroll_whole(chooser, gpu_machine.TILE_UNROLL if tiled else gpu_machine.WHOLE_UNROLL)
    if row is not None and column is not None:
        _tile(chooser, row, column, lanes)
    else:
        k = chooser.facts
        threads = _share(chooser, k, lanes)
        if threads:
            _beside(chooser, threads, lanes)
            _rows(chooser, threads)
        else:
            _outputs(chooser, k, lanes)
    _blocks(chooser)
    return tuple(chooser.opts), chooser.kernel


def _stored(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring iterations write neighbouring places."""
    return any(a.stride(r) == 1 for a in k.accesses if a.written)


def _is_plain(k: KernelFacts, r: UOp) -> bool:
    """Whether every access moves by one element or none, and no guard depends on the loop."""
    for a in k.inside(r):
        gate = indexing.ungated(a.node.src[1])[1]
        if a.stride(r) not in (0, 1) or (gate is not None and r in ranges.ranges(gate)):
            return False
    return True


def _largest(n: int, most: int) -> int:
    """The greatest power of two up to both."""
    return 1 << (min(max(n, 1), most).bit_length() - 1)


def _covering(n: int, most: int) -> int:
    """The least power of two that takes n at once, or the greatest up to `most`."""
    return _largest(2 * n - 1, most)


def _outer(chooser: Chooser, r: UOp) -> UOp:
    """The loop that is left of r after an Opt cut it."""
    left = chooser.part(r, 0)
    return r if left is None else left


def _count(loops: set[UOp]) -> int:
    """How often a body runs in loops of known lengths."""
    return math.prod([length_of(r) or machine.TYPICAL_LENGTH for r in loops])


def _around(k: KernelFacts, u: UOp) -> set[UOp]:
    """The output loops in which a reduce runs."""
    return {r for r in k.outputs if r in ranges.ranges(u)}


def _unroll_whole(chooser: Chooser, most: int) -> None:
    """Reduces of a few iterations, such as windows, become straight code, the innermost first: all
    of them or none, so that what is equal before is rounded alike."""
    k = chooser.facts
    found: dict[UOp, int] = {}  # the iterations of a reduce's loop and those inside of it
    for u in k.reduces:
        below = max([n for r, n in found.items() if _is_inside(k, r, u)], default=1)
        for r in sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis, reverse=True):
            below *= length_of(r) or machine.TYPICAL_LENGTH
            found[r] = below
    short = [r for r, n in found.items() if n <= most]
    copies = sum(found[r] * sum(r in ranges.ranges(u) for u in k.order) for r in short)
    if copies <= machine.MOST_COPIES:
        for r in short:
            chooser.attempt("UNROLL", r, 0)


def _is_inside(k: KernelFacts, r: UOp, u: UOp) -> bool:
    """Whether a reduce over r is computed in the loops of another one."""
    return any(
        v is not u and r in v.src[1:] and set(ranges.closed_ranges(u)) & ranges.ranges(v)
        for v in k.reduces
    )


# ---------------------------------------------------------------- contractions
def _contraction(k: KernelFacts) -> tuple[UOp | None, UOp | None]:
    """The row and column loops of a reduce that reads two operands, one by each."""
    p = find_contraction(k.reduces[0]) if len(k.reduces) == 1 else None
    if p is None:
        return None, None
    wanted = 2 * gpu_machine.TILE
    loops = [r for r in k.outputs if r.arg.kind == "loop" and (length_of(r) or 0) >= wanted]
    column = next((r for r in reversed(loops) if _stored(k, r)), None)
    inside = set(ranges.closed_ranges(p.reduce))
    reads = [a for a in k.accesses if not a.written and inside & ranges.ranges(a.node)]
    if len(reads) != 2 or column not in (*p.rows, *p.columns):
        return None, None
    rows = p.columns if column in p.rows else p.rows
    return next((r for r in reversed(rows) if r in loops), None), column


def _tile(chooser: Chooser, row: UOp, column: UOp, lanes: int) -> None:
    """A tile of accumulators in each thread, and 16 by 16 threads; where the loops are shorter,
    also neighbours in the others."""
    left, others = gpu_machine.BLOCK, [r for r in _loops(chooser) if r not in (row, column)]
    for r, op, n in ((column, "VECTOR", lanes), (row, "UPCAST", gpu_machine.TILE)):
        length = length_of(r) or 1
        if length % n == 0 and chooser.attempt(op, r, n):
            r = _outer(chooser, r)
        threads = _largest(length_of(r) or gpu_machine.BLOCK, 16)
        left //= threads if chooser.attempt("LOCAL", r, threads) else 1
    _threads(chooser, left, others)


# ---------------------------------------------------------------- reduces
def _share(chooser: Chooser, k: KernelFacts, lanes: int) -> int:
    """Long reduces among threads; how many they are, 0 where there are none."""
    reduces = [u for u in k.reduces if ranges.ranges(u) <= set(k.outputs)]
    found = [
        (r, u) for u in reduces for r in ranges.closed_ranges(u)
        if r.arg.kind == "reduce" and (length_of(r) or 0) >= _least_shared(k, u) and _is_read(k, r)
    ]  # fmt: skip
    around = _block_loops(k, reduces, [u for _, u in found])
    if around is None:
        return 0
    chosen = {r: length_of(r) or 1 for r, u in found if _around(k, u) <= around}
    wide = lanes if all(_is_plain(k, r) and n % lanes == 0 for r, n in chosen.items()) else 1
    threads = _team(chooser, k, found, around, wide)
    done = 0
    for r in chosen:
        q = r
        if wide > 1 and chooser.attempt("VECTOR", r, wide):
            q = _outer(chooser, r)
        if chooser.attempt("GROUP", q, threads):
            done += 1
            _keep(chooser, q, "UNROLL", wide)
            _ahead(chooser, _outer(chooser, q), wide)
    return threads if done else 0


def _keep(chooser: Chooser, r: UOp, op: str, wide: int) -> None:
    """What a thread has of a row, where it is little, becomes straight code: loads wait together,
    and what is read or computed again over the same row stays in registers."""
    left = chooser.part(r, 0)
    steps = (length_of(left) or 0) if left is not None else 0
    if left is not None and 1 < steps <= gpu_machine.KEPT // wide:
        chooser.attempt(op, left, steps)


def _ahead(chooser: Chooser, r: UOp, wide: int) -> None:
    """Some iterations of a reduce together, so that a thread waits once for several loads."""
    k, steps = chooser.facts, length_of(r)
    asked = sum([a.node.dtype.itemsize * wide for a in k.inside(r) if not a.written])
    if steps is None or not asked or r not in k.axes:
        return
    n = _largest(gpu_machine.IN_FLIGHT // asked, gpu_machine.KEPT // wide)
    while n > 1 and (steps % n or n * expanded_size(k, r) > machine.MOST_COPIES):
        n //= 2
    if n > 1:
        chooser.attempt("UNROLL", r, n)


def _least_shared(k: KernelFacts, u: UOp) -> int:
    """How long a reduce must be: less where threads beside it would do it again each."""
    beside = _around(k, u) != set(k.outputs)
    return gpu_machine.LEAST_BESIDE if beside else gpu_machine.LEAST_SHARED


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
        if beside or again > gpu_machine.MOST_AGAIN * sum(work.values()):
            continue
        if best is None or best < loops[u]:
            best = loops[u]
    return best


def _team(
    chooser: Chooser, k: KernelFacts, found: list[tuple[UOp, UOp]], around: set[UOp], wide: int
) -> int:
    """Threads of a block that share reduces: more where there are few blocks."""
    gpu = chooser.context.target.gpu
    assert gpu is not None
    lengths = {r: length_of(r) or 1 for r, u in found if _around(k, u) == around}
    blocks = _count(around)
    most = _largest(gpu_machine.capacity(gpu) // blocks, gpu.threads_per_block)
    beside = max([length_of(r) or 1 for r in k.outputs if r not in around], default=1)
    little = beside >= gpu_machine.LITTLE * max(lengths.values())
    each = gpu_machine.EACH_AGAIN if little else gpu_machine.EACH
    least = min(lengths.values()) // (wide * each)
    return max(gpu_machine.WARP, _largest(least, max(gpu_machine.BLOCK, most)))


def _is_read(k: KernelFacts, r: UOp) -> bool:
    """Whether neighbouring values of a reduce are neighbours in memory, so that threads read them
    together."""
    strides = {a.stride(r) for a in k.inside(r)}
    return 1 in strides and strides <= {0, 1}


def _beside(chooser: Chooser, threads: int, lanes: int) -> None:
    """Output loops beside the shared reduces of their row: for the same threads. Where that leaves
    most of the device idle they are cut, and blocks of one row do its reduces each."""
    gpu = chooser.context.target.gpu
    assert gpu is not None
    k = chooser.facts
    blocks = _count({r for r in k.outputs if _holds_reduce(k, r)})
    steps = _reduce_steps(k)
    for r in [r for r in k.outputs if r.arg.kind == "loop" and not _holds_reduce(k, r)]:
        length = length_of(r) or 1
        q = r
        if lanes > 1 and length % lanes == 0 and _is_plain(k, r):
            q = _outer(chooser, r) if chooser.attempt("VECTOR", r, lanes) else r
        if not chooser.attempt("LOCAL", q, threads):
            continue
        left = _outer(chooser, q)
        _keep(chooser, q, "UPCAST", length // (length_of(q) or 1))
        rest = length_of(left) or 1 if left is not q else 1
        if blocks * threads < gpu_machine.capacity(gpu) and rest >= gpu_machine.LITTLE * steps:
            each = next(n for n in range(steps, rest + 1) if rest % n == 0)
            if each > 1 and chooser.attempt("TILE", left, each):
                left = _outer(chooser, left)
            chooser.attempt("GRID", left, 0)


def _rows(chooser: Chooser, threads: int) -> None:
    """Several rows a block where blocks of one do not fill an SM, and there are many."""
    gpu, k = chooser.context.target.gpu, chooser.facts
    around = [r for r in k.outputs if r.arg.kind == "loop" and _holds_reduce(k, r)]
    assert gpu is not None
    if not around or threads * gpu.blocks_per_multiprocessor >= gpu.threads_per_multiprocessor:
        return
    if not _is_outside(k, around[-1]):
        return
    spare = _count(set(around)) // (gpu_machine.LEAST_BLOCKS * gpu.multiprocessors)
    n = math.gcd(length_of(around[-1]) or 1, _largest(spare, gpu_machine.BLOCK // threads))
    if n > 1:
        chooser.attempt("LOCAL", around[-1], n)


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
def _outputs(chooser: Chooser, k: KernelFacts, lanes: int) -> None:
    """Blocks of independent threads, or of threads that share sums over rows."""
    if _cross(chooser, k, lanes):
        return
    column = _column(k)
    if column is not None and column is not k.outputs[-1]:
        chooser.swapped(column, k.outputs[-1])
        k = chooser.facts
    left = gpu_machine.WARP if _share_rows(chooser, k, lanes) else gpu_machine.BLOCK
    if left == gpu_machine.BLOCK:
        _widen_reduces(chooser, k, lanes)
        _widen_output(chooser, k, lanes)
    _threads(chooser, left, _loops(chooser))


def _column(k: KernelFacts) -> UOp | None:
    """The output loop that threads side by side take: along it the most accesses are neighbours."""
    best, found = 0, None
    for r in reversed([r for r in k.outputs if r.arg.kind == "loop"]):
        near = [a for a in k.accesses if a.stride(r) == 1]
        total = sum([_count(set(k.axes) & ranges.ranges(a.node)) for a in near])
        if total > best:
            best, found = total, r
    return found


def _widen_reduces(chooser: Chooser, k: KernelFacts, lanes: int) -> None:
    """16-byte reads of what a thread sums up alone."""
    for r in k.axes:
        length = length_of(r) or 1
        long = length % lanes == 0 and length >= gpu_machine.EACH * lanes
        if r.arg.kind == "reduce" and long and _is_read(k, r) and _is_plain(k, r):
            chooser.attempt("VECTOR", r, lanes)


def _widen_output(chooser: Chooser, k: KernelFacts, lanes: int) -> None:
    """16-byte accesses of an output loop; less, or none, where each lane computes so much that
    copies of it would fill the registers."""
    while lanes > 1 and lanes * expanded_size(k) > gpu_machine.LANE_NODES:
        lanes //= 2
    for r in reversed(k.outputs):
        length = length_of(r)
        if r.arg.kind == "loop" and _stored(k, r) and _is_plain(k, r) and length is not None:
            if length % lanes == 0 and length >= lanes and lanes > 1:
                chooser.attempt("VECTOR", r, lanes)
            return


def _loops(chooser: Chooser) -> list[UOp]:
    """The output loops that are still loops."""
    return [r for r in chooser.facts.outputs if r.arg.kind == "loop"]


def _threads(chooser: Chooser, left: int, loops: list[UOp]) -> None:
    """Output loops as threads, the innermost first, until a block is full."""
    for r in reversed(loops):
        length = length_of(r)
        n = left if length is None else _covering(length, left)
        if n > 1 and chooser.attempt("LOCAL", r, n):
            left //= n


def _cross(chooser: Chooser, k: KernelFacts, lanes: int) -> bool:
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
        pair, least = [column, row], min(gpu_machine.CROSSED)
        if any((length_of(r) or least) < least for r in pair):
            continue
        if lanes > 1 and all((length_of(r) or 1) % lanes == 0 for r in pair):
            for i, (r, op) in enumerate(zip(pair, ("VECTOR", "UPCAST"))):
                if chooser.attempt(op, r, lanes):
                    pair[i] = _outer(chooser, r)
        for r, n in zip(pair, gpu_machine.CROSSED):
            chooser.attempt("LOCAL", r, _covering(length_of(r) or n, n))
        return True
    return False


def _share_rows(chooser: Chooser, k: KernelFacts, lanes: int) -> bool:
    """A sum over rows where there are too few columns for all threads: threads of one column that
    are far apart have some rows each."""
    gpu = chooser.context.target.gpu
    assert gpu is not None
    column = next((r for r in reversed(k.outputs) if _stored(k, r)), None)
    if column is None or len(k.reduces) != 1 or not _is_plain(k, column):
        return False
    if _around(k, k.reduces[0]) != set(k.outputs):
        return False
    rows = [r for r in ranges.closed_ranges(k.reduces[0]) if r.arg.kind == "reduce"]
    columns = _count(set(k.outputs))
    length = max([length_of(r) or 1 for r in rows], default=1)
    wanted = min(gpu_machine.capacity(gpu) // columns, length // gpu_machine.EACH_ROWS)
    if len(rows) != 1 or wanted < 2:
        return False
    if columns // (lanes * gpu_machine.WARP) >= gpu.multiprocessors:
        _widen_output(chooser, k, lanes)
    if not chooser.attempt("GROUPTOP", rows[0], _largest(wanted, gpu_machine.MOST_APART)):
        return False
    _ahead(chooser, _outer(chooser, rows[0]), 1)
    return True


def _blocks(chooser: Chooser) -> None:
    """The loops that are left as the grid; where a reduce is shared, only those around it."""
    k = chooser.facts
    shared = any(r.arg.kind == "group" for r in k.axes)
    for r in [r for r in k.outputs if r.arg.kind == "loop"]:
        if not shared or _holds_reduce(k, r):
            chooser.attempt("GRID", r, 0)


def _holds_reduce(k: KernelFacts, r: UOp) -> bool:
    """Whether threads that share a reduce would be inside of the loop."""
    return any(
        q.arg.kind == "group" and r in ranges.ranges(u)
        for u in k.reduces
        for q in ranges.closed_ranges(u)
    )
