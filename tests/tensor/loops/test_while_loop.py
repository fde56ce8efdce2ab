"""`while_loop`: values, both ways of code, forward mode, batches, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc.ir.interpret import interpreter
from uopc.tensor.loops import scan as loops

WAYS = pytest.mark.parametrize("registers", [64, 0], ids=["registers", "memory"])


@pytest.fixture
def way(registers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(loops, "MOST_REGISTERS", registers)
    return registers


def newton(loop: Any, xp: Any, a: Any) -> Any:
    """The square root of a, and the number of steps that it took."""

    def going(c: Any) -> Any:
        x = c[0]
        return xp.abs(x * x - a) > 1e-13 * a

    return loop(going, lambda c: ((c[0] + a / c[0]) / 2, c[1] + 1), (a, xp.asarray(0)))


def by_python(cond: Callable[[Any], Any], body: Callable[[Any], Any], value: Any) -> Any:
    while cond(value):
        value = body(value)
    return value


A = np.array([2.0, 1e6, 3.0, 1e-9])


@WAYS
@pytest.mark.parametrize("optimize", [True, False])
def test_values(way: int, optimize: bool) -> None:
    f = uopc.jit(lambda a: newton(uopc.while_loop, unp, a), optimize=optimize)
    for a in A:
        got, wanted = f(a), newton(by_python, np, a)
        assert got[1] == wanted[1]
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-15)


@WAYS
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 1000])
def test_it_takes_exactly_its_steps(way: int, n: int) -> None:
    f = uopc.jit(lambda n: uopc.while_loop(lambda i: i < n, lambda i: i + 1, unp.asarray(0)))
    assert f(np.asarray(n)) == n


def test_a_body_that_would_fail_after_the_end_is_not_seen() -> None:
    def f(x: Any) -> Any:
        return uopc.while_loop(lambda x: x > 0, lambda x: unp.sqrt(x) - 1, x)

    value, slope = uopc.jvp(f, (9.0,), (1.0,))
    assert np.isfinite(slope)
    body, going = (lambda x: np.sqrt(x) - 1), (lambda x: x > 0)
    wanted = [by_python(going, body, x) for x in (9.0, 5.0, -1.0, 100.0)]
    near = [[by_python(going, body, x + h) for x in (9.0, 5.0)] for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(value, wanted[0])
    np.testing.assert_allclose(uopc.vmap(f)(np.array([9.0, 5.0, -1.0, 100.0])), wanted)
    slopes = uopc.vmap(lambda x: uopc.jvp(f, (x,), (1.0,))[1])(np.array([9.0, 5.0, -1.0]))
    np.testing.assert_allclose(slopes[0], slope)
    np.testing.assert_allclose(slopes, [*np.subtract(*near) / 2e-6, 1.0], rtol=1e-8)


@WAYS
def test_each_row_of_a_batch_stops_by_itself(way: int) -> None:
    roots, steps = uopc.vmap(lambda a: newton(uopc.while_loop, unp, a))(A)
    wanted = [newton(by_python, np, a) for a in A]
    np.testing.assert_array_equal(steps, [n for _, n in wanted])
    np.testing.assert_allclose(roots, [x for x, _ in wanted], rtol=1e-15)
    two = uopc.vmap(uopc.vmap(lambda a: newton(uopc.while_loop, unp, a)))(A.reshape(2, 2))
    np.testing.assert_array_equal(two[1], steps.reshape(2, 2))


@WAYS
def test_forward_mode(way: int) -> None:
    def f(a: Any) -> Any:
        return newton(uopc.while_loop, unp, a)[0]

    def slope(a: Any) -> Any:
        return uopc.jvp(f, (a,), (1.0,))[1]

    np.testing.assert_allclose(slope(2.0), 0.5 / np.sqrt(2), rtol=1e-12)
    np.testing.assert_allclose(uopc.vmap(slope)(A), 0.5 / np.sqrt(A), rtol=1e-6)
    np.testing.assert_allclose(uopc.jacfwd(uopc.jacfwd(f))(2.0), -0.25 * 2**-1.5, rtol=1e-6)


@WAYS
def test_as_jax(way: int) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    w = np.random.default_rng(3).uniform(-0.3, 0.3, (3, 3))

    def f(loop: Any, xp: Any, x: Any) -> Any:
        def body(c: Any) -> Any:
            return {"x": xp.tanh(w @ c["x"]) * c["s"], "s": c["s"] * 0.9, "n": c["n"] + 1}

        value = {"x": x, "s": x[0] + 1, "n": 0}
        return loop(lambda c: (c["x"] ** 2).sum() > 1e-3, body, value)

    x, v = np.array([0.5, 1.0, -2.0]), np.array([1.0, 0.25, 3.0])
    with jax.enable_x64(True):
        wanted = jax.jvp(lambda x: f(jax.lax.while_loop, jax.numpy, x), (x,), (v,))
    got = uopc.jvp(lambda x: f(uopc.while_loop, unp, x), (x,), (v,))
    assert int(got[0]["n"]) == int(wanted[0]["n"]) > 2
    for i in range(2):
        for name in ("x", "s"):
            np.testing.assert_allclose(got[i][name], wanted[i][name], rtol=1e-10)


def test_reverse_mode_says_why_not() -> None:
    with pytest.raises(uopc.Unsupported, match=r"reverse mode through a while_loop.*use forward"):
        uopc.grad(lambda a: newton(uopc.while_loop, unp, a)[0])(2.0)
    # what depends on no float is no obstacle

    def f(x: Any) -> Any:
        return x * uopc.while_loop(lambda i: i < 5, lambda i: i + 2, unp.asarray(0))

    np.testing.assert_allclose(uopc.grad(f)(3.0), 6.0)


def test_in_a_loop_of_known_length() -> None:
    def step(c: Any, x: Any) -> Any:
        return uopc.while_loop(lambda c: c < x, lambda c: 2 * c, c), c

    last, before = uopc.scan(step, 1.0, np.array([3.0, 3.0, 9.0]))
    np.testing.assert_array_equal(last, 16)
    np.testing.assert_array_equal(before, [1, 4, 4])


@WAYS
def test_the_interpreter_agrees_and_stages_are_valid(way: int) -> None:
    x = uopc.param("x", (3,), uopc.dtypes.float64)

    def half(c: Any) -> Any:
        return uopc.fori_loop(0, 3, lambda i, z: z * 0.9 + unp.sin(z) * 0.1, c)

    a = np.array([1.0, 2.0, 3.0])
    for graph in (
        uopc.while_loop(lambda c: c.sum() > 0.1, lambda c: c * 0.7, x),
        uopc.while_loop(lambda c: (c * c).sum() > 2, half, x),
    ):
        got = uopc.compile(graph, verify=True)(a)
        np.testing.assert_allclose(got, interpreter.evaluate(graph, {"x": a}), rtol=1e-14)
        assert 0 < got[0] < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uopc.while_loop(3, lambda x: x, 1.0), "expected a function"),
        (lambda: uopc.while_loop(lambda x: x, lambda x: x, 1.0), "one bool, got float64"),
        (lambda: uopc.while_loop(lambda x: (), lambda x: x, 1.0), "one bool, got nothing"),
        (lambda: uopc.while_loop(lambda x: x > 0, lambda x: (x, x), 1.0), "of the first"),
        (lambda: uopc.while_loop(lambda x: x > 0, lambda x: x > 0, 1.0), "makes it bool"),
        (
            lambda: uopc.while_loop(
                lambda x: x[0] > 0, lambda x: unp.linalg.cholesky(x * x[:, None]).sum(0), np.ones(9)
            ), "while_loop: a sort, a kernel"
        ),
    ],
)  # fmt: skip
def test_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        make()
