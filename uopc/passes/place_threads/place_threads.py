"""Put ranges of a GPU on its hardware indices: blocks of the grid, threads of the block.

Before (vector), device=cuda:sm_90           After (vector)
  %1 = param "" slot=0 : f32[64]               %1 = param "" slot=0 : f32[64]
  %2 = range 4 axis=0.0 kind=global : index    %2 = special 4 name=gidx0 : index
  %3 = mul %2, 16 : index                      %3 = mul %2, 16 : index
  %4 = range 16 axis=0.1 kind=local : index    %4 = special 16 name=lidx0 : index
  %5 = add %3, %4 : index                      %5 = add %3, %4 : index
  %6 = param "" slot=1 : f32[64]               %6 = param "" slot=1 : f32[64]
  %7 = load %6[%5] : f32                       %7 = load %6[%5] : f32
  %8 = store %1[%5], %7                        %8 = store %1[%5], %7
  %9 = end %8, %2, %4                          sink %8 name=E_64 opts=(GRID(0, 0),)
  sink %9 name=E_64 opts=(GRID(0, 0),)

Every thread of the launch runs the whole kernel, so the ranges vanish. Loops that are not inside of
each other use the same threads, and blocks of their own: a loop of 0 or 1 iterations skips the nest
of other blocks. Thread 0 of a dimension does the stores outside of its loops. A
reduce over threads becomes exchanges and shared memory (`block_reduce.py`). Storage that threads
fill together is shared, with barriers (`barriers.py`), or filled ahead of its use
(`pipelined_tiles.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Mapping
from dataclasses import field, replace

from uopc.errors import InvalidIR, Unsupported
from uopc.ir.builder import fold, index_maps, rebuild
from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.index.dims import dim_uop, uop_dim
from uopc.ir.records import dataclass
from uopc.passes.analysis import thread_order
from uopc.passes.analysis.loops import ended, make_range
from uopc.passes.analysis.shared_tiles import filled_together
from uopc.passes.contract import Context
from uopc.passes.place_threads.barriers import with_barriers
from uopc.passes.place_threads.block_reduce import reduce_threads
from uopc.passes.place_threads.launch_grid import grid
from uopc.passes.place_threads.swizzle import swizzled
from uopc.target import Gpu

_ONLY = 4  # the last component of the axis of a loop that skips a nest


@dataclass(frozen=True)
class _Threads:
    """The index of each range; the dimension of the block of each range of threads; the index and
    size of each dimension, x first. In a block of one dimension, ranges are digits of a thread's
    number; `steps` then has the threads per iteration of each. `only`: of a range of blocks that
    not all blocks run, the loop of 0 or 1 iterations around the nest."""

    index: dict[UOp, UOp]
    only: dict[UOp, UOp]
    position: dict[UOp, int]
    threads: tuple[UOp, ...]
    sizes: tuple[int, ...]
    steps: Mapping[UOp, int] = field(default_factory=dict)


def _threads(order: list[UOp], gpu: Gpu) -> _Threads | None:
    """Indices for all ranges of blocks and threads; None if there are no such ranges."""
    blocks = sorted((u for u in order if u.op is Ops.RANGE and u.arg.kind == "global"),
                    key=lambda r: r.arg.axis)  # fmt: skip
    faster = thread_order.faster_ranges(order)
    position = thread_order.positions(faster)
    if not (blocks or position):
        return None
    index, only = _blocks(order, blocks, gpu)
    extents = thread_order.extents(position)
    if extents is None:
        return _one_number(index, only, faster)
    threads = grid("lidx", extents[::-1], gpu.block, innermost_first=True).index[::-1]
    index |= {r: threads[i] for r, i in position.items()}
    return _Threads(index, only, position, threads, extents)


def _blocks(
    order: list[UOp], blocks: list[UOp], gpu: Gpu
) -> tuple[dict[UOp, UOp], dict[UOp, UOp]]:
    """The index of each range of blocks. If only some blocks run a range, also a loop of 0 or 1
    iterations around its nest. Adjacent nests follow one another on one grid dimension."""
    around = dict.fromkeys(frozenset(ranges.ranges(u)) for u in order if u.op is Ops.STORE)
    nests = dict.fromkeys(frozenset(r for r in n if r in blocks) for n in around)
    nests = {n: None for n in nests if not any(n < other for other in nests)}
    shared = [r for r in blocks if all(r in n for n in nests)]
    beside = [[r for r in blocks if r in n and r not in shared] for n in nests]
    beside = [own for own in beside if own]
    if sum(map(len, beside)) > len(blocks) - len(shared):
        raise Unsupported("loop nests that share only some blocks are not supported")
    sizes = [dim_uop(shapes.size(tuple([r.src[0] for r in own]))) for own in beside]
    total = functools.reduce(affine.add, sizes, affine.const(0))
    extents = [r.src[0] for r in shared] + [total] * bool(beside)
    places = grid("gidx", extents, gpu.grid, innermost_first=True).index
    index, only = dict(zip(shared, places)), {}
    start = affine.const(0)
    for own, size in zip(beside, sizes):
        end = affine.add(start, size)
        runs = index_maps.both(
            compare.less(affine.plus(start, -1), places[-1]), compare.less(places[-1], end)
        )
        axis = (*own[0].arg.axis, _ONLY)
        only[own[0]] = loop = make_range(fold.cast(runs, dtypes.index), axis, "loop")
        lengths = tuple([uop_dim(r.src[0]) for r in own])
        digits = index_maps.reshape_index((size,), lengths, (affine.sub(places[-1], start),))
        index |= {r: affine.add(i, loop) for r, i in zip(own, digits)}
        start = end
    return index, only


def _one_number(
    index: dict[UOp, UOp], only: dict[UOp, UOp], faster: Mapping[UOp, set[UOp]]
) -> _Threads:
    """A block of one dimension, whose ranges are digits of a thread's number. A range around
    several nests has one step, so a nest with fewer faster threads leaves gaps (`_only_first`)."""
    steps = thread_order.steps(faster)
    total = max([step * ranges.length(r) for r, step in steps.items()])
    number = grid("lidx", [total]).index[0]
    for r, step in steps.items():
        digit = affine.floordiv(number, affine.const(step))
        index[r] = affine.floormod(digit, r.src[0])
    return _Threads(index, only, dict.fromkeys(steps, 0), (number,), (total,), steps)


def _only_first(u: UOp, launch: _Threads) -> UOp | None:
    """The condition for a thread to do a store: it is first in all dimensions, or digits, that the
    store does not move with. None if all threads do it."""
    own = [r for r in ranges.ranges(u) if r in launch.position]
    gates: list[UOp] = []
    if launch.steps:
        number, below = launch.threads[0], 1  # the threads below of the faster ranges
        for r in sorted(own, key=thread_order.speed, reverse=True):
            if (gap := launch.steps[r] // below) > 1:
                digit = affine.floordiv(number, affine.const(below))
                gates.append(_is_zero(affine.floormod(digit, affine.const(gap))))
            below = launch.steps[r] * ranges.length(r)
        if below < launch.sizes[0]:
            gates.append(compare.less(number, affine.const(below)))
    else:
        inside = {launch.position[r] for r in own}
        others = [t for i, t in enumerate(launch.threads) if i not in inside]
        gates = [_is_zero(t) for t in others if t.op is not Ops.CONST]
    return functools.reduce(index_maps.both, gates) if gates else None


def _is_zero(index: UOp) -> UOp:
    return compare.equal(index, affine.const(0))


class _ThreadPlacement:
    """The rewrite of one kernel: ranges become indices; threads wait for shared values."""

    def __init__(self, order: list[UOp], launch: _Threads, shared: Container[UOp]) -> None:
        self.launch = launch
        buffers = [u for u in order if u.op is Ops.BUFFER]
        self.slot = 1 + max([int(u.arg.slot) for u in buffers], default=-1)
        # In a kernel without barriers, each thread has storage of its own.
        waits = any(u.op is Ops.BARRIER for u in order)
        self.own = {u for u in buffers if not waits and u not in shared}
        self.read_by_first: dict[UOp, UOp] = {}
        self.waiting: set[UOp] = set()
        self._reads_of_targets(order)

    def _reads_of_targets(self, order: list[UOp]) -> None:
        """Find the loads of a store by one thread from the storage that it writes: other threads
        could load after the store. If no other thread needs the value, only that thread loads it;
        else the store waits for all loads."""
        own: dict[UOp, list[UOp]] = {}  # of a store, its loads from the storage that it writes
        gates: dict[UOp, set[UOp]] = {}  # of a load, the gates of the stores that use it
        needed: dict[UOp, None] = {}  # values that all threads need
        for u in order:
            gate = self._gate(u) if u.op is Ops.STORE else None
            if gate is not None:
                target = storage_root(u.src[0])
                for v in walk.toposort(u, lambda v: v.op is not Ops.REDUCE):
                    if v.op is Ops.LOAD:
                        gates.setdefault(v, set()).add(gate)
                        if storage_root(v.src[0]) is target:
                            own.setdefault(u, []).append(v)
            elif u.op in (Ops.STORE, Ops.REDUCE):
                walk.toposort(u, done=needed)
        for u, reads in own.items():
            for v in reads:
                if v in needed or len(gates[v]) > 1:
                    self.waiting.add(u)
                else:
                    (self.read_by_first[v],) = gates[v]

    def change(self, u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        launch = self.launch
        if u in launch.index:
            return launch.index[u]
        if u.op is Ops.BUFFER and u in self.own and u.arg.space == "local":
            return u.replace(arg=replace(u.arg, space="reg"))
        if u.op is Ops.STORE:
            return self._store(u, src)
        if u in self.read_by_first:
            return intern(Ops.LOAD, u.dtype, (src[0], _both(self.read_by_first[u], src[1:])), u.arg)
        closed = ranges.closed_ranges(u)
        if not any(r in launch.index for r in closed):
            return None
        if u.op is Ops.REDUCE:
            return self._reduce(u, src[0], closed)
        kept = tuple([
            launch.only.get(old, s) for s, old in zip(src[1:], u.src[1:])
            if old not in launch.index or old in launch.only
        ])  # fmt: skip
        return ended(src[0], *kept)

    def _reduce(self, u: UOp, value: UOp, closed: tuple[UOp, ...]) -> UOp:
        """A REDUCE over threads, one dimension after the other."""
        if self.launch.steps:
            raise Unsupported(
                "a reduce shared by threads next to a tile that the threads fill is not supported"
            )
        for r in closed:
            if r not in self.launch.position:
                raise InvalidIR(f"place-threads: {u.op!r} closes threads and loops together")
            threads, sizes, position = self.launch.threads, self.launch.sizes, self.launch.position
            value = reduce_threads(u, value, threads, sizes, position[r], self.slot)
            self.slot += 1
        return value

    def _store(self, u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        gate = self._gate(u)
        if gate is None:
            return None
        target = _after_reads(src) if u in self.waiting else src[0]
        return intern(Ops.STORE, dtypes.void, (target, src[1], _both(gate, src[2:])), u.arg)

    def _gate(self, u: UOp) -> UOp | None:
        """The condition for a thread to do a store; None if all threads do it."""
        return None if storage_root(u.src[0]) in self.own else _only_first(u, self.launch)


def _after_reads(src: tuple[UOp, ...]) -> UOp:
    """The address of a store, after a barrier that follows all loads from its storage."""
    storage, *index = src[0].src
    below: dict[UOp, None] = {}
    for s in src:
        walk.toposort(s, done=below)
    root = storage_root(storage)
    own = [v for v in below if v.op is Ops.LOAD and storage_root(v.src[0]) is root]
    free = intern(Ops.AFTER, storage.dtype, (storage, intern(Ops.BARRIER, dtypes.void, tuple(own))))
    return intern(Ops.INDEX, src[0].dtype, (free, *index))


def _both(gate: UOp, others: tuple[UOp, ...]) -> UOp:
    return index_maps.both(gate, others[0]) if others else gate


def place_threads(kernel: UOp, context: Context) -> UOp:
    """The kernel on hardware indices; Unsupported if a block has too many threads for the GPU."""
    gpu = context.target.gpu
    launch = None if gpu is None else _threads(list(walk.order(kernel)), gpu)
    if gpu is None or launch is None:  # without a GPU, threads are loops
        return kernel
    if (size := math.prod(launch.sizes)) > gpu.threads_per_block:
        raise Unsupported(f"a block has {size} threads, expected at most {gpu.threads_per_block}")
    kernel = swizzled(kernel)
    order = list(walk.order(kernel))
    placing = _ThreadPlacement(order, launch, tiles := filled_together(order))
    return rebuild.rewritten(with_barriers(kernel, tiles), placing.change)
