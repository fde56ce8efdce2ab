"""Kernels take no more arguments than their device, or the user, allows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import uopc
from uopc import UOp
from uopc.backends.nvptx import ptxas
from uopc.ir.core.ops import Ops
from uopc.program.program import Program

needs_ptxas = pytest.mark.skipif(ptxas.find_ptxas() is None, reason="no ptxas is installed")
Array = npt.NDArray[Any]
# One operation takes its operands and a result, whatever the limit: `where` of three arrays.
LEAST = 4
LIMITS = (2, 3, 4, 8, 31)


def params(n: int, dims: Any = (64,)) -> list[UOp]:
    return [uopc.param(f"x{i}", dims) for i in range(n)]


def arrays(n: int, dims: tuple[int, ...] = (64,)) -> list[Array]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal(dims).astype(np.float32) for _ in range(n)]


def total(xs: Any) -> Any:
    out = xs[0]
    for x in xs[1:]:
        out = out + x
    return out


def buffers(f: Program) -> list[int]:
    """The number of buffers of each kernel."""
    return [len(params_of(k)) for k in f.kernels]


def params_of(kernel: Any) -> list[UOp]:
    return [u for u in kernel.uops.src if u.op is Ops.PARAM]


def limited(graph: Any, most: int, **settings: Any) -> Program:
    with uopc.options(max_kernel_buffers=most):
        f = uopc.compile(graph, verify=True, **settings)
    assert max(buffers(f)) <= max(most, LEAST)
    return f


# ---------------------------------------------------------------- the user's limit
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("most", LIMITS)
def test_a_long_sum(most: int, optimize: bool) -> None:
    xs, given = params(40), arrays(40)
    f = limited(total(xs), most, inputs=xs, optimize=optimize)
    np.testing.assert_allclose(f(*given), sum(given), rtol=1e-5, atol=1e-5)
    if most >= LEAST:
        assert len(f.launches) == -(-39 // (most - 2))  # each but the first adds most - 2 arrays


def test_no_limit_is_one_kernel() -> None:
    assert buffers(uopc.compile(total(params(1000)))) == [1001]


@pytest.mark.parametrize("most", LIMITS)
def test_the_sums_are_stored_rather_than_the_arrays(most: int) -> None:
    """The fewest bytes: sums of rows, not what they are spread over."""
    xs, given = params(12, (32, 48)), arrays(12, (32, 48))
    wide = uopc.param("wide", (32, 48))
    graph = wide + total([x.sum(axis=1, keepdims=True) * (x[0, 0] + 1) for x in xs])
    f = limited(graph, most, inputs=[*xs, wide])
    wanted = given[0] + sum(a.sum(axis=1, keepdims=True) * (a[0, 0] + 1) for a in given)
    np.testing.assert_allclose(f(*given, given[0]), wanted, rtol=1e-4, atol=1e-4)
    if most <= 8:  # the sums of one kernel go to 32 elements, which the next one reads
        assert all(any(u.arg.dims == (32,) for u in params_of(k)) for k in f.kernels)


@pytest.mark.parametrize("most", LIMITS)
def test_several_outputs(most: int) -> None:
    xs, given = params(20), arrays(20)
    f = limited((total(xs), total(xs[::2]) * 2, xs[3] - xs[4]), most, inputs=xs)
    got = f(*given)
    np.testing.assert_allclose(got[0], sum(given), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], sum(given[::2]) * 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[2], given[3] - given[4])


@pytest.mark.parametrize("parts", [5, 12, 40])
@pytest.mark.parametrize("join", [uopc.stack, uopc.cat])
@pytest.mark.parametrize("most", LIMITS)
@pytest.mark.few(6)
def test_parts(most: int, join: Any, parts: int) -> None:
    xs, given = params(parts, (8,)), arrays(parts, (8,))
    f = limited(join(*xs).exp(), most, inputs=xs)
    wanted = np.stack(given) if join is uopc.stack else np.concatenate(given)
    np.testing.assert_allclose(f(*given), np.exp(wanted), rtol=1e-5)


@pytest.mark.parametrize("most", LIMITS)
def test_parts_that_share_their_work(most: int) -> None:
    """States of a rollout, each of which reads one more array, are statements in one kernel."""
    xs, given = params(24, (1,)), arrays(24, (1,))
    states, wanted = [xs[0]], [given[0]]
    for x, a in zip(xs[1:], given[1:]):
        states.append((states[-1] + x).sin())
        wanted.append(np.sin(wanted[-1] + a))
    f = limited(uopc.cat(*states), most, inputs=xs)
    np.testing.assert_allclose(f(*given), np.concatenate(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("most", LIMITS)
@pytest.mark.few(3)
def test_symbolic_sizes(most: int, size: int) -> None:
    n = uopc.variable("n", 1, 64)
    xs, given = params(12, (n,)), arrays(12, (size,))
    f = limited((total(xs), total(xs).sum()), most, inputs=xs)
    got = f(*given)
    np.testing.assert_allclose(got[0], sum(given), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], sum(given).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", LIMITS)
def test_assignments(most: int) -> None:
    xs, given = params(9), arrays(9)
    y = uopc.param("y", (64,))
    f = limited(y.assign(total([y, *xs, y.flip((0,))])), most, inputs=[y, *xs])
    kept = given[0].copy()
    wanted = given[0] + sum(given) + given[0][::-1]
    f(kept, *given)
    np.testing.assert_allclose(kept, wanted, rtol=1e-5, atol=1e-5)


def random_graph(seed: int) -> tuple[UOp, list[UOp], list[Array]]:
    rng = np.random.default_rng(seed)
    xs, given = params(10, (6, 8)), arrays(10, (6, 8))
    at = uopc.param("at", (6,), uopc.dtypes.int32)
    values = list(xs)
    for _ in range(25):
        a, b, c = (values[i] for i in rng.integers(max(0, len(values) - 14), len(values), 3))
        values.append([
            a + b, a * b.tanh(), (a < b).where(c, a), a.maximum(c), a - b.sum(0, keepdims=True),
            a + b.max(1, keepdims=True), a[at] - b, uopc.cat(a[:3], b[3:]), a.flip((1,)) + b,
            a.pad(((1, 0), (0, 0)))[:6] * c, a.permute((1, 0)).reshape(6, 8) + c,
        ][rng.integers(11)])  # fmt: skip
    return total(values[-3:]), [*xs, at], [*given, rng.integers(0, 6, 6).astype(np.int32)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int) -> None:
    graph, inputs, given = random_graph(seed)
    graph = graph + sum(x.sum() for x in inputs[:-1]) * 0.5 + inputs[-1].sum()
    wanted = uopc.compile(graph, inputs=inputs)(*given)
    for most in (3, 5, 8):
        f = limited(graph, most, inputs=inputs)
        np.testing.assert_allclose(f(*given), wanted, rtol=2e-4, atol=2e-4)


def test_the_reason_is_told() -> None:
    with uopc.options(max_kernel_buffers=4):
        text = uopc.compile(total(params(9))).stages["rangeify"]
    assert "a kernel here takes at most 4 buffers" in text


# ---------------------------------------------------------------- the limit of a device
def assert_assembles(f: Program, arch: str) -> None:
    assert all(ptxas.assemble(k.asm, arch).cubin for k in f.kernels)


ARCHITECTURES = {"sm_80": 544, "sm_86": 544, "sm_90a": 4095}


@pytest.mark.slow
@needs_ptxas
@pytest.mark.parametrize("arch, most", ARCHITECTURES.items())
@pytest.mark.parametrize("count", [300, 543, 544, 2000])
def test_ptxas_accepts_a_sum_of_many_arrays(arch: str, most: int, count: int) -> None:
    f = uopc.compile(total(params(count)), device=f"cuda:{arch}")
    assert max(buffers(f)) <= most
    assert len(f.kernels) > (count >= most)
    assert_assembles(f, arch)


@needs_ptxas
@pytest.mark.parametrize("count", [300, 541, 600])
@pytest.mark.few(2)
def test_variables_count_as_arguments(count: int) -> None:
    """Parts of arrays at places that variables give."""
    places = [uopc.variable(f"v{i}", 0, 9) for i in range(count)]
    xs = params(count, (16,))
    graph = total([x.shrink(((v, v + 4),)) for x, v in zip(xs, places)])
    f = uopc.compile(graph, device="cuda:sm_80")
    assert len(f.kernels) > 1
    assert_assembles(f, "sm_80")


@needs_ptxas
def test_constants_of_equal_kernels_count_as_arguments() -> None:
    xs, ys = params(540), [uopc.param(f"y{i}", (64,)) for i in range(540)]
    one = total([x * (i + 0.3) if i < 10 else x for i, x in enumerate(xs)])
    two = total([x * (i + 0.7) if i < 10 else x for i, x in enumerate(ys)])
    f = uopc.compile((one, two), device="cuda:sm_80")
    assert len(f.kernels) == 2
    assert_assembles(f, "sm_80")


def by_hand(count: int) -> UOp:
    out, *ins = [uopc.kernel_param(i, (8,), uopc.dtypes.float32, f"p{i}") for i in range(count)]
    i = UOp.range(8, 0)
    return out.index(i).store(total([x.index(i).load() for x in ins])).end(i).sink(name="many")


def test_a_kernel_written_by_hand_beyond_the_limit_is_an_error() -> None:
    assert uopc.compile(by_hand(544), device="cuda:sm_80").kernels
    words = "kernel many has 545 arguments; sm_80 with PTX 7.0 takes at most 544"
    with pytest.raises(uopc.Unsupported, match=re.escape(words)):
        uopc.compile(by_hand(545), device="cuda:sm_80")
    assert uopc.compile(by_hand(545), device="cuda:sm_90").kernels
