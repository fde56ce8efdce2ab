"""Sparse Jacobians through loops and branches: every entry that there is, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

X = np.array([0.3, -0.7, 1.1, 0.4, -0.2, 0.9])
N = 6
LOWER, EYE = np.tril(np.ones((N, N), bool)), np.eye(N, dtype=bool)
NEXT = np.roll(EYE, 1, 1)


def kept(c: Any, u: Any) -> Any:
    return c * 0.5 + unp.sin(u), c * u


def within(c: Any, u: Any) -> Any:
    return uopc.fori_loop(0, 2, lambda i, d: d * u, c), c


def both(c: Any, u: Any) -> Any:
    """One carry keeps all, the other one the last."""
    return (c[0] + u, u), (c[0], c[1])


def positive(v: Any) -> Any:
    return uopc.cond(v > 0, lambda p: unp.log(p) * p, lambda p: p * 2, v)


FIRST = EYE | (np.arange(N) == 0)
Function = Callable[[Any], Any]
# By name: the function, and where its Jacobian has entries.
FUNCTIONS: dict[str, tuple[Function, Any]] = {
    "results": (lambda x: uopc.scan(kept, 0.3, x)[1], LOWER),
    "backwards": (lambda x: uopc.scan(kept, 0.3, x, reverse=True)[1], LOWER.T),
    "a last carry": (lambda x: uopc.scan(kept, 0.3, x)[0], np.ones((1, N), bool)),
    "no carry": (lambda x: uopc.scan(lambda c, u: (c, u * u), 0.0, x)[1], EYE),
    "two carries": (
        lambda x: unp.stack(uopc.scan(both, (0.0, 1.0), x)[1]).reshape(2 * N),
        np.concatenate([np.tril(LOWER, -1), np.eye(N, k=-1, dtype=bool)]),
    ),
    "neighbours": (
        lambda x: uopc.fori_loop(0, 2, lambda i, c: unp.roll(c, -1) * c, x),
        EYE | NEXT | NEXT @ NEXT,
    ),
    "a constant of the body": (
        lambda x: uopc.scan(lambda c, u: (c, unp.sin(u) * x[0]), 0.0, x)[1], FIRST
    ),
    "a loop in a loop": (lambda x: uopc.scan(within, 1.0, x)[1], np.tril(LOWER, -1)),
    "a batch of loops": (
        lambda x: uopc.vmap(lambda v: uopc.fori_loop(0, 3, lambda i, c: unp.sin(c) * v, v))(x), EYE
    ),
    "segments": (lambda x: uopc.scan(kept, 0.3, x, checkpoint=2)[1], LOWER),
    "a function that closes over the argument": (
        lambda x: uopc.checkpoint(lambda v: unp.sin(v) * x)(x * 2), EYE
    ),
    "no steps": (lambda x: uopc.scan(kept, 0.3, x[:0])[0] + x, EYE),
    "while": (
        lambda x: uopc.while_loop(lambda c: (c**2).sum() > 0.01, lambda c: c * 0.5, x), EYE
    ),
    "while, with neighbours": (
        lambda x: uopc.while_loop(
            lambda c: unp.abs(c).max() > 0.1, lambda c: c * 0.5 * unp.cos(unp.roll(c, -3)), x
        ),
        EYE | np.roll(EYE, 3, 1),
    ),
    "branches": (
        lambda x: uopc.cond(x[0] > 0, lambda x: x * x, unp.flip, x), EYE | EYE[::-1]
    ),
    "rows that choose": (lambda x: uopc.vmap(positive)(x), EYE),
    "a branch in a loop": (
        lambda x: uopc.scan(lambda c, u: (positive(c) * u, c), 0.7, x)[1], np.tril(LOWER, -1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.few(3)
def test_entries(name: str) -> None:
    """Those written down by hand; their values are those of the dense Jacobian."""
    f, where = FUNCTIONS[name]
    np.testing.assert_array_equal(uopc.sparsity(f)(X).todense(), where)
    wanted = np.reshape(uopc.jacfwd(f)(X), where.shape)
    for mode in ("direct", "auto"):
        made = uopc.jacobian(f, format="csc", mode=mode)(X)
        assert made.nnz == where.sum()
        np.testing.assert_allclose(made.todense(), wanted, rtol=1e-10, atol=1e-12)


def test_columns_of_one_colour_share_a_tangent_of_the_loop() -> None:
    """500 stages of two states each: two tangents, whatever their number."""
    def stage(c: Any, u: Any) -> Any:
        return c, unp.stack([u[0] * u[1], unp.sin(u[1])])

    x = np.random.default_rng(0).uniform(size=(500, 2))
    f = lambda x: uopc.scan(stage, 0.0, x)[1].reshape(1000)  # noqa: E731
    made = uopc.jacobian(f, format="csr", mode="direct")(x)
    assert made.nnz == 1500
    dense = np.zeros((500, 2, 500, 2))
    i = np.arange(500)
    dense[i, 0, i, 0], dense[i, 0, i, 1], dense[i, 1, i, 1] = x[:, 1], x[:, 0], np.cos(x[:, 1])
    np.testing.assert_allclose(made.todense(), dense.reshape(1000, 1000))


def test_a_structure_may_be_asked_for_of_a_derivative() -> None:
    """`sparsity` of a function with a loop or a gradient in it was an error."""
    f = uopc.grad(lambda x: (x[1:] * x[:-1] ** 2).sum())
    assert uopc.sparsity(f)(X).nnz == N + 2 * (N - 1) - 1


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "step",
    [
        lambda c, u: unp.linalg.solve(unp.asarray([[3.0, 1.0], [1.0, 2.0]]), c) * u,
        lambda c, u: c * unp.linalg.det(unp.stack([c + 1, c * u + 2])),
        lambda c, u: c.at[np.array([1, 1])].add(c * u),
    ],
    ids=["solve", "det", "add"],
)  # fmt: skip
def test_second_derivatives_of_a_loop_of_kernels(step: Any) -> None:
    """A loop whose steps launch kernels stays a loop where its sparse derivative reads it."""
    x, at = uopc.param("x", (3,), "f8"), np.array([0.7, 1.3, -0.4])
    end = uopc.fold(step, x[:2], x)
    loss = (end * end).sum()
    want = uopc.compile(uopc.hessian(loss, x))(at)
    slope, h = uopc.compile(uopc.grad(loss, x)), 1e-6
    near = np.stack([(slope(at + d) - slope(at - d)) / (2 * h) for d in h * np.eye(3)])
    np.testing.assert_allclose(want, near, rtol=1e-5, atol=1e-6)
    for mode in ("auto", "direct"):
        made = uopc.hessian(loss, x, format="csc", mode=mode)
        found = made.todense(uopc.compile(made)(at))
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


def test_zeros_of_a_mask_that_is_broadcast() -> None:
    """The part below a diagonal, of a batch of one, whose mask has no axis for the batch."""
    x = uopc.param("x", (2,), "f8")
    m = unp.stack([unp.stack([x[0] + 3, x[1]]), unp.stack([x[1], x[0] * x[0] + 4])])
    lower = unp.linalg.cholesky(m)
    loss = (lower * lower * lower).sum()
    at = np.array([0.7, 1.3])
    want = uopc.compile(uopc.hessian(loss, x))(at)
    made = uopc.hessian(loss, x, format="csc")
    np.testing.assert_allclose(made.todense(uopc.compile(made)(at)), want, rtol=1e-10)


def test_values_of_split_constants_go_in_again() -> None:
    """What `values` gives is all entries, which the other methods take, too."""
    x = uopc.param("x", (3,), "f8")
    made = uopc.jacobian(uopc.stack(x[0] * 2, x[1] * x[2]), x, format="csc", constants="split")
    given = uopc.compile(made.data)(np.array([1.0, 3.0, 5.0]))
    whole = made.values(given)
    assert whole.shape == (3,) and given.shape == (2,)
    want = [[2, 0, 0], [0, 5, 3]]
    for data in (given, whole):
        np.testing.assert_array_equal(made.scipy(data).toarray(), want)
        np.testing.assert_array_equal(made.todense(data), want)
    with pytest.raises(uopc.UserError, match=r"data must have the shape \(2,\), got \(4,\)"):
        made.todense(np.ones(4))
