"""The worker threads that share the chunks of a launch with the caller; `launch_ir.py` wakes them.

Workers are Python daemon threads that enter machine code and stay there without the interpreter
lock: they spin for a short while after each job, then park on a lock of their own. The pool's
memory and the code are never freed, because a worker may be inside at any time.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

from uopc.backends import thread_limit
from uopc.backends.cpu.elf_loader import (
    address_of,
    function_address,
    keep_for_ever,
    map_private,
)
from uopc.backends.cpu.native import Runtime, install
from uopc.backends.cpu.structs import CLOSED, POOL, POOL_LINE
from uopc.backends.detect import MOST_CORES
from uopc.ir.core.arena import NativeThread

# Long enough to stay awake between kernels and between calls in a tight loop, short enough not to
# keep a core from other processes.
SPIN_SECONDS = 100e-6
MAX_WORKERS = MOST_CORES - 1  # beside the caller


def _new_held_lock() -> int:
    api = ctypes.pythonapi
    api.PyThread_allocate_lock.restype = ctypes.c_void_p
    api.PyThread_acquire_lock.argtypes = (ctypes.c_void_p, ctypes.c_int)
    lock = api.PyThread_allocate_lock()
    if lock is None:
        raise MemoryError("no lock for a worker thread")
    api.PyThread_acquire_lock(lock, 1)
    return int(lock)


def _spins(runtime: Runtime) -> int:
    """The number of pause instructions in SPIN_SECONDS, which differs tenfold between machines."""
    steps, times = 1000, []
    for _ in range(3):
        begin = time.perf_counter()
        runtime.relax(steps)
        times.append(time.perf_counter() - begin)
    return max(1, int(steps * SPIN_SECONDS / min(times)))


class ThreadPool:
    """Worker threads, and the memory that they share with their callers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._memory = map_private(POOL.offset("workers") + POOL_LINE * MAX_WORKERS)
        self.address = address_of(self._memory)
        keep_for_ever(self._memory, runtime.image.memory)
        self._growing = threading.Lock()
        self._wanted = self.workers = 0
        self._word("word").value = CLOSED
        self._word("spin").value = _spins(runtime)
        thread_limit.on_change.append(self.take_limit)
        self.take_limit()
        for field, library, function in (
            ("acquire", ctypes.pythonapi, "PyThread_acquire_lock"),
            ("release", ctypes.pythonapi, "PyThread_release_lock"),
            ("give_way", ctypes.CDLL(None), "sched_yield"),
        ):
            self._word(field).value = function_address(library, function)

    def _word(self, field: str, extra: int = 0) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + POOL.offset(field) + extra)

    def take_limit(self) -> None:
        """Let launches from now on take no more threads than the process may, and than there are.
        """
        limit = thread_limit.limit
        allowed = MAX_WORKERS if limit is None else limit - 1
        self._word("most").value = min(allowed, self.workers)

    def grow(self, workers: int) -> int:
        """Start workers until `workers` run or the system refuses one. Returns their number."""
        with self._growing:
            self._wanted = max(self._wanted, min(workers, MAX_WORKERS))
            while self.workers < self._wanted and self._start_worker(self.workers):
                self.workers += 1
            self.take_limit()
            return self.workers

    def _start_worker(self, index: int) -> bool:
        self._word("workers", POOL_LINE * index).value = 0
        self._word("workers", POOL_LINE * index + 8).value = _new_held_lock()
        epoch = (self._word("word").value >> 32) & 0xFFFFFFFF
        thread = NativeThread(
            target=self._runtime.worker,
            args=(self.address, index, epoch),
            name=f"uopc-worker-{index}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed: the caller does the work
            return False
        return True

    def forget_workers(self) -> None:
        """Reset the pool in the child after a fork, which has no other threads."""
        self._growing = threading.Lock()
        self.workers = 0
        self.take_limit()
        self._word("busy").value = 0
        self._word("word").value |= CLOSED


DEVICES = -1  # the pool whose workers each run one device
_pools: dict[int, ThreadPool] = {}
_sharing = threading.Lock()


def shared_pool(workers: int, device: int = 0) -> ThreadPool:
    """The process's pool for a device, by its number, with at least `workers` threads if the system
    allows them."""
    with _sharing:
        if device not in _pools:
            _pools[device] = ThreadPool(install())
    _pools[device].grow(workers)
    return _pools[device]


stale = False  # a fork has lost the workers


def _set_stale(value: bool) -> None:
    global stale
    stale = value
    install().set_global("stale", int(value))


def revive() -> None:
    """Start as many workers as there were before a fork, in the first call after it."""
    if not stale:
        return
    _set_stale(False)
    for pool in _pools.values():
        pool.grow(0)


def _after_fork_in_child() -> None:
    global _sharing
    _sharing = threading.Lock()
    for pool in _pools.values():
        if pool.workers:
            pool.forget_workers()
            _set_stale(True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
