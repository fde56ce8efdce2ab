"""Shared tiles that are filled some iterations ahead, while earlier stages are read.

    for k: wait; (t[f] = x[k, f]); wait; … t[g] …
    →  fill stages 0 … n-2;  for k: wait for stage k; fill stage k+n-1; … t[k % n, g] …

A fill that only copies proceeds in the background: its stores are async, and the stores of one
iteration are a group. The barrier at the beginning of an iteration waits for all but the newest n-2
groups. It also waits for the threads that still read the stage that is filled next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare


class Pipelined(NamedTuple):
    """A tile of several stages: its storage once they are filled, and the begin of the stage that
    an iteration reads."""

    filled: UOp
    begin: UOp


def can_be_pipelined(group: list[UOp], tiles: Mapping[UOp, UOp]) -> bool:
    """True if all tiles of a group want the same number of stages, and are filled without loops."""
    stages = {t.arg.stages for t in group}
    closed = {r.arg.kind for t in group for r in ranges.closed_ranges(tiles[t])}
    return len(stages) == 1 and stages != {1} and closed.isdisjoint(("loop", "reduce"))


def filled_ahead(
    group: list[UOp], tiles: Mapping[UOp, UOp], loops: tuple[UOp, ...]
) -> dict[UOp, Pipelined]:
    """The tiles of a group, filled ahead in the innermost of the loops around them."""
    *outer, loop = loops
    count = int(group[0].arg.stages)
    size = {t: int(t.arg.dims[0]) for t in group}
    storage = {t: t.replace(arg=replace(t.arg, dims=(size[t] * count,), stages=1)) for t in group}

    def commit(at: UOp, stage: UOp, after: tuple[UOp, ...], *earlier: UOp) -> UOp:
        """The fills of all tiles with iteration `at`, as one group."""
        ends = [
            _fill(tiles[t], storage[t], loop, at, affine.scaled(stage, size[t]), after)
            for t in group
        ]
        return intern(Ops.COMMIT, dtypes.void, (*earlier, *ends))

    free: tuple[UOp, ...] = ()
    if outer:  # an earlier run of the loop has read its last stages
        free = (intern(Ops.BARRIER, dtypes.void, tuple(outer)),)
    done: tuple[UOp, ...] = ()
    for i in range(count - 1):
        done = (commit(affine.const(i), affine.const(i), free, *done),)
    ready = intern(Ops.BARRIER, dtypes.void, (*done, loop), count - 2)
    ahead, n = affine.plus(loop, count - 1), affine.const(count)
    started = commit(ahead, affine.floormod(ahead, n), (ready,))
    current = affine.floormod(loop, n)
    filled = {t: intern(Ops.AFTER, t.dtype, (storage[t], started)) for t in group}
    return {t: Pipelined(filled[t], affine.scaled(current, size[t])) for t in group}


def _fill(
    end: UOp, storage: UOp, loop: UOp, at: UOp, begin: UOp, free: tuple[UOp, ...]
) -> UOp:
    """The fill of iteration `at` of the loop, into the storage from element `begin` on."""
    there = compare.less(at, loop.src[0])
    base = intern(Ops.AFTER, storage.dtype, (storage, *free)) if free else storage
    changed: dict[UOp, UOp] = {loop: at}
    for u in walk.toposort(end):
        if u.op is Ops.STORE:
            address, value = u.src[:2]
            target = affine.add(rebuild.rebuild(address.src[1], {loop: at}), begin)
            target = intern(Ops.INDEX, address.dtype, (base, target))
            async_ = "async" if value.op is Ops.LOAD else None
            given = _loaded(value, loop, at, there)
            gate = [rebuild.rebuild(g, {loop: at}) for g in u.src[2:]]
            changed[u] = intern(Ops.STORE, dtypes.void, (target, given, *gate), async_)
    return rebuild.rebuild(end, changed)


def _loaded(value: UOp, loop: UOp, at: UOp, there: UOp) -> UOp:
    """The value of iteration `at`. Its loads have the gate `there`: such an iteration exists."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is loop:
            return at
        if u.op is not Ops.LOAD or there.op is Ops.CONST:
            return None
        gate = there if len(src) == 1 else index_maps.both(src[1], there)
        return intern(Ops.LOAD, u.dtype, (src[0], gate))

    return rebuild.rewritten(value, change)
