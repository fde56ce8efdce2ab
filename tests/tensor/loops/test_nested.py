"""Loops in loops: one kernel, values, derivatives, batches, code that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

jax = pytest.importorskip("jax", reason="JAX is not installed")
RNG = np.random.default_rng(8)
X, W = RNG.uniform(0.5, 1.5, (6, 3)), RNG.uniform(-0.4, 0.4, (3, 3))


class Ours:
    """The loops of uopc by the names of JAX."""

    scan, fori_loop, while_loop, xp = uopc.scan, uopc.fori_loop, uopc.while_loop, unp


class Theirs:
    """Those of JAX."""

    scan, fori_loop = jax.lax.scan, jax.lax.fori_loop
    while_loop, xp = jax.lax.while_loop, jax.numpy


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def implicit(m: Any, x: Any, w: Any) -> Any:
    """Two inner loops with the same body, one with results, and a value of the outer step in both.
    """

    def step(c: Any, v: Any) -> Any:
        shared = m.xp.exp(-c) * v.sum()
        rows = m.xp.tanh(w @ c)[:, None] * w
        fixed = m.fori_loop(0, 4, lambda i, z: m.xp.sin(z @ w) + shared, c)
        other = m.fori_loop(0, 4, lambda i, z: m.xp.sin(z @ w) + shared, fixed * v)
        last, ys = m.scan(lambda z, r: (z * 0.5 + r * shared, (z * r).sum()), other, rows)
        return last, ys.sum() + fixed[0]

    last, ys = m.scan(step, x[0], x)
    return (last**2).sum() + (ys * ys).sum()


def test_values_and_derivatives() -> None:
    f, g = (lambda x, w: implicit(Ours, x, w)), jax.jit(lambda x, w: implicit(Theirs, x, w))
    program = uopc.jit(f)
    np.testing.assert_allclose(program(X, W), g(X, W), rtol=1e-12)
    assert [k.name for k in program.program(X, W).kernels].count("scan") == 1
    for a, b in zip(uopc.grad(f, argnums=(0, 1))(X, W), jax.jit(jax.grad(g, argnums=(0, 1)))(X, W)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    v = RNG.standard_normal(X.shape)
    got = uopc.jvp(lambda x: f(x, unp.asarray(W)), (X,), (v,))
    wanted = jax.jit(lambda x, v: jax.jvp(lambda x: g(x, W), (x,), (v,)))(X, v)
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.slow
def test_batches() -> None:
    xs = np.stack([X, 2 * X])
    got = uopc.vmap(uopc.grad(lambda x, w: implicit(Ours, x, w)), in_axes=(0, None))(xs, W)
    slope = jax.jit(jax.grad(lambda x: implicit(Theirs, x, W)))
    for x, row in zip(xs, got, strict=True):
        np.testing.assert_allclose(row, slope(x), rtol=1e-9, atol=1e-12)


def solved(m: Any, x: Any) -> Any:
    """Newton's method in each step."""

    def step(c: Any, v: Any) -> Any:
        root = m.while_loop(
            lambda z: m.xp.abs(z**3 + z - c - v) > 1e-12,
            lambda z: z - (z**3 + z - c - v) / (3 * z * z + 1), c
        )  # fmt: skip
        return root, root

    return m.scan(step, x[0], x)


def test_newton_in_each_step() -> None:
    x = X[:, 0]
    got = uopc.jvp(lambda x: solved(Ours, x), (x,), (x * x,))
    wanted = jax.jvp(lambda x: solved(Theirs, x), (x,), (x * x,))
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-10)
        np.testing.assert_allclose(a[1], b[1], rtol=1e-10)
    many = np.stack([x, 2 * x, x[::-1]])
    roots = uopc.vmap(lambda x: solved(Ours, x)[1])(many)
    np.testing.assert_allclose(roots, [solved(Theirs, x)[1] for x in many], rtol=1e-10)


def test_a_loop_in_a_while_loop() -> None:
    def f(m: Any, x: Any) -> Any:
        def half(c: Any) -> Any:
            return m.fori_loop(0, 3, lambda i, z: z * 0.9, c)

        return m.while_loop(lambda c: c > 1e-3, half, x)

    got = uopc.jvp(lambda x: f(Ours, x), (2.0,), (1.0,))
    np.testing.assert_allclose(got, jax.jvp(lambda x: f(Theirs, x), (2.0,), (1.0,)), rtol=1e-12)


def test_symbolic_lengths() -> None:
    n = uopc.variable("n", 0, 1 << 20)
    xs = uopc.param("xs", (n, 3), uopc.dtypes.float64)

    def step(c: Any, x: Any) -> Any:
        inner, _ = uopc.scan(lambda z, y: (z * 0.5 + y * x, None), c, xs)
        return inner, inner.sum()

    last, ys = uopc.scan(step, uopc.constant(X[0]), xs)
    program = uopc.compile([last, ys])
    for size in (1, 5, 0):
        c, sums = X[0], []
        for x in X[:size]:
            for y in X[:size]:
                c = c * 0.5 + y * x
            sums.append(c.sum())
        got = program(X[:size])
        np.testing.assert_allclose(got[0], c)
        np.testing.assert_allclose(got[1], np.array(sums).reshape(size))
