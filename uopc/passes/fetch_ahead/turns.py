"""Which loop of a turn fetches: the one that computes most, while memory would be idle.

    for i: m = max(x[i, j] over j)               m = max(x[i, j] over j)
           for j: t[j] = exp(x[i, j] - m)    →   t[j] = exp(x[i, j] - m), and fetch x[i + 1, j],
           for j: y[i, j] = t[j] / s                 and y[i, j] to write it
                                                 y[i, j] = t[j] / s

All loops that go through a row of an array can fetch the next one: it costs that loop the least
whose own instructions take the longest. Where all of them take less time than the row's lines,
memory is idle only while the first line comes: what the processor fetches by itself is enough for
long rows, if each line serves several loads. A loop that only writes what loops before computed
waits for each line that it writes to; where a loop before goes through a row beside, it fetches
these.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from uopc.cost.machine import LINE, MachineFacts
from uopc.ir.core import bounds, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.arithmetic import is_arithmetic
from uopc.ir.nest.loops import trips


class _RowAccesses(NamedTuple):
    """A row of an array, and the LOADs or STOREs by which inner loops access each element once:
    the place of its first element, which outer loops move, and its length."""

    users: tuple[UOp, ...]
    loops: frozenset[UOp]
    begin: int
    outer: Mapping[UOp, int]
    length: int

    @property
    def array(self) -> UOp:
        storage: UOp = self.users[0].src[0].src[0]
        return storage

    @property
    def shape(self) -> tuple[int, int]:
        return self.length, self.array.dtype.scalar.itemsize

    def cycles(self, order: Iterable[UOp], machine: MachineFacts) -> float:
        """The cycles of the arithmetic in its loops."""
        inside = [u for u in order if not self.loops.isdisjoint(ranges.ranges(u))]
        costs = [(u.op.cost or 1.0) * u.dtype.lanes * u.dtype.itemsize
                 for u in inside if is_arithmetic(u)]  # fmt: skip
        return sum(costs) * trips(self.loops) / machine.multiply_bytes

    def stream(self, machine: MachineFacts) -> float:
        """The cycles in which its lines come to the second-level cache, one after the other, less
        those that the processor waits for the first."""
        lines, near = self.length * self.array.dtype.scalar.itemsize / LINE, machine.caches[1]
        return lines * near.stream - near.far

    def is_before(self, other: _RowAccesses) -> bool:
        """True if another row's values depend on these loops."""
        nodes = walk.toposort(other.users[0].src[1])
        ends = [u for u in nodes if u.op in (Ops.REDUCE, Ops.END)]
        return any([not self.loops.isdisjoint(u.src) for u in ends])


class Fetches(NamedTuple):
    """By LOAD: how far ahead it fetches, and the INDEXes that it fetches to be written."""

    ahead: dict[UOp, UOp]
    written: dict[UOp, list[UOp]]


def busiest(
    ahead: Mapping[UOp, UOp], order: Collection[UOp], l2: int, machine: MachineFacts
) -> Fetches:
    """The LOADs that shall fetch the next rows, instead of those that can, and what they fetch to
    be written: rows of arrays that the second-level cache does not hold. None where arithmetic
    takes less time than the stream of lines, unless a vector is a line."""
    found = Fetches(dict(ahead), defaultdict(list))
    turns: defaultdict[tuple[UOp, frozenset[UOp]], set[UOp]] = defaultdict(set)
    for u in ahead:
        moving = affine.form(u.src[0].src[1])[1]
        outer = frozenset([r for r in moving if r.op is not Ops.RANGE or r.arg.kind != "reduce"])
        turns[u.src[0].src[0], outer].add(u)
    users = [u for u in order if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].src[0].op is Ops.PARAM]
    stores = [u for u in users if u.op is Ops.STORE and bounds.most_bytes(u.src[0].src[0]) > l2]
    for (array, outer), group in turns.items():
        rows = _rows([u for u in users if u.op is Ops.LOAD and u.src[0].src[0] is array], outer)
        own = {r.begin: r for r in rows if group.issuperset(r.users)}
        same = [r for r in rows if r.begin in own and r.shape == own[r.begin].shape]
        cycles = {r.loops: r.cycles(order, machine) for r in same}
        streams = sum([r.stream(machine) for r in own.values()])
        idle = machine.vector_bytes >= LINE or sum(cycles.values()) >= streams
        for begin, row in own.items():
            alike = [r for r in same if r.begin == begin]
            for u in itertools.chain.from_iterable([r.users for r in alike]):
                found.ahead.pop(u, None)
            if idle:
                most = max(alike, key=lambda r: cycles[r.loops])
                found.ahead.update(dict.fromkeys(most.users, ahead[row.users[0]]))
        if idle and len(own) == 1:
            _fetch_written(same, cycles, _rows(stores, outer), found.written)
    return found


def _fetch_written(
    rows: Sequence[_RowAccesses], cycles: Mapping[frozenset[UOp], float],
    written: Iterable[_RowAccesses], found: dict[UOp, list[UOp]],
) -> None:  # fmt: skip
    """Let the loops that compute most of those before it fetch each row that is written."""
    for to in [w for w in written if w.shape == rows[0].shape]:
        before = [r for r in rows if r.is_before(to)]
        if before:
            at = max(before, key=lambda r: cycles[r.loops])
            for u in at.users:
                found[u].append(_beside(u, at, to))


def _rows(users: Iterable[UOp], outer: frozenset[UOp]) -> list[_RowAccesses]:
    """The rows that the LOADs or STOREs of some arrays access in turns of the loops `outer`."""
    beside: defaultdict[tuple[UOp, frozenset[tuple[UOp, int]]], list[UOp]] = defaultdict(list)
    for u in users:
        place = u.src[0]
        beside[place.src[0], frozenset(affine.form(place.src[1])[1].items())].append(u)
    found = [_side_by_side(group, dict(terms), outer) for (_, terms), group in beside.items()]
    return list(itertools.chain.from_iterable(found))


def _side_by_side(
    users: list[UOp], terms: Mapping[UOp, int], outer: frozenset[UOp]
) -> list[_RowAccesses]:
    """The rows of accesses that all loops move alike; none if accesses leave gaps, have gates, or
    are not in all of the loops `outer`."""
    inner = {r: n for r, n in terms.items() if r not in outer}
    plain = all([r.op is Ops.RANGE and affine.is_const(r.src[0]) for r in inner])
    gated = any([len(u.src) > (2 if u.op is Ops.STORE else 1) for u in users])
    if gated or not inner or not plain or not outer <= terms.keys():
        return []
    runs: list[list[UOp]] = []
    reach = None
    for u in sorted(users, key=_place):
        if _place(u) != reach:
            runs.append([])
        runs[-1].append(u)
        reach = _place(u) + u.src[0].dtype.lanes
    found = []
    for run in runs:
        length = sum([u.src[0].dtype.lanes for u in run])
        for r in sorted(inner, key=inner.__getitem__):
            if inner[r] != length:
                return []
            length *= r.src[0].arg
        moved = {r: terms[r] for r in outer}
        found.append(_RowAccesses(tuple(run), frozenset(inner), _place(run[0]), moved, length))
    return found


def _place(user: UOp) -> int:
    """The constant part of an index."""
    return affine.form(user.src[0].src[1])[0]


def _beside(load: UOp, row: _RowAccesses, written: _RowAccesses) -> UOp:
    """The INDEX of the elements of a row that is written beside those of a LOAD."""
    at, terms = affine.form(load.src[0].src[1])
    inner = {r: n for r, n in terms.items() if r in row.loops}
    place = affine.build(at - row.begin + written.begin, {**inner, **written.outer})
    return intern(Ops.INDEX, load.src[0].dtype.scalar, (written.array, place))
