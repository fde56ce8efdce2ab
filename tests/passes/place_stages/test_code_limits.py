"""Long kernels of a GPU: values are stored where one kernel would have too much code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
from tests.standin import module
from uopc import UOp
from uopc.backends.nvptx import ptxas
from uopc.passes.place_stages import code_limits
from uopc.passes.split_kernels import statements

GPU = "cuda:sm_90a"


def terms(x: UOp, count: int, function: str = "exp") -> UOp:
    """A sum, as a tree, of functions of multiples of a value."""
    parts = [getattr(x * (0.5 + i / count), function)() for i in range(count)]
    while len(parts) > 1:
        left = parts[len(parts) // 2 * 2 :]
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + left
    return parts[0]


def running(x: UOp, count: int) -> UOp:
    """The same sum, one term after the other."""
    return sum([(x * (0.5 + i / count)).exp() for i in range(1, count)], (x * 0.5).exp())


def chain(x: UOp, count: int) -> UOp:
    for i in range(count):
        x = (x * (0.5 + i / count)).sin()
    return x


def exps(x: Any, count: int) -> Any:
    return sum(np.exp(x * (0.5 + i / count)) for i in range(count))


N = 250
ROW = uopc.param("x", (60,))
CASES: dict[str, tuple[UOp, Callable[[Any], Any]]] = {
    "tree": (terms(ROW, N), lambda x: exps(x, N)),
    "running": (running(ROW, N), lambda x: exps(x, N)),
    "summed": (terms(uopc.param("x", (6, 10)), N).sum(1), lambda x: exps(x, N).sum(1)),
    "spread": (terms(uopc.param("x", (6, 1)), N).expand(6, 9) * 2.0,
               lambda x: np.broadcast_to(exps(x, N) * 2, (6, 9))),
    "padded": (terms(ROW, N).pad(((3, 5),)) + 1.0, lambda x: np.pad(exps(x, N), (3, 5)) + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(2)
def test_a_long_kernel_is_cut(name: str) -> None:
    graph, wanted = CASES[name]
    with module.installed("sm_90a"):
        program = uopc.compile(graph, device="cuda", verify=True)
        value = np.random.default_rng(0).random(program.inputs[0].shape).astype("f4")
        got = program(value)
    assert program.stats["launches"] in (2, 3)
    np.testing.assert_allclose(got, wanted(value.astype("f8")), rtol=1e-5)


def launches(graph: UOp) -> int:
    return int(uopc.compile(graph, device=GPU).stats["launches"])


def test_what_stays_whole() -> None:
    """Short kernels, few single elements, parts that become a loop."""
    one = uopc.param("u", (1,))[0]
    for graph in (terms(ROW, 150), terms(one, 150), uopc.stack(*[terms(ROW, 20)] * 40)):
        assert launches(graph) == 1
    assert launches(chain(ROW, 200)) == 2  # 12,000 nodes


# ---------------------------------------------------------------- single elements
def scalars(count: int, function: str, dtype: uopc.DType, results: int = 40) -> UOp:
    """The last ones of many single elements, each computed from two before it."""
    x, rng = uopc.param("x", (16,), dtype), np.random.default_rng(count)
    values = [x[i] for i in range(16)]
    for i in range(count):
        a, b = (values[j] for j in rng.integers(0, len(values), 2))
        y = a * float(rng.random()) + b * 0.25
        if i % 7 == 0:
            y = abs(y).pow(b) if function == "pow" else getattr(y, function)()
        values.append(y)
    return uopc.stack(*values[-results:])


@pytest.mark.parametrize("device", ["cuda:sm_80", GPU])
@pytest.mark.parametrize("dtype", [uopc.dtypes.float32, uopc.dtypes.float64, uopc.dtypes.float16])
@pytest.mark.parametrize("function", ["sin", "exp", "pow", "erf"])
@pytest.mark.few(3)
def test_single_elements_are_cut_in_segments(
    function: str, dtype: uopc.DType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were one kernel, whatever its length."""
    graph = scalars(160, function, dtype)
    whole = uopc.compile(graph, device=device)
    monkeypatch.setattr(code_limits, "MOST_CODE", 700)
    monkeypatch.setattr(statements, "MOST_CODE", 700)
    with uopc.options(programs=0, cache_dir=""):
        program = uopc.compile(graph, device=device)
    assert len(whole.kernels) == 1 < len(program.kernels)
    assert all(k.asm.count("\n") <= 1200 for k in program.kernels)


def between(x: UOp) -> UOp:
    """Sums of all elements between segments, which wait for values of the segment before."""
    for i in range(3):
        parts = [(x[j] * (1.0 + i) if j % 3 else x[j].exp()).sin() for j in range(8)]
        parts = [p.exp() if j % 3 > 1 else p for j, p in enumerate(parts)]
        x = uopc.stack(*[p * 0.5 + q for p, q in zip(parts, parts[1:] + parts[:1])])
        x = x + x.sum() * 0.01
    return uopc.cat(x, (x[0] + x[1]).expand(5))


@pytest.mark.parametrize("name", ["chain", "between"])
def test_segments_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "chain":
        graph = scalars(90, "sin", uopc.dtypes.float32)
    else:
        graph = between(uopc.param("x", (8,)))
    monkeypatch.setattr(code_limits, "MOST_CODE", 250)
    monkeypatch.setattr(statements, "MOST_CODE", 250)
    with module.installed("sm_90a"), uopc.options(programs=0, cache_dir=""):
        program = uopc.compile(graph, device="cuda", verify=True)
        value = np.random.default_rng(0).random(program.inputs[0].shape).astype("f4")
        got = program(value)
    assert len(program.kernels) > 1
    np.testing.assert_allclose(got, uopc.compile(graph)(value), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(ptxas.find_ptxas() is None, reason="no ptxas: see the extra `test-full`")
def test_nothing_spills() -> None:
    """400 sines in one kernel took 255 registers, and spilled 2,384 bytes."""
    program = uopc.compile(terms(uopc.param("x", (65536,)), 300, "sin"), device=GPU)
    for kernel in program.kernels:
        (used,) = ptxas.assemble(kernel.asm, "sm_90a").kernels.values()
        assert used.registers <= 96 and not used.spill_stores
