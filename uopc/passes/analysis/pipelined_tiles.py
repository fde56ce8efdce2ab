"""Shared tiles that are filled some iterations ahead of their use, while others are read.

    for k: wait; (t[f] = x[k, f]); wait; … t[g] …
    →  fill stages 0 … n-2;  for k: wait for stage k; fill stage k+n-1; … t[k % n, g] …

A fill that only copies is started and goes on by itself: its stores are async, each iteration's
are a group, and the wait at the beginning of an iteration is for all but the newest n-2 groups.
That wait is also for the threads that still read the stage which is filled next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare


@dataclass(frozen=True)
class Staged:
    """A tile of several stages: its storage once they are filled, and where the one begins that an
    iteration reads."""

    filled: UOp
    begin: UOp


def can_be_staged(group: list[UOp], tiles: Mapping[UOp, UOp]) -> bool:
    """Whether all tiles of a group want as many stages, and are filled without loops."""
    stages = {t.arg.stages for t in group}
    closed = {r.arg.kind for t in group for r in ranges.closed_ranges(tiles[t])}
    return len(stages) == 1 and stages != {1} and closed.isdisjoint(("loop", "reduce"))


def staged(group: list[UOp], tiles: Mapping[UOp, UOp], loops: tuple[UOp, ...]) -> dict[UOp, Staged]:
    """The tiles of a group, filled ahead in the innermost of the loops around them."""
    *outer, loop = loops
    count = int(group[0].arg.stages)
    storage = {t: t.replace(arg=replace(t.arg, dims=(_size(t) * count,), stages=1)) for t in group}
    free: tuple[UOp, ...] = ()
    if outer:  # what the last iterations of an earlier run filled has been read
        free = (intern(Ops.BARRIER, dtypes.void, tuple(outer)),)
    done: tuple[UOp, ...] = ()
    for i in range(count - 1):
        ends = []
        for t in group:
            begin = affine.const(i * _size(t))
            ends.append(_fill(tiles[t], storage[t], loop, affine.const(i), begin, free))
        done = (intern(Ops.COMMIT, dtypes.void, (*done, *ends)),)
    ready = intern(Ops.BARRIER, dtypes.void, (*done, loop), count - 2)
    ahead = affine.plus(loop, count - 1)
    into = affine.floormod(ahead, affine.const(count))
    ends = []
    for t in group:
        begin = affine.scaled(into, _size(t))
        ends.append(_fill(tiles[t], storage[t], loop, ahead, begin, (ready,)))
    started = intern(Ops.COMMIT, dtypes.void, tuple(ends))
    current = affine.floormod(loop, affine.const(count))
    return {
        t: Staged(
            intern(Ops.AFTER, t.dtype, (storage[t], started)), affine.scaled(current, _size(t))
        )
        for t in group
    }


def place(tile: Staged, u: UOp, src: tuple[UOp, ...]) -> UOp:
    """An element of the tile, in the stage that is read."""
    return intern(Ops.INDEX, u.dtype, (tile.filled, affine.add(src[1], tile.begin)))


def _size(tile: UOp) -> int:
    return int(tile.arg.dims[0])


def _fill(
    end: UOp, storage: UOp, loop: UOp, at: UOp, begin: UOp, free: tuple[UOp, ...]
) -> UOp:
    """A fill with what iteration `at` of the loop reads, from place `begin` of the storage on."""
    there = compare.less(at, loop.src[0])
    base = intern(Ops.AFTER, storage.dtype, (storage, *free)) if free else storage
    changed: dict[UOp, UOp] = {loop: at}
    for u in walk.toposort(end):
        if u.op is Ops.STORE:
            address, value = u.src[:2]
            target = affine.add(remake.rebuild(address.src[1], {loop: at}), begin)
            target = intern(Ops.INDEX, address.dtype, (base, target))
            async_ = "async" if value.op is Ops.LOAD else None
            given = _loaded(value, loop, at, there)
            gate = [remake.rebuild(g, {loop: at}) for g in u.src[2:]]
            changed[u] = intern(Ops.STORE, dtypes.void, (target, given, *gate), async_)
    return remake.rebuild(end, changed)


def _loaded(value: UOp, loop: UOp, at: UOp, there: UOp) -> UOp:
    """A value of iteration `at`, if there is such an iteration: what it reads is under that."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is loop:
            return at
        if u.op is not Ops.LOAD or there.op is Ops.CONST:
            return None
        gate = there if len(src) == 1 else indexing.both(src[1], there)
        return intern(Ops.LOAD, u.dtype, (src[0], gate))

    return remake.rewritten(value, change)
