"""Transformations of one range of a kernel: tile it, cut it in two, hand it to threads.

Each gives a kernel that computes the same numbers (reduces in another order), or raises `Refused`
with the reason. `optimize.py` names them as Opts; nothing else changes a kernel's ranges.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from uopc.errors import Error
from uopc.ir.builder import alu as build
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes, semantics
from uopc.ir.core.args import AxisKind, RangeArg
from uopc.ir.core.node import intern, kept
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

# Suffixes of a range's axis: parts of a tile or cut, and a renamed copy.
_FIRST, _SECOND, _COPY, _THIRD = 0, 1, 2, 3
# Chunks of threads start at multiples of this many iterations, so that vectors stay whole; of fewer
# where a chunk could then be greater than another by more than a share of this many.
CHUNK_MULTIPLE, MOST_UNEVEN = 64, 32
_COMPARISONS = frozenset((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE))


class Refused(Error):
    """A transformation that is not legal here, and why.

    Expressions are written out where the message is read: to a heuristic a refusal is an answer.
    """

    def __init__(self, why: str, *expressions: UOp) -> None:
        super().__init__(why, *expressions)
        self.why, self.expressions = why, expressions

    def __str__(self) -> str:
        texts = [e.render(simplify=False) for e in self.expressions]
        return self.why.format(*texts) if texts else self.why


def make_range(end: UOp, axis: tuple[int, ...], kind: AxisKind) -> UOp:
    return intern(Ops.RANGE, dtypes.index, (end,), RangeArg(axis, kind))


class Parts(NamedTuple):
    """What the legality of a transformation is read from, found in one walk."""

    stores: list[UOp]
    reduces: list[UOp]
    ends: list[UOp]
    ranges: list[UOp]
    comparisons: list[UOp]  # of indices
    nests: set[frozenset[UOp]]  # the loops that nodes are inside of


@kept
def parts(kernel: UOp) -> Parts:
    """The parts of a kernel."""
    found = Parts([], [], [], [], [], set())
    lists = {
        Ops.STORE: found.stores, Ops.REDUCE: found.reduces, Ops.END: found.ends,
        Ops.RANGE: found.ranges,
    }  # fmt: skip
    enter = found.nests.add
    for u in analysis.order(kernel):
        op = u.op
        if op in lists:
            lists[op].append(u)
        elif op in _COMPARISONS and u.src[0].dtype.scalar is dtypes.index:
            found.comparisons.append(u)
        enter(u._ranges or analysis.ranges(u))
    return found


@kept
def kernel_axes(kernel: UOp) -> list[UOp]:
    """The ranges an Opt can name, by position: output loops first, then reduce loops, by axis."""
    p = parts(kernel)
    found = {r: None for u in (*p.reduces, *p.ends) for r in analysis.closed_ranges(u)}
    return sorted(found, key=by_axis)


def by_axis(r: UOp) -> tuple[bool, tuple[int, ...]]:
    """What ranges are sorted by: output loops first, then reduce loops, by axis."""
    return r.arg.kind in ("reduce", "unroll", "group", "grouptop"), r.arg.axis


def closers(kernel: UOp, r: UOp) -> list[UOp]:
    """The REDUCEs and ENDs that close the range."""
    p = parts(kernel)
    return [u for u in (*p.reduces, *p.ends) if r in u.src[1:]]


def is_reduce(kernel: UOp, r: UOp) -> bool:
    """Whether REDUCEs close the range."""
    return any(r in u.src[1:] for u in parts(kernel).reduces)


def replaced(kernel: UOp, r: UOp, value: UOp, ranges: tuple[UOp, ...]) -> UOp:
    """The kernel with `value` for the range, and `ranges` closed where it was."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u is r:
            return value
        kept = [s for s, old in zip(src, u.src) if old is not r]
        return intern(u.op, u.dtype, (*kept, *ranges), u.arg, u.tag)

    return remake.rewritten(kernel, change, only={r, *closers(kernel, r)})


def check_free(kernel: UOp, r: UOp) -> None:
    """Refused where the length of another loop depends on the range."""
    for u in parts(kernel).ranges:
        if u is not r and r in analysis.ranges(u):
            raise Refused("the length of another loop depends on this range")


def check_unordered(kernel: UOp, r: UOp) -> None:
    """Refused where the iterations of the range must stay in their order."""
    if any([is_overwritten(u, r) for u in parts(kernel).stores]):
        raise Refused("its iterations write to one place, in their order")


def tiles_of(r: UOp, n: int, inner_kind: AxisKind) -> tuple[UOp, tuple[UOp, ...]]:
    """outer·n + inner, and these: the inner one of the given kind, all of it where n iterations are
    all there are."""
    outer_end, rest = affine.divmod_(r.src[0], affine.const(n))
    if not (rest.op is Ops.CONST and rest.arg == 0):
        raise Refused(f"{n} does not divide the range of {{}}", r.src[0])
    axis, kind = r.arg.axis, r.arg.kind
    inner = make_range(affine.const(n), (*axis, _SECOND), inner_kind)
    if outer_end.op is Ops.CONST and outer_end.arg == 1:
        return inner, (inner,)
    outer = make_range(outer_end, (*axis, _FIRST), kind)
    return affine.add(affine.mul(outer, affine.const(n)), inner), (outer, inner)


def overlap(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  min(outer·n, length - n) + lane: the last vector begins n before the end.

    Some elements are computed and written twice, the same both times: so one body is enough for
    every length from n on.
    """
    length = r.src[0]
    if length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the range is not known to have {n} iterations")
    if n < 2 or length.arg % n == 0:
        raise Refused(f"{n} is too small, or divides the range: no vector overlaps another")
    if r.arg.kind != "loop" or is_reduce(kernel, r):
        raise Refused("what a reduce would add twice: only output loops overlap themselves")
    check_free(kernel, r)
    check_unordered(kernel, r)
    order = analysis.order(kernel)
    written = {storage_root(u.src[0]) for u in order if u.op is Ops.STORE}
    read = {s for u in order for s in (u.src[1:] if u.op is Ops.STORE else u.src)}
    if any(u.op is Ops.INDEX and storage_root(u) in written for u in read):
        raise Refused("the kernel reads what it writes")
    axis = r.arg.axis
    outer = make_range(affine.const(-(-length.arg // n)), (*axis, _FIRST), "loop")
    lane = make_range(affine.const(n), (*axis, _SECOND), "lane")
    first = affine.scaled(outer, n)
    first = intern(Ops.MIN, dtypes.index, (first, affine.const(length.arg - n)))
    return replaced(kernel, r, affine.add(first, lane), (outer, lane))


def is_overwritten(u: UOp, r: UOp) -> bool:
    """Whether every iteration of r stores to the place of the one before: the accumulator of a
    kernel written by hand, say. Copies of the body side by side would mix their values."""
    if u.op is not Ops.STORE or r not in analysis.ranges(u):
        return False
    place = u.src[0]
    while place.op is Ops.AFTER:
        place = place.src[0]
    return not any(r in analysis.ranges(i) for i in place.src[1:])


def thread(kernel: UOp, r: UOp, chunks: int) -> UOp:
    """r  →  chunk·size + i with i < min(size, n - chunk·size); the chunk is the caller's."""
    if r.arg.kind != "loop" or analysis.ranges(r.src[0]):
        raise Refused("only an output loop can be shared among threads")
    if chunks < 1:
        raise Refused(f"the amount {chunks} is too small")
    if any(q.arg.kind == "thread" for q in kernel_axes(kernel)):
        raise Refused("the kernel is shared among threads already")
    others = [u for u in kernel.src if u.op is not Ops.END or r not in u.src[1:]]
    if others:
        raise Refused("the range is not around the whole kernel")
    most = analysis.bounds(r.src[0])[1]
    multiple = CHUNK_MULTIPLE
    while multiple > 1 and multiple * chunks * MOST_UNEVEN > most:
        multiple //= 2
    size = _quotient(_quotient(r.src[0], chunks), multiple)
    return _in_chunks(kernel, r, affine.const(chunks), affine.scaled(size, multiple), "thread")


def _quotient(value: UOp, n: int) -> UOp:
    """⌈value / n⌉"""
    return affine.floordiv(affine.plus(value, n - 1), affine.const(n))


def _in_chunks(kernel: UOp, r: UOp, count: UOp, size: UOp, kind: AxisKind) -> UOp:
    """r  →  chunk·size + i: `count` chunks of the given kind, what is left over in the last."""
    end, axis = r.src[0], r.arg.axis
    chunk = make_range(count, (*axis, _FIRST), kind)
    first = affine.mul(chunk, size)
    left = affine.sub(end, first)
    length = size if affine.at_most(size, left) else intern(Ops.MIN, dtypes.index, (size, left))
    if analysis.bounds(left)[0] < 0:  # a chunk that begins behind the end is empty
        length = intern(Ops.MAX, dtypes.index, (length, affine.const(0)))
    inner = make_range(length, (*axis, _SECOND), "loop")
    return replaced(kernel, r, affine.add(first, inner), (chunk, inner))


def block(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + i with i < n, or what is left over in the last block."""
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    if r.arg.kind != "loop" or is_reduce(kernel, r):
        raise Refused("BLOCK is for output loops")
    if analysis.bounds(r.src[0])[1] <= n:
        raise Refused("the range is one block")
    check_free(kernel, r)
    return _in_chunks(kernel, r, _quotient(r.src[0], n), affine.const(n), "loop")


def pad_to(kernel: UOp, r: UOp, n: int) -> UOp:
    """for r < m: f(r)  →  for r < ⌈m / n⌉·n: f(r), with every access under the guard r < m; what a
    reduce adds beyond m is 0, or what its operation has in place of it."""
    length = r.src[0]
    if n < 2:
        raise Refused(f"the amount {n} is too small")
    blocks = affine.floordiv(affine.plus(length, n - 1), affine.const(n))
    padded = affine.scaled(blocks, n)
    if padded is length:
        raise Refused(f"{n} divides the range: there is nothing to pad")
    check_free(kernel, r)
    check_unordered(kernel, r)
    wide = make_range(padded, (*r.arg.axis, _FIRST), r.arg.kind)
    guard = affine.less(wide, length)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is r:
            return wide
        if u.op is Ops.REDUCE and r in u.src[1:]:
            return intern(Ops.REDUCE, u.dtype, (_inside(u, src[0], wide, guard), *src[1:]), u.arg)
        if u.op is not Ops.INDEX or r not in analysis.ranges(u):
            return None
        flat, own = indexing.ungated(src[1])
        both = guard if own is None else indexing.both(own, guard)
        return intern(Ops.INDEX, u.dtype, (src[0], *indexing.gated((flat,), both)))

    return remake.rewritten(kernel, change)


def _inside(reduce: UOp, body: UOp, r: UOp, guard: UOp) -> UOp:
    """What a reduce combines, where the guard holds; beyond, what changes nothing. In a sum of
    products that is 0 for both factors, so that it is one still."""
    if reduce.arg.op == "add" and body.op is Ops.MUL:
        return intern(Ops.MUL, body.dtype, tuple([_or_zero(f, r, guard) for f in body.src]))
    other = build.const(body.dtype, semantics.reduce_identity(reduce.arg.op, reduce.dtype))
    return build.where(guard, body, other)


def _or_zero(value: UOp, r: UOp, guard: UOp) -> UOp:
    """A value, 0 where the guard does not hold: an access in the loop is that already."""
    if value.op is Ops.INDEX and r in analysis.ranges(value):
        return value
    if value.op is Ops.CAST:
        return intern(Ops.CAST, value.dtype, (_or_zero(value.src[0], r, guard),))
    return build.where(guard, value, build.const(value.dtype, 0))


def split(kernel: UOp, r: UOp, n: int) -> UOp:
    """Cut r at the last multiple of n: a first loop that n divides, and the rest."""
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    whole = affine.mul(affine.floordiv(r.src[0], affine.const(n)), affine.const(n))
    rest = affine.sub(r.src[0], whole)
    if analysis.bounds(rest)[1] == 0:
        raise Refused(f"{n} divides the range: there is no rest")
    if analysis.bounds(whole)[1] == 0:
        raise Refused(f"the range is shorter than {n}")
    return cut(kernel, r, whole)


def cut(kernel: UOp, r: UOp, at: UOp) -> UOp:
    """for r < n: f(r)  →  for r < at: f(r); for r < n - at: f(at + r). Needs 0 ≤ at ≤ n."""
    return in_pieces(kernel, r, [Piece(at), Piece(affine.sub(r.src[0], at))])


@dataclass(frozen=True)
class Piece:
    """Some iterations of a loop, and what is known in them of values that depend on it."""

    length: UOp
    known: dict[UOp, UOp] = field(default_factory=dict)


def in_pieces(kernel: UOp, r: UOp, pieces: list[Piece]) -> UOp:
    """The loop r as loops one after the other, whose lengths add up to its own."""
    check_free(kernel, r)
    axis, kind = r.arg.axis, r.arg.kind
    numbers = (_FIRST, _SECOND, _THIRD)
    loops = [make_range(p.length, (*axis, i), kind) for i, p in zip(numbers, pieces)]
    start, values = affine.const(0), []
    for p, loop in zip(pieces, loops):
        values.append(affine.add(start, loop))
        start = affine.add(start, p.length)
    number = len(kernel_axes(kernel))  # grows with every cut: it tells the copies apart

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        body, closed = src[0], list(src[1:])
        inner = [q for q in closed if q is not r and (u.op is Ops.REDUCE or _is_inner(q, axis))]
        made = []
        for i, (piece, loop, value) in enumerate(zip(pieces, loops, values)):
            names = _copies(body, r, inner, number + i - 1) if i else {}
            b = remake.rebuild(body, {**piece.known, r: value, **names})
            made.append((b, (loop, *[names.get(q, q) for q in inner])))
        if u.op is Ops.REDUCE:
            return functools.reduce(functools.partial(_both, u), [_reduced(u, *m) for m in made])
        ends = [intern(Ops.END, dtypes.void, (b, *around)) for b, around in made]
        group = intern(Ops.GROUP, dtypes.void, tuple(ends))
        outer = [q for q in closed if q is not r and q not in inner]
        return intern(Ops.END, dtypes.void, (group, *outer)) if outer else group

    return remake.rewritten(kernel, change, only=closers(kernel, r))


def _reduced(u: UOp, body: UOp, closed: tuple[UOp, ...]) -> UOp:
    """The REDUCE of a part. One value that comes again and again adds nothing to itself, if it is
    the identity or u takes a maximum or minimum."""
    again = u.arg.op in ("max", "min") and all(analysis.bounds(q.src[0])[0] > 0 for q in closed)
    if body is _identity(u) or (body.op is Ops.CONST and again):
        return body
    return intern(u.op, u.dtype, (body, *closed), u.arg)


def _both(u: UOp, one: UOp, two: UOp) -> UOp:
    """The REDUCE u of two parts."""
    if one is _identity(u):
        return two
    return one if two is _identity(u) else build.alu(one, Op.by_name(u.arg.op), two)


def _identity(u: UOp) -> UOp:
    return build.const(u.dtype, semantics.reduce_identity(u.arg.op, u.dtype))


def _is_inner(q: UOp, axis: tuple[int, ...]) -> bool:
    """Whether a range is inside of the loop with this axis: later in the nest, or spelled out."""
    return bool(q.arg.axis > axis) or q.arg.kind in ("upcast", "unroll", "lane")


def cut_at(kernel: UOp, r: UOp, n: int) -> UOp:
    """Cut r after its first n iterations."""
    if not 0 < n < analysis.bounds(r.src[0])[0]:
        raise Refused(f"the range is not known to go on behind its first {n} iterations")
    return cut(kernel, r, affine.const(n))


def other_loop(kernel: UOp, r: UOp, n: int, do: str) -> UOp:
    """Output loop number n, closed together with r; Refused says that only such ones `do` it."""
    axes = kernel_axes(kernel)
    if not 0 <= n < len(axes) or axes[n] is r:
        raise Refused(f"there is no other range {n}")
    q = axes[n]
    if not (q.arg.kind == r.arg.kind == "loop"):
        raise Refused(f"only output loops {do}")
    if any([(r in u.src[1:]) != (q in u.src[1:]) for u in parts(kernel).ends]):
        raise Refused("the ranges are not closed together")
    return q


def swap(kernel: UOp, r: UOp, other: int) -> UOp:
    """Exchange the places of r and another output loop in the nest."""
    q = other_loop(kernel, r, other, "change places")
    if r in analysis.ranges(q.src[0]) or q in analysis.ranges(r.src[0]):
        raise Refused("one range depends on the other")
    for moved, place in ((r, q.arg.axis), (q, r.arg.axis)):
        inside = [u for u in parts(kernel).ranges if moved in analysis.ranges(u.src[0])]
        if any(u.arg.kind != "loop" or u.arg.axis < place for u in inside):
            raise Refused("another range depends on one of them")
        if any(p.arg.axis > place for p in analysis.ranges(moved.src[0])):
            raise Refused("the length of one depends on a loop that would be inside of it")
    a, b = make_range(r.src[0], q.arg.axis, "loop"), make_range(q.src[0], r.arg.axis, "loop")
    return remake.rebuild(kernel, {r: a, q: b})


def _copies(body: UOp, r: UOp, inner: list[UOp], number: int) -> dict[UOp, UOp]:
    """New names for the loops inside a copied body: each range has one place in the nest."""
    loops = dict.fromkeys(inner)
    for u in analysis.toposort(body):
        if u.op in (Ops.END, Ops.REDUCE) and r in analysis.ranges(u):
            loops.update(dict.fromkeys(analysis.closed_ranges(u)))
    return remake.renamed_ranges({q: (*q.arg.axis, _COPY, number) for q in loops if q is not r})
