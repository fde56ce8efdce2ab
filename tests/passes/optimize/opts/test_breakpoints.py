"""Loops cut where their values are computed in another way: each part has code of its own.

The CPU is compared with NumPy, the GPU with the CPU on the machine that executes PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.standin import module
from uopc import UOp
from uopc.ir.core.args import Opt

GPUS = ("sm_80", "sm_90a")
Case = Callable[[], UOp]


def row(n: int) -> tuple[UOp, UOp]:
    return uopc.param("x", (n,)), uopc.arange(n)


def before(n: int, at: int) -> UOp:
    x, i = row(n)
    return uopc.where(i < at, x.exp(), x.sin())


def outside(n: int, low: int, high: int) -> UOp:
    x, i = row(n)
    return uopc.where((i < low) | (i >= high), x.exp(), x.sin())


def rows(height: int, width: int, at: int) -> UOp:
    x, i = uopc.param("x", (height, width)), uopc.arange(height).reshape(height, 1)
    return uopc.where(i < at, x.sin(), x * 2.0)


def columns(height: int, width: int, low: int, high: int) -> UOp:
    x, i = uopc.param("x", (height, width)), uopc.arange(width)
    return uopc.where((i < low) | (i >= high), x.log(), x.sin())


def halves(height: int, width: int, at: int) -> UOp:
    """A part by vectors and one by elements: the rows are digits of unlike numbers of threads."""
    x, y, j = uopc.param("x", (height, width)), uopc.param("y", (height, width)), uopc.arange(width)
    return uopc.where(j >= at, x.sin(), y.exp())


CASES: dict[str, Case] = {
    "before": lambda: before(8192, 2048),
    "odd": lambda: before(5003, 1001),
    "short": lambda: before(5003, 3),
    "or": lambda: outside(9001, 1000, 7003),
    "and": lambda: outside(8192, 1024, 1025),
    "rows": lambda: rows(64, 200, 9),
    "columns": lambda: columns(40, 999, 100, 703),
    "parts": lambda: row(4096)[0].sin().cat(uopc.param("y", (3000,)).exp(), uopc.full((17,), 2.0)),
    "unequal": lambda: halves(3, 345, 173),
    "flipped": lambda: before(6001, 2000).flip((0,)),
}


def values(program: uopc.Program) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.uniform(0.5, 4, spec.shape).astype("f4") for spec in program.inputs]


def on_gpu(graph: UOp, part: str, rtol: float) -> uopc.Program:
    """The program for a GPU, which computes what the one for the CPU does."""
    on_cpu = uopc.compile(graph)
    given_arrays = values(on_cpu)
    with module.installed(part):
        program = uopc.compile(graph, device="cuda", verify=True)
        got = program(*given_arrays)
    np.testing.assert_allclose(got, on_cpu(*given_arrays), rtol=rtol, atol=1e-6)
    return program


@pytest.mark.parametrize("part", GPUS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(3)
def test_parts_of_a_loop_have_blocks_of_their_own(name: str, part: str) -> None:
    program = on_gpu(CASES[name](), part, rtol=1e-6)
    assert any(o.op == "PEEL" for o in program.kernels[0].opts), program.kernels[0].opts


def below(shape: tuple[int, ...], axis: int, at: int) -> UOp:
    """The sine of the elements of an array below an index, the exponential of the others."""
    x = uopc.param("x", shape)
    i = uopc.arange(shape[axis]).reshape(*[n if d == axis else 1 for d, n in enumerate(shape)])
    return uopc.where(i < at, x.sin(), x.exp())


def softmax(x: UOp) -> UOp:
    e = (x - x.max(1).reshape(x.shape[0], 1)).exp()
    return e / e.sum(1).reshape(x.shape[0], 1)


REDUCES: dict[str, Case] = {
    "shared": lambda: below((5, 20_000), 1, 7001).sum(1),
    "shared by unequal threads": lambda: below((5, 4001), 1, 2999).sum(1),
    "greatest": lambda: below((5, 20_000), 1, 7001).max(1),
    "far apart": lambda: below((4096, 37), 0, 1000).sum(0),
    "columns of threads far apart": lambda: below((4096, 60), 1, 27).sum(0),
    "in a thread": lambda: below((700, 64), 1, 32).sum(1),
    "rows of threads": lambda: below((700, 40), 0, 333).sum(1),
    "rows of blocks": lambda: below((64, 4096), 0, 20).sum(1),
    "rows between rows": lambda: below((3, 33, 700), 1, 5).sum(2),
    "in pieces": lambda: below((1 << 20,), 0, 300_000).sum(),
    "or": lambda: columns(5, 20_000, 3001, 9000).sum(1),
    "cat": lambda: uopc.param("x", (9, 2000)).sin().cat(
        uopc.param("y", (9, 2100)).exp(), axis=1).sum(1),
    "pad": lambda: (uopc.param("x", (9, 4000)).sin().pad(((0, 0), (3000, 2000))).exp()).sum(1),
    "two reduces": lambda: below((9, 5000), 1, 2000).sum(1) * below((9, 5000), 1, 2000).max(1),
    "softmax": lambda: softmax(below((5, 3000), 1, 1777)),
}  # fmt: skip


@pytest.mark.parametrize("part", GPUS)
@pytest.mark.parametrize("name", REDUCES)
@pytest.mark.few(3)
def test_parts_of_a_reduce(name: str, part: str) -> None:
    program = on_gpu(REDUCES[name](), part, rtol=1e-5)
    assert any(o.op == "PEEL" for k in program.kernels for o in k.opts)


def work(graph: UOp) -> int:
    """The instructions of all threads."""
    with module.installed("sm_90a") as driver:
        program = uopc.compile(graph, device="cuda")
        program(*values(program))
        return driver.work


@pytest.mark.parametrize("shape, axis, reduced", [
    ((5, 20_000), 1, 1), ((4096, 37), 0, 0), ((700, 64), 1, 1), ((700, 40), 0, 1),
    ((64, 4096), 0, 1),
])  # fmt: skip
@pytest.mark.few(3)
def test_a_thread_computes_one_side(shape: tuple[int, ...], axis: int, reduced: int) -> None:
    """With half of the iterations each, two functions take little more than half of each."""
    x = uopc.param("x", shape)
    both = (work(x.sin().sum(reduced)) + work(x.exp().sum(reduced))) / 2
    assert work(below(shape, axis, shape[axis] // 2).sum(reduced)) < 1.3 * both


def test_an_array_that_is_written_is_read_in_all_blocks() -> None:
    """Parts that read what others write have no blocks of their own; the loop keeps its grid."""
    x, i = row(8192)
    program = uopc.compile(x.assign(uopc.where(i < 2048, x.sin(), x.exp())), device="cuda:sm_90a")
    assert "GRID" in [o.op for o in program.kernels[0].opts]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("name", ["lt", "or", "sum", "max"])
@pytest.mark.few(3)
def test_cut_on_the_processor(name: str, threads: int) -> None:
    n = 100_000
    x, i = row(n)
    condition = (i < 30_000) if name == "lt" else (i < 30_000) | (i >= 70_000)
    chosen = uopc.where(condition, x.exp(), x.sin())
    value = np.random.default_rng(0).uniform(-4, 4, n).astype("f4")
    index = np.arange(n)
    low = index < 30_000
    want = np.where(low if name == "lt" else low | (index >= 70_000), np.exp(value), np.sin(value))
    graph = {"sum": chosen.sum(), "max": chosen.max()}.get(name, chosen)
    program = uopc.compile(graph, threads=threads)
    assert any(o.op in ("PEEL", "SPLIT_AT") for o in program.kernels[0].opts)
    result = {"sum": want.sum(dtype="f8"), "max": want.max()}.get(name, want)
    np.testing.assert_allclose(program(value), result, rtol=1e-5, atol=1e-6)


def test_an_iteration_does_the_work_of_its_part_only() -> None:
    """Of two functions each thread computes one: the body of neither is in the other's nest."""
    program = uopc.compile(before(8192, 2048), device="cuda:sm_90a")
    text = program.stages["optimize"]
    (first, second) = text.split("= end ")[:2]
    assert ("exp" in first) != ("sin" in first) and ("exp" in second) != ("sin" in second)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_bounds(data: Any) -> None:
    height, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 700))
    x, y = uopc.param("x", (height, width)), uopc.param("y", (height, width))
    i, j = uopc.arange(height).reshape(height, 1), uopc.arange(width)
    at = [data.draw(st.integers(-2, size + 2)) for size in (width, width, height)]
    chosen = uopc.where((j < at[0]) | (j >= at[1]), x.sin(), y.exp())
    graph = uopc.where(i < at[2], chosen, x * y) if data.draw(st.booleans()) else chosen
    given_arrays = [np.random.default_rng(1).uniform(0, 3, (height, width)).astype("f4")] * 2
    on_cpu = uopc.compile(graph)
    named = {v.name: array for v, array in zip(on_cpu.inputs, given_arrays)}
    with module.installed("sm_80"):
        got = uopc.compile(graph, device="cuda")(**named)
    want = on_cpu(**named)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_bounds_of_reduces(data: Any) -> None:
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 1500))
    x, y = uopc.param("x", (height, width)), uopc.param("y", (height, width))
    i, j = uopc.arange(height).reshape(height, 1), uopc.arange(width)
    at = [data.draw(st.integers(-2, size + 2)) for size in (width, width, height)]
    low, high = (j < at[0]), (j >= at[1])
    condition = data.draw(st.sampled_from([low | high, low & high, i * width + j < at[0] * at[2]]))
    chosen = uopc.where(condition, x.sin(), y.exp())
    chosen = uopc.where(i < at[2], chosen, x * y) if data.draw(st.booleans()) else chosen
    reduced = getattr(chosen, data.draw(st.sampled_from(["sum", "max", "min"])))
    graph = reduced(data.draw(st.sampled_from([0, 1, (0, 1)])))
    arrays = {n: np.random.default_rng(1).uniform(0, 3, (height, width)).astype("f4") for n in "xy"}
    on_cpu = uopc.compile(graph)
    named = {v.name: arrays[v.name] for v in on_cpu.inputs}
    with module.installed("sm_80"):
        got = uopc.compile(graph, device="cuda", verify=True)(**named)
    np.testing.assert_allclose(got, on_cpu(**named), rtol=1e-5, atol=1e-5)


def test_nests_that_wait_for_each_other_share_no_grid() -> None:
    """A loop that reads what another one of the kernel wrote must not get blocks of its own."""
    o = uopc.kernel_param(0, (64,), uopc.dtypes.float32)
    p = uopc.kernel_param(1, (64,), uopc.dtypes.float32)
    i, j = UOp.range(64, 0), UOp.range(64, 1)
    first = o.index(i).store(2.0).end(i)
    second = p.index(j).store(o.after(first).index(j).load() + 1.0).end(j)
    with pytest.raises(uopc.Error, match="GRID"):
        uopc.compile(second.sink(name="k", opts=(Opt("GRID", 0, 0),)), device="cuda:sm_90")
