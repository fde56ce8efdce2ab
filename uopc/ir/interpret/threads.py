"""A GPU launch on NumPy: all threads of some blocks at once, step by step.

The blocks are one axis of every array and the threads of a block another (see `state.py`), so all
threads are at the same step and a BARRIER has nothing to wait for. Errors of real threads are
found: a barrier that some threads of a block do not reach, and local storage that two threads use
without a barrier between them, at least one of them writing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.interpret.arguments import name_of
from uopc.ir.verify.nodes import describe

WARP = 32
_NOBODY, _SEVERAL = -1, -2
THREADS = -3  # the axis of threads in every array; blocks and lanes follow


def is_private(base: UOp) -> bool:
    """True if each block, or each thread, has its own copy of a storage."""
    return base.op is Ops.BUFFER and base.arg.space != "global"


class RunningThreads:
    """The threads that run now: the threads of blocks `first` … `first + count`.

    `extents`: the number of values of each SPECIAL, in the order x, y, z.
    """

    def __init__(self, extents: dict[UOp, int]) -> None:
        self.blocks = {u: n for u, n in extents.items() if not u.arg.startswith("lidx")}
        self.threads = {u: n for u, n in extents.items() if u.arg.startswith("lidx")}
        self.first, self.count = 0, 0
        self.users: dict[UOp, _Users] = {}  # of each local BUFFER, since the last BARRIER

    @property
    def width(self) -> int:
        """Threads in a block."""
        return math.prod(self.threads.values())

    def batches(self, budget: int) -> Iterator[None]:
        """Set the next blocks and yield, at most `budget` threads at once."""
        total = math.prod(self.blocks.values())
        step = max(1, budget // max(1, self.width))
        for self.first in range(0, total, step):
            self.count = min(step, total - self.first)
            self.users = {}
            yield

    def index(self, special: UOp) -> Array:
        """The value of a SPECIAL in each thread."""
        block = special in self.blocks
        extents = self.blocks if block else self.threads
        numbers = np.arange(self.first, self.first + self.count) if block else np.arange(self.width)
        for u, n in extents.items():  # x, the first, changes fastest
            if u is special:
                return (numbers % n).reshape((-1, 1) if block else (-1, 1, 1))
            numbers = numbers // n
        raise InvalidIR(f"{describe(special)}: not a dimension of this launch")

    def copies(self, base: UOp) -> int:
        """The number of copies of a BUFFER: one per block or thread if the BUFFER is private."""
        if not is_private(base):
            return 1
        return self.count * (self.width if base.arg.space == "reg" else 1)

    def offset(self, base: UOp, size: int) -> Array:
        """The offset at which each thread's copy of a BUFFER begins."""
        if self.copies(base) == 1:
            return np.zeros(1, np.int64)
        block = np.arange(self.count).reshape(-1, 1)
        if base.arg.space == "reg":
            block = block * self.width + np.arange(self.width).reshape(-1, 1, 1)
        return block * size

    def touch(self, u: UOp, base: UOp, size: int, flat: Array, ok: Array, writes: bool) -> None:
        """Record an access to local storage, an array of `size` elements; InvalidIR if the access
        races with another thread."""
        if base.op is not Ops.BUFFER or base.arg.space != "local":
            return
        numbers = np.arange(self.width).reshape(-1, 1, 1)
        offsets, threads, active = np.broadcast_arrays(flat, numbers, ok)
        users = self.users.setdefault(base, _Users(size))
        race = users.add(offsets[active], threads[active], writes)
        if race is not None:
            at, thread, other = race
            raise InvalidIR(
                f"{describe(u)}: thread {thread} {'writes' if writes else 'reads'} element {at}"
                f" of {name_of(base)}, which"
                f" {'several threads' if other == _SEVERAL else f'thread {other}'} used since the"
                " last barrier"
            )

    def barrier(self, u: UOp, active: Array) -> None:
        """InvalidIR unless all threads of a block reach the barrier, or none."""
        self._check_convergence(u, active, self.width, "block")
        self.users = {}

    def exchange(self, u: UOp, value: Array, active: Array) -> Array:
        """The value in the thread with number xor arg."""
        self._check_convergence(u, active, min(WARP, self.width), "warp")
        other = np.arange(self.width) ^ u.arg
        if u.arg >= WARP or (other >= self.width).any():
            raise InvalidIR(f"{describe(u)}: there is no such thread in the warp")
        full = np.broadcast_to(value, np.broadcast_shapes(value.shape, (self.width, 1, 1)))
        return np.asarray(np.take(full, other, axis=THREADS))

    def _check_convergence(self, u: UOp, active: Array, size: int, what: str) -> None:
        full = np.broadcast_to(active, np.broadcast_shapes(active.shape, (self.width, 1, 1)))
        for i in range(0, self.width, size):
            team = np.take(full, np.arange(i, min(i + size, self.width)), axis=THREADS)
            if (team.any(THREADS) != team.all(THREADS)).any():
                raise InvalidIR(f"{describe(u)}: not all threads of the {what} get here")


class _Users:
    """The last writer and the last reader, by thread, of each element of a BUFFER."""

    def __init__(self, size: int) -> None:
        self.writers, self.readers = np.full(size, _NOBODY), np.full(size, _NOBODY)

    def add(self, offsets: Array, threads: Array, writes: bool) -> tuple[int, int, int] | None:
        """Record accesses. Return a race, if any: an offset, the thread, and the earlier thread."""
        mine = self.writers if writes else self.readers
        race = _race(offsets, threads, self.writers)
        if race is None and writes:
            race = _race(offsets, threads, self.readers)
        before = mine[offsets]
        mine[offsets] = threads
        now = mine[offsets]
        several = (now != threads) | ((before != _NOBODY) & (before != threads))
        mine[offsets[several]] = _SEVERAL
        return race or (_race(offsets, threads, mine) if writes else None)


def _race(offsets: Array, threads: Array, users: Array) -> tuple[int, int, int] | None:
    found = users[offsets]
    bad = np.flatnonzero((found != _NOBODY) & (found != threads))[:1]
    return (int(offsets[bad[0]]), int(threads[bad[0]]), int(found[bad[0]])) if bad.size else None
