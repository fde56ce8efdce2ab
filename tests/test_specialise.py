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


@pytest.mark.parametrize("part", GPUS)
@pytest.mark.parametrize("name", CASES)
def test_parts_of_a_loop_have_blocks_of_their_own(name: str, part: str) -> None:
    graph = CASES[name]()
    on_cpu = uopc.compile(graph)
    given_arrays = values(on_cpu)
    with module.installed(part):
        program = uopc.compile(graph, device="cuda", verify=True)
        got = program(*given_arrays)
    np.testing.assert_allclose(got, on_cpu(*given_arrays), rtol=1e-6, atol=1e-6)
    assert any(o.op == "PEEL" for o in program.kernels[0].opts), program.kernels[0].opts


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("name", ["lt", "or", "sum", "max"])
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


def test_nests_that_wait_for_each_other_share_no_grid() -> None:
    """A loop that reads what another one of the kernel wrote must not get blocks of its own."""
    o = uopc.kernel_param(0, (64,), uopc.dtypes.float32)
    p = uopc.kernel_param(1, (64,), uopc.dtypes.float32)
    i, j = UOp.range(64, 0), UOp.range(64, 1)
    first = o.index(i).store(2.0).end(i)
    second = p.index(j).store(o.after(first).index(j).load() + 1.0).end(j)
    with pytest.raises(uopc.Error, match="GRID"):
        uopc.compile(second.sink(name="k", opts=(Opt("GRID", 0, 0),)), device="cuda:sm_90")
