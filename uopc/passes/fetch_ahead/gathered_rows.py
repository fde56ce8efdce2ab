"""Rows at places that are read from memory: the row of a few turns later is fetched.

    for i: y[i] = Σ_j t[8·n[4·i + j] : +8]
    →  … and fetch t[8·n[min(4·i + j + 16, 4·N - 1)] : +8]

No processor foresees such a place, but the array of places says it: it is read a few turns ahead,
its last element again where it ends. The rows go to the nearest cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.loops import trips

# docs/lab/llvm_effort.md has the figures behind these.
_ROWS, _NEAR = 16, 1 << 13  # most rows, and bytes of rows, between a fetch and its use
_LINE = 64  # bytes of the least row: of shorter ones a processor has many under way


class _RowReads(NamedTuple):
    """The LOADs that the place of a row is read by, and the innermost loop that moves them."""

    reads: tuple[UOp, ...]
    loop: UOp


def distances(loads: Sequence[UOp]) -> dict[UOp, UOp]:
    """The distance from each LOAD of gathered rows to the one that is read a few turns later."""
    rows: dict[_RowReads, list[UOp]] = {}
    for u in loads:
        found = _places(u)
        if found is not None:
            rows.setdefault(found, []).append(u)
    copies: dict[UOp, int] = {}  # rows of a turn of a loop
    for places in rows:
        copies[places.loop] = copies.get(places.loop, 0) + 1
    made: dict[UOp, UOp] = {}
    for places, parts in rows.items():
        elements = sum([u.dtype.lanes * _turns_inside(u, places) for u in parts])
        size = elements * parts[0].dtype.scalar.itemsize
        if _LINE <= size <= _NEAR:
            turns = -(-min(_ROWS, _NEAR // size) // copies[places.loop])
            later = {u: _later(u, places.loop, turns) for u in places.reads}
            made |= {u: _distance(u, places.loop, turns, later) for u in parts}
    return made


def _places(load: UOp) -> _RowReads | None:
    """None where a row is at no place that one loop after the other reads, in order."""
    place = load.src[0].src[1]
    reads = tuple([u for u in walk.toposort(place) if u.op is Ops.LOAD])
    loops = [r for u in reads for r in ranges.ranges(u) if r.arg.kind in ("loop", "reduce")]
    if place.dtype.lanes > 1 or not loops:
        return None
    loop = max(loops, key=lambda r: r.arg.axis)
    for u in reads:
        terms = affine.form(u.src[0].src[1])[1] if len(u.src) == 1 else {}
        known = isinstance(shapes.size(shapes.shape(u.src[0].src[0])), int)
        simple = u.src[0].src[0].op is Ops.PARAM and all([r.op is Ops.RANGE for r in terms])
        if u.dtype.lanes > 1 or not (known and simple) or terms.get(loop, 0) <= 0:
            return None
    return _RowReads(reads, loop)


def _turns_inside(load: UOp, places: _RowReads) -> int:
    """The LOADs of a part of a row by the loops inside of the one that moves the places."""
    inside = [r for r in ranges.ranges(load.src[0].src[1]) if r.arg.axis > places.loop.arg.axis]
    return trips(inside)


def _later(read: UOp, loop: UOp, turns: int) -> UOp:
    """The LOAD of a place some turns of a loop later, or of the last place there is."""
    storage, here = read.src[0].src
    step = affine.form(here)[1][loop]
    last = affine.const(int(shapes.size(shapes.shape(storage))) - 1)
    there = intern(Ops.MIN, dtypes.index, (affine.plus(here, turns * step), last))
    return intern(Ops.LOAD, read.dtype, (rebuild.remake(read.src[0], (storage, there)),))


def _distance(load: UOp, loop: UOp, turns: int, later: dict[UOp, UOp]) -> UOp:
    """The distance from the place of a LOAD to that of the same part of a row turns later."""
    here = load.src[0].src[1]
    there = affine.plus(rebuild.rebuild(here, later), turns * affine.form(here)[1].get(loop, 0))
    return affine.sub(there, here)
