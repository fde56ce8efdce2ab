"""The traffic between caches: the lines that a kernel brings to a cache, and their cycles.

Each reference brings the lines that the loops inside of it touch, and brings them again in each
iteration of a loop that it does not move with, if the data of one iteration exceed the cache, by
their bytes or by the ways of the sets that their strides reach. A reference brings no line that an
earlier reference of the same loop brought. A table of pages is a cache whose lines are pages.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import NamedTuple

from uopc.cost import vectors
from uopc.cost.machine import LINE, CacheLevel, MachineFacts
from uopc.ir.nest.outline import OUTSIDE, Dim, Outline, Reference

STREAMS = 32  # rows that a processor fetches ahead at once
FORESEEN = 4.0  # lines at a constant distance after which a processor fetches the next ones


class Lines(NamedTuple):
    """The lines that dimensions touch: how many, the bytes of a run of neighbours, and the rows
    that are no neighbours: of each dimension the length, and the bytes from row to row."""

    total: float
    run: float
    rows: tuple[tuple[float, int], ...]

    @property
    def beside(self) -> float:
        """The number of rows."""
        return math.prod([n for n, _ in self.rows])


class Traffic(NamedTuple):
    """The lines that a body brings to a cache, and their cycles."""

    lines: float
    cycles: float


@functools.lru_cache(maxsize=1 << 16)
def lines_of(dims: tuple[Dim, ...], item: int, line: int, size: int) -> Lines:
    """The lines of `line` bytes that these dimensions of a storage of `size` elements touch."""
    merged: dict[int, float] = {}  # by stride: windows overlap
    scattered = 1.0
    for n, stride in dims:
        if stride is None:
            scattered *= n
        elif n > 1 and stride:
            merged[abs(stride)] = merged.get(abs(stride), 1.0) + n - 1
    run, count, rows = float(item), 1.0, []
    for stride in sorted(merged):
        if stride * item <= max(run, line):
            run += stride * item * (merged[stride] - 1)
        else:
            rows.append((merged[stride], stride * item))
            count *= merged[stride]
    whole = max(1.0, size * item / line)
    begins = 0.5 if run > item and count > 1 else 0.0  # rows begin inside of a line
    count *= max(1.0, run / line + begins) * scattered
    if scattered > 1 and count >= whole:
        run = float(size * item)
    return Lines(min(count, whole), run, tuple(rows))


def dims_of(r: Reference, line: int) -> tuple[Dim, ...]:
    """The lanes and copies of a reference, and its offsets as one or two more dimensions."""
    dims = [*r.lanes, *r.copies]
    if len(r.offsets) > 1:
        spread = max(r.offsets) - min(r.offsets)
        wide = [gap for gap in vectors.gaps(r.offsets) if gap * r.item > line]
        if not wide:
            dims.append(Dim(spread + 1, 1))
        else:
            even = min(wide) == max(wide)
            dims.append(Dim(len(wide) + 1, wide[0] if even else sum(wide) // len(wide)))
            near = spread - sum(wide)
            if even and near > 0:
                dims.append(Dim(near // (len(wide) + 1) + 1, 1))
    return tuple(dims)


def missing(share: float) -> float:
    """The part of reuses that a cache misses if data take this share of it."""
    return min(1.0, max(0.0, (share - 0.75) / 0.5))


# ---------------------------------------------------------------- one cache
def traffic(outline: Outline, cache: CacheLevel, resident: float = 0.0) -> dict[int, Traffic]:
    """The lines that come to a cache from beyond, by body. `resident`: bytes that other kernels
    touch between two runs of this one."""
    crossing = _Crossing(outline, cache, resident)
    found: dict[int, Traffic] = {}
    for r in crossing.references:
        lines, taken = crossing.brought(r)
        before = found.get(r.body, Traffic(0.0, 0.0))
        found[r.body] = Traffic(before.lines + lines, before.cycles + taken)
    return found


class _Crossing:
    """The references of a kernel in front of one cache."""

    def __init__(self, outline: Outline, cache: CacheLevel, resident: float) -> None:
        self.outline, self.cache = outline, cache
        self.references = [r for r in outline.references if r.written or cache.serves_loads]
        self._shares = self._shares_of_loops()
        self._between = missing((sum(outline.storages) + resident) / cache.nbytes)
        self._earlier: dict[int, list[Reference]] = defaultdict(list)

    def brought(self, r: Reference) -> Traffic:
        """The lines that a reference brings, after those before it, and their cycles."""
        cache, path, dims = self.cache, self.outline.path(r.body), dims_of(r, self.cache.line)
        now = self._lines(r, dims)
        count, stream = now.total, now.run
        for q in reversed(path):
            length, miss = self.outline.bodies[q].length, missing(self._shares[q])
            before = now
            dims = (*dims, Dim(length, r.strides.get(q, 0)))
            now = self._lines(r, dims)
            if now.run > before.run and before.beside <= STREAMS:  # neighbours follow soon
                stream = max(stream, now.run)
            kept = count * now.total / max(before.total, 1e-9)
            count = (1 - miss) * kept + miss * max(kept, count * length)
        cold = 0.0 if r.local else now.total * self._between
        count = (max(0.0, count - now.total) + cold) * self._not_brought(r, path)
        each = self._line_cycles(r, stream) + cache.written * r.written
        return Traffic(count, 0.0 if r.streamed else count * each)

    def _line_cycles(self, r: Reference, run: float) -> float:
        """The cycles of a line of a run, or of a row at a constant distance: these begin as slowly
        as a line on its own, and go on as a stream."""
        cache = self.cache
        if cache.is_of_pages:
            return cache.far
        known = max(1.0, run / cache.line, self._row(r) / FORESEEN)
        return cache.stream + (cache.far - cache.stream) / known

    def _row(self, r: Reference) -> float:
        """The lines at a constant distance that lanes, copies and the innermost loop touch."""
        rows = [*r.lanes, *r.copies]
        moving = [q for q in self.outline.path(r.body) if r.strides.get(q, 0) != 0]
        if moving:
            rows.append(Dim(self.outline.bodies[moving[-1]].length, r.strides[moving[-1]]))
        apart = [d for d in rows if d.stride is not None and abs(d.stride) * r.item >= LINE]
        return math.prod([d.length for d in apart])

    def _lines(self, r: Reference, dims: tuple[Dim, ...]) -> Lines:
        return lines_of(dims, r.item, self.cache.line, r.size)

    # ------------------------------------------------------------ what fits
    def _shares_of_loops(self) -> dict[int, float]:
        """The share of the cache that the data of one iteration of each loop take."""
        found: dict[int, dict[int, float]] = defaultdict(dict)
        for r in self.references:
            dims = dims_of(r, self.cache.line)
            for q in reversed(self.outline.path(r.body)):
                share = self._share(r, dims)
                found[q][r.storage] = max(found[q].get(r.storage, 0.0), share)
                dims = (*dims, Dim(self.outline.bodies[q].length, r.strides.get(q, 0)))
        return {q: sum(shares.values()) for q, shares in found.items()}

    def _share(self, r: Reference, dims: tuple[Dim, ...]) -> float:
        """The share of the cache that a reference takes, by bytes or by the ways of its sets."""
        cache, lines = self.cache, self._lines(r, dims)
        share = lines.total * cache.line / cache.nbytes
        for n, step in lines.rows:
            sets = cache.sets_of(n, step)
            if sets < n:
                share = max(share, n / sets / cache.ways)
        return share

    # ------------------------------------------------------------ what is there already
    def _not_brought(self, r: Reference, path: tuple[int, ...]) -> float:
        """The share of a reference's lines that no earlier reference brought."""
        least = 1.0
        for other in self._earlier[r.storage]:
            theirs = self.outline.path(other.body)
            common = 0
            while common < min(len(path), len(theirs)) and path[common] == theirs[common]:
                common += 1
            miss = missing(self._shares[path[common - 1]]) if common else self._between
            if miss < least:
                beyond = self._beyond(r, path[common:], other, theirs[common:])
                least = min(least, max(miss, beyond))
        self._earlier[r.storage].append(r)
        return least

    def _beyond(
        self, r: Reference, inside: tuple[int, ...], other: Reference, theirs: tuple[int, ...]
    ) -> float:
        """The share of a reference's lines in some loops that are not another's: none if most
        elements that one of them touches are those of the other. Neighbours have one in common."""
        low, high = self._extent(r, inside)
        first, last = self._extent(other, theirs)
        both = min(high, last) - max(low, first) + 1
        if both >= 0.5 * min(high - low + 1, last - first + 1):
            return 0.0
        own = (high - low + 1) * r.item / self.cache.line
        return own / max(1.0, own + 0.5) if 1 - both < self.cache.line / r.item else 1.0

    def _extent(self, r: Reference, loops: tuple[int, ...]) -> tuple[float, float]:
        """The first and the last element that a reference touches in some loops."""
        low, high = float(min(r.offsets)), float(max(r.offsets))
        around = [Dim(self.outline.bodies[q].length, r.strides.get(q, 0)) for q in loops]
        for n, stride in (*r.lanes, *r.copies, *around):
            if stride is None:
                return 0.0, float(r.size)
            low += min(0, stride) * (n - 1)
            high += max(0, stride) * (n - 1)
        return low, high


# ---------------------------------------------------------------- all caches
# A cache, and by body what it gets.
Crossings = tuple[CacheLevel, dict[int, Traffic]]


def crossings(outline: Outline, m: MachineFacts, resident: float = 0.0) -> list[Crossings]:
    """For each cache: what each body brings to it."""
    return [
        (cache, {} if _holds_all(outline, cache, resident) else traffic(outline, cache, resident))
        for cache in m.caches
    ]


def traffic_cycles(found: list[Crossings], m: MachineFacts) -> dict[int, float]:
    """By body: the cycles of its crossings at the slowest border, and a share of the others."""
    borders: dict[int, list[float]] = defaultdict(list)
    for _, bodies in found:
        for number, brought in bodies.items():
            borders[number].append(brought.cycles)
    return {number: m.together(*each) for number, each in borders.items()}


def store_cycles(outline: Outline, m: MachineFacts) -> dict[int, float]:
    """By body: the cycles of stores that do not join their neighbours, or go past the caches."""
    total: dict[int, float] = defaultdict(float)
    for r in outline.references:
        if r.written and not r.local:
            total[r.body] += _stores(outline, r, m)
    return total


def _holds_all(outline: Outline, cache: CacheLevel, resident: float) -> bool:
    """True if all that a kernel touches stays in a cache, which then brings no line."""
    held = sum([max(nbytes, cache.line) for nbytes in outline.storages])
    return missing((held + resident) / cache.nbytes) == 0.0


def _stores(outline: Outline, r: Reference, m: MachineFacts) -> float:
    """The cycles of stores that do not join their neighbours in a line, or go past the caches."""
    often = math.prod([outline.bodies[q].length for q in outline.path(r.body)])
    if r.streamed:
        return often * _streamed(outline, r, m)
    return m.apart * often * _apart(r, m) * missing(sum(outline.storages) / m.caches[0].nbytes)


def _apart(r: Reference, m: MachineFacts) -> float:
    """Vectors of one iteration whose neighbours in memory are not stored just before or after, if a
    vector fills a line: it lies in two lines if it begins inside of one."""
    if m.vector_bytes < LINE:
        return 0.0
    lanes = vectors.moving(r.lanes)
    count = vectors.product(lanes)
    if count * r.item < m.vector_bytes or not vectors.is_dense(lanes):
        return 0.0
    wide = m.registers_of(count, r.item * 8)
    step, rows = vectors.rows_beside(r)
    if rows > 1 or wide > 1:
        return max(rows, float(wide) if wide > 1 else 1.0)
    return 0.0 if step > count or r.strides.get(r.body) == step else 1.0


def _streamed(outline: Outline, r: Reference, m: MachineFacts) -> float:
    """The cycles of the stores past the caches of one iteration."""
    line = m.caches[0].line
    count = lines_of(dims_of(r, line), r.item, line, r.size).total
    run, rows = vectors.rows_beside(r)
    dense = vectors.is_dense(vectors.moving(r.lanes))
    follows = r.body == OUTSIDE or r.strides.get(r.body) == run
    if not dense or rows > m.combined or (rows == 1 and not follows):
        return count * (m.past + 2 * m.torn)  # a vector begins anywhere in a line
    return count * m.past + m.seam * _seams(outline, r, run, line)


def _seams(outline: Outline, r: Reference, run: float, line: int) -> float:
    """The ends inside of a line of rows that are stored past the caches, by iteration."""
    iterations = 1.0
    for q in reversed(outline.path(r.body)):
        stride = r.strides.get(q, 0)
        if stride != run:
            is_row = stride is not None and stride > run and stride * r.item % line != 0
            return 1.0 / iterations if is_row else 0.0
        run *= outline.bodies[q].length
        iterations *= outline.bodies[q].length
    return 0.0
