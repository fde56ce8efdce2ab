"""Derivatives against JAX's, where it is installed: the same function, point and cotangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

jax = pytest.importorskip("jax", reason="JAX is not installed")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

A = np.array([[0.3, -1.2, 0.7], [2.0, 0.4, -0.6]])
B = np.array([[1.1, 0.2, -0.4], [0.5, -2.0, 0.9], [0.3, 0.8, 1.7]])

# Functions of (namespace, a, b).
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mlp": lambda xp, a, b: xp.tanh(a @ b) @ b,
    "softmax": lambda xp, a, b: xp.exp(a) / xp.sum(xp.exp(a), axis=1, keepdims=True) @ b,
    "layer norm": lambda xp, a, b: (a - xp.mean(a, axis=1, keepdims=True))
    / xp.sqrt(xp.var(a, axis=1, keepdims=True) + 1e-5),
    "logaddexp": lambda xp, a, b: xp.logaddexp(a, b[:2]),
    "hypot": lambda xp, a, b: xp.hypot(a, b[:2]),
    "atan2": lambda xp, a, b: xp.atan2(a, b[:2]),
    "power": lambda xp, a, b: xp.pow(xp.abs(a) + 0.1, b[:2]),
    "remainder": lambda xp, a, b: xp.remainder(a * 5, xp.abs(b[:2]) + 0.3),
    "where": lambda xp, a, b: xp.where(a > 0, a * b[:2], xp.sin(a)),
    "maximum": lambda xp, a, b: xp.maximum(a, b[:2]),
    "amax": lambda xp, a, b: xp.max(a @ b, axis=0),
    "prod": lambda xp, a, b: xp.prod(a * b[:2], axis=1),
    "cumsum": lambda xp, a, b: xp.cumulative_sum(a @ b, axis=1),
    "cumprod": lambda xp, a, b: xp.cumulative_prod(a, axis=1) * b[:2],
    "sort": lambda xp, a, b: xp.sort(a @ b, axis=1) * b[:2],
    "indices": lambda xp, a, b: b[xp.asarray([2, 0, 2])][:, ::-1] @ a.T,
    "roll": lambda xp, a, b: xp.roll(a, 1, axis=1) * b[1:],
    "tile": lambda xp, a, b: xp.tile(a, (1, 2))[:, 1:4] @ b,
    "concat": lambda xp, a, b: xp.concat([a, b, a * 2])[1:6],
    "stack": lambda xp, a, b: xp.stack([a, b[1:]], axis=2) ** 2,
    "pad": lambda xp, a, b: xp.pad(a, ((1, 0), (0, 2))) @ xp.pad(b, ((0, 2), (0, 0))),
    "einsum": lambda xp, a, b: xp.einsum("ij,kj,ik->jk", a, b, a @ b),
    "solve": lambda xp, a, b: xp.linalg.solve(b @ b.T + xp.eye(3), a.T),
    "cholesky": lambda xp, a, b: xp.linalg.cholesky(b @ b.T + xp.eye(3)) @ a.T,
    "inv": lambda xp, a, b: xp.linalg.inv(b) @ a.T,
    "det": lambda xp, a, b: xp.linalg.det(b) * a,
    "slogdet": lambda xp, a, b: xp.linalg.slogdet(b)[1] * a,
    "qr": lambda xp, a, b: xp.linalg.qr(b)[0] @ a.T + xp.linalg.qr(b)[1].sum(),
    "norm": lambda xp, a, b: xp.linalg.vector_norm(a @ b, axis=1),
    "at add": lambda xp, a, b: b.at[xp.asarray([0, 2, 0])].add(b * 2) @ a.T,
    "at set": lambda xp, a, b: b.at[xp.asarray([0, 2])].set(a) @ a.T,
    "at max": lambda xp, a, b: b.at[xp.asarray([0, 2])].max(a) @ a.T,
    "clip": lambda xp, a, b: xp.clip(a @ b, -1.0, 1.0),
    "std": lambda xp, a, b: xp.std(a @ b, axis=1),
    "mean of log1p": lambda xp, a, b: xp.mean(xp.log1p(xp.expm1(a * a)) + xp.sinh(a), axis=0),
}


def functions(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    f = FUNCTIONS[name]
    return (lambda a, b: f(unp, a, b)), (lambda a, b: f(jnp, a, b))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.few(2)
def test_gradients_and_products(name: str) -> None:
    ours, theirs = functions(name)
    value, pull = uopc.vjp(ours, A, B)
    w = np.cos(np.arange(np.size(value), dtype=float)).reshape(np.shape(value))
    tangents = (np.sin(A), np.cos(B))

    @jax.jit  # alone, each operation of JAX is compiled
    def wanted(*at: Any) -> Any:
        value, pull = jax.vjp(theirs, *at)
        return value, pull(w), jax.jvp(theirs, at, tangents)[1]

    their_value, pulled, pushed = wanted(A, B)
    np.testing.assert_allclose(value, their_value, rtol=1e-9, atol=1e-12)
    for got, want in zip(pull(w), pulled, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)
    got = uopc.jvp(ours, (A, B), tangents)[1]
    np.testing.assert_allclose(got, pushed, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians(name: str) -> None:
    ours, theirs = functions(name)
    got = uopc.hessian(lambda a: unp.sum(unp.sin(ours(a, unp.asarray(B)))))(A)
    wanted = jax.jit(jax.hessian(lambda a: jnp.sum(jnp.sin(theirs(a, jnp.asarray(B))))))(A)
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)


def test_a_batch_of_gradients() -> None:
    loss = lambda xp: lambda w, x: xp.sum(xp.tanh(x @ w) ** 2)  # noqa: E731
    w, xs = B, np.stack([A, A * 2, A - 1])
    got = uopc.vmap(uopc.grad(loss(unp)), in_axes=(None, 0))(w, xs)
    wanted = jax.vmap(jax.grad(loss(jnp)), in_axes=(None, 0))(w, xs)
    np.testing.assert_allclose(got, wanted, rtol=1e-10)
