"""Vector lanes: the output and reduce loops that get them, and the Opts that give them."""

from __future__ import annotations

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, values
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.loops import is_free, length_of, longest_of
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.contraction import terms_of_a_word
from uopc.passes.analysis.lanes import covering, fitting, has_few_values
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.schedule import interleave
from uopc.passes.optimize.schedule.guards import follow_bounds
from uopc.passes.optimize.schedule.lane_costs import has_free_order, is_dear, lane_cost
from uopc.passes.optimize.schedule.scheduler import Scheduler
from uopc.passes.optimize.schedule.short_rows import fills_rows

_BYTES_OF_A_WORD = 4


# ---------------------------------------------------------------- the choice of loops
def output_lanes(s: Scheduler, among: list[UOp], lanes: int) -> UOp | None:
    """The output loop whose lanes touch memory best; None if all would scatter cheap results."""
    k = s.nest
    ranked = []
    for r in among:
        width = fitting(lanes, length_of(r))
        accesses = k.inside(r)
        if r.arg.kind == "loop" and length_of(r) != 1 and width >= 2 and accesses:
            strided = [a for a in accesses if not _follows(k, a, r)]
            cost = len(accesses) - len(strided) + lane_cost(strided, r, width)
            ranked.append((cost / width, -k.axes.index(r), r))
    if not ranked:
        return None
    cost, _, r = min(ranked, key=lambda rank: rank[:2])
    scalar = sum([1 + a.written for a in k.inside(r)])
    return r if cost < scalar or is_dear(k, r) or fills_rows(k, r) else None


def _follows(k: Nest, a: Access, r: UOp) -> bool:
    """True if a constant can be stored in lane order because another array that is read with it
    already is: depthwise weights, for example, if channels are neighbours."""
    if not has_free_order(a.node.src[0]) or a.stride(r) in (None, 0, 1):
        return False
    around = a.loops
    return any([b.stride(r) == 1 and around <= b.loops for b in k.read if b is not a])


def constants_in_lanes(s: Scheduler, r: UOp | None, lanes: int) -> None:
    """PREPACK the constants that `_follows` accepts for the lanes of a loop."""
    k = s.nest
    if r is not None and any([_follows(k, a, r) for a in k.read]):
        s.attempt("PREPACK", r, fitting(lanes, length_of(r)))


def reduce_lanes(k: Nest, lanes: int, output: UOp | None) -> list[UOp]:
    """The reduce loops that get lanes of their own: those whose values do not use the lanes of
    `output`, and those that read neighbours where `output` would gather."""
    chosen: list[UOp] = []
    for u in k.reduces:
        loops = sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis)
        loops = [r for r in loops if r.arg.kind == "reduce" and (length_of(r) or lanes) >= lanes]
        if not loops:
            continue
        inner = min(loops, key=lambda r: (lane_cost(k.inside(r), r, lanes), -k.axes.index(r)))
        body = k.inside(inner)
        if any(q in chosen for a in body for q in a.loops):
            continue
        own = lane_cost(body, inner, lanes)
        shared = output is not None and output in ranges.ranges(u.src[0])
        if shared and output is not None and lane_cost(body, output, lanes) <= own:
            continue
        if own < lanes * len(body) or not body:
            chosen.append(inner)
    return chosen


# ---------------------------------------------------------------- the lanes of a loop
def vectorise_output(s: Scheduler, r: UOp, lanes: int, vectors: int) -> None:
    """Put lanes on an output loop, in several vectors; in a long body the rest overlaps them."""
    width = fitting(lanes, length_of(r))
    ragged = longest_of(r) is not None and not affine.is_multiple(r.src[0], max(width, 1))
    if ragged and s.nest.expanded_size() >= thresholds.OVERLAPPING_BODY:
        r = _rest_of_functions(s, r, width) if vectors == 1 else r
        if s.attempt("OVERLAP", r, width):
            return
    outer = s.vectorise(r, min(width, longest_of(r) or width))
    if outer is not None and vectors > 1 and outer.arg.kind == "loop":
        s.widen(outer, "UPCAST", fitting(vectors, length_of(outer)))


def _rest_of_functions(s: Scheduler, r: UOp, lanes: int) -> UOp:
    """Put lanes on the part of a loop in which functions of several vectors are interleaved; return
    the remaining loop, or all of the loop if none are. With one iteration left, its index is a
    constant and folding rounds differently from MULACC: do not interleave there."""
    n = interleave.vectors(s, r, lanes)
    if (length_of(r) or 0) % (n * lanes) == 1:
        return r
    interleaved, rest = s.split(r, n * lanes) if n > 1 else (r, None)
    if rest is None:
        return r
    s.vectorise(interleaved, lanes)
    return rest


def column_lanes(s: Scheduler, lane: UOp, lanes: int, vectors: int) -> list[UOp]:
    """Put lanes, and copies of vectors, on a column loop; return the ranges of the lanes. Columns
    that do not fill the copies get a loop of their own, whose last vector may be masked."""
    length, wide = longest_of(lane), lanes * vectors
    full, parts = None, [lane]
    if length is None or (length > wide and not affine.is_multiple(lane.src[0], wide)):
        full, rest = s.split(lane, wide)
        if full is lane:
            return []
        parts = [q for q in (full, rest) if q is not None]
    made = []
    for part in [q for p in parts for q in ([p] if p is full else _loops_of_chunks(s, p, lanes))]:
        is_full = part is full
        length = longest_of(part)
        width = lanes if length is None else covering(lanes, length, 2)
        # A free rest is one tile, masked: its sums are as many as those of the tiles before.
        whole = wide if is_free(part) and not is_full else width
        longer = s.padded(part, whole)
        if longer is not None:
            part, length = longer, longest_of(longer)
        if s.attempt("VECTOR", part, width):
            copies = vectors if is_full or whole > width else min(vectors, (length or 1) // width)
            if copies > 1:
                s.attempt("UPCAST", s.part(part, 0), copies)
            made.append(s.part(part, 1))
    return [p for p in made if p is not None]


def _loops_of_chunks(s: Scheduler, r: UOp, lanes: int) -> list[UOp]:
    """The loops over the columns of a thread's chunk that fill no copies. If chunks have two
    lengths that take different numbers of vectors, each length gets its own loop."""
    found = values.cases(r.src[0])
    vectors = {-(-n // lanes) for n in found} if found else set()
    return s.cases(r) if len(vectors) > 1 else [r]


def vectorise_nests(s: Scheduler, lanes: int) -> None:
    """Put lanes in each nest that has none: a nest that was cut off has loops of its own."""
    for u in s.nest.order:
        if u.op is Ops.END and not any(r.arg.kind == "lane" for r in ranges.ranges(u.src[0])):
            r = output_lanes(s, list(u.src[1:]), lanes)
            if r is not None:
                vectorise_output(s, r, lanes, 1)


def narrow_lanes(s: Scheduler, k: Nest, r: UOp, lanes: int) -> int:
    """The lanes of a reduce. For products of narrow integers that are summed in words, as many
    lanes as narrow integers fit a vector."""
    sums = [u for u in k.reduces if r in u.src[1:]]
    if len(sums) != 1 or sums[0].arg.op != "add":
        return lanes
    wide = s.target.lanes(32) * terms_of_a_word(sums[0].src[0], s.context)
    is_contiguous = all([a.stride(r) in (0, 1) for a in k.inside(r)])
    return wide if is_contiguous and wide > lanes and (length_of(r) or wide) >= wide else lanes


def vectorise_reduce(s: Scheduler, r: UOp, lanes: int, accumulators: int) -> None:
    """Put lanes on a reduce loop, or on its parts between guards, each with several vectors of
    accumulators. The rest of each gets single vectors, the last one narrower."""
    for q in s.family(r):
        follow_bounds(s, q, lanes, accumulators)
    wide = lanes * accumulators
    for q in s.family(r):
        several = accumulators > 1 and (length_of(q) or wide) >= wide
        is_full = several and affine.is_multiple(q.src[0], wide)
        first, rest = s.split(q, wide) if several and not is_full else (q, None)
        outer = s.vectorise(first, lanes)
        if is_full or first is not q:
            s.widen(outer, "UNROLL", accumulators)
        if rest is not None:
            s.vectorise(rest, min(lanes, length_of(rest) or lanes))


def vectorise_words(s: Scheduler, r: UOp, row: UOp, lanes: int) -> bool:
    """Put lanes on a reduce over codes in bytes, four to a word, so that lookups read words without
    widening. Pack the other factor, which the iterations of `row` share, in the same order. Return
    False, with nothing applied, for any other reduce."""
    k, least = s.nest, thresholds.LEAST_ROWS_OF_WORDS
    copies = thresholds.DOT_ROWS * _BYTES_OF_A_WORD * k.expanded_size(r)
    if lanes != s.target.lookup_lanes or copies > thresholds.MOST_COPIES:
        return False
    length = length_of(r) or 1
    if length % (lanes * _BYTES_OF_A_WORD) or (length_of(row) or least) < least:
        return False
    before = s.state
    unrolled = _is_over_codes(k, r, row, lanes) and s.attempt("UNROLL", r, _BYTES_OF_A_WORD)
    if unrolled and s.attempt("VECTOR", s.part(r, 0), lanes):
        factors = [value for value, _ in packing.operands(s.kernel)]
        shared = [n for n, value in enumerate(factors) if row not in ranges.ranges(value)]
        fill = s.added("PACK", row, shared[0]) if shared else []
        if fill:
            s.vectorise(fill[-1], lanes)
            return True
    s.state = before
    return False


def _is_over_codes(k: Nest, r: UOp, row: UOp, lanes: int) -> bool:
    """True if a sum reads, along r, only bytes that hold codes, the tables that the codes index,
    and a factor that the iterations of `row` share."""
    own = [a for a in k.inside(r) if row in a.loops]
    in_bytes = [a for a in own if a.node.dtype in (dtypes.uint8, dtypes.int8) and a.stride(r) == 1]
    chosen = [a for a in own if a not in in_bytes]
    codes = [u for u in k.order if r in ranges.ranges(u) and has_few_values(u, lanes)]
    sums = [u.dtype for u in k.reduces if r in u.src[1:]]
    alike = all([a.stride(r) is None for a in chosen])
    return bool(in_bytes and codes) and alike and sums == [dtypes.float32]


def vectorise_producers(s: Scheduler) -> None:
    """Put lanes on the reduces that compute a contraction's operand."""
    k = s.nest
    lanes = s.target.lanes(k.element_bits)
    for r in reduce_lanes(k, lanes, None):
        inside = [q for u in k.order if r in ranges.ranges(u) for q in ranges.ranges(u)]
        if not any(q.arg.kind == "lane" for q in inside):
            stored = any(u.op is Ops.END and r in u.src[1:] for u in k.order)
            vectorise_reduce(s, r, lanes, 1 if stored else s.machine.accumulators)
