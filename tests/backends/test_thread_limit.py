"""The limit of threads that threadpoolctl sets holds for programs, compiled before or after."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import uopc
from uopc.backends import thread_limit
from uopc.backends.cpu import pool

X = uopc.param("x", (512, 1024))
A = np.random.default_rng(0).random((512, 1024), np.float32)


@pytest.fixture
def program() -> uopc.Program:
    return uopc.compile((X.sin() * X).exp().sum(0), threads=3)


@pytest.fixture(autouse=True)
def no_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins and ends without a limit, on a machine of 8 cores, whatever this one has."""
    if request.function is not test_what_threadpoolctl_tells:
        monkeypatch.setattr(thread_limit, "usual", lambda: 8)
    yield
    thread_limit.set_limit(pool.MAX_WORKERS)
    assert thread_limit.limit is None


def is_shared(program: uopc.Program) -> bool:
    """True if a call gives chunks to the workers, and not all to the caller."""
    epoch = pool.shared_pool(2)._word("word")
    before = epoch.value
    program(A)
    return epoch.value != before


def threads_of(program: uopc.Program) -> int:
    """The number of threads that ran chunks, the most of ten calls."""
    ran = [program._runner.slices((A,), {})[1] for _ in range(10)]
    return max(len({piece.thread for piece in pieces}) for pieces in ran)


def test_threadpoolctl_limits_programs(program: uopc.Program) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl", minversion="3.2")
    want = program(A)
    assert is_shared(program)
    with threadpoolctl.threadpool_limits(limits=1):
        assert not is_shared(program) and threads_of(program) == 1
        np.testing.assert_array_equal(program(A), want)
        later = uopc.compile(X.cos().sum(0), threads=3)
        assert not is_shared(later)
    assert is_shared(program) and is_shared(later)
    with threadpoolctl.threadpool_limits({"uopc": 1}):
        assert not is_shared(program)
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        assert is_shared(program)


def test_what_threadpoolctl_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl", minversion="3.2")
    monkeypatch.setenv("UOPC_THREADS", "5")

    def told() -> list[dict[str, Any]]:
        return [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "uopc"]

    (info,) = told()
    assert info["num_threads"] == 5 and info["version"] == uopc.__version__
    with threadpoolctl.threadpool_limits(2):
        assert told()[0]["num_threads"] == thread_limit.limit == 2
    assert thread_limit.limit is None


def test_two_threads_of_three(program: uopc.Program) -> None:
    team = pool.shared_pool(2)
    thread_limit.set_limit(1)
    assert team._word("most").value == 0
    thread_limit.set_limit(2)
    assert team._word("most").value == 1 and threads_of(program) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("first", ("uopc", "threadpoolctl"))
def test_either_is_imported_first(first: str) -> None:
    pytest.importorskip("threadpoolctl", minversion="3.2")
    names = (first, "uopc" if first == "threadpoolctl" else "threadpoolctl")
    code = f"import {names[0]}, {names[1]}\n"
    code += "print([i['user_api'] for i in threadpoolctl.threadpool_info()].count('uopc'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1"]


def test_it_registers_where_threadpoolctl_can(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Any] = []
    recent = types.SimpleNamespace(LibController=object, register=known.append)
    cases = {"recent": recent, "old": types.SimpleNamespace(LibController=object), "none": None}
    for name, module in cases.items():
        known.clear()
        monkeypatch.setitem(sys.modules, "threadpoolctl", module)  # with None an import fails
        monkeypatch.setattr("importlib.util.find_spec", lambda _, found=module: found)
        thread_limit.register("1")
        assert [c.internal_api for c in known] == (["uopc"] if name == "recent" else [])
