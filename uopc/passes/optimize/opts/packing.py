"""A local stage before a loop: the part of an operand used in the loop, computed into a buffer.

    for j: for i: for k: … x[k, j] …  →  for j: (for k: t[k] = x[k, j]); for i: for k: … t[k] …

The tile has one dimension for each *digit*: loops whose values only meet in one sum (the `row +
tap` of a window), so what windows share is stored once. The digit that the lanes walk along is
the innermost dimension; where lanes step by s, elements are sorted by their place modulo s first,
so that every read in the inner loops is of neighbours. What is staged is any value, not only an
array's elements: guards, casts, and whole producers move out of the inner loops with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import BufferArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.index import affine
from uopc.passes.analysis import swizzle as swizzled_tiles
from uopc.passes.analysis.loops import kernel_axes, make_range
from uopc.passes.optimize.opts.legality import Refused

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

# A tile of more bytes than this is no tile: it would leave every cache.
MOST_BYTES = 16 << 20


@dataclass
class Digit:
    """Loops that a value meets only in the sum Σ factor·loop; `unit` has factor 1."""

    unit: UOp
    factors: dict[UOp, int]
    extent: int
    step: int  # of the flat index, per step of the digit; 0 where it is not affine

    def place(self) -> UOp:
        """The value of the digit where it is read."""
        terms = [affine.scaled(r, f) for r, f in self.factors.items()]
        return _sum(terms)


def _sum(terms: list[UOp]) -> UOp:
    total = affine.const(0)
    for t in terms:
        total = affine.add(total, t)
    return total


def operands(kernel: UOp) -> list[tuple[UOp, UOp]]:
    """What PACK can stage: each factor of each reduce's terms, with the reduce, in order."""
    found: dict[UOp, UOp] = {}
    for u in analysis.order(kernel):
        if u.op is Ops.REDUCE:
            body = u.src[0]
            for factor in body.src[:2] if body.op in (Ops.MUL, Ops.SHAPED_WMMA) else (body,):
                found.setdefault(factor, u)
    return list(found.items())


def pack(kernel: UOp, r: UOp, n: int) -> UOp:
    """Stage operand n of the kernel's reduces before r: filled there, read in its place inside."""
    staged = operands(kernel)
    if not 0 <= n < len(staged):
        raise Refused(f"the kernel's reduces have {len(staged)} operands")
    value, reduce = staged[n]
    around = analysis.ranges(reduce) if r.arg.kind == "loop" else analysis.closed_ranges(reduce)
    if r not in around:
        raise Refused("the loop is not around the operand's reduce")
    inside = [q for q in analysis.ranges(value) if not _is_around(q, r)]
    inside.sort(key=lambda q: (q.arg.axis, q.seq))
    if any(not _is_bounded(q, inside) for q in inside):
        raise Refused("the length of a loop inside is not known")
    checked_value(kernel, value, inside)
    return _staged(kernel, value, digits(value, inside), r.arg.kind == "reduce")


def _is_around(q: UOp, r: UOp) -> bool:
    """Whether the tile is filled inside of q: before the output loop r, or inside the reduce r."""
    if r.arg.kind == "reduce":
        first = q.arg.kind == "reduce" and q.arg.axis <= r.arg.axis
        return first or q.arg.kind in ("loop", "thread", "global")
    return q.arg.kind in ("loop", "thread", "global") and bool(q.arg.axis < r.arg.axis)


def _is_bounded(q: UOp, inside: list[UOp]) -> bool:
    """Whether a loop has a known length, or one that only loops around the tile decide."""
    if q.src[0].op is Ops.CONST:
        return True
    return q.arg.kind == "loop" and analysis.ranges(q.src[0]).isdisjoint(inside)


def checked_value(kernel: UOp, value: UOp, inside: list[UOp]) -> None:
    """Refused where a value cannot be computed ahead of the loops inside."""
    if not inside:
        raise Refused("the operand is the same in all iterations of the loop")
    check_ahead(kernel, value)


def check_ahead(kernel: UOp, value: UOp) -> None:
    """Refused where a value depends on what the kernel stores."""
    written = {storage_root(u.src[0]) for u in analysis.order(kernel) if u.op is Ops.STORE}
    for u in analysis.toposort(value):
        if u.op is Ops.AFTER:
            raise Refused("the operand waits for a store")
        if u.op is Ops.INDEX and storage_root(u) in written:
            raise Refused("the kernel writes to what the operand reads")


# ---------------------------------------------------------------- which loops meet in a sum
def digits(value: UOp, inside: list[UOp]) -> list[Digit]:
    """The digits of a value: those of loops around the reduces first, so that what a reduce reads
    lies together; that of the lanes last; else the greatest step first."""
    steps = {q: _step(value, q) for q in inside}
    found: list[Digit] = []
    for q in sorted(inside, key=lambda q: (steps[q] or 1 << 62, q.arg.axis)):
        joined = next((d for d in found if _joins(value, d, q, steps)), None)
        if joined is None:
            found.append(Digit(q, {q: 1}, analysis.bounds(q.src[0])[1], steps[q]))
    return sorted(found, key=_rank)


def _rank(d: Digit) -> tuple[bool, bool, int]:
    """What digits are sorted by."""
    lanes = any(q.arg.kind == "lane" for q in d.factors)
    around = all(_place_in_nest(q) == "around" for q in d.factors)
    return lanes, not around, -(d.step or 1 << 62)


def windows(value: UOp) -> list[UOp]:
    """The loops that a value meets only in a sum with a reduce loop: what they read overlaps."""
    known = [q for q in analysis.ranges(value) if q.src[0].op is Ops.CONST]
    found = [d.factors for d in digits(value, known)]
    return [q for f in found for q in f if any(m.arg.kind in _REDUCED for m in f)]


def _step(value: UOp, q: UOp) -> int:
    """By how much an index that moves with a loop does so, in elements; where all are quotients or
    the like of sums with the loop, by how much such a sum does. 0 if there is none."""
    sums = []
    for u in analysis.toposort(value):
        if q not in analysis.ranges(u):
            continue
        if u.op is Ops.INDEX:
            step: int = affine.form(indexing.ungated(u.src[1])[0])[1].get(q, 0)
            if step > 0:
                return step
        elif u.op is Ops.ADD and u.dtype is dtypes.index:
            sums.append(affine.form(u)[1].get(q, 0))
    return next((step for step in sums if step > 0), 0)


def _joins(value: UOp, d: Digit, q: UOp, steps: dict[UOp, int]) -> bool:
    """Put a loop into a digit, if their values overlap and the value depends on the sum only."""
    if not d.step or not steps[q] or steps[q] % d.step:
        return False
    if any(m.src[0].op is not Ops.CONST for m in (q, d.unit)):
        return False
    factor = steps[q] // d.step
    parts_of_one = all(_place_in_nest(m) == _place_in_nest(q) for m in d.factors)
    if factor > d.extent or (factor == d.extent and not parts_of_one):
        return False
    factors = {**d.factors, q: factor}
    joined = Digit(d.unit, factors, d.extent + factor * (q.src[0].arg - 1), d.step)
    seen = make_range(affine.const(joined.extent), (*q.arg.axis, -1), "loop")
    moved = remake.rebuild(value, {d.unit: _unit_of(joined, seen)})
    if any(m in analysis.ranges(moved) for m in factors):
        return False
    d.factors, d.extent = factors, joined.extent
    return True


_REDUCED = ("reduce", "unroll")


def _place_in_nest(q: UOp) -> str:
    """Whether a loop is around a reduce, the reduce itself, or copies inside of it."""
    if q.arg.kind in _REDUCED:
        return "reduce"
    return "around" if q.arg.kind == "loop" else "copies"


def _unit_of(d: Digit, digit: UOp) -> UOp:
    """The unit loop's value, given the digit's."""
    others = [affine.scaled(m, -f) for m, f in d.factors.items() if m is not d.unit]
    return affine.add(digit, _sum(others))


# ---------------------------------------------------------------- the tile
def _staged(kernel: UOp, value: UOp, order: list[Digit], in_banks: bool = False) -> UOp:
    """The kernel that fills a tile with the value, and reads the tile in its place. `in_banks`: a
    column of it shall be in different banks of shared memory."""
    number = sum(u.op is Ops.BUFFER for u in analysis.order(kernel))
    nest = 1 + max(q.arg.axis[0] for q in kernel_axes(kernel))  # after all loops there are
    dims: list[int] = []
    filled: list[UOp] = []  # the loops that fill, one a dimension
    read: list[UOp] = []
    guard = indexing.true()
    moved: dict[UOp, UOp] = {}
    for d in order:
        apart, width = _lane_steps(d)
        count = -(-d.extent // apart)
        count = -(-count // width) * width
        known = d.unit.src[0].op is Ops.CONST
        length = affine.const(count) if known else d.unit.src[0]
        phase, inner = _fill_loops(nest, len(dims), affine.const(apart), length)
        dims += [apart, count]
        filled += [phase, inner]
        place = affine.add(affine.scaled(inner, apart), phase)
        guard = indexing.both(guard, affine.less(place, affine.const(d.extent)))
        moved[d.unit] = _unit_of(d, place)
        quotient, rest = affine.divmod_(d.place(), affine.const(apart))
        read += [rest, quotient]
    content = _guarded(remake.rebuild(value, moved), guard)
    swizzle = 0
    if in_banks and swizzled_tiles.can_be_swizzled(dims[-1] * value.dtype.itemsize):
        swizzle = dims[-1]
    elif in_banks:
        dims[-1] += _padding(dims[-1] * value.dtype.itemsize) // value.dtype.itemsize
    size = _checked_size(dims, value)
    arg = BufferArg(number, (size,), space="local", swizzle=swizzle)
    tile = intern(Ops.BUFFER, value.dtype, (), arg)
    target = intern(Ops.INDEX, value.dtype, (tile, indexing.flat_index(tuple(dims), filled)))
    store = intern(Ops.STORE, dtypes.void, (target, content))
    loops = tuple([q for q in filled if q.op is Ops.RANGE])
    filling = intern(Ops.END, dtypes.void, (store, *loops))
    ready = intern(Ops.AFTER, tile.dtype, (tile, filling))
    place = indexing.flat_index(tuple(dims), read)
    return remake.rebuild(kernel, {value: intern(Ops.INDEX, value.dtype, (ready, place))})


def _padding(nbytes: int) -> int:
    """Bytes behind a row, so that 8 rows one after the other are in different banks, 16 bytes of
    each: the row is an odd multiple of 16 bytes."""
    return 16 if nbytes % 32 == 0 else 0


def _lane_steps(d: Digit) -> tuple[int, int]:
    """How far apart neighbouring lanes are in the digit, and how many there are; (1, 1) if none."""
    for q, f in d.factors.items():
        if q.arg.kind == "lane":
            return f, q.src[0].arg
    return 1, 1


def _fill_loops(nest: int, at: int, *lengths: UOp) -> list[UOp]:
    """A loop for each dimension; none for one of length 1."""
    one = affine.const(1)
    return [
        make_range(n, (nest, at + i), "loop") if n is not one else affine.const(0)
        for i, n in enumerate(lengths)
    ]


def _checked_size(dims: list[int], value: UOp) -> int:
    size = 1
    for n in dims:
        size *= n
    if size * value.dtype.itemsize > MOST_BYTES:
        raise Refused(f"a tile of {size} elements is too large")
    return size


def _guarded(value: UOp, guard: UOp) -> UOp:
    """The value with its accesses under a guard."""
    if guard.op is Ops.CONST:
        return value

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.INDEX:
            return None
        flat, own = indexing.ungated(src[1])
        both = guard if own is None else indexing.both(own, guard)
        return intern(Ops.INDEX, u.dtype, (src[0], *indexing.gated((flat,), both)))

    return remake.rewritten(value, change)
