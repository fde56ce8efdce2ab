"""Kernels are spelled out one by one, and compiled by a thread while the next ones are."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

import uopc
from uopc.backends.llvm import modules
from uopc.driver import lower_only
from uopc.errors import InvalidIR
from uopc.ir.core import arena
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes import pass_manager
from uopc.program import request as requests
from uopc.program.cpu import BACKEND

LAYERS = 12


def layers(count: int = LAYERS) -> tuple[UOp, dict[str, np.ndarray]]:
    """Products of different sizes, each a kernel of its own, and arrays for them."""
    rng = np.random.default_rng(count)
    value, arrays = uopc.param("x", (3, 16)), {"x": rng.random((3, 16), np.float32)}
    for i in range(count):
        shape = (16 + i, 17 + i)
        arrays[f"w{i}"] = rng.random(shape, np.float32) / 16
        value = (value @ uopc.param(f"w{i}", shape)).tanh().contiguous()
    return value, arrays


def expected(arrays: dict[str, np.ndarray]) -> np.ndarray:
    value = arrays["x"].astype(np.float64)
    for i in range(len(arrays) - 1):
        value = np.tanh(value @ arrays[f"w{i}"])
    return value


def lowered(graph: UOp, done: pass_manager.Done | None) -> pass_manager.Lowered:
    request = requests.prepare(graph, None, True, 1, None, uopc.config.current(), None, "cpu")
    return requests.lower(request, BACKEND.target("cpu", ""), done=done)


def test_kernels_are_those_of_passes_that_run_on_all() -> None:
    told: list[tuple[UOp, str]] = []
    with arena.arena():
        graph, _ = layers()
        one_by_one = lowered(graph, lambda kernel, linear, name: told.append((linear, name)))
        together = lower_only(graph, threads=1)
        assert [str(k) for k in one_by_one.kernels] == [str(k) for k in together.kernels]
        assert one_by_one.calls == together.calls
        assert [name for _, name in told] == [one_by_one.names[k] for k in one_by_one.kernels]
        assert [r.name for r in one_by_one.runs] == [r.name for r in together.runs]
        assert all([r.after for r in together.runs])
        assert not any([r.before or r.after for r in one_by_one.runs[1:]])


def test_kernels_that_become_equal_are_told_once() -> None:
    """Rows of 6 x 10 and of 60 elements are the same loop."""
    x, y = uopc.param("x", (6, 10)), uopc.param("y", (60,))
    told: list[str] = []
    with arena.arena():
        made = lowered((x * 3).sink(y * 3), lambda kernel, linear, name: told.append(name))
    assert len(made.program.src) == 2
    assert len(told) == len(made.kernels) == 1


def test_what_one_kernel_took_is_gone_before_the_next() -> None:
    counts: list[int] = []
    with arena.arena():
        graph, _ = layers()
        before = len(arena.table)
        made = lowered(graph, lambda kernel, linear, name: counts.append(len(arena.table)))
        linear = sum([len(k.src) for k in made.kernels])
        apart = len(arena.table) - before
        with_all = lower_only(graph, threads=1)
        assert with_all.kernels == made.kernels
        together = len(arena.table) - before
    assert len(counts) == LAYERS
    assert together - apart > linear
    assert counts[-1] - counts[0] < 2 * linear


def test_nodes_that_nobody_refers_to_pass() -> None:
    x = uopc.param("passes", (4,))
    others = {u for u in _alive() if u.op is Ops.SQRT}  # of other tests
    with arena.arena():
        outside = x + 1
        with arena.passing():
            kept = (x * 2).sqrt()
            (x * 3).sqrt()
            assert sum(u.op is Ops.SQRT and u not in others for u in _alive()) == 2
        assert [u for u in _alive() if u.op is Ops.SQRT and u not in others] == [kept]
        assert (x * 2).sqrt() is kept and x + 1 is outside
        (kept + outside).sin()  # it is made after, so it stays until the arena ends
        assert any([u.op is Ops.SIN and (kept + outside) in u.src for u in _alive()])


def test_outside_of_a_compile_nothing_passes_early() -> None:
    x = uopc.param("x", (4,))
    with arena.passing():
        made = x.exp()
    assert x.exp() is made


def _alive() -> list[UOp]:
    gc.collect()
    found = [e() if type(e) is arena.Ref else e for e in list(arena.table.values())]
    return [u for u in found if u is not None]


@pytest.mark.parametrize("enough", (1, 30_000, 200_000))
def test_results_do_not_depend_on_modules(enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "ENOUGH", enough)
    graph, arrays = layers()
    with uopc.options(cache_dir="", programs=0):
        program = uopc.compile(graph, threads=1)
        got = program(**arrays)
    assert np.abs(got - expected(arrays)).max() < 1e-5
    codes = {k.code for k in program._artifact.kernels}
    assert (len(codes) == LAYERS) is (enough == 1)
    assert not [t for t in threading.enumerate() if t.name == "uopc-llvm"]


def test_a_kernel_from_the_disk_has_its_own_module(tmp_path, monkeypatch) -> None:
    """The second process gets several object files from one entry."""
    monkeypatch.setattr(modules, "ENOUGH", 1)
    graph, arrays = layers(3)
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        first = uopc.compile(graph, threads=1)
        again = uopc.compile(graph, threads=1)
        assert (first.stats["cache"], again.stats["cache"]) == ("", "disk")
        assert np.array_equal(first(**arrays), again(**arrays))


def test_an_error_of_a_thread_is_the_callers() -> None:
    made = modules.Modules()
    good = "define void @good(ptr %words, i64 %chunk) {\n  ret void\n}" + " " * modules.ENOUGH
    made.add("bad", (good.replace("ret void", "ret i32 nothing").replace("good", "bad"), []))
    made.add("good", (good, []))
    with pytest.raises(InvalidIR, match="LLVM cannot parse"):
        made.finish()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_compiles_although_threads_of_its_parent_did(monkeypatch) -> None:
    """The parent's program failed, or another thread compiles it: nobody waits for its modules."""
    monkeypatch.setattr(modules, "ENOUGH", 1)
    made = modules.Modules()
    for i in range(12):
        body = f"define void @f{i}(ptr %words, i64 %chunk) {{\n"
        body += "".join(f"  store volatile i64 {k}, ptr %words\n" for k in range(1000))
        made.add(f"f{i}", (body + "  ret void\n}", []))
    child, good = os.fork(), False
    if child == 0:
        signal.alarm(120)  # a child that waits for a lock forever ends by this signal
        try:
            empty = modules.Modules()
            empty.add("f", ("define void @f(ptr %words, i64 %chunk) {\n  ret void\n}", []))
            good = bool(empty.finish()[0]["f"])
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    made.finish()


def test_waiting_for_another_module_is_no_time_of_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """llvmlite compiles one module at a time: threads wait for each other."""
    monkeypatch.setattr(modules, "ENOUGH", 1)
    monkeypatch.setattr(modules.jit, "compile_object", lambda text, cpu: time.sleep(0.1) or b"")
    made = modules.Modules()
    for name in "abc":
        made.add(name, ("define void @f() {\n  ret void\n}", []))
    code, seconds = made.finish()
    assert code == dict.fromkeys("abc", b"") and seconds < 0.1


def test_no_functions_have_no_code() -> None:
    assert modules.Modules().finish() == ({}, 0)
