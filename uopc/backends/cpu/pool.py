"""The worker threads that share the chunks of a parallel launch with the caller.

Workers are Python daemon threads that enter machine code and stay there without the interpreter
lock: they spin for a short while after each job, then park on a lock of their own. The pool's
memory and the code are never freed, because a worker may be inside at any time.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time

from uopc.backends.cpu.elf_loader import address_of, function_address, map_private
from uopc.backends.cpu.native import CLOSED, POOL, POOL_LINE, Runtime, install
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


def _release(lock: int) -> None:
    release = ctypes.pythonapi.PyThread_release_lock
    release.argtypes = (ctypes.c_void_p,)
    release.restype = None
    release(lock)


def _spins(runtime: Runtime, seconds: float) -> int:
    """The number of pause instructions in that time, which differs tenfold between machines."""
    steps = 1000
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        runtime.relax(steps)
        best = min(best, time.perf_counter() - begin)
    return max(1, int(steps * seconds / best))


class Pool:
    """Worker threads, and the memory that they share with their callers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._memory = map_private(POOL["workers"] + POOL_LINE * MAX_WORKERS)
        self.address = address_of(self._memory)
        self._growing = threading.Lock()
        self._wanted = 0
        self.workers = 0
        self._threads: list[threading.Thread] = []
        self._put("word", CLOSED)
        self._put("spin", _spins(runtime, SPIN_SECONDS))
        self._put("acquire", function_address(ctypes.pythonapi, "PyThread_acquire_lock"))
        self._put("release", function_address(ctypes.pythonapi, "PyThread_release_lock"))
        self._put("yield", function_address(ctypes.CDLL(None), "sched_yield"))

    def _word(self, field: str, extra: int = 0) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + POOL[field] + extra)

    def _put(self, field: str, value: int, extra: int = 0) -> None:
        self._word(field, extra).value = value

    def grow(self, workers: int) -> int:
        """Start workers until there are that many or the system refuses; returns their number."""
        with self._growing:
            self._wanted = max(self._wanted, min(workers, MAX_WORKERS))
            while self.workers < self._wanted:
                if not self._start_worker(self.workers):
                    break
                self.workers += 1
            return self.workers

    def _start_worker(self, index: int) -> bool:
        self._put("workers", 0, POOL_LINE * index)
        self._put("workers", _new_held_lock(), POOL_LINE * index + 8)
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
        self._threads.append(thread)
        return True

    def stop(self) -> None:
        """End the workers of a pool that is not in use."""
        with self._growing:
            self._put("stop", 1)
            epoch = (self._word("word").value >> 32) + 1
            self._put("word", ((epoch & 0x7FFFFFFF) << 32) | CLOSED)
            for index, thread in enumerate(self._threads):
                while thread.is_alive():
                    asleep = self._word("workers", POOL_LINE * index)
                    if asleep.value:
                        asleep.value = 0
                        _release(self._word("workers", POOL_LINE * index + 8).value)
                    thread.join(0.001)
            self._threads.clear()
            self.workers = self._wanted = 0
            self._put("stop", 0)

    def forget_workers(self) -> None:
        """Mark the threads as gone: in the child, after a fork."""
        self._growing = threading.Lock()
        self.workers = 0
        self._threads.clear()
        self._put("busy", 0)
        self._put("word", self._word("word").value | CLOSED)
        for index in range(MAX_WORKERS):
            self._put("workers", 0, POOL_LINE * index)

    def revive(self) -> None:
        """Start as many workers as there were before a fork; at the first use after it."""
        self.grow(self._wanted)


_shared: list[Pool] = []
_sharing = threading.Lock()


def shared_pool(workers: int) -> Pool:
    """The process's pool, with at least that many workers if the system allows."""
    with _sharing:
        if not _shared:
            _shared.append(Pool(install()))
    _shared[0].grow(workers)
    return _shared[0]


_stale = False


def _set_stale(stale: bool) -> None:
    global _stale
    _stale = stale
    install().set_global("stale", int(stale))


def is_stale() -> bool:
    """True if a fork has lost the workers."""
    return _stale


def _after_fork_in_child() -> None:
    global _sharing
    _sharing = threading.Lock()
    for pool in _shared:
        if pool.workers:
            pool.forget_workers()
            _set_stale(True)


def revive_shared_pool() -> None:
    """Restart the workers that a fork has lost."""
    _set_stale(False)
    for pool in _shared:
        pool.revive()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
