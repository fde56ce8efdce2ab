"""Fetch, in each turn of a loop, the elements of a large array that the next turn reads.

Before (vector)                              After (vector)
  %1 = param "" slot=0 : f32[256]              %1 = param "" slot=0 : f32[256]
  %2 = range 256 axis=0.0 kind=loop : index    %2 = range 256 axis=0.0 kind=loop : index
  %3 = param "" slot=1 : f32[524288]           %3 = param "" slot=1 : f32[524288]
  %4 = mul %2, 2048 : index                    %4 = mul %2, 2048 : index
  %5 = range 2 axis=0.1 kind=reduce : index    %5 = range 2 axis=0.1 kind=reduce : index
  %6 = mul %5, 8 : index                       %6 = mul %5, 8 : index
  %7 = add %4, %6 : index                      %7 = add %4, %6 : index
  %8 = load %3[%7]:f32x8 : f32x8               %8 = load %3[%7]:f32x8 : f32x8
  %9 = reduce.add %8 over %5 : f32x8           %9 = fetch %8, 2048 size=8 : f32x8
  %10 = hreduce.add %9 : f32                   %10 = reduce.add %9 over %5 : f32x8
  %11 = store %1[%2], %10                      %11 = hreduce.add %10 : f32
  %12 = end %11, %2                            %12 = store %1[%2], %11
  sink %12 name=r_256_2048                     %13 = end %12, %2
                                               sink %13 name=r_256_2048

A processor fetches what follows in a row, but begins anew at each page and each row. Here it is
told what a sum reads one turn of a loop later: the next rows, by the loop that computes most of
those that read this one. An array that is read once from its first element to its last needs
nothing: the processor follows.
Where loops inside read the elements of a turn again, as the rows of a product read a panel of
weights, the first of them would wait for memory and the others not. Each of their n turns then
fetches an nth of the next panel, whose elements must lie side by side. This pays for arrays that
the second-level cache does not hold, and for smaller ones that the other arrays of a program have
displaced: panels of constants, and rows side by side of integers that are converted, as fetches
take no time beside that. At most half of that cache is fetched.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from uopc.cost.machine import machine_of
from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.loops import trips
from uopc.passes.contract import Context
from uopc.passes.fetch_ahead import gathered_rows, turns

# docs/lab/llvm_effort.md has the figures behind these.
_LEAST = 8  # bytes of a load: a line takes at most eight
_PANEL, _ROW = 2, 4  # most that is fetched of a panel, and of rows: the second-level cache / n
_MODEL = 16  # constants, and rows of integers: L2 / n and more are weights of a large model


class _Fetch(NamedTuple):
    """So many elements, so far ahead of what a LOAD reads."""

    ahead: UOp
    size: int


def fetch_ahead(kernel: UOp, context: Context) -> UOp:
    """Make loads of large arrays also fetch the elements that the next iteration of a loop
    reads."""
    order, l2 = walk.order(kernel), context.target.l2_bytes
    large = [u for u in order if u.op is Ops.PARAM and bounds.most_bytes(u) > l2 // _MODEL]
    if not large:
        return kernel
    reads = [u for u in order if u.op is Ops.LOAD and u.src[0].src[0] in large]
    far = [u for u in reads if bounds.most_bytes(u.src[0].src[0]) > l2]
    made = {u: _Fetch(d, u.dtype.lanes) for u, d in gathered_rows.distances(far).items()}
    written: Mapping[UOp, list[UOp]] = {}
    if any([u.op is Ops.REDUCE for u in order]):
        of_sums = _of_sums(order, reads, l2)
        rows = {u: f.ahead for u, f in of_sums.items() if affine.is_const(f.ahead)}
        ahead, written = turns.busiest(rows, order, l2, machine_of(context.target))
        made |= {u: f for u, f in of_sums.items() if u not in rows}
        made |= {u: _Fetch(distance, u.dtype.lanes) for u, distance in ahead.items()}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        value = intern(Ops.LOAD, u.dtype, src, u.arg, u.tag)
        if u in made:
            value = intern(Ops.FETCH, u.dtype, (value, made[u].ahead), made[u].size)
        for place in written.get(u, ()):
            value = intern(Ops.FETCH, u.dtype, (value, place), u.dtype.lanes)
        return value

    changed = {*made, *written}
    return rebuild.rewritten(kernel, change, only=changed) if changed else kernel


def _of_sums(order: Iterable[UOp], reads: Sequence[UOp], l2: int) -> dict[UOp, _Fetch]:
    """The elements that LOADs of sums fetch for the next turn of a loop around. `reads`: all LOADs
    of large arrays."""
    made: dict[UOp, _Fetch] = {}
    for nest in [u for u in order if u.op is Ops.END]:
        inside = walk.toposort(nest.src[0], gate=lambda u: u.op is not Ops.END)
        loops = [r for r in inside if r.op is Ops.RANGE and r.arg.kind == "loop"]
        loops.sort(key=lambda r: r.arg.axis)
        found = _loops_of_sums(inside)
        loads = {u: found[u] for u in reads if u in found and len(u.src) == 1}
        widened = _widened(inside)
        for u in loads:
            array = u.src[0].src[0]
            beside = [v for v in reads if v.src[0].src[0] is array]
            fetch = _fetch(u, loads, loops, beside, u in widened, l2)
            if fetch is not None:
                made[u] = fetch
    return made


def _bytes_in_l2(array: UOp, l2: int) -> int:
    """The most bytes of an array that are still in the second-level cache when a kernel begins."""
    return l2 if array.arg.order is None else l2 // _MODEL


def _widened(inside: Iterable[UOp]) -> set[UOp]:
    """The loads of integers that make or choose floats; fetches next to these take no time."""
    found: dict[UOp, None] = {}
    for u in inside:
        wider = u.dtype.is_float or u.dtype.scalar is dtypes.index
        if u.op is Ops.CAST and wider and u.src[0].dtype.kind in ("int", "uint"):
            walk.toposort(u.src[0], lambda v: v.op is not Ops.LOAD, found)
    return {u for u in found if u.op is Ops.LOAD}


def _loops_of_sums(inside: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """The loops around all sums that read a LOAD along their own ranges."""
    alike: defaultdict[tuple[frozenset[UOp], frozenset[UOp]], list[UOp]] = defaultdict(list)
    for u in inside:
        if u.op is Ops.REDUCE:
            alike[ranges.ranges(u), frozenset(u.src[1:])].append(u.src[0])
    found: dict[UOp, frozenset[UOp]] = {}
    for (around, loops), values in alike.items():
        for u in _along(loops, values):
            if u.op is Ops.LOAD and not loops.isdisjoint(ranges.ranges(u)):
                found[u] = found.get(u, around) & around
    return found


def _along(loops: frozenset[UOp], values: Iterable[UOp]) -> dict[UOp, None]:
    """The nodes of some values that vary with one of the loops, and the sources of these."""

    def varies(u: UOp) -> bool:
        return not loops.isdisjoint(ranges.ranges(u))

    found: dict[UOp, None] = {}
    for value in values:
        walk.toposort(value, varies, found)
    return found


def _fetch(
    load: UOp,
    loads: Mapping[UOp, frozenset[UOp]],
    loops: Sequence[UOp],
    beside: Sequence[UOp],
    widened: bool,
    l2: int,
) -> _Fetch | None:
    """The elements that a load fetches for the next iteration of the last loop, outer first, that
    it moves with. None if the load reads few bytes, or not along a sum, or the same in all
    iterations, or if a loop that it does not move with is around one that it does. `loads`: all
    loads, each with its loops; `beside`: the LOADs of the same array."""
    steps = affine.form(load.src[0].src[1])[1]
    sums = [r for r in steps if r.op is Ops.RANGE and r.arg.kind == "reduce"]
    moving = [r for r in loops if r in steps]
    size = load.dtype.scalar.itemsize
    if not sums or not moving or size * load.dtype.lanes < _LEAST:
        return None
    array = load.src[0].src[0]
    again, block = loops[loops.index(moving[-1]) + 1 :], steps[moving[-1]]
    if block <= 0:
        return None
    length = bounds.most_bytes(array)
    if again and loads[load].issuperset(again):
        if length <= _bytes_in_l2(array, l2):
            return None
        places = [u.src[0] for u in beside if u in loads]
        read = sum([u.dtype.lanes for u in places if affine.form(u.src[1])[1] == steps])
        return _part_of_block(load, sums, again, block, read, l2 // _PANEL // size)
    row = sum([steps[r] * bounds.bounds(r)[1] for r in sums]) + load.dtype.lanes
    side_by_side = block >= 2 * row
    held = l2 // _MODEL if widened and side_by_side else l2
    if moving != loops[: len(moving)] or length <= held or block * size > l2 // _ROW:
        return None
    if _is_one_stream(load, beside, moving, block):
        return None
    return _Fetch(affine.const(block), load.dtype.lanes)


def _is_one_stream(load: UOp, reads: Iterable[UOp], outside: Sequence[UOp], block: int) -> bool:
    """True if all elements of an array are read once, in order: a processor follows that by itself.
    Each turn of the loops `outside` reads `block` elements."""
    forms = {u: affine.form(u.src[0].src[1])[1] for u in reads}
    inside = [r for r in forms[load] if r.op is Ops.RANGE and r not in outside]
    at_once = sum([u.dtype.lanes for u, terms in forms.items() if terms == forms[load]])
    if at_once > min([forms[load][r] for r in inside]):
        return False
    counts = [u.dtype.lanes * _turns(forms[u], outside) for u in forms]
    return sum(counts) == block


def _turns(terms: Iterable[UOp], outside: Sequence[UOp]) -> int:
    """The most iterations of the loops that move an index, but for those `outside`."""
    loops = [r for r in terms if r.op is Ops.RANGE and r not in outside and r.arg.kind != "thread"]
    return trips(loops)


def _part_of_block(
    load: UOp, sums: Sequence[UOp], again: Sequence[UOp], block: int, read: int, most: int
) -> _Fetch | None:
    """An equal part of the next block, so far from this one, in each turn of the loops that read
    this one `again`. Its elements lie side by side, all are `read` in a step of the sums, and the
    load of the first ones fetches for all. None where an element a step is more than two blocks
    (the first turn is a short one), or a block has more elements than `most`."""
    begin, steps = affine.form(load.src[0].src[1])
    if not all([affine.is_const(r.src[0]) for r in (*again, *sums)]):
        return None
    turns = math.prod([r.src[0].arg for r in again])
    width = min([steps[r] for r in sums])
    size = -(-width // turns)
    if turns < 2 or turns * size > 2 * width or width < 1 or begin % width:
        return None
    if width > read:
        return None
    step, inside = affine.const(0), 1  # the number of a step, and the steps of the loops so far
    for r in sorted(sums, key=steps.__getitem__):
        if steps[r] != inside * width:
            return None
        step = affine.add(step, affine.scaled(r, inside))
        inside *= r.src[0].arg
    if inside * width > min(block, most):
        return None
    here = affine.scaled(step, width)
    for r in reversed(again):
        step = affine.add(step, affine.scaled(r, inside))
        inside *= r.src[0].arg
    there = affine.plus(affine.scaled(step, size), block)
    return _Fetch(affine.sub(there, here), size)
