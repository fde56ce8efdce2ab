"""Derivatives where zeros meet infinite slopes: what a `where` hides, what no one reads, and
tangents that are zero. Each is compared with the function beside the point, or with numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import dtypes

X = np.array([0.0, 4.0, 0.0, 9.0])
KEPT = X > 0  # the others have an infinite slope
SLOPES = np.array([0.0, 0.25, 0.0, 1 / 6])
PLACES = np.array([3, 1, 0, 2])

# Of v = sqrt(x) and a mask of what is kept: sums of nothing but what is kept.
HIDDEN: dict[str, Callable[[Any], Any]] = {
    "where": lambda v: unp.where(KEPT, v, 0.0),
    "concatenate": lambda v: unp.where(np.r_[KEPT, True], unp.concat([v, unp.ones(1)]), 0.0),
    "concatenate twice": lambda v: unp.concat([unp.where(KEPT, v, 0.0), unp.ones(2)])[:5],
    "stack": lambda v: unp.where(np.stack([KEPT, KEPT]), unp.stack([v, v * v * v]), 0.0),
    "stack of elements": lambda v: unp.stack([v[1], v[3], v[1] * 0.0]),
    "pad": lambda v: unp.where(np.r_[True, KEPT, True], unp.pad(v, 1), 0.0),
    "flip": lambda v: unp.where(KEPT[::-1], unp.flip(v), 0.0),
    "roll": lambda v: unp.where(np.roll(KEPT, 1), unp.roll(v, 1), 0.0),
    "reversed steps": lambda v: v[::-2],
    "slice": lambda v: v[1::2],
    "element": lambda v: v[1] + v[3],
    "indices": lambda v: unp.where(KEPT[PLACES], v[PLACES], 0.0),
    "few indices": lambda v: v[np.array([1, 3, 1])] * np.array([0.5, 1.0, 0.5]),
    "gather at run time": lambda v: v[unp.argsort(v)[2:]],
    "take": lambda v: unp.take(v, np.array([3, 1])),
    "sort": lambda v: unp.sort(v)[2:],
    "sort and where": lambda v: unp.where(np.array([False, False, True, True]), unp.sort(v), 0.0),
    "repeat": lambda v: unp.where(np.repeat(KEPT, 2), unp.repeat(v, 2), 0.0) / 2,
    "tile": lambda v: unp.where(np.tile(KEPT, 2), unp.tile(v, 2), 0.0) / 2,
    "broadcast": lambda v: unp.where(KEPT, unp.broadcast_to(v, (3, 4)), 0.0) / 3,
    "reshape": lambda v: unp.where(KEPT.reshape(2, 2).T, unp.reshape(v, (2, 2)).T, 0.0),
    "sums of hidden": lambda v: unp.sum(unp.where(KEPT, unp.stack([v, v]), 0.0), axis=0) / 2,
    "two readers": lambda v: (v[1:2], v[3:]),
    "row of a matrix": lambda v: unp.where(KEPT[:, None], v[:, None] @ unp.ones((1, 3)), 0.0) / 3,
    "at set": lambda v: unp.zeros(6).at[np.array([1, 4])].set(v[1::2]),
    "at add at run time": lambda v: unp.zeros(4).at[unp.argsort(v)].add(unp.where(KEPT, v, 0.0)),
    "running sum": lambda v: unp.cumulative_sum(v[1::2] * 0.5)[-1:] * 2,
    "maximum": lambda v: unp.where(KEPT, unp.maximum(v, -v), 0.0),
    "branches": lambda v: unp.where(KEPT, uopc.cond(v[1] > 0, lambda v: v * 1.0, unp.exp, v), 0.0),
    "products": lambda v: unp.concat([unp.where(KEPT, v * 3.0, 0.0), unp.ones(1)]) / 3,
}


def _sum(tree: Any) -> Any:
    parts = tree if isinstance(tree, tuple) else (tree,)
    found = unp.sum(parts[0])
    for p in parts[1:]:
        found = found + unp.sum(p)
    return found


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.few(4)
def test_a_hidden_slope_is_not_looked_at(name: str) -> None:
    f = lambda x: _sum(HIDDEN[name](unp.sqrt(x)))  # noqa: E731
    beside = uopc.grad(lambda x: _sum(HIDDEN[name](unp.sqrt(unp.where(KEPT, x, 1.0)))))(X)
    wanted = np.where(KEPT, beside, 0.0)
    if name != "stack":
        np.testing.assert_allclose(wanted, SLOPES)
    np.testing.assert_allclose(uopc.grad(f)(X), wanted)
    np.testing.assert_allclose(uopc.jacfwd(f)(X), wanted)
    np.testing.assert_allclose(uopc.vmap(uopc.grad(f))(np.stack([X, X])), [wanted] * 2)


@pytest.mark.parametrize("slope", [unp.log, unp.reciprocal, lambda x: x**-0.5, lambda x: x**0.3])
@pytest.mark.few(1)
def test_other_infinite_slopes(slope: Callable[[Any], Any]) -> None:
    f = lambda x: unp.sum(slope(x)[1::2])  # noqa: E731
    found = uopc.grad(f)(X)
    np.testing.assert_allclose(found[[0, 2]], 0)
    np.testing.assert_allclose(found[1::2], uopc.grad(lambda x: unp.sum(slope(x)))(X[1::2]))
    np.testing.assert_allclose(uopc.hessian(f)(X)[0], 0)


# Where the slope is in a body, and what hides it is outside.
BODIES: dict[str, Callable[[Any], Any]] = {
    "checkpoint": lambda x: uopc.checkpoint(unp.sqrt)(x),
    "nested": lambda x: uopc.checkpoint(lambda x: uopc.checkpoint(unp.sqrt)(x) * 1.0)(x),
    "branch": lambda x: uopc.cond(unp.sum(x) > 0, unp.sqrt, lambda x: x, x),
    "rows": lambda x: uopc.scan(lambda c, u: (c, unp.sqrt(u)), 0.0, x)[1],
    "segments": lambda x: uopc.scan(lambda c, u: (c, unp.sqrt(u)), 0.0, x, checkpoint=2)[1],
    "map": lambda x: uopc.map(unp.sqrt, x),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.few(2)
def test_a_hidden_slope_in_a_body(name: str) -> None:
    f = BODIES[name]
    np.testing.assert_allclose(uopc.grad(lambda x: unp.sum(unp.where(KEPT, f(x), 0.0)))(X), SLOPES)
    np.testing.assert_allclose(uopc.grad(lambda x: unp.sum(f(x)[1::2]))(X), SLOPES)
    still = lambda x: unp.sum(f(unp.concat([unp.where(x > 0, x, 0.0), x])[:4]))  # noqa: E731
    np.testing.assert_allclose(uopc.jacfwd(still)(X), SLOPES)


def test_unit_vectors_and_distances() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])

    def unit(v: Any) -> Any:
        n = unp.sqrt(unp.sum(v * v, axis=1, keepdims=True))
        return unp.sum(unp.where(n > 0, v / n, 0.0))

    def each(v: Any) -> Any:  # a mask of elements, all of them off in a row
        n = unp.sqrt(unp.sum(v * v, axis=1, keepdims=True))
        return unp.sum(unp.where(v != 0, v / n, 0.0))

    def distances(v: Any) -> Any:
        square = unp.sum((v[:, None] - v[None]) ** 2, axis=-1)
        return unp.sum(unp.sqrt(square)[np.triu_indices(2, 1)])

    for f in (unit, each):
        np.testing.assert_allclose(uopc.grad(f)(rows), [[0, 0], [4 / 125, -3 / 125]])
    np.testing.assert_allclose(uopc.grad(distances)(rows), [[-0.6, -0.8], [0.6, 0.8]])


def test_a_slope_that_overflows() -> None:
    f = lambda x: unp.sum(unp.exp(x)[1:])  # noqa: E731
    np.testing.assert_allclose(uopc.grad(f)(np.array([1e4, 0.0])), [0, 1])
    g = lambda x: unp.sum(unp.concat([unp.where(x > 2, 0.0, x), x])[:2] * 1.0)  # noqa: E731
    np.testing.assert_allclose(uopc.grad(g)(np.array([1.0, 3.0])), [1, 0])


def test_finite_factors_get_no_masks() -> None:
    x = uopc.param("x", (8,), dtypes.float64)
    made = uopc.grad((x.sin()[1:] * x[:-1]).sum(), x)
    assert not any([u.op.name == "where" for u in made.toposort()])
    y = x.sqrt()
    whole = sum([y[i] * (i + 1) for i in range(8)], start=y[0])  # all places are read
    assert not any([u.op.name == "where" for u in uopc.grad(whole, x).toposort()])


# ---------------------------------------------------------------- tangents that are zero
ZEROS: dict[str, Callable[[Any], Any]] = {
    "const_like": lambda u: u.const_like(0),
    "zeros": lambda u: uopc.zeros((4,), dtypes.float64),
    "array": lambda u: uopc.constant(np.zeros(4)),
    "negative": lambda u: uopc.constant(np.full(4, -0.0)),
    "expand and reshape": lambda u: uopc.zeros((2, 1), dtypes.float64).expand(2, 2).reshape(4),
    "cast": lambda u: uopc.zeros((4,), dtypes.int32).cast(dtypes.float64),
    "stack": lambda u: uopc.stack(*[uopc.constant(0.0, dtypes.float64)] * 4),
    "cat": lambda u: uopc.cat(uopc.zeros((1,), dtypes.float64), uopc.constant(np.zeros(3))),
    "pad": lambda u: uopc.zeros((2,), dtypes.float64).pad([(1, 1)]),
    "detach": lambda u: uopc.zeros((4,), dtypes.float64).detach(),
    "None": lambda u: None,
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.few(3)
def test_a_tangent_of_zeros_builds_nothing(name: str) -> None:
    v, gamma, dv = [uopc.param(n, (4,), dtypes.float64) for n in ("v", "gamma", "dv")]
    out = v.sin() + gamma.cos() * gamma.exp()
    zero = ZEROS[name](gamma)
    pushed = uopc.jvp(out, [v, gamma], [dv, zero])
    assert gamma not in pushed.toposort()
    assert uopc.linearize(out, [v, gamma])(dv, zero) is pushed
    pulled = uopc.vjp([v.sin(), gamma.exp()], [v, gamma], [dv, zero])
    assert gamma not in pulled[0].toposort()
    assert gamma not in pulled[1].toposort()


def test_zeros_of_functions_and_loops() -> None:
    def step(c: Any, u: Any) -> Any:
        a, b = c
        return (a * 1.5 + u, b * unp.exp(b)), unp.exp(b) * a

    def f(a: Any, b: Any, u: Any) -> Any:
        return uopc.scan(step, (a, b), u)[0][0]

    u = np.ones(3)
    at = 1.0, 800.0, u  # exp overflows, and no one moves it

    @uopc.jit
    def moved(a: Any, b: Any, u: Any) -> Any:
        given = unp.ones_like(a), unp.zeros_like(b), unp.zeros_like(u)
        return uopc.jvp(f, (a, b, u), given)[1]

    np.testing.assert_allclose(moved(*at), 1.5**3)
    np.testing.assert_allclose(uopc.grad(f, argnums=(0, 1))(*at), [1.5**3, 0])

    @uopc.jit
    def back(a: Any, b: Any) -> Any:
        _, pull = uopc.vjp(lambda a, b: (a * a, unp.exp(b) * a), a, b)
        return pull((unp.ones_like(a), unp.zeros_like(b)))

    np.testing.assert_allclose(back(3.0, 800.0), [6, 0])


def test_what_no_derivative_flows_through_needs_no_rule() -> None:
    a = np.array([[2.0, 0.3], [0.1, 1.0]])

    def volume(a: Any) -> Any:
        sign, size = unp.linalg.slogdet(a)
        return sign * unp.exp(size)

    wanted = np.linalg.det(a) * np.linalg.inv(a).T
    np.testing.assert_allclose(uopc.grad(volume)(a), wanted)
    np.testing.assert_allclose(uopc.jacfwd(volume)(a), wanted)
    np.testing.assert_allclose(uopc.jvp(volume, (a,), (a,))[1], 2 * np.linalg.det(a))
    both = np.stack([a, a[::-1]])
    np.testing.assert_allclose(uopc.vmap(volume)(both), np.linalg.det(both))
    np.testing.assert_allclose(uopc.vmap(uopc.jacfwd(volume))(both)[0], wanted)
    second = uopc.hessian(volume)(a)
    np.testing.assert_allclose(second[0, 0], [[0, 0], [0, 1]], atol=1e-12)


# ---------------------------------------------------------------- drawn pipelines
class Pipeline:
    """A drawn chain of what moves, joins, reads and adds up elements, as functions of a namespace:
    NumPy runs it on NaN to tell which results what is hidden reaches."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.steps: list[Callable[[Any, Any], Any]] = []
        dims: tuple[int, ...] = (6,)
        for _ in range(self.draw.integers(1, 6)):
            step = self._step(dims)
            dims = np.shape(step(np, np.zeros(dims)))
            self.steps.append(step)
        self.dims = dims

    def __call__(self, xp: Any, v: Any) -> Any:
        for step in self.steps:
            v = step(xp, v)
        return v

    def _step(self, dims: tuple[int, ...]) -> Callable[[Any, Any], Any]:
        draw, rank = self.draw, len(dims)
        axis = int(draw.integers(rank))
        n = dims[axis]
        size = int(np.prod(dims))
        at = int(draw.integers(n))
        places = draw.integers(0, n, size=int(draw.integers(1, 6)))
        weights = draw.uniform(0.5, 2.0, dims)
        mask = draw.random(dims) < 0.7
        part = tuple([slice(at, None) if i == axis else slice(None) for i in range(rank)])
        kinds: list[Callable[[Any, Any], Any]] = [
            lambda xp, v: xp.flip(v, axis=axis),
            lambda xp, v: xp.roll(v, at, axis=axis),
            lambda xp, v: xp.reshape(v, (size,)),
            lambda xp, v: xp.permute_dims(v, tuple(range(rank))[::-1]),
            lambda xp, v: v[part],
            lambda xp, v: xp.take(v, xp.asarray(places), axis=axis),
            lambda xp, v: v[places] if rank == 1 else v[:, places % dims[1]],
            lambda xp, v: v * weights,
            lambda xp, v: xp.where(xp.asarray(mask), v, 0.0),
            lambda xp, v: v + xp.flip(v, axis=axis) * 0.5,
            lambda xp, v: xp.concat([v, xp.ones(dims)], axis=axis),
            lambda xp, v: xp.concat([v[part], v * 0.5], axis=axis),
            lambda xp, v: xp.sin(v) + v,
            lambda xp, v: xp.pad(v, [(1, 2) if i == axis else (0, 0) for i in range(rank)]),
            lambda xp, v: xp.repeat(v, 2, axis=axis),
            lambda xp, v: xp.tile(v, 2),
            lambda xp, v: xp.cumulative_sum(v, axis=axis),
        ]
        if rank < 3 and size <= 60:
            kinds += [
                lambda xp, v: xp.stack([v, xp.ones(dims)], axis=axis),
                lambda xp, v: xp.stack([v, v * 2.0]),
                lambda xp, v: xp.broadcast_to(v, (3, *dims)),
                lambda xp, v: xp.reshape(v, (*dims, 1)) * xp.asarray([1.0, 2.0]),
            ]
        if rank > 1:
            kinds += [
                lambda xp, v: xp.sum(v, axis=axis),
                lambda xp, v: xp.sum(v * weights, axis=axis, keepdims=True),
                lambda xp, v: v[np.triu_indices(min(dims[:2]), 1)] if min(dims[:2]) > 1 else v,
            ]
        return kinds[int(draw.integers(len(kinds)))]


INFINITE: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.sqrt(x), lambda xp, x: xp.log(x), lambda xp, x: 1.0 / x,
    lambda xp, x: x / xp.abs(x) + x, lambda xp, x: x**1.5 / x,
    lambda xp, x: xp.sqrt(x) * x + xp.log(x),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.few(3)
def test_drawn_pipelines(seed: int) -> None:
    pipeline, draw = Pipeline(seed), np.random.default_rng(seed + 1000)
    slope = INFINITE[seed % len(INFINITE)]
    hidden = draw.random(6) < 0.4
    x = np.where(hidden, 0.0, draw.uniform(0.5, 2.0, 6))
    kept = ~np.isnan(pipeline(np, np.where(hidden, np.nan, x)))
    w = draw.uniform(0.5, 1.5, kept.shape)

    def f(x: Any) -> Any:
        return unp.sum(unp.where(kept, pipeline(unp, slope(unp, x)), 0.0) * w)

    wanted = np.where(hidden, 0.0, uopc.grad(f)(np.where(hidden, 1.0, x)))
    np.testing.assert_allclose(uopc.grad(f)(x), wanted, rtol=1e-9)
    np.testing.assert_allclose(uopc.jacfwd(f)(x), wanted, rtol=1e-9)
    np.testing.assert_allclose(uopc.vmap(uopc.grad(f))(x[None])[0], wanted, rtol=1e-9)
