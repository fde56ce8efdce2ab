"""`scan(..., checkpoint=k)`: equal gradients from less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

RNG = np.random.default_rng(11)
X, W = RNG.uniform(-1, 1, 3), RNG.uniform(-0.5, 0.5, (3, 3))
U = RNG.uniform(-1, 1, (12, 2))


def roll(x: Any, u: Any, w: Any, **how: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        x, n = c
        made = unp.tanh(w @ x) + v[0] * x[::-1] * unp.astype(n, uopc.dtypes.float64)
        return (made, 1 - n), (made * v[1]).sum()

    (last, _), ys = uopc.scan(step, (x, unp.asarray(1)), u, **how)
    return (last**2).sum() + (ys**2).sum()


def gradients(count: int = 12, **how: Any) -> Any:
    def f(x: Any, u: Any, w: Any) -> Any:
        return roll(x, u, w, **how)

    return uopc.grad(f, argnums=(0, 1, 2))(X, U[:count], W)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("count", "every"),
    [
        (11, 4),
        *[
            pytest.param(n, k, marks=pytest.mark.slow)
            for n, k in ((12, 4), (3, 4), (12, 1), (12, 5), (12, 12), (12, 100))
        ],
    ],
)
def test_gradients_are_equal(count: int, every: int, reverse: bool) -> None:
    wanted = gradients(count, reverse=reverse)
    for a, b in zip(gradients(count, checkpoint=every, reverse=reverse), wanted):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def test_memory_falls() -> None:
    xs = np.linspace(-1, 1, 10_000)

    def needed(checkpoint: Any) -> tuple[int, Any]:
        loss = lambda x, v: (uopc.scan(  # noqa: E731
            lambda c, v: (unp.tanh(c * x) + v, None), x, v, checkpoint=checkpoint
        )[0] ** 2).sum()  # fmt: skip
        f = uopc.jit(uopc.grad(loss))
        return f.program(X, xs).stats["arena"], f(X, xs)

    (most, wanted), (least, got) = needed("all"), needed(100)
    np.testing.assert_allclose(got, wanted, rtol=1e-11)
    carries = xs.size * X.nbytes
    assert carries <= most < 2 * carries
    assert 200 * X.nbytes <= least < 600 * X.nbytes + 4096  # 100 segments, 100 steps


@pytest.mark.slow
def test_other_transforms() -> None:
    def kept(x: Any) -> Any:
        return roll(x, unp.asarray(U), unp.asarray(W), checkpoint=5)

    def plain(x: Any) -> Any:
        return roll(x, unp.asarray(U), unp.asarray(W))

    rows = np.stack([X, -X])
    for make in (
        lambda f: uopc.vmap(uopc.grad(f))(rows),
        lambda f: uopc.grad(lambda r: uopc.vmap(f)(r).sum())(rows),
        lambda f: uopc.hessian(f)(X),
        lambda f: uopc.jvp(f, (X,), (X,)),
    ):
        np.testing.assert_allclose(make(kept), make(plain), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wrong", [0, -1, True, 2.0, "none", None])
def test_errors(wrong: Any) -> None:
    with pytest.raises(uopc.UserError, match='checkpoint must be "all" or a positive number'):
        uopc.scan(lambda c, x: (c, x), 1.0, X, checkpoint=wrong)


def test_a_symbolic_number_of_steps() -> None:
    n = uopc.variable("n", 0, 100)
    with pytest.raises(uopc.Unsupported, match="checkpoint=3 needs a known number of steps"):
        uopc.scan(lambda c, x: (c, None), uopc.constant(1.0), length=n, checkpoint=3)
