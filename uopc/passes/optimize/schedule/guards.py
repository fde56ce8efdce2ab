"""Loops split at the bounds of their comparisons, so that guards fold away in the longest part."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence

from uopc.ir.core import bounds, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed
from uopc.ir.index.dims import typical
from uopc.ir.nest.loops import is_free, length_of, likely_of, most_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.opts.breakpoints import breakpoints
from uopc.passes.optimize.schedule.scheduler import Scheduler


# ---------------------------------------------------------------- comparisons with constants
def cut_at_guards(s: Scheduler, output: UOp | None, whole: list[UOp]) -> None:
    """Cut loops at the bounds of their comparisons with constants: reduces first (except those in
    `whole`), then the loop with the lanes, then inner loops before outer. If the code would get too
    long, cut out only the longest part."""
    k = s.nest
    least_middle = s.target.lanes(k.element_bits)  # a vector
    loops = [r for r in reversed(k.axes) if r.arg.kind in ("loop", "reduce") and r not in whole]
    for r in sorted(loops, key=lambda r: (r in k.outputs, r is not output)):
        if is_free(r) and not ranges.ranges(r.src[0]):
            if r is not output or not _has_cheap_masks(s, r, least_middle):
                cut_at_sizes(s, r)
            continue
        least, most = bounds.bounds(r.src[0])
        _cut_chunks(s, r, most)
        places = [0, *_guard_cuts(s.nest, r), least]
        middle, begin, end = max((b - a, a, b) for a, b in itertools.pairwise(places))
        if len(places) == 2 or middle < least_middle:
            continue
        longest = sorted({0, begin, end, least})
        for cuts in (places, longest) if len(places) > 4 else (places,):
            if _stays_small(s, functools.partial(_cut, s, s.family(r), cuts[1:-1])):
                break


def specialise(s: Scheduler, loops: Iterable[UOp]) -> bool:
    """Cut loops at the bounds of their comparisons with constants if that saves at least
    `SPECIALISED` operations per iteration. Return True if a loop was cut."""
    before = len(s.opts)
    for r in loops:
        least, most = bounds.bounds(r.src[0])  # a thread's share is longer than others' by one
        places = _guard_cuts(s.nest, r, mixed=True) if most <= least + 1 else []
        ends = [0, *places, least]
        _, begin, end = max((b - a, a, b) for a, b in itertools.pairwise(ends))
        longest = [at for at in (begin, end) if 0 < at < least]
        for cuts in (places, longest) if len(places) > len(longest) else (places,):
            if cuts and _gains(s, r, cuts):
                break
    return len(s.opts) > before


def _gains(s: Scheduler, r: UOp, places: list[int]) -> bool:
    """Cut a loop at these iterations; undo the cut and return False if it saves little."""
    state, whole = s.state, s.nest.expanded_size(r)
    most = _most_code(s.nest)
    _cut(s, s.family(r), places)
    after = sum([most_of(q) / most_of(r) * s.nest.expanded_size(q) for q in s.family(r)])
    # Each nest of reduces does again what is around them.
    nests = len(places) + 1 if s.nest.reduces and r.arg.kind == "loop" else 1
    if whole - after >= nests * thresholds.SPECIALISED and s.nest.expanded_size() <= most:
        return True
    s.state = state
    return False


def _guard_cuts(k: Nest, r: UOp, mixed: bool = False) -> list[int]:
    """The iterations at which to cut a loop so that its comparisons with constants hold between.

    A comparison of a sum with r folds wherever it has the same result for all values of the other
    terms: on both sides of its `mixed` iterations. If most iterations are mixed (a triangle), a cut
    gains nothing, unless the mixed iterations may be a part of their own.
    """
    least = bounds.bounds(r.src[0])[0]
    length, last = (likely_of(r), least) if is_free(r) else (least, least - 1)
    cuts: set[int] = set()
    for u in k.comparisons:
        if u.op is Ops.CMPLE or r not in ranges.ranges(u):
            continue
        found = _mixed_part(u, r)
        if found is None:
            continue
        begin, end = [min(max(at, 0), length) for at in found]
        if mixed or 2 * (end - begin) <= length:
            cuts |= {at for at in (begin, end) if 0 < at <= last}
    return sorted(cuts)


def _mixed_part(u: UOp, r: UOp) -> tuple[int, int] | None:
    """The iterations, first and end, in which a comparison with a constant depends on other terms
    than r. None if r is not a term, or if there are no such iterations."""
    constant, terms = affine.form(affine.sub(*u.src))
    step = terms.get(r, 0)
    rest = affine.build(constant, {m: f for m, f in terms.items() if m is not r})
    if not step or r in ranges.ranges(rest):
        return None
    low, high = bounds.bounds(rest)
    if u.op is not Ops.CMPLT:  # step·r = -rest only here
        n, least, most = abs(step), *((-high, -low) if step > 0 else (low, high))
        begin, end = -(-least // n), most // n + 1
        return (begin, end) if begin < end else None
    # step·r < -rest for all where step·r < -high, and for none where step·r >= -low.
    if step > 0:
        return -(high // step), -(low // step)
    return low // -step + 1, high // -step + 1


def _cut(s: Scheduler, loops: Sequence[UOp | None], places: list[int]) -> bool:
    """Cut at the middle place first: parts of a long CAT are then short when cut again."""
    middle = (len(places) - 1) // 2
    for r in loops if places else ():
        if s.attempt("PEEL", r, at := places[middle]):
            first, rest = s.part(r, 0), s.part(r, 1)  # a part that adds nothing has no loop
            _cut(s, [rest], [p - at for p in places[middle + 1 :]])
            _cut(s, [first], places[:middle])
    return True


# ---------------------------------------------------------------- comparisons with outer loops
def follow_bounds(s: Scheduler, r: UOp, lanes: int, copies: int) -> None:
    """Cut a loop where a comparison with the loops around changes: once for a triangle, twice for a
    band. Cut at blocks of `copies` vectors, and only if the code stays short."""
    n = lanes * copies
    long = (length_of(r) or 0) > n

    def cut(q: UOp) -> bool:
        if 3 * copies * s.nest.expanded_size(q) > _most_code(s.nest):
            return False
        return s.attempt("SPLIT_AT", q, n) or (n > 1 and s.widen(q, "SPLIT_AT", n) is not None)

    if long and s.tiled.is_compared(r):
        _cut_at_breakpoints(s, r, cut)


def cut_loop(s: Scheduler, r: UOp) -> None:
    """Cut a loop, or its copies, at the iterations where a guard begins and ceases to hold."""

    def cut(q: UOp) -> bool:
        return _stays_small(s, functools.partial(s.attempt, "SPLIT_AT", q, 1))

    for q in s.family(r):
        if not _cut_at_breakpoints(s, q, cut):
            _stays_small(s, functools.partial(_cut, s, [q], _guard_cuts(s.nest, q)))


def _cut_at_breakpoints(s: Scheduler, r: UOp, cut: Callable[[UOp], bool]) -> bool:
    """Cut a loop at the breakpoint of a comparison, then cut its parts at other breakpoints."""
    if not breakpoints(s.kernel, r) or not cut(r):
        return False
    for q in s.family(r):
        if breakpoints(s.kernel, q):
            cut(q)
    return True


def cut_at_sizes(s: Scheduler, r: UOp) -> None:
    """Cut a free loop at the bounds of its comparisons with constants, then where comparisons with
    sizes change, as long as the parts have fewer of these."""
    begins = _guard_cuts(s.nest, r)
    if begins and not _stays_small(s, functools.partial(_cut, s, [r], begins)):
        return
    for q in s.family(r):
        _cut_at_changes(s, q, len(breakpoints(s.kernel, q)))


def _has_cheap_masks(s: Scheduler, r: UOp, lanes: int) -> bool:
    """True if the lanes of a free loop had better be masked than cut at its comparisons: they
    access neighbours, and comparisons change near an end, where the part cut off has no vector."""
    k = s.nest
    if not any([r in ranges.ranges(u) for u in k.comparisons]):
        return True
    if any([a.stride(r) not in (0, 1) for a in k.inside(r)]):
        return False
    length = likely_of(r)
    places = [typical(b.first) for b in breakpoints(s.kernel, r) if closed.is_closed(b.first)]
    return not any([lanes <= at <= length - lanes for at in places])


def _cut_at_changes(s: Scheduler, r: UOp, changes: int) -> None:
    if changes and _stays_small(s, functools.partial(s.attempt, "SPLIT_AT", r, 1)):
        for q in s.family(r):
            left = len(breakpoints(s.kernel, q))
            if left < changes:
                _cut_at_changes(s, q, left)


def _cut_chunks(s: Scheduler, r: UOp, whole: int) -> None:
    """Cut a thread's loop where a bound falls inside of its chunk, unless a part gets too short."""
    for q in s.family(r):
        long = thresholds.CHUNK_PARTS * bounds.bounds(q.src[0])[1] >= whole
        found = breakpoints(s.kernel, q)[:1] if long else []
        if any(m.arg.kind != "thread" for b in found for m in ranges.ranges(b.first)):
            continue
        if found and _stays_small(s, functools.partial(s.attempt, "SPLIT_AT", q, 1)):
            _cut_chunks(s, q, whole)


# ---------------------------------------------------------------- the length of the code
def _stays_small(s: Scheduler, cut: Callable[[], bool]) -> bool:
    """Make a cut; undo it and return False if the code gets too long. The parts of a CAT in
    separate loops are no longer than together in one loop."""
    k, before = s.nest, s.state
    most = max(_most_code(k), thresholds.CUT_GROWTH * k.expanded_size())
    if cut() and s.nest.expanded_size() <= most:
        return True
    s.state = before
    return False


def _most_code(k: Nest) -> float:
    """The most nodes that the parts of a loop may have, so that each part runs often enough."""
    nests = {tuple([r for r in ranges.ranges(u) if r.arg.kind != "unroll"]) for u in k.order}
    runs = max(map(trips, nests), default=1)
    return min(thresholds.MOST_COPIES, runs / thresholds.RUNS_OF_A_NODE)
