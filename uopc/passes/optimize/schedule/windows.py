"""Sums over windows that overlap: depthwise convolutions, pools, filters.

    for c: for i: for j: y[c, i, j] = Σ x[c, i + k, j + l] * w[c, k, l]      guarded at the borders

    for c:
        t[:, :] = x[c], with its borders                   packed once, if elements are guarded
        for I by 4: for J in vectors:
            y[c, I : I + 4, J] = Σ t[I + k + 0 … 3, J + l] * w[c, k, l]      straight code

No operand is the same in several rows, but rows read the same elements. So the taps of several rows
become straight code, which loads each vector once. A guard, a stride or a function of an element is
packed with the elements: rows then read neighbours. Without a second loop along which windows
overlap, several vectors take the place of rows and share the weights.

Elements of a free number of rows or columns are read as they are, since no tile is known to hold
them: rows are cut where their guards change, and guards of columns are masks, shared by all rows.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.monomials import Terms, factors
from uopc.ir.nest.accesses import Access, is_plain
from uopc.ir.nest.arithmetic import SIDE_BY_SIDE
from uopc.ir.nest.loops import length_of, most_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import fitting
from uopc.passes.optimize.opts import packing
from uopc.passes.optimize.schedule.guards import cut_at_guards, cut_at_sizes
from uopc.passes.optimize.schedule.scheduler import Scheduler


class _SharedWindows(NamedTuple):
    """The operands of PACK that windows share, the loops of taps, inner first, and output loops:
    the first inside of those that no window has, the rows (None without), and the lanes. With a
    free length of one of these, no operand is packed."""

    elements: list[int]
    taps: list[UOp]
    at: UOp
    row: UOp | None
    lane: UOp
    is_free: bool


def choose(s: Scheduler) -> bool:
    """Schedule sums over windows. Return False, with nothing applied, for any other kernel."""
    found = _find(s)
    if found is None:
        return False
    before, row = s.state, found.row
    if found.is_free:
        if row is not None:
            cut_at_sizes(s, row)
    else:
        at, is_near = _block(s, found)
        # Rows that share what the nearest cache holds need no comparison.
        chosen = (row is not None and is_near) or s.pick("windows", True, False)
        if not chosen or not _pack(s, found, at):
            s.state = before
            return False
    _straight_code(s, found)
    return True


def _straight_code(s: Scheduler, found: _SharedWindows) -> None:
    """Put lanes on columns, several rows side by side, and spell out the taps."""
    row = found.row
    taps, width = list(found.taps), s.target.lanes(s.nest.element_bits)
    high, size = thresholds.TILE_ROWS, s.nest.expanded_size(taps[0])
    if trips(taps) + high >= s.target.registers:  # they do not hold the weights of all taps
        taps, high = taps[:1], SIDE_BY_SIDE
    if high * size * trips(taps) > thresholds.MOST_COPIES:
        taps = []
    for q in s.family(s.inner(found.lane)):
        if (length_of(q) or width) < width and s.attempt("PADTO", q, width):
            q = s.outer(q)
        _vectorise(s, q, width, high if row is None else 1)
    rows = row if row is None or found.is_free else s.inner(row)
    for q in s.family(rows) if rows is not None else ():
        s.widen(q, "UPCAST", _rows(q, high))
    for q in [q for r in taps for q in s.family(r)]:
        s.attempt("UNROLL", q, 0)


def _find(s: Scheduler) -> _SharedWindows | None:
    """The windows of a kernel of which all sums have some along the result's neighbours."""
    k = s.nest
    if len(k.written) != 1 or not k.reduces:
        return None
    outputs = [r for r in k.outputs if r.arg.kind == "loop"]
    lane = next((r for r in outputs if k.written[0].stride(r) == 1), None)
    if lane is None or lane is not outputs[-1] or most_of(lane) < 2:
        return None
    operands = packing.operands(s.kernel)
    is_free = any([length_of(r) is None for r in outputs])
    windows = functools.partial(_windows_in_place, s, lane) if is_free else packing.windows
    seen = {v: windows(v) for v, _ in operands if lane in ranges.ranges(v)}
    elements = [v for v, loops in seen.items() if lane in loops]
    parts = {w for v in elements for w in walk.toposort(v) if w is not v}
    elements = [v for v in elements if v not in parts]
    if not all([any([u is w and v in elements for v, w in operands]) for u in k.reduces]):
        return None
    taps = {q for v in elements for q in seen[v] if q.arg.kind == "reduce"}
    rows = [r for r in outputs if r is not lane and all([r in seen[v] for v in elements])]
    row = rows[-1] if rows else None
    numbers = [n for n, (v, _) in enumerate(operands) if v in elements]
    fixed = [r for v in elements for r in outputs if r in ranges.ranges(v) and r not in (row, lane)]
    first = 1 + max([outputs.index(r) for r in fixed], default=-1)
    inside = (*taps, *([] if is_free else outputs[first:]))
    if any([length_of(r) is None for r in inside]):
        return None
    inner = sorted(taps, key=lambda r: r.arg.axis, reverse=True)
    return _SharedWindows(numbers, inner, outputs[first], row, lane, is_free)


def _windows_in_place(s: Scheduler, lane: UOp, value: UOp) -> list[UOp]:
    """The loops that move an element, or 0 in its place, as a reduce loop does; none if lanes
    cannot read it as it is, under a mask."""
    body = value.src[1] if value.op is Ops.WHERE and value.src[2].op is Ops.CONST else value
    if body.op is not Ops.INDEX or not s.target.masks(body.dtype.bits):
        return []
    access = Access(body)
    if access.stride(lane) != 1:
        return []
    steps = {r: _growth(access.form[1], r) for r in access.loops}
    taps = [r for r in steps if r.arg.kind == "reduce"]
    shared = {r: [t for t in taps if t is not r and steps[t] == steps[r]] for r in steps}
    return [r for r, found in shared.items() if found or any([r in f for f in shared.values()])]


def _growth(terms: Terms, r: UOp) -> dict[tuple[UOp, ...], int]:
    """The growth of a sum with each step of a loop: coefficients by the other factors."""
    found = {}
    for m, k in terms.items():
        atoms = factors(m)
        if r in atoms:
            found[tuple([a for a in atoms if a is not r])] = k
    return found


def _rows(row: UOp, most: int) -> int:
    """The rows that are computed together: all of a few, or as many as divide the rest."""
    length = length_of(row)
    if length is None:
        return most
    if length < 2 * most:
        return length if length <= SIDE_BY_SIDE else -(-length // 2)
    return next((n for n in range(most, most // 2, -1) if length % n == 0), most)


def _block(s: Scheduler, found: _SharedWindows) -> tuple[UOp, bool]:
    """The loop before which to pack: the rows that the nearest cache holds, if it cannot hold all
    rows and some are packed; True if the cache holds these. A block has at least four times the
    rows that the next block packs again."""
    row, size, again = found.lane if found.row is None else found.row, 0, 0
    length, operands = length_of(row) or 1, packing.operands(s.kernel)
    inside = sorted({*found.taps, row, found.lane}, key=lambda r: r.arg.axis)
    for n in found.elements:
        v = operands[n][0]
        if not _is_in_place(s.nest, v, found.lane):
            digits = packing.digits(v, inside)
            size += v.dtype.itemsize * math.prod([d.extent for d in digits])
            again = max([d.extent // d.factors[row] - length for d in digits if row in d.factors])
    most = max(length * s.target.l1_bytes // (2 * max(1, size)), 4 * again)
    n = next((n for n in range(min(length, most), 0, -1) if length % n == 0), 1)
    is_cut = 1 < n < length and s.attempt("TILE", row, n)
    rows = n if is_cut else length
    return s.inner(row) if is_cut else found.at, rows * size <= length * s.target.l1_bytes


def _is_in_place(k: Nest, v: UOp, lane: UOp) -> bool:
    """True for elements that vectors read as they are."""
    return is_plain(v) and any([a.node is v and a.stride(lane) == 1 for a in k.accesses])


def _pack(s: Scheduler, found: _SharedWindows, at: UOp) -> bool:
    """PACK the elements that are not read in place; False if that is not legal, or if the stride
    has too many phases."""
    lanes, fills = s.target.lanes(s.nest.element_bits), []
    for n in found.elements:
        operands = packing.operands(s.kernel)
        if not _is_in_place(s.nest, operands[n][0], found.lane):
            fills.append(s.added("PACK", at, n + len(operands)))  # neighbours for the lanes
    if [] in fills:
        return False
    for fill in fills:
        nest, *_, number = fill[-1].arg.axis
        for phase in [q for q in fill if q.arg.axis[-1] == number - 1]:
            phases = length_of(phase) or 1  # of the stride, each of which is a loop of its own
            if phases > SIDE_BY_SIDE:
                return False
            for _ in range(phases - 1):
                s.attempt("PEEL", s.family(phase)[-1], 1)
        cut_at_guards(s, fill[-1], [r for r in s.axes if r.arg.axis[0] != nest])
        for q in s.family(fill[-1]):
            _vectorise(s, q, lanes, thresholds.TILE_VECTORS)
    return True


def _vectorise(s: Scheduler, r: UOp, lanes: int, vectors: int) -> None:
    """Put lanes on a loop, several vectors side by side; the last one overlaps the one before."""
    width = min(lanes, length_of(r) or lanes)
    if width < 2 or (vectors == 1 and s.attempt("OVERLAP", r, width)):
        return
    outer = s.vectorise(r, width)
    if outer is not None and outer.arg.kind == "loop":
        s.widen(outer, "UPCAST", fitting(vectors, length_of(outer)))
