"""Derivatives and batches of `cond` and `switch`; `fold`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

X = np.array([0.5, -1.0, 2.0, 0.25])
NEAR = {"rtol": 1e-10, "atol": 1e-12}


def choice(m: Any, xp: Any, x: Any, i: Any, w: Any) -> Any:
    """Branches that are infinite, or NaN, where they are not chosen."""

    def log(x: Any, w: Any) -> Any:
        return (xp.sum(xp.log(x) * xp.sqrt(x) * w), x)

    def square(x: Any, w: Any) -> Any:
        return (xp.sum(x * x) * w[0], x * w[1])

    def cube(x: Any, w: Any) -> Any:
        return (xp.sum(x**3), xp.sin(x))

    a, b = m.cond(xp.min(x) > 0, log, square, x, w)
    c, d = m.switch(i, [square, log, cube], b, w)
    return a + 2 * c + xp.sum(b * d)


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def ours(x: Any, i: Any, w: Any) -> Any:
    return choice(uopc, unp, x, i, w)


def theirs(x: Any, i: Any, w: Any) -> Any:
    return choice(jax.lax, jnp, x, i, w)


W = np.array([0.5, 1.5, -0.25, 2.0])
V = np.array([1.0, 0.5, -2.0, 0.25])
CASES = [(np.abs(X), 1), (np.abs(X), 7), (X, 0), (X, 2), (np.zeros(4), -3)]


@functools.cache
def pairs() -> list[tuple[Any, Any]]:
    """The value, the gradient and the derivative along V, each in both libraries."""

    def along(jvp: Any, f: Any) -> Any:
        return lambda x, i, w: jvp(lambda x: f(x, i, w), (x,), (x * 0 + V,))

    return [
        (uopc.jit(ours), jax.jit(theirs)),
        (uopc.jit(uopc.grad(ours, argnums=(0, 2))), jax.jit(jax.grad(theirs, argnums=(0, 2)))),
        (uopc.jit(along(uopc.jvp, ours)), jax.jit(along(jax.jvp, theirs))),
    ]


@pytest.mark.parametrize(
    ("x", "i"), [CASES[0], *[pytest.param(*c, marks=pytest.mark.slow) for c in CASES[1:]]]
)
def test_derivatives_are_those_of_the_branch_that_is_chosen(x: Any, i: int) -> None:
    index = np.asarray(np.int32(i))
    for f, g in pairs():
        for a, b in zip(jax.tree.leaves(f(x, index, W)), jax.tree.leaves(g(x, index, W))):
            assert np.isfinite(a).all()
            np.testing.assert_allclose(a, b, **NEAR)


@functools.cache
def second() -> tuple[Any, Any]:
    return uopc.jit(uopc.hessian(ours)), jax.jit(jax.hessian(theirs))


@pytest.mark.slow
@pytest.mark.parametrize(("x", "i"), CASES[:1] + CASES[2:])
def test_second_derivatives(x: Any, i: int) -> None:
    f, g = second()
    index = np.asarray(np.int32(i))
    got = f(x, index, W)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, g(x, index, W), **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(0, 0, None), (0, None, 0), (None, 0, None)])
def test_each_row_of_a_batch_chooses_by_itself(axes: Any) -> None:
    rows = (np.stack([np.abs(X), X, np.zeros(4)]), np.array([1, 0, 2]), np.stack([W, -W, 2 * W]))
    one = (np.abs(X), np.asarray(2), W)
    args = [many if a == 0 else o for a, many, o in zip(axes, rows, one)]
    value, gradient = jax.jit(theirs), jax.jit(jax.grad(theirs))
    wanted = [
        value(*[v[k] if a == 0 else v for a, v in zip(axes, args)]) for k in range(3)
    ]
    np.testing.assert_allclose(uopc.vmap(ours, in_axes=axes)(*args), wanted, **NEAR)

    def summed(x: Any, i: Any, w: Any) -> Any:
        return uopc.vmap(ours, in_axes=axes)(x, i, w).sum()

    def alone(*given: Any) -> Any:
        return sum(
            [theirs(*[v[k] if a == 0 else v for a, v in zip(axes, given)]) for k in range(3)]
        )

    got = uopc.grad(summed, argnums=(0, 2))(*args)
    for a, b in zip(got, jax.jit(jax.grad(alone, argnums=(0, 2)))(*args)):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, **NEAR)
    inside = uopc.vmap(uopc.grad(ours), in_axes=axes)(*args)
    for k in range(3):
        row = [v[k] if a == 0 else v for a, v in zip(axes, args)]
        np.testing.assert_allclose(inside[k], gradient(*row), **NEAR)


@pytest.mark.slow
def test_batches_of_batches() -> None:
    x = np.stack([np.stack([np.abs(X), X]), np.stack([-X, X * X])])
    i = np.array([0, 2])
    f = uopc.vmap(uopc.vmap(uopc.grad(ours), in_axes=(0, None, None)), in_axes=(0, 0, None))
    got, gradient = f(x, i, W), jax.jit(jax.grad(theirs))
    for p in range(2):
        for q in range(2):
            np.testing.assert_allclose(got[p, q], gradient(x[p, q], i[p], W), **NEAR)


def test_rows_of_a_batch_that_choose_differently() -> None:
    def f(m: Any, xp: Any, x: Any) -> Any:
        return m.cond(x > 0, lambda x: xp.sqrt(x) * xp.log(x), lambda x: x * x, x)

    x = np.array([4.0, 0.0, -1.0])
    got = uopc.vmap(uopc.grad(lambda x: f(uopc, unp, x)))(x)
    np.testing.assert_allclose(got, [jax.grad(lambda x: f(jax.lax, jnp, x))(v) for v in x], **NEAR)

    def total(x: Any) -> Any:
        return uopc.vmap(lambda x: f(uopc, unp, x))(x).sum()

    np.testing.assert_allclose(uopc.grad(total)(x), got, **NEAR)


def test_what_a_function_closes_over_has_derivatives() -> None:
    def f(x: Any, y: Any) -> Any:
        return uopc.cond(y > 0, lambda: unp.log(y) * x[0], lambda: unp.sum(x * y))

    for y in (0.0, 2.0):
        first, second = uopc.grad(f, argnums=(0, 1))(X, y)
        one = [1, 0, 0, 0]
        np.testing.assert_allclose(first, np.log(2) * np.array(one) if y else np.zeros(4))
        np.testing.assert_allclose(second, X[0] / 2 if y else X.sum())


def test_branches_in_a_loop() -> None:
    def roll(m: Any, scan: Any, xp: Any, x: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            c = m.cond(c > 1, lambda c: c / 2, lambda c: c + xp.sqrt(c) + v, c)
            return c, c

        last, ys = scan(step, x[0], x)
        return last + (ys * ys).sum()

    x = np.abs(X)
    np.testing.assert_allclose(
        uopc.grad(lambda x: roll(uopc, uopc.scan, unp, x))(x),
        jax.grad(lambda x: roll(jax.lax, jax.lax.scan, jnp, x))(x), **NEAR
    )  # fmt: skip


@pytest.mark.parametrize("known", [0, 1, -5, 9, np.int64(1)])
def test_one_branch_is_called_for_a_known_index(known: Any) -> None:
    made = uopc.switch(known, [lambda: "first", lambda: "last"])
    assert made == ["first", "last"][min(max(known, 0), 1)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: uopc.switch(x[0], [lambda: x, lambda: x]), "must be one integer, got float32"),
        (lambda x: uopc.switch(True, [lambda: x]), "must be one integer, got bool"),
        (lambda x: uopc.switch(0, []), "there are no branches"),
        (lambda x: uopc.fold(3, 0.0, x), "expected a function"),
        (lambda x: uopc.fold(lambda c, x: (c, x), 0.0, x), "containers of the first"),
    ],
)
def test_errors(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(uopc.Error, match=message):
        make(uopc.param("x", (3,)))


@pytest.mark.parametrize("reverse", [False, True])
def test_fold(reverse: bool) -> None:
    def step(c: Any, x: Any) -> Any:
        return c * 0.5 + x

    wanted, _ = jax.lax.scan(lambda c, x: (step(c, x), None), 1.0, X, reverse=reverse)
    np.testing.assert_allclose(uopc.fold(step, 1.0, X, reverse=reverse), wanted)
    weights = 0.5 ** (np.arange(4) if reverse else np.arange(4)[::-1])
    got = uopc.grad(lambda x: uopc.fold(step, 1.0, x, reverse=reverse))(X)
    np.testing.assert_allclose(got, weights)
