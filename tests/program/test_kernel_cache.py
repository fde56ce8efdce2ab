"""Kernels are compiled once, in whichever program they are: in memory, and on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
from uopc import Ops, PatternMatcher, UOp, UPat, cache
from uopc.backends.cpu import native
from uopc.cache import disk

RANDOM = np.random.default_rng(0)
ROWS, COLUMNS = 12, 8


@pytest.fixture(autouse=True)
def folder(tmp_path: Any) -> Any:
    native.install()
    cache.clear()
    with uopc.options(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / disk.FOLDER
    cache.clear()


def as_in_a_new_process(wanted: bool) -> None:
    if wanted:
        cache.clear()


def compiled_alone(outputs: Any, **arguments: Any) -> uopc.Program:
    """The program, made without any cache."""
    with uopc.options(cache_dir="", programs=0):
        return uopc.compile(outputs, **arguments)


def same(program: uopc.Program, alone: uopc.Program) -> None:
    """All that a program shows of its kernels is as if no other program had been compiled."""
    assert [k.name for k in program.kernels] == [k.name for k in alone.kernels]
    assert [k.source for k in program.kernels] == [k.source for k in alone.kernels]
    assert [k.asm for k in program.kernels] == [k.asm for k in alone.kernels]
    assert [k.uops for k in program.kernels] == [k.uops for k in alone.kernels]
    assert [k.opts for k in program.kernels] == [k.opts for k in alone.kernels]


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda:sm_80"])
def test_columns_compiled_apart_are_one_kernel(new_process: bool, device: str) -> None:
    matrix = uopc.param("m", (ROWS, COLUMNS))
    values = RANDOM.standard_normal((ROWS, COLUMNS)).astype("f4")
    for i in range(COLUMNS):
        seed = np.eye(COLUMNS, dtype="f4")[i]
        as_in_a_new_process(new_process)
        program = uopc.compile(matrix.sin() @ uopc.constant(seed), device=device)
        assert program.stats["compiled"] == (i == 0) and program.stats["scheduled"] == 1
        if device == "cpu":
            np.testing.assert_allclose(program(values), np.sin(values[:, i]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda:sm_80"])
def test_one_kernel_of_many_changes(new_process: bool, device: str) -> None:
    def outputs(changed: float) -> list[UOp]:
        params = [uopc.param(f"x{i}", (i + 3, 5)) for i in range(6)]
        made = [p.exp().sum(axis=1) for p in params]
        made[2] = (params[2] * changed + 1.0).sin()
        return made

    uopc.compile(outputs(2.5), device=device)
    as_in_a_new_process(new_process)
    program = uopc.compile(outputs(3.5), device=device)
    assert program.stats["compiled"] == 1 and cache.counters()["kernel_hits"] == 5
    same(program, compiled_alone(outputs(3.5), device=device))
    if device == "cpu":
        values = [RANDOM.standard_normal((i + 3, 5)).astype("f4") for i in range(6)]
        for i, (got, v) in enumerate(zip(program(*values), values)):
            want = np.sin(v * 3.5 + 1) if i == 2 else np.exp(v).sum(axis=1)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_names_are_numbered_by_each_program() -> None:
    x, y = uopc.param("x", (40,)), uopc.param("y", (40,))
    uopc.compile((x.exp(), y.sin(), (x + y).relu()))
    other = (x.sin().contiguous() + y, y.exp(), (x * y).tan())
    program = uopc.compile(other)
    assert program.stats["compiled"] < len(program.kernels)
    same(program, compiled_alone(other))


def test_symbolic_sizes_scratch_memory_and_threads() -> None:
    n = uopc.variable("n", 1, 4096)
    x, y = uopc.param("x", (n, 64)), uopc.param("y", (64, 64))
    first = (x @ y).softmax()
    uopc.compile(first, threads=3)
    both = (first, x.sum(axis=0))
    program = uopc.compile(both, threads=3)
    same(program, compiled_alone(both, threads=3))
    a, b = RANDOM.standard_normal((1000, 64)).astype("f4"), np.eye(64, dtype="f4")
    got, total = program(a, b)
    want = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(total, a.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "other", [{"optimize": False}, {"threads": 2}, {"verify": True}, {"rules": "rules"}]
)
def test_what_shapes_the_code_is_in_the_key(other: dict[str, Any]) -> None:
    x = uopc.param("x", (300, 40))
    if "rules" in other:
        plus = UPat(Ops.ADD, src=(UPat(name="a"), UPat(name="b")))
        other = {"rules": PatternMatcher([(plus, lambda a, b: None)])}
    uopc.compile((x.exp() + 1.0, x), threads=1)
    program = uopc.compile(x.exp() + 1.0, **{"threads": 1, **other})
    assert program.stats["compiled"] == 1


def test_a_gpu_kernel_knows_how_its_arguments_are_aligned_and_shared() -> None:
    x, y = uopc.param("x", (64,)), uopc.param("y", (64,))
    for a, b in ((x[0:32], y[0:32]), (x[1:33], y[0:32]), (x[0:32], x[32:64])):
        program = uopc.compile((a * 2.0 + b,), device="cuda:sm_80")
        same(program, compiled_alone((a * 2.0 + b,), device="cuda:sm_80"))


def test_without_a_memory_for_programs_kernels_are_not_kept() -> None:
    x = uopc.param("x", (64,))
    with uopc.options(cache_dir="", programs=0):
        for i in range(3):
            assert uopc.compile((x.exp(), x + float(i))).stats["compiled"] == 2


@pytest.mark.parametrize("content", [b"", b"no index\n", b"\xff" * 100, b"0" * 65], ids=range(4))
def test_a_damaged_index_costs_a_compile(folder: Any, content: bytes) -> None:
    x = uopc.param("x", (64,))
    uopc.compile(x.exp())
    index = folder / "kernels.index"
    (line,) = index.read_text("ascii").split("\n")[1:]
    damaged = (content, f"{line[:33]}{'0' * 32}\n".encode(), line[:40].encode())
    for i, changed in enumerate(damaged):
        index.write_bytes(changed)
        cache.clear()
        program = uopc.compile((x.exp(), x + (i + 2.5)))
        assert program.stats["compiled"] == 2
        np.testing.assert_allclose(program(np.zeros(64, "f4"))[0], 1)
    cache.clear()
    assert uopc.compile((x.exp(), x + 0.5)).stats["compiled"] == 1  # the index was mended


def test_the_index_stays_small(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_MOST_INDEX", 66 * 8)
    x = uopc.param("x", (64,))
    for i in range(20):
        uopc.compile(x.exp() * (i + 1.5))
        assert (folder / "kernels.index").stat().st_size <= 66 * 8


def test_clearing_forgets_kernels(folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from uopc.cli.main import main

    x = uopc.param("x", (64,))
    uopc.compile(x.exp())
    main(["cache", "clear"])
    cache.clear()
    assert not list(folder.iterdir())
    assert uopc.compile((x.exp(), x + 1.5)).stats["compiled"] == 2


def test_equal_code_of_kernels_that_name_their_variables_differently():
    """A kernel from the cache serves another variable: each call passes its own."""
    for rows, factor in ((3, 2.0), (3, 3.0), (2, 2.0)):
        at = [uopc.variable(f"at{b}", 0, 7) for b in range(rows)]
        memory, x = uopc.param("memory", (rows, 8, 4)), uopc.param("x", (rows, 1, 4))
        written = memory
        for b in range(rows):
            part = written.shrink([(b, b + 1), (at[b], at[b] + 1), (0, 4)])
            written = memory.after(part.store(x[b : b + 1] * factor))
        got, places = np.zeros((rows, 8, 4), "f4"), [5, 0, 6][:rows]
        given = np.arange(rows * 4, dtype="f4").reshape(rows, 1, 4) + 1
        uopc.compile(written.sum())(
            memory=got, x=given, **{f"at{b}": p for b, p in enumerate(places)}
        )
        want = np.zeros_like(got)
        want[np.arange(rows), places] = given[:, 0] * factor
        np.testing.assert_array_equal(got, want)
