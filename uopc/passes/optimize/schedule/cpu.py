"""Choose a kernel's Opts from its accesses and the described machine. Reads ranges and indices.

Steps, each a function: whether the outermost loop is shared among threads, which short reduces are
unrolled, where loops are cut so that guards fold, which loop gets vector lanes (an output or a
reduce loop, whichever reads and writes more neighbours), which output loops become register tiles.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.contract import Context
from uopc.passes.optimize.opts.split_at_bound import find_turns
from uopc.passes.optimize.schedule import (
    column_sums as choose_sums,
)
from uopc.passes.optimize.schedule import (
    contraction as choose_contraction,
)
from uopc.passes.optimize.schedule import (
    interleave as choose_interleaving,
)
from uopc.passes.optimize.schedule import (
    loop_order as choose_nesting,
)
from uopc.passes.optimize.schedule import (
    register_rows as choose_rows,
)
from uopc.passes.optimize.schedule import (
    stencils as choose_streams,
)
from uopc.passes.optimize.schedule import (
    thresholds as machine,
)
from uopc.passes.optimize.schedule.kernel_facts import (
    KernelFacts,
    element_bits,
    expanded_size,
    fitting,
    guard_cuts,
    lane_cost,
    length_of,
)  # fmt: skip
from uopc.passes.optimize.schedule.scheduler import Chooser


def choose_opts(kernel: UOp, context: Context) -> tuple[tuple[Opt, ...], UOp]:
    """The Opts, and the kernel with them applied."""
    chooser = Chooser(kernel, context)
    apart = choose_nesting.nest(chooser)
    streams = choose_sums.columns_outside(chooser)
    choose_contraction.columns_outside(chooser)
    _share(chooser)
    if streams and _sums_in_memory(chooser):
        return tuple(chooser.opts), chooser.kernel
    if choose_contraction.choose(chooser):
        _vectorise_producers(chooser)
        if any(o.op == "REDUCE_OUT" for o in chooser.opts):
            _vectorise_nests(chooser, context.target.lanes(element_bits(KernelFacts(kernel))))
        return tuple(chooser.opts), chooser.kernel
    _unroll_whole(chooser)
    lanes = context.target.lanes(element_bits(chooser.facts))
    choose_streams.copy_thin_rows(chooser, lanes)
    k = chooser.facts
    output = _output_lanes(chooser, k.outputs, lanes)
    reduces = _reduce_lanes(k, lanes, output)
    row, vectors = choose_rows.register_tile(k, output, reduces, lanes)
    rows, vectors = _tile_copies(k, machine.TILE_ROWS if row is not None else 1, vectors)
    if row is not None and output is not None:
        row, output = choose_rows.rows_inside(chooser, k, row, output)
    kept = choose_streams.keep(chooser, reduces)
    _cut_at_guards(chooser, output, kept)
    dot = choose_contraction.dot_rows(k, reduces)
    for r in reduces:
        single = dot is not None or r in kept
        _reduce_in_lanes(chooser, r, lanes, 1 if single else machine.ACCUMULATORS)
    if dot is not None:
        chooser.widen(dot, "UPCAST", machine.DOT_ROWS)
    elif row is not None:
        for q in chooser.family(row):
            chooser.widen(q, "UPCAST", fitting(rows, length_of(q)))
    else:
        output = choose_streams.copies(chooser, output, lanes)
        vectors = choose_streams.columns(chooser, output, lanes)
    if output is not None:
        if choose_streams.is_dear(chooser.kernel, output):
            for q in chooser.family(output):
                _follow_bounds(chooser, q, lanes, vectors)
        for q in chooser.family(output):
            _vectorise_output(chooser, q, lanes, vectors)
    if apart:
        _vectorise_nests(chooser, lanes)
    choose_interleaving.interleave(chooser)
    choose_streams.past_caches(chooser, k)
    return tuple(chooser.opts), chooser.kernel


def _sums_in_memory(chooser: Chooser) -> bool:
    """Whether the kernel adds up a large array down its columns, row by row."""
    lanes = chooser.context.target.lanes(element_bits(chooser.facts))
    loops = choose_sums.in_memory(chooser)
    for q in [q for r in loops for q in chooser.family(r)]:
        _vectorise_output(chooser, q, lanes, 1)
    return bool(loops)


def _share(chooser: Chooser) -> None:
    """The outermost output loop among threads, where there is work enough."""
    k = chooser.facts
    threads = chooser.context.threads
    if threads < 2 or not k.outputs:
        return
    outer = next((r for r in k.outputs if (length_of(r) or threads) >= threads), None)
    if outer is not None and _work(k) >= machine.THREAD_WORK:
        chooser.attempt("THREAD", outer, threads)


def _work(k: KernelFacts) -> float:
    """Operations on elements, a function being several: each as often as its own loops run."""
    total = 0.0
    for u in k.order:
        if u.op not in (Ops.STORE, Ops.REDUCE) and not u.op.is_alu:
            continue
        if u.op.is_alu and u.dtype.scalar is dtypes.index:
            continue
        times = u.op.cost or 1.0
        for r in ranges.ranges(u.src[0] if u.op is Ops.REDUCE else u):
            times *= max(1, bounds.bounds(r.src[0])[1])
        total += times
    return total


def _unroll_whole(chooser: Chooser) -> None:
    """Short reduces become straight code, unless a tile keeps what they add up in vectors."""
    k, whole = chooser.facts, set["UOp"]()
    lanes = chooser.context.target.lanes(element_bits(k))
    reduces = [r for r in reversed(k.axes) if r not in k.outputs and _is_short(r)]
    choose_streams.rows_in_lanes(chooser, reduces, lanes)
    k = chooser.facts
    for r in reduces:
        length = length_of(r) or 1
        if length >= lanes and choose_streams.is_kept(chooser.kernel, r):
            continue
        short = length * expanded_size(k, r, whole) <= machine.MOST_COPIES
        if short and chooser.attempt("UNROLL", r, 0):
            whole.add(r)


def _is_short(r: UOp) -> bool:
    length = length_of(r)
    return length is not None and length <= machine.WHOLE_UNROLL


def _tile_copies(k: KernelFacts, rows: int, vectors: int) -> tuple[int, int]:
    """Rows and vectors of a register tile: fewer where copies of what is unrolled get too long."""
    size = expanded_size(k)
    while rows * vectors > 1 and rows * vectors * size > machine.MOST_COPIES:
        rows, vectors = (rows // 2, vectors) if rows > 1 else (rows, vectors // 2)
    return rows, vectors


def _vectorise_nests(chooser: Chooser, lanes: int) -> None:
    """Lanes in each nest that has none yet: what was cut apart has loops of its own."""
    k = chooser.facts
    for u in k.order:
        if u.op is Ops.END and not any(r.arg.kind == "lane" for r in ranges.ranges(u.src[0])):
            r = _output_lanes(chooser, list(u.src[1:]), lanes)
            if r is not None:
                _vectorise_output(chooser, r, lanes, 1)


def _output_lanes(chooser: Chooser, among: list[UOp], lanes: int) -> UOp | None:
    """The output loop whose lanes touch memory best; None where lanes would only scatter what is
    not dear to compute."""
    k = chooser.facts
    candidates = [r for r in among if r.arg.kind == "loop" and length_of(r) != 1]
    best: tuple[float, int] | None = None
    chosen = None
    for r in candidates:
        width = fitting(lanes, length_of(r))
        accesses = k.inside(r)
        if width < 2 or not accesses:
            continue
        cost = lane_cost(accesses, r, width) / width
        rank = (cost, -k.position(r))
        if best is None or rank < best:
            best, chosen = rank, r
    if chosen is None or best is None:
        return None
    scalar = float(sum(2 if a.written else 1 for a in k.inside(chosen)))
    pays = choose_streams.is_dear(chooser.kernel, chosen) or choose_streams.fills_rows(k, chosen)
    return chosen if best[0] < scalar or pays else None


def _reduce_lanes(k: KernelFacts, lanes: int, output: UOp | None) -> list[UOp]:
    """Reduce loops that get lanes of their own: those in which no value uses the output lanes,
    and those that read neighbours where the output loop would gather."""
    chosen: list[UOp] = []
    for u in k.reduces:
        loops = sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis)
        loops = [r for r in loops if r.arg.kind == "reduce" and (length_of(r) or lanes) >= lanes]
        if not loops:
            continue
        inner = min(loops, key=lambda r: (lane_cost(k.inside(r), r, lanes), -k.position(r)))
        body = k.inside(inner)
        if any(q in chosen for a in body for q in ranges.ranges(a.node)):
            continue
        own = lane_cost(body, inner, lanes)
        if output is not None and any(output in ranges.ranges(n) for n in u.src[:1]):
            shared = lane_cost(body, output, lanes)
            if shared <= own:
                continue
        if own < lanes * len(body) or not body:
            chosen.append(inner)
    return chosen


def _vectorise_producers(chooser: Chooser) -> None:
    """Lanes on the reduces that a contraction's operand is computed from."""
    k = chooser.facts
    lanes = chooser.context.target.lanes(element_bits(k))
    for r in _reduce_lanes(k, lanes, None):
        inside = [q for u in k.order if r in ranges.ranges(u) for q in ranges.ranges(u)]
        if not any(q.arg.kind == "lane" for q in inside):
            kept = any(u.op is Ops.END and r in u.src[1:] for u in k.order)
            _reduce_in_lanes(chooser, r, lanes, 1 if kept else machine.ACCUMULATORS)


def _reduce_in_lanes(chooser: Chooser, r: UOp, lanes: int, accumulators: int) -> None:
    """Lanes on a reduce loop, or on its parts where it was cut or is to be."""
    for q in chooser.family(r):
        _follow_bounds(chooser, q, lanes, accumulators)
    for q in chooser.family(r):
        _vectorise_reduce(chooser, q, lanes, accumulators)


def _follow_bounds(chooser: Chooser, r: UOp, lanes: int, copies: int) -> None:
    """A loop that is compared with loops around it, the columns of a triangle, cut where that
    turns: in blocks of so many vectors, and as long as the code of the three parts stays small."""
    n = lanes * copies
    long = (length_of(r) or 0) >= machine.LEAST_BLOCKS * n
    if not long or not chooser.tiled.is_compared(r) or not find_turns(chooser.kernel, r):
        return
    if 3 * copies * expanded_size(chooser.facts, r) <= _most_code(chooser.facts):
        chooser.widen(r, "SPLIT_AT", n)


def _follow_chunks(chooser: Chooser, r: UOp, whole: int | None = None) -> None:
    """A loop over a thread's chunk, cut where what it is compared with lies in the chunk; but not
    short parts of a `whole` one."""
    whole = whole or bounds.bounds(r.src[0])[1]
    for q in chooser.family(r):
        if machine.CHUNK_PARTS * bounds.bounds(q.src[0])[1] < whole:
            continue
        turns = find_turns(chooser.kernel, q)
        if not turns or any(m.arg.kind != "thread" for m in ranges.ranges(turns[0].first)):
            continue
        if _stays_small(chooser, functools.partial(chooser.attempt, "SPLIT_AT", q, 1)):
            _follow_chunks(chooser, q, whole)


def _stays_small(chooser: Chooser, cut: Callable[[], bool]) -> bool:
    """Make a cut, and take it back if the code gets too large by it: parts of a CAT, each in a loop
    of its own, are no more than all of them in one."""
    k, tiled, opts = chooser.facts, chooser.tiled, list(chooser.opts)
    most = max(_most_code(k), machine.CUT_GROWTH * expanded_size(k))
    if cut() and expanded_size(chooser.facts) <= most:
        return True
    chooser.tiled, chooser.opts = tiled, opts
    return False


def _vectorise_reduce(chooser: Chooser, r: UOp, lanes: int, accumulators: int) -> None:
    """Several vector accumulators; the rest in single vectors, the last one narrower."""
    length = length_of(r)
    wide = lanes * accumulators
    if length is not None and length < wide:
        wide = lanes
    if wide > lanes:
        whole = affine.is_multiple(r.src[0], wide)
        outer = chooser.widen(r, "VECTOR", lanes) if whole else None
        if outer is not None:
            chooser.widen(outer, "UNROLL", accumulators)
            return
        if chooser.attempt("SPLIT", r, wide):
            first, rest = chooser.part(r, 0), chooser.part(r, 1)
            if first is not None:
                outer = chooser.widen(first, "VECTOR", lanes)
                if outer is not None:
                    chooser.widen(outer, "UNROLL", accumulators)
            if rest is not None:
                chooser.vectors(rest, min(lanes, length_of(rest) or lanes))
            return
    chooser.vectors(r, lanes)


def _cut_at_guards(chooser: Chooser, output: UOp | None, kept: list[UOp]) -> None:
    """Cut loops where their comparisons with constants turn true and false: reduces first, but for
    those that fill a tile, then the loop with the lanes, then inner before outer. As long as the
    code stays small: where it does not, only the longest part is cut out."""
    k = chooser.facts
    loops = [r for r in reversed(k.axes) if r.arg.kind in ("loop", "reduce") and r not in kept]
    for r in sorted(loops, key=lambda r: (r in k.outputs, r is not output)):
        _follow_chunks(chooser, r)
        k = chooser.facts
        cuts = [0, *guard_cuts(k, r), bounds.bounds(r.src[0])[0]]
        middle, begin, end = max((b - a, a, b) for a, b in itertools.pairwise(cuts))
        if len(cuts) == 2 or middle < machine.LEAST_MIDDLE:
            continue
        longest = sorted({0, begin, end, cuts[-1]})
        for places in (cuts, longest) if len(cuts) > 4 else (cuts,):
            if _stays_small(chooser, functools.partial(_cut_family, chooser, r, places[1:-1])):
                break


def _cut_family(chooser: Chooser, r: UOp, places: list[int]) -> bool:
    for q in chooser.family(r):
        _cut(chooser, q, places)
    return True


def _most_code(k: KernelFacts) -> float:
    """How many nodes the parts of a loop may have, of which each shall run often enough."""
    return min(machine.MOST_COPIES, _most_runs(k) / machine.RUNS_OF_A_NODE)


def _most_runs(k: KernelFacts) -> int:
    """How often the innermost body runs."""
    nests = {tuple([r for r in ranges.ranges(u) if r.arg.kind != "unroll"]) for u in k.order}
    lengths = [[max(1, bounds.bounds(r.src[0])[1]) for r in nest] for nest in nests]
    return max([math.prod(counts) for counts in lengths], default=1)


def _cut(chooser: Chooser, r: UOp, places: list[int]) -> None:
    """In the middle first: what is cut again is then short, where the parts of a CAT are many."""
    middle = (len(places) - 1) // 2
    if not places or not chooser.attempt("PEEL", r, at := places[middle]):
        return
    first, rest = chooser.part(r, 0), chooser.part(r, 1)  # a part that adds nothing has no loop
    if rest is not None:
        _cut(chooser, rest, [p - at for p in places[middle + 1 :]])
    if first is not None:
        _cut(chooser, first, places[:middle])


def _vectorise_output(chooser: Chooser, r: UOp, lanes: int, vectors: int) -> None:
    """Lanes on an output loop, several vectors of them for a register tile, and on its rest."""
    width = fitting(lanes, length_of(r))
    cut = (length_of(r) or 0) % max(width, 1) > 0
    long = cut and expanded_size(chooser.facts) >= machine.OVERLAPPING_BODY
    if long and chooser.attempt("OVERLAP", r, width):
        return
    outer = chooser.vectors(r, width)
    if outer is not None and vectors > 1 and outer.arg.kind == "loop":
        chooser.widen(outer, "UPCAST", fitting(vectors, length_of(outer)))
