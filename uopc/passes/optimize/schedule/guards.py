"""Loops cut where their comparisons turn, so that guards fold away in the longest part."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from uopc.ir.core import bounds as bounds_
from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.optimize.opts.split_at_bound import find_turns
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, length_of, most_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


# ---------------------------------------------------------------- comparisons with constants
def cut_at_guards(s: Scheduler, output: UOp | None, kept: list[UOp]) -> None:
    """Cut loops where their comparisons with constants turn: reduces first, except those that fill
    a tile (`kept`), then the loop with the lanes, then inner before outer. Where the code would get
    too long, only the longest part is cut out."""
    k = s.facts
    loops = [r for r in reversed(k.axes) if r.arg.kind in ("loop", "reduce") and r not in kept]
    for r in sorted(loops, key=lambda r: (r in k.outputs, r is not output)):
        _follow_chunks(s, r, bounds_.bounds(r.src[0])[1])
        bounds = [0, *_guard_cuts(s.facts, r), bounds_.bounds(r.src[0])[0]]
        middle, begin, end = max((b - a, a, b) for a, b in itertools.pairwise(bounds))
        if len(bounds) == 2 or middle < thresholds.LEAST_MIDDLE:
            continue
        longest = sorted({0, begin, end, bounds[-1]})
        for places in (bounds, longest) if len(bounds) > 4 else (bounds,):
            if _stays_small(s, functools.partial(_cut_family, s, r, places[1:-1])):
                break


def _guard_cuts(k: KernelFacts, r: UOp) -> list[int]:
    """The iterations at which to cut a loop so that its comparisons with constants hold between.

    A comparison Σ < c holds for every value of its other terms on one side of a bound of r, so it
    folds there. If that side is the smaller one (a triangle), a cut gains nothing. A comparison
    Σ = c of r alone holds in one iteration.
    """
    length = bounds_.bounds(r.src[0])[0]  # at least
    cuts: set[int] = set()
    for u in k.comparisons:
        if u.op is Ops.CMPLE or r not in ranges.ranges(u):
            continue
        constant, terms = affine.form(affine.sub(*u.src))  # holds where this is negative
        step = terms.get(r, 0)
        rest = affine.build(constant, {m: f for m, f in terms.items() if m is not r})
        if not step or r in ranges.ranges(rest):
            continue
        if u.op is not Ops.CMPLT:
            if rest.op is Ops.CONST and -rest.arg % step == 0:
                cuts |= {at for at in (-rest.arg // step, -rest.arg // step + 1) if 0 < at < length}
            continue
        room = -bounds_.bounds(rest)[1]  # holds where step·r < room
        at = -(-room // step) if step > 0 else (-room) // -step + 1
        folds = at if step > 0 else length - at
        varies = bounds_.bounds(rest)[0] < bounds_.bounds(rest)[1]
        if 0 < at < length and (2 * folds >= length or not varies):
            cuts.add(at)
    return sorted(cuts)


def _cut_family(s: Scheduler, r: UOp, places: list[int]) -> bool:
    for q in s.family(r):
        _cut(s, q, places)
    return True


def _cut(s: Scheduler, r: UOp, places: list[int]) -> None:
    """Cut in the middle first: parts that are cut again are then short, which matters for a CAT of
    many parts."""
    middle = (len(places) - 1) // 2
    if not places or not s.attempt("PEEL", r, at := places[middle]):
        return
    first, rest = s.part(r, 0), s.part(r, 1)  # a part that adds nothing has no loop
    if rest is not None:
        _cut(s, rest, [p - at for p in places[middle + 1 :]])
    if first is not None:
        _cut(s, first, places[:middle])


# ---------------------------------------------------------------- comparisons with outer loops
def follow_bounds(s: Scheduler, r: UOp, lanes: int, copies: int) -> None:
    """Cut a loop where a comparison with the loops around it turns, as the columns of a triangle
    do: in blocks of `copies` vectors, if the code of the three parts stays short."""
    n = lanes * copies
    long = (length_of(r) or 0) >= thresholds.LEAST_BLOCKS * n
    if not long or not s.tiled.is_compared(r) or not find_turns(s.kernel, r):
        return
    if 3 * copies * s.facts.expanded_size(r) <= _most_code(s.facts):
        s.widen(r, "SPLIT_AT", n)


def _follow_chunks(s: Scheduler, r: UOp, whole: int) -> None:
    """Cut a loop over a thread's chunk where the bound that it is compared with lies in the chunk,
    except for parts that are short beside the `whole` chunk."""
    for q in s.family(r):
        if thresholds.CHUNK_PARTS * bounds_.bounds(q.src[0])[1] < whole:
            continue
        turns = find_turns(s.kernel, q)
        if not turns or any(m.arg.kind != "thread" for m in ranges.ranges(turns[0].first)):
            continue
        if _stays_small(s, functools.partial(s.attempt, "SPLIT_AT", q, 1)):
            _follow_chunks(s, q, whole)


# ---------------------------------------------------------------- the length of the code
def _stays_small(s: Scheduler, cut: Callable[[], bool]) -> bool:
    """Make a cut, and take it back if the code gets too long. Parts of a CAT, each in a loop of its
    own, are no longer than all of them in one."""
    k, before = s.facts, s.state
    most = max(_most_code(k), thresholds.CUT_GROWTH * k.expanded_size())
    if cut() and s.facts.expanded_size() <= most:
        return True
    s.state = before
    return False


def _most_code(k: KernelFacts) -> float:
    """The most nodes that the parts of a loop may have: each must run often enough."""
    nests = {tuple([r for r in ranges.ranges(u) if r.arg.kind != "unroll"]) for u in k.order}
    runs = max([math.prod([most_of(r) for r in nest]) for nest in nests], default=1)
    return min(thresholds.MOST_COPIES, runs / thresholds.RUNS_OF_A_NODE)
