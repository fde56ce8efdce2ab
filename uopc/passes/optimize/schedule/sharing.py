"""Choose the loop that threads share, so that each thread takes the least time.

    for i < 8: for j < 64: …   →   thread c < 2: for i < 8: for j < 32: … 32·c + j …

Each thread does all work that does not depend on the shared loop. Threads that share the rows of a
product each read all of its columns; threads that share the channels of a convolution each reorder
the entire image. So sharing an inner loop may leave each thread less to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from uopc.cost.machine import LINE
from uopc.ir.core import ranges, walk
from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import is_plain
from uopc.ir.nest.arithmetic import expansion, is_arithmetic
from uopc.ir.nest.loops import length_of, most_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.op_costs import ISSUE_WIDTH
from uopc.passes.optimize.opts import lengths, packing
from uopc.passes.optimize.opts.lengths import Chunks
from uopc.passes.optimize.schedule import contraction
from uopc.passes.optimize.schedule.contraction import LanedSum
from uopc.passes.optimize.schedule.lane_costs import is_far_constant
from uopc.passes.optimize.schedule.scheduler import Scheduler

Length = Callable[[UOp], int]


def share(s: Scheduler) -> None:
    """THREAD the output loop with which a thread takes least; other loops keep their order."""
    k, threads = s.nest, s.context.threads
    first = next((r for r in k.outputs if (length_of(r) or threads) >= threads), None)
    if first is None:
        return
    c = contraction.only_sum(k)
    chosen = first if c is None else _cheapest(s, k, c, first)
    if c is not None and chosen is not first:
        before = s.state
        if _share_inner(s, k, c, chosen):
            return
        s.state = before
    s.attempt("THREAD", first, threads)


def _share_inner(s: Scheduler, k: Nest, c: LanedSum, loop: UOp) -> bool:
    """Move a loop outside, THREAD it, and move it back. The lanes of a product stay outside of its
    rows, because its tile needs them there."""
    r, around = loop, k.outputs[: k.outputs.index(loop)]
    passed: list[UOp] = []
    for q in reversed(around):
        other, moved = s.swapped(q, r)
        if moved is r:
            return False
        r, passed = moved, [other, *passed]
    if not s.attempt("THREAD", r, s.context.threads):
        return False
    inner = s.inner(r)
    for q, other in zip(around, passed):
        if q is not c.row or loop is not c.lane:
            inner = s.swapped(inner, other)[0]
    return True


def _cheapest(s: Scheduler, k: Nest, c: LanedSum, first: UOp) -> UOp:
    """The loop of a sum of products that threads share: the first, or a clearly cheaper one."""
    threads = s.context.threads
    loops = [r for r in k.outputs if r.arg.kind == "loop" and (length_of(r) or 0) >= threads]
    if first not in loops:
        return first
    outside = k.outputs[:2] == [c.row, c.lane] or contraction.image_inside(s, c)[0] is not None
    if not outside:  # a panel of lanes is brought in order in each turn of the loops around
        loops = [r for r in loops if r is first or r is not c.lane]

    def cycles(r: UOp) -> float:
        time = _cycles(s, k, c, r, lengths.chunks_of(most_of(r), threads))
        return time if r is first else time / thresholds.SHARED_GAIN

    return min(loops, key=cycles)


def _cycles(s: Scheduler, k: Nest, c: LanedSum, shared: UOp, cut: Chunks) -> float:
    """The cycles of the thread with the longest chunk of a shared loop."""

    def length(q: UOp) -> int:
        return cut.longest if q is shared else most_of(q)

    each, outer = (c, *c.adjacent), contraction.joined_with(k, c)
    others = _iterations_of_all([q for q in k.outputs if q not in (c.row, c.lane, outer)], length)
    joined = False
    if outer is None:
        tiles = {p: contraction.sum_tile(s, k, p, length(c.row), length(c.lane)) for p in each}
        sums = sum([trips(p.depth) * tile[2] for p, tile in tiles.items()])
    else:
        separate, both = contraction.cycles_separate_and_joined(s, k, c, outer, length)
        joined, sums = both < separate, min(separate, both)
    total = others * sums
    for p in each:
        vectors = contraction.sum_tile(s, k, p, length(c.row), length(c.lane))[1]
        width = vectors * s.target.lanes(p.b.dtype.bits)
        in_panels = is_far_constant(p.b, s.machine) and (shared is not p.lane or cut.suits(width))
        packed = contraction.is_packed(k, p, s.target) and not in_panels and not joined
        short = packed and length(p.lane) > width
        total += _read(s, k, p, p.a, length, not is_plain(p.a))
        total += _read(s, k, p, p.b, length, packed, short)
    return total


def _read(
    s: Scheduler, k: Nest, p: LanedSum, factor: UOp, length: Length, is_packed: bool,
    short: bool = False,
) -> float:  # fmt: skip
    """The cycles to load each element of a factor once, from the last cache, in `short` runs on a
    page each or as a stream, plus packing if the factor is packed. Windows share elements."""
    m = s.machine
    loops = [r for r in ranges.ranges(factor) if r.arg.kind in ("loop", "reduce")]
    full_size, count = 1, 1
    for d in packing.digits(factor, loops):
        full_size *= d.extent
        count *= d.extent - sum([f * (most_of(r) - length(r)) for r, f in d.factors.items()])
    size, total = factor.dtype.itemsize, 0.0
    if is_far_constant(factor, s.machine) or full_size * size > s.target.l2_bytes:
        line = m.caches[1].far + m.exposed * m.pages.far if short else m.caches[1].stream
        total = count * size / LINE * line
    if not is_packed:
        return total
    lanes = s.target.lanes(8 * size)
    order = walk.toposort(factor)
    is_contiguous = all([a.stride(p.lane) in (0, 1) for a in k.read if a.node in order])
    total += count * (m.fill / lanes if is_contiguous else m.gather)
    for u in filter(is_arithmetic, order):
        around = ranges.ranges(u)
        often = count if around <= ranges.ranges(factor) else _iterations_of_all(around, length)
        total += (
            expansion(u) * min(often, _iterations_of_all(around, length)) / (lanes * ISSUE_WIDTH)
        )
    return total


def _iterations_of_all(loops: Iterable[UOp], length: Length) -> int:
    return math.prod(map(length, loops))
