"""Calls in calls, garbage, threads and forks: the arena and the workers of programs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests import ROOT
from tests.backends.cpu.plans import (
    F4,
    KERNELS,
    floats,
    image,
    muladd_plan,
    program,
)
from uopc.backends import detect
from uopc.backends.cpu import native, pool
from uopc.backends.cpu.callables import ProgramBase, make_callable
from uopc.backends.cpu.elf_loader import Image, load
from uopc.backends.llvm.jit import compile_object
from uopc.backends.plan import (
    Argument,
    Plan,
    PlannedLaunch,
    Pointer,
    ResultArray,
    Scalar,
)  # fmt: skip
from uopc.cost.machine import machine_of
from uopc.ir import forks
from uopc.passes.optimize.schedule.cpu import thread_work


def arena_plan(**changes: Any) -> Plan:
    """out = (x + x) + x, through the arena, 64 bytes in."""
    plan = Plan(
        (Argument("x", F4, (1024,)),),
        (ResultArray(F4, (1024,)),),
        (
            PlannedLaunch("double", (Pointer(0), Pointer(2, 64), Scalar(256)), 4, parallel=True),
            PlannedLaunch(
                "add", (Pointer(0), Pointer(2, 64), Pointer(1), Scalar(64)), 16, parallel=True
            ),
        ),
        arena_bytes=64 + 4096,
    )
    return replace(plan, **changes)


@pytest.mark.parametrize("plain", [False, True])
def test_nested_call_has_its_own_arena(plain: bool) -> None:
    nested: dict[int, np.ndarray] = {}
    depth: list[int] = []
    f: ProgramBase

    def inside(_: int, chunk: int) -> None:
        if len(depth) < 3:
            seed = len(depth) + 1
            depth.append(seed)
            nested[seed] = f(floats(1024, seed=seed))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(inside)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    code = Image({**image().symbols, "inside": address}, (image().memory, callback))
    first, second = arena_plan().launches
    f = make_callable(
        arena_plan(launches=(first, PlannedLaunch("inside", ()), second)), code, ProgramBase, plain
    )
    x = floats(1024)
    np.testing.assert_array_equal(f(x), (x + x) + x)
    assert len(nested) == 3
    for seed, result in nested.items():
        x = floats(1024, seed=seed)
        np.testing.assert_array_equal(result, (x + x) + x)
    np.testing.assert_array_equal(f(x), (x + x) + x)


def test_finalizers_in_a_cycle_may_call() -> None:
    results = []

    class Owner:
        def __init__(self, seed: int) -> None:
            self.me = self
            self.f = make_callable(arena_plan(), load(compile_object(KERNELS)), ProgramBase)
            self.f.owner = self  # type: ignore[attr-defined]  # a cycle
            self.x = floats(1024, seed=seed)

        def __del__(self) -> None:
            results.append(np.array_equal(self.f(self.x), (self.x + self.x) + self.x))

    gone = []
    for seed in range(30):
        owner = Owner(seed)
        gone.append(weakref.ref(owner.f))
        del owner
    gc.collect()
    assert results == [True] * 30 and not any(reference() for reference in gone)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("nogil", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_concurrent_calls(threads: int, nogil: bool, plain: bool) -> None:
    f = program(arena_plan(threads=threads, nogil=nogil), plain)
    wrong = []

    def work(seed: int) -> None:
        x = floats(1024, seed=seed)
        expected, out = (x + x) + x, np.empty_like(x)
        for _ in range(150):
            if not np.array_equal(f(x), expected) or not np.array_equal(f(x, out=out), expected):
                wrong.append(seed)

    with ThreadPoolExecutor(4) as workers:  # raises what a worker raises
        list(workers.map(work, range(4)))
    assert not wrong


TEAMS: list[pool.ThreadPool] = []  # workers stay in the memory of their pool
YIELDS: list[object] = []  # and call what was theirs


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_chunk_runs_once(threads: int) -> None:
    runtime = native.install()
    team = pool.ThreadPool(runtime)
    TEAMS.append(team)
    assert team.grow(threads - 1) == threads - 1
    mark = image().symbols["mark"]
    for repeat in range(100):
        for chunks in range(18):
            counts = np.zeros(20, np.int64)
            context = np.array([counts.ctypes.data])
            runtime.spread(team.address, mark, context.ctypes.data, chunks, threads - 1)
            assert (counts[:chunks] == 1).all() and not counts[chunks:].any()
        if repeat % 10 == 0:
            time.sleep(0.002)  # long enough for the workers to park


KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def test_a_call_waits_for_no_worker_that_has_not_begun() -> None:
    """The worker of this pool never comes."""
    runtime = native.install()
    team = pool.ThreadPool(runtime)
    team._word("most").value = 1
    ran: list[tuple[int, int]] = []
    kernel = KERNEL_TYPE(lambda words, chunk: ran.append((threading.get_ident(), chunk)))
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    for chunks in (2, 5):
        ran.clear()
        runtime.spread(team.address, address, 0, chunks, 1)
        assert ran == [(threading.get_ident(), chunk) for chunk in range(chunks)]
    assert team._word("word").value >> 32 == 2  # the jobs were open to it


def test_who_waits_gives_way() -> None:
    """The worker ends its chunk when the caller, who waits for it, has given way; then the worker
    waits for the next job."""
    runtime = native.install()
    team = pool.ThreadPool(runtime)
    TEAMS.append(team)
    caller, begun = threading.get_ident(), threading.Event()
    gave = {True: threading.Event(), False: threading.Event()}  # by whether it is the caller

    def note() -> int:
        gave[threading.get_ident() == caller].set()
        return 0

    give_way = ctypes.CFUNCTYPE(ctypes.c_int)(note)
    YIELDS.append(give_way)
    usual_give_way = int(team._word("give_way").value)
    team._word("give_way").value = ctypes.cast(give_way, ctypes.c_void_p).value or 0
    assert team.grow(1) == 1
    waited: list[bool] = []

    def chunk(words: object, number: int) -> None:
        if threading.get_ident() == caller:
            waited.append(begun.wait(60))
            return
        begun.set()
        waited.append(gave[True].wait(60))

    kernel = KERNEL_TYPE(chunk)
    runtime.spread(team.address, ctypes.cast(kernel, ctypes.c_void_p).value, 0, 2, 1)
    assert waited == [True, True]
    assert gave[False].wait(60)
    team._word("give_way").value = usual_give_way


def test_fork() -> None:
    f = program(arena_plan(threads=3))
    x = floats(1024)
    expected = (x + x) + x
    assert np.array_equal(f(x), expected)
    for _ in range(5):
        token = f._runner.arena.acquire(64)[1]  # as if another thread were in the program
        child = os.fork()
        if child == 0:
            try:
                arena = f._runner.arena
                free = arena.acquire(64)[1] is arena
                arena.release(arena)
                good = pool.stale and all(np.array_equal(f(x), expected) for _ in range(50))
            finally:  # the child must not go on with other tests, whatever it raised
                os._exit(0 if free and good and not pool.stale else 1)
        f._runner.arena.release(token)
        assert np.array_equal(f(x), expected)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_waits_for_no_lock_that_its_child_would_need() -> None:
    """Another thread holds each lock for a moment, and computes a value that is kept."""
    inside, going_on = threading.Event(), threading.Event()

    class Slow:
        @forks.cached_property
        def value(self) -> int:
            inside.set()
            going_on.wait(10)
            return 1

    other = threading.Thread(target=lambda: Slow().value)
    other.start()
    inside.wait(10)
    lock = threading.Lock()
    forks.wait_for(lock)
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    inside.clear()
    child = os.fork()
    if child == 0:
        going_on.set()
        os._exit(0 if lock.acquire(timeout=5) and Slow().value == 1 else 1)
    going_on.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    forks._locks.pop(lock)


@pytest.mark.slow
def test_exit_with_workers() -> None:
    here = "from tests.backends.cpu.test_pool import arena_plan, floats, program"
    script = f"{here}; program(arena_plan(threads=3))(floats(1024))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60)
        assert done.returncode == 0


def test_workers_spin_while_the_interpreter_ends() -> None:
    """Their memory and code stay: a worker that spins reads both when modules are gone."""
    code = (
        "import uopc, numpy as np\n"
        "from uopc.backends.cpu import pool\n"
        "f = uopc.compile(uopc.param('x', (1 << 22,)) * 2.0, threads=2)\n"
        "f(np.ones(1 << 22, 'f4'))\n"
        "for p in pool._pools.values():\n"
        "    p._word('spin').value = 1 << 40  # as if the system gave the worker no time\n"
        "f(np.ones(1 << 22, 'f4'))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_trace() -> None:
    x = floats(1024)
    for f in (program(arena_plan(threads=2)), program(arena_plan(), plain=True)):
        begin = time.perf_counter()
        result, times = f._runner.trace((x,), {})
        elapsed = time.perf_counter() - begin
        np.testing.assert_array_equal(result, (x + x) + x)
        assert [kernel for kernel, _ in times] == ["double", "add"]
        assert all(0 < seconds < elapsed for _, seconds in times)


@pytest.mark.machine("this")
def test_thread_count() -> None:
    assert 1 <= detect.cores() <= len(os.sched_getaffinity(0))


@pytest.mark.machine("this")
@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 4), (2.5, 3), (0.2, 1), (64.0, 4)])
def test_threads_are_processors_that_may_be_used(
    quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7})
    monkeypatch.setattr(detect, "_processor_quota", lambda: quota)
    assert detect.cores() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, math.inf),
        ({"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_quota_of_a_group(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n", "utf-8")
    assert detect._quota_of(tmp_path) == expected


def awake() -> list[int]:
    """The threads of this process, other than this one, that run or wait for a processor."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end
            state = (task / "stat").read_text("utf-8").rpartition(") ")[2][0]
            if state != "S" and int(task.name) != threading.get_native_id():
                found.append(int(task.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux shows states of threads")
def test_workers_spin_briefly_then_park() -> None:
    """A worker that went on spinning would take a whole processor from its neighbours. On a loaded
    machine it gets its turn to park late, but it does park."""
    f, x = program(arena_plan(threads=3)), floats(1024)
    for pause in (0.0, 0.05, 0.0):  # hot, and parked in between
        np.testing.assert_array_equal(f(x), (x + x) + x)
        time.sleep(pause)
    for _ in range(600):
        if not awake():
            break
        time.sleep(0.1)
    assert not awake()


def test_work_is_shared_from_a_threshold_on() -> None:
    least = int(thread_work(machine_of(detect.host(""))))
    for n, shared in ((least // 4, False), (least + 1, True)):
        (kernel,) = uopc.compile(uopc.param("x", (n,)) + 1.0, threads=2).kernels
        assert any(opt.op == "THREAD" for opt in kernel.opts) == shared


def test_call_is_faster_than_numpy() -> None:
    f = program(muladd_plan())
    a, b, c = (floats(8, seed=s) for s in range(3))

    def best(call: Callable[[], object]) -> float:
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(2000):
                call()
            times.append(time.perf_counter() - begin)
        return min(times)

    assert best(lambda: f(a, b, c)) < best(lambda: a * b + c)
