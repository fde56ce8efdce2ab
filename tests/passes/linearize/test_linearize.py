"""The list of a kernel: each statement once, after its operands, in no block that has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.backends.c.test_kernel import by_gcc, compiled, needs_gcc, needs_v3
from tests.exporting.test_export import Case, assert_same, called
from tests.standin import module
from uopc import UOp, dtypes
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

REDUCES: dict[str, Callable[..., UOp]] = {
    "mul": UOp.prod,
    "add": UOp.sum,
    "max": UOp.max,
    "min": UOp.min,
}
USES: dict[str, Callable[[UOp, UOp], UOp]] = {
    "right": lambda a, r: a @ r,
    "left": lambda a, r: r @ a,
    "each": lambda a, r: a * r,
    "itself": lambda a, r: (r @ r) * a,
    "two loops": lambda a, r: a @ r + (r @ a).sum(axis=0, keepdims=True),
}
OVER: dict[str, tuple[int, ...]] = {"columns": (0,), "rows": (1,), "all": (0, 1)}


def product(op: str, over: str, use: str, most: int = 63, t: Any = dtypes.float32) -> UOp:
    """A reduce over an axis of n, 0 <= n <= most, expanded, with a matrix. Another variable is the
    length of that axis, if the reduce is over one."""
    n, m = uopc.variable("n", 0, most), uopc.variable("m", 0, most)
    shape = {"columns": (m, n), "rows": (n, m), "all": (m, m)}[over]
    a, w = uopc.param("a", (n, n), t), uopc.param("w", shape, t)
    return USES[use](a, REDUCES[op](w, axis=OVER[over], keepdims=True).expand(n, n))


def square(op: str, over: str, use: str, most: int = 63, t: Any = dtypes.float32) -> UOp:
    """The same with one variable for all axes."""
    n = uopc.variable("n", 0, most)
    a, w = uopc.param("a", (n, n), t), uopc.param("w", (n, n), t)
    return USES[use](a, REDUCES[op](w, axis=OVER[over], keepdims=True).expand(n, n))


def arrays(over: str, n: int, m: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Integers of which all sums and products are exact in float32."""
    random = np.random.default_rng(seed)
    shape = {"columns": (m, n), "rows": (n, m), "all": (m, m)}[over]
    return {
        "a": random.integers(-4, 5, (n, n)).astype("f4"),
        "w": random.choice([-1, 1], shape).astype("f4"),
    }


def check(graph: UOp, given: dict[str, np.ndarray], **options: Any) -> None:
    got = uopc.compile(graph, verify=True, **options)(**given)
    (wanted,) = interpreter.evaluate([graph], given)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", REDUCES)
@pytest.mark.parametrize("use", ["right", "two loops"])
@pytest.mark.few(3)
def test_conditions_of_loops_that_may_be_empty(op: str, use: str) -> None:
    """Loops of at most one iteration, of one length, shared a condition in a block that had
    ended."""
    graph = square(op, "columns", use)
    program = uopc.compile(graph, verify=True)
    for n in (0, 1, 2, 13, 32, 63):
        given = arrays("columns", n, n)
        (wanted,) = interpreter.evaluate([graph], given)
        np.testing.assert_array_equal(program(**given), wanted)


@settings(deadline=None, max_examples=80)
@given(
    op=st.sampled_from(list(REDUCES)),
    over=st.sampled_from(list(OVER)),
    use=st.sampled_from(list(USES)),
    most=st.sampled_from([1, 8, 31, 63, 64, 100, 4096]),
    sizes=st.tuples(*[st.sampled_from([0, 1, 2, 13, 64, 101])] * 2),
    one=st.booleans(),
    threads=st.sampled_from([1, 2]),
    optimize=st.booleans(),
)
def test_reduces_over_symbolic_axes_are_those_of_the_interpreter(
    op: str, over: str, use: str, most: int, sizes: tuple[int, int], one: bool, threads: int,
    optimize: bool,
) -> None:  # fmt: skip
    n, m = (min(s, most) for s in sizes)
    graph = (square if one else product)(op, over, use, most)
    given = arrays(over, n, n if one else m)
    check(graph, given, threads=threads, optimize=optimize)


def lists(graph: UOp, **options: Any) -> list[UOp]:
    return [k for k in lower_only(graph, **options).kernels if k.op is Ops.LINEAR]


@pytest.mark.parametrize("device", ["cpu", "cuda:sm_80"])
def test_no_statement_stands_twice(device: str) -> None:
    for op in REDUCES:
        for kernel in lists(square(op, "columns", "right"), device=device):
            assert len(set(kernel.src)) == len(kernel.src)


@pytest.mark.parametrize("op", REDUCES)
@pytest.mark.few(1)
def test_on_the_ptx_machine(op: str) -> None:
    graph = square(op, "columns", "right")
    with module.installed("sm_80"):
        program = uopc.compile(graph, device="cuda")
        for n in (0, 1, 13):
            given = arrays("columns", n, n)
            (wanted,) = interpreter.evaluate([graph], given)
            np.testing.assert_array_equal(program(**given), wanted)


@needs_gcc
@needs_v3
@pytest.mark.parametrize("n", [0, 1, 63])
def test_in_c(n: int, tmp_path: Path) -> None:
    given = arrays("columns", n, n)
    case = Case(square("mul", "columns", "right"), list(given.values()))
    program = compiled(case.graph, "x86-64-v3", threads=1)
    assert_same(called(by_gcc(program, tmp_path, "-march=x86-64-v3"), case), called(program, case))


def test_the_second_derivative_of_a_determinant_of_a_symbolic_size() -> None:
    """Along a direction, against a complex step of NumPy's minors."""
    n = uopc.variable("n", 0, 63)
    a, v = [uopc.param(name, (n, n), dtypes.float32) for name in "av"]
    program = uopc.compile(uopc.grad((uopc.grad(a.det(), a) * v).sum(), a), inputs=[a, v])
    for size in (0, 1, 2, 4):
        at, along = np.random.default_rng(size).integers(-3, 4, (2, size, size)).astype("f4")
        wanted = np.empty((size, size))
        for i, j in np.ndindex(size, size):
            minor = np.delete(np.delete(at + 1e-20j * along, i, 0), j, 1)
            wanted[i, j] = (-1) ** (i + j) * np.linalg.det(minor).imag / 1e-20
        np.testing.assert_allclose(program(at, along), wanted, rtol=1e-4, atol=1e-3)
