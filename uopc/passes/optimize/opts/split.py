"""Split a loop r by n, with a kind and a rest: VECTOR, UPCAST, TILE, THREAD, SPLIT, PEEL, PADTO, ….

    for r < m: f(r)   →   for o < ⌈m / n⌉: for i < n: f(n·o + i)

The kind belongs to the range i inside of a piece: lanes, copies, threads of a block …. Only the
kinds thread and global belong to the range o over the pieces. The rest is a function in this file
that makes the Parts of the loop, whether or not n divides the loop's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from uopc.config import MOST_THREADS
from uopc.ir.builder import fold
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare, values
from uopc.ir.nest.loops import is_free
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.iterations import is_ordered
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts import legality, thread_legality
from uopc.passes.optimize.opts.breakpoints import breakpoints
from uopc.passes.optimize.opts.legality import Refused, check_amount
from uopc.passes.optimize.opts.lengths import chunk_size, chunks_of, clamped, quotient_up, smaller
from uopc.passes.optimize.opts.steps import unroll_steps
from uopc.passes.optimize.opts.substitution import Part, Tiled, split_in

Kind = AxisKind | None  # None: the kind of the loop
Rest = Callable[[UOp, UOp, int, Kind], Sequence[Part]]
_Piece = tuple[UOp, Mapping[UOp, UOp]]  # the length of a loop, and the values that are known in it

_in_copies = partial(legality.check_output, why="UPCAST is for output loops; use UNROLL")
_handed_out = partial(
    legality.check_output,
    why="only an output loop can be handed to blocks and threads; use GROUP",
)
_shared = (legality.check_free, thread_legality.check_shared_reduce)
# The conditions on a loop of which a range of a kind is made.
CONDITIONS: dict[Kind, tuple[Callable[[UOp, UOp], None], ...]] = {
    None: (legality.check_free,),
    "lane": (legality.check_no_lanes, legality.check_free, legality.check_unordered),
    "upcast": (_in_copies, legality.check_free, legality.check_unordered),
    "unroll": (legality.check_reduced, legality.check_free, legality.check_unordered),
    "thread": (legality.check_around_all,),
    "global": (_handed_out, thread_legality.check_block),
    "local": (legality.check_free, _handed_out, thread_legality.check_thread),
    "group": _shared,
    "grouptop": _shared,
}
# The most threads that share a reduce, by kind. Threads that are far apart read each other's values
# one by one.
MOST_SHARING = {"group": 1024, "grouptop": 32}


class Split(NamedTuple):
    """An Opt that splits a loop: a row of the table of Opts."""

    kind: Kind
    rest: Rest

    def apply(self, kernel: Tiled, r: UOp, n: int) -> Tiled:
        """Split a loop by n. Refused if the split is not legal."""
        if self.kind == "unroll" and _keeps_order(kernel, r):
            return Tiled(unroll_steps(kernel.kernel, r, n))
        is_noted = self.rest is exact
        if not is_noted or self._asks_range(kernel, r):
            kernel = Tiled(kernel.kernel)
        for check in CONDITIONS[self.kind]:
            check(kernel.base, kernel.loop(r))
        parts = self.rest(kernel.base, r, n, self.kind)
        return kernel.noting(r, *parts) if is_noted else Tiled(split_in(kernel.base, r, parts))

    def _asks_range(self, kernel: Tiled, r: UOp) -> bool:
        """True if a condition may hold for the whole loop and fail for a range that is a part of
        the loop: the range may move no store, or contain values that have lanes."""
        lanes = self.kind == "lane" and bool(kernel.parts) and kernel.has_lanes(r)
        return lanes or not kernel.moves(r)


def _keeps_order(kernel: Tiled, r: UOp) -> bool:
    """True if r is an output loop whose iterations must keep their order."""
    return not nest_of(kernel.base).reduces_over(kernel.loop(r)) and is_ordered(kernel.kernel, r)


def _over(r: UOp, count: UOp | int, kind: Kind = None) -> UOp:
    """The range over the pieces of a loop."""
    return make_range(count, (*r.arg.axis, 0), kind or r.arg.kind)


def _inside(r: UOp, size: UOp | int, kind: Kind = None) -> UOp:
    """The range inside of a piece of a loop."""
    return make_range(size, (*r.arg.axis, 1), kind or r.arg.kind)


# ---------------------------------------------------------------- Parts in the place of a loop
def exact(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """n·over + inside. For the kind unroll, n = 0 makes all iterations one piece."""
    if kind == "unroll" and n == 0:
        n = legality.known_length(r)
    check_amount(n, 2 if kind in (None, "lane") else 1)
    if not affine.is_multiple(r.src[0], n):
        raise Refused(f"{n} does not divide the range of {{}}", r.src[0])
    return [pieces(r, n, kind)]


def pieces(r: UOp, n: int, kind: Kind) -> Part:
    """Pieces of n iterations. If there is one piece, no range counts the pieces."""
    count = quotient_up(r.src[0], n)
    over, inside = _over(r, count), _inside(r, n, kind)
    if count.op is Ops.CONST and count.arg == 1:
        return Part(inside, (inside,))
    return Part(affine.add(affine.scaled(over, n), inside), (over, inside))


def overlapping(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """min(n·over, length - n) + inside. Some iterations run twice and store the same values, so one
    body is enough for every length of at least n."""
    length = r.src[0]
    if n < 2 or bounds.bounds(length)[0] < n or affine.is_multiple(length, n):
        raise Refused(
            f"the amount {n} must be at least 2, at most the range, and must not divide the range"
        )
    why = "a reduce would add terms twice: OVERLAP is for output loops"
    legality.check_output(kernel, r, why)
    legality.check_not_read(kernel, nest_of(kernel).stores)
    over, inside = _over(r, quotient_up(length, n)), _inside(r, n, kind)
    first = intern(Ops.MIN, dtypes.index, (affine.scaled(over, n), affine.plus(length, -n)))
    return [Part(affine.add(first, inside), (over, inside))]


def repeated(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """min(n·over + inside, length - 1). Copies beyond the end run the last iteration again, and
    store the same values."""
    length = r.src[0]
    if n < 2 or affine.is_multiple(length, n):
        raise Refused(f"the amount {n} must be at least 2 and must not divide the range")
    inner = [u for u in nest_of(kernel).stores if r in ranges.ranges(u)]
    legality.check_not_read(kernel, inner)
    place, loops, *_ = pieces(r, n, kind)
    return [Part(smaller(place, affine.plus(length, -1)), loops)]


def shorter(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """n·over + inside; the last piece has fewer iterations inside."""
    check_amount(n)
    legality.check_output(kernel, r, "BLOCK is for output loops")
    if bounds.bounds(r.src[0])[1] <= n:
        raise Refused(f"the range must be longer than a block of {n}")
    return _cut_off(r, _over(r, quotient_up(r.src[0], n)), affine.const(n))


def in_chunks(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """size·over + inside, in at most n pieces; pieces of a known length have one of two lengths.

    The last of three pieces has 4 - 2·(1 < over) iterations. Quotients of such a length are known
    too (`values.cases`): all pieces share the code of the main loop over full tiles, and each of
    the two lengths has code of its own for its remainder.
    """
    check_amount(n)
    if n > MOST_THREADS:
        raise Refused(f"at most {MOST_THREADS} threads share a loop")
    length = r.src[0]
    if length.op is not Ops.CONST or not length.arg:
        return _cut_off(r, _over(r, n, kind), chunk_size(length, n))
    cut = chunks_of(length.arg, n)
    over = _over(r, cut.count, kind)
    is_last = fold.cast(compare.less(affine.const(cut.count - 2), over), dtypes.index)
    size = affine.plus(affine.scaled(is_last, cut.last - cut.size), cut.size)
    inside = _inside(r, size)
    return [Part(affine.add(affine.scaled(over, cut.size), inside), (over, inside))]


def _cut_off(r: UOp, over: UOp, size: UOp) -> Sequence[Part]:
    """Pieces of a fixed size; pieces at the end are shorter, or empty."""
    first = affine.mul(over, size)
    left = affine.sub(r.src[0], first)  # below 0 in a piece that begins after the end
    inside = _inside(r, clamped(size, left))
    return [Part(affine.add(first, inside), (over, inside))]


def skipped(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """n·over + inside, in a loop that has no iterations if the place is beyond the length."""
    check_amount(n)
    length = r.src[0]
    if affine.is_multiple(length, n):
        return exact(kernel, r, n, kind)
    thread_legality.check_no_barrier(kernel, r)
    place, loops, *_ = pieces(r, n, kind)
    is_there = fold.cast(intern(Ops.CMPLT, dtypes.bool_, (place, length)), dtypes.index)
    guard = make_range(is_there, (*r.arg.axis, 2), "loop")
    return [Part(affine.add(place, guard), (*loops, guard))]


def strided(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """n·over + inside; each of n threads takes every n-th iteration."""
    most = MOST_SHARING[kind or ""]
    if n < 2 or n & (n - 1) or n > most:
        raise Refused(f"the amount {n} is not a power of two from 2 to {most}")
    inside = _inside(r, n, kind)
    left = affine.sub(affine.plus(r.src[0], n - 1), inside)
    over = _over(r, affine.floordiv(left, affine.const(n)), "reduce")
    return [Part(affine.add(affine.scaled(over, n), inside), (over, inside))]


def each_alone(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """The same range with another kind."""
    legality.check_no_amount(n)
    made = make_range(r.src[0], r.arg.axis, kind or r.arg.kind)
    return [Part(made, (made,))]


def padded(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """A longer loop. Beyond the old end nothing is accessed, and a reduce combines its identity.

    A free loop of at most n iterations is one piece of n, or none. Its guard compares the place in
    the piece, not in the loop: the guard of a place in the loop may fold by the end of a loop that
    runs, and a store that has lost its loop would happen where the loop is empty.
    """
    check_amount(n, 2)
    length = r.src[0]
    longer = affine.scaled(quotient_up(length, n), n)
    if longer is length:
        raise Refused(f"{n} divides the range: there is nothing to pad")
    legality.check_unordered(kernel, r)
    if is_free(r) and bounds.bounds(length)[1] <= n:
        place, loops, *_ = pieces(r, n, kind)
        return [Part(place, loops, guard=compare.less(loops[-1], length))]
    wide, known = _over(r, longer), values.length(length)  # where the loop runs
    guard = compare.less(wide, length if known is None else affine.const(known))
    return [Part(wide, (wide,), guard=guard)]


# ---------------------------------------------------------------- Parts one after another
def after(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """The iterations up to the last multiple of n, then the remaining iterations."""
    check_amount(n)
    length = r.src[0]
    whole = affine.scaled(affine.floordiv(length, affine.const(n)), n)
    rest = affine.sub(length, whole)
    if is_free(r):
        rest = affine.floormod(length, affine.const(n))  # less than n, by its bounds
    if bounds.bounds(rest)[1] == 0:
        raise Refused(f"{n} divides the range: there is no rest")
    if bounds.bounds(whole)[1] == 0:
        raise Refused(f"the range is shorter than {n}")
    return _in_sequence(r, (whole, {}), (rest, {}))


def first(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """The first n iterations, then the remaining iterations: none, maybe, of a free loop."""
    if not 0 < n < bounds.bounds(r.src[0])[0] + is_free(r):
        raise Refused(f"the amount {n} must be at least 1 and less than the range")
    return _in_sequence(r, (affine.const(n), {}), (affine.plus(r.src[0], -n), {}))


def at_bound(kernel: UOp, r: UOp, n: int, kind: Kind) -> Sequence[Part]:
    """The pieces before a comparison with the loops around changes, the pieces in which the
    comparison changes, and the pieces after. In the first and the last of the three loops the
    comparison is known."""
    check_amount(n)
    length = r.src[0]
    if not affine.is_multiple(length, n):
        raise Refused(f"the range is not known to be a multiple of {n}")
    found = breakpoints(kernel, r)
    if not found:
        raise Refused("the range is compared with no loop around the range")
    begin, end = found[0].first, found[0].end
    blocks, middle = affine.floordiv(length, affine.const(n)), -(-found[0].width // n) + (n > 1)
    least, most = bounds.bounds(blocks)
    if middle >= most:
        raise Refused(f"the comparison changes in all blocks of {n}")
    at = clamped(affine.floordiv(begin, affine.const(n)), affine.plus(blocks, -middle))
    between = affine.const(middle)
    if least < middle:
        between = smaller(between, affine.sub(blocks, at))
    start, size = affine.scaled(at, n), affine.scaled(between, n)
    rest = affine.sub(affine.sub(length, start), size)
    before = {b.comparison: b.value(True) for b in found if affine.at_most(begin, b.first)}
    behind = {b.comparison: b.value(False) for b in found if affine.at_most(b.end, end)}
    inner: list[_Piece] = [(size, {})] if middle else []
    return _in_sequence(r, (start, before), *inner, (rest, behind))


def _in_sequence(r: UOp, *pieces: _Piece) -> Sequence[Part]:
    """Loops of these lengths, one after another, each with the values that are known in it."""
    start, parts = affine.const(0), []
    for i, (length, known) in zip((0, 1, 3), pieces):  # 2 is the suffix of a renamed copy
        loop = make_range(length, (*r.arg.axis, i), r.arg.kind)
        parts.append(Part(affine.add(start, loop), (loop,), known))
        start = affine.add(start, length)
    return parts
