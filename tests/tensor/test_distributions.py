"""Choices, shuffles, dropout and floats by inversion: SciPy's tests with fixed keys, bad calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import uopc
import uopc.numpy as unp
from tests.reference import everywhere
from uopc import UOp, dtypes, random
from uopc.ir.interpret.interpreter import evaluate
from uopc.tensor.distributions import _normal_place

Array = Any
KEY = random.key(1234)
P = np.array([0.5, 0.0, 0.2, 0.3])


def run(value: UOp, **arrays: Any) -> Array:
    return uopc.compile(value)(**arrays)


def likely(counts: Array, wanted: Array) -> None:
    wanted = np.asarray(wanted, float)
    assert (counts[wanted == 0] == 0).all()
    some = wanted > 0
    if some.sum() > 1:
        expected = wanted[some] / wanted.sum() * counts.sum()
        assert stats.chisquare(counts[some], expected).pvalue > 0.001


# ---------------------------------------------------------------- floats
BOUNDS = [
    (-2, 2), (3, 4), (-1, np.inf), (-12, -11), (5, np.inf), (-np.inf, -3), (-np.inf, np.inf), (0, 9)
]  # fmt: skip
DRAWN = {
    "exponential": (random.exponential, stats.expon),
    "gumbel": (random.gumbel, stats.gumbel_r),
} | {
    f"normal {low} {high}": (
        lambda *a, low=low, high=high: random.truncated_normal(a[0], low, high, *a[1:]),
        stats.truncnorm(low, high),
    )
    for low, high in BOUNDS
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.few(2)
def test_floats(name: str) -> None:
    draw, wanted = DRAWN[name]
    for t in (dtypes.float32, dtypes.float64):
        found = run(draw(KEY, (100_000,), t))
        assert found.dtype == t.numpy and np.isfinite(found).all()
        assert stats.kstest(found, wanted.cdf).pvalue > 0.001
        low, high = wanted.support()
        assert low <= found.min() and found.max() <= high
        value = draw(KEY, (500,), t)
        plain = uopc.compile(value, optimize=False)()
        close = {"rtol": 8 * np.finfo(t.numpy).eps, "atol": 8 * np.finfo(t.numpy).eps}
        np.testing.assert_allclose(run(value), plain, **close)
        np.testing.assert_allclose(plain, evaluate(value, {}), **close)
    wide = run(draw(KEY, (1000,), dtypes.float32))
    for t in (dtypes.float16, dtypes.bfloat16):
        found = run(draw(KEY, (1000,), t))
        np.testing.assert_array_equal(found.view("u2"), wide.astype(t.numpy).view("u2"))


def test_far_values_are_drawn() -> None:
    """The least words give 22 of an exponential and a Gumbel number, not infinity."""
    for draw in (random.exponential, random.gumbel):
        found = run(draw(KEY, (1 << 24,)))
        assert 15 < found.max() < 23 and np.isfinite(found).all()
    assert run(random.exponential(KEY, (1 << 24,))).min() > 0


def test_places_of_the_normal_distribution_are_those_of_scipy() -> None:
    p = np.concatenate([
        np.logspace(-300, -1, 20_001), np.linspace(1e-5, 1 - 1e-5, 20_001),
        1 - np.logspace(-15, -1, 1000),
    ])  # fmt: skip
    found = run(_normal_place(uopc.param("p", p.shape, dtypes.float64)), p=p)
    np.testing.assert_allclose(found, special.ndtri(p), rtol=3e-15, atol=1e-17)
    p = p[p > 1e-37].astype("f4")
    p = p[p < 1]
    found = run(_normal_place(uopc.param("p", p.shape)), p=p)
    np.testing.assert_allclose(found, special.ndtri(p.astype(float)), rtol=3e-6, atol=1e-7)


# ---------------------------------------------------------------- choices
@pytest.mark.parametrize("n", (1, 7, 1000))
def test_choice(n: int) -> None:
    found = run(random.choice(KEY, n, (50, 1000)))
    assert found.dtype == np.int32 and found.shape == (50, 1000)
    likely(np.bincount(found.ravel(), minlength=n), np.ones(n))
    everywhere(random.choice(KEY, n, (3, 2)))


def test_choice_by_weights() -> None:
    for p in (P, P.astype("f4"), (P * 1e-3).tolist(), np.array([0, 0, 1.0, 0])):
        found = run(random.choice(KEY, 4, (40_000,), p=p))
        likely(np.bincount(found, minlength=4), p)
    p = uopc.param("p", (4,))
    for values in (P, np.array([0, 1.0, 0, 0])):
        found = run(random.choice(KEY, 4, (20_000,), p=p), p=values.astype("f4"))
        likely(np.bincount(found, minlength=4), values)
    many = np.random.default_rng(0).exponential(size=1000) * (np.arange(1000) % 3 > 0)
    for t in ("f4", "f8"):
        found = run(random.choice(KEY, 1000, (200_000,), p=many.astype(t)))
        likely(np.bincount(found, minlength=1000), many)


def test_choice_without_replacement() -> None:
    keys = random.split(KEY, 1200)
    key = uopc.param("key", (2,), dtypes.uint32)
    f = uopc.compile(random.choice(key, 4, (2,), replace=False))
    drawn = [tuple(f(k).tolist()) for k in run(keys)]
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    likely(np.array([drawn.count(p) for p in pairs]), np.ones(12))
    assert sum(map(drawn.count, pairs)) == 1200
    g = uopc.compile(random.choice(key, 4, (2,), replace=False, p=P))
    drawn = [tuple(g(k).tolist()) for k in run(keys)]
    first_then_second = [P[i] * P[j] / (1 - P[i]) for i, j in pairs]
    likely(np.array([drawn.count(p) for p in pairs]), first_then_second)
    whole = everywhere(random.choice(KEY, 52, (4, 13), replace=False))
    assert sorted(whole.ravel().tolist()) == list(range(52))


def test_choice_of_slices() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    rows = run(random.choice(KEY, uopc.constant(x), (5,), axis=1))
    places = run(random.choice(KEY, 3, (5,)))
    np.testing.assert_array_equal(rows, x[:, places])
    grid = run(random.choice(KEY, x, (2, 2), axis=-1))
    np.testing.assert_array_equal(grid, x[:, :, run(random.choice(KEY, 4, (2, 2)))])
    assert run(random.choice(KEY, [5.0, 6.0])) in (5, 6)


def test_choice_of_a_symbolic_size() -> None:
    n = uopc.variable("n", 1, 100)
    f = uopc.compile(random.choice(KEY, n, (1000,)))
    for count in (1, 5, 100):
        np.testing.assert_array_equal(f(n=count), run(random.choice(KEY, count, (1000,))))
    x = uopc.param("x", (n,))
    g = uopc.compile(random.choice(KEY, x, (50,)))
    values = np.arange(7, dtype="f4") * 3
    np.testing.assert_array_equal(g(values), run(random.choice(KEY, values, (50,))))


def test_nothing_is_chosen_of_nothing() -> None:
    assert run(random.choice(KEY, 0, (0, 3))).shape == (0, 3)
    assert run(random.choice(KEY, 5, (0,), replace=False)).shape == (0,)


def test_categorical() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [1e-30, 3.0, 1.0]]))
    logits[1, 0] = -np.inf
    found = run(random.categorical(KEY, uopc.constant(logits), shape=(40_000, 2)))
    for row in (0, 1):
        likely(np.bincount(found[:, row], minlength=3), np.exp(logits[row]))
    columns = run(random.categorical(KEY, uopc.constant(logits.T), axis=0, shape=(40_000, 2)))
    for row in (0, 1):
        likely(np.bincount(columns[:, row], minlength=3), np.exp(logits[row]))
    assert run(random.categorical(KEY, uopc.constant(logits))).shape == (2,)
    likely(np.bincount(run(random.categorical(KEY, logits[0], shape=(9000,)))), [2, 1, 1])
    half = uopc.constant(logits.astype("f2"))
    likely(np.bincount(run(random.categorical(KEY, half[0], shape=(9000,)))), [2, 1, 1])


# ---------------------------------------------------------------- dropout
@pytest.mark.parametrize("t", ("float16", "bfloat16", "float32", "float64"))
def test_dropout(t: str) -> None:
    x = uopc.full((100, 300), 3.0, getattr(dtypes, t))
    for rate in (0, 0.25, 0.9, 1):
        found = run(random.dropout(KEY, x, rate))
        assert found.dtype == x.dtype.numpy
        dropped = int((found == 0).sum())
        assert stats.binomtest(dropped, found.size, rate).pvalue > 0.001
        kept = found[found != 0]
        wanted = np.asarray(3 / (1 - rate) if rate < 1 else 0, "f4").astype(x.dtype.numpy)
        np.testing.assert_allclose(kept.astype(float), float(wanted), rtol=1e-6)
    rate = uopc.param("rate", ())
    value = random.dropout(KEY, x, rate)
    for r in (0.25, 1):
        found = run(value, rate=np.float32(r))
        np.testing.assert_array_equal(found == 0, run(random.dropout(KEY, x, r)) == 0)


# ---------------------------------------------------------------- shuffles
@pytest.mark.parametrize("n", [1, 2, 10, 65, 1000])
@pytest.mark.few(3)
def test_permutation(n: int) -> None:
    found = everywhere(random.permutation(KEY, n)) if n < 100 else run(random.permutation(KEY, n))
    assert sorted(found.tolist()) == list(range(n))


def test_every_permutation_is_equally_likely() -> None:
    keys = random.split(KEY, 1200)
    key = uopc.param("key", (2,), dtypes.uint32)
    f = uopc.compile(random.permutation(key, 4))
    drawn = [tuple(f(k).tolist()) for k in run(keys)]
    counts = [drawn.count(order) for order in sorted(set(drawn))]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("axis", (0, 1, -1))
def test_permutation_of_slices(axis: int) -> None:
    x = np.arange(60).reshape(3, 4, 5)
    order = run(random.permutation(KEY, x.shape[axis]))
    found = everywhere(random.permutation(KEY, uopc.constant(x), axis))
    np.testing.assert_array_equal(found, x.take(order, axis))
    apart = everywhere(random.permutation(KEY, x, axis, independent=True))
    np.testing.assert_array_equal(np.sort(apart, axis), x)
    lines = np.moveaxis(apart, axis, -1).reshape(-1, x.shape[axis]) % 60
    assert len({tuple(np.argsort(line).tolist()) for line in lines}) > 1


def test_in_traced_functions() -> None:
    @uopc.jit
    def drawn(key, x, p):
        return (
            random.choice(key, x, (3,), p=p), random.permutation(key, x), random.dropout(key, x),
            random.categorical(key, unp.log(p)), random.gumbel(key, (2,)),
        )  # fmt: skip

    x, p = np.arange(4.0), np.array([0, 0, 1.0, 0])
    key = uopc.compile(KEY)()
    chosen, shuffled, dropped, place, noise = drawn(key, x, p)
    assert chosen.tolist() == [2, 2, 2] and sorted(shuffled.tolist()) == [0, 1, 2, 3]
    assert place == 2 and noise.shape == (2,)
    assert ((dropped == 0) | (dropped == 2 * x)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random.choice(KEY, 0, (3,)), r"choice: \(0\) elements are too few"),
        (
            lambda: random.choice(KEY, 3, (2, 2), replace=False),
            r"\(3\) elements are too few for \(2, 2\) without",
        ),
        (lambda: random.choice(KEY, "abc"), "choice: expected an array or a size, got 'abc'"),
        (lambda: random.choice(KEY, True), "choice: expected an array or a size, got True"),
        (lambda: random.choice(KEY, -1, ()), "choice: a dimension must not be negative"),
        (
            lambda: random.choice(KEY, 3, p=[0.5, 0.5]),
            r"p must be floats of shape \(3\), got float64",
        ),
        (lambda: random.choice(KEY, 2, p=[1, 1]), "p must be floats of shape .2., got int64"),
        (lambda: random.choice(KEY, 2, p=[0.5, -0.5]), "p must be finite, not negative"),
        (lambda: random.choice(KEY, 2, p=[0.0, 0.0]), "not 0 everywhere"),
        (lambda: random.choice(KEY, 2, p=[0.0, np.nan]), "p must be finite"),
        (lambda: random.choice(KEY, 2, replace=2), "choice: replace must be True or False"),
        (lambda: random.choice(KEY, np.ones((2, 2)), axis=2), "choice"),
        (lambda: random.choice(7, 2), "choice: the key must be a UOp"),
        (lambda: random.categorical(KEY, np.arange(3)), "categorical: logits must be floats"),
        (lambda: random.categorical(KEY, np.ones((2, 3)), shape=(3,)), r"\(3\) and \(2\) do not"),
        (lambda: random.categorical(KEY, np.ones((2, 3)), shape=()), r"end with \(2\), got"),
        (lambda: random.dropout(KEY, uopc.arange(3)), "x must be an array of floats, got int32"),
        (lambda: random.dropout(KEY, uopc.ones(3), 1.5), "the rate must be from 0 to 1, got 1.5"),
        (lambda: random.dropout(KEY, uopc.ones(3), uopc.ones(3)), "rate must be a scalar float"),
        (lambda: random.gumbel(KEY, 3, dtypes.int32), "gumbel: the dtype must be a float"),
        (lambda: random.exponential(KEY, -3), "exponential: a dimension must not be negative"),
        (lambda: random.truncated_normal(KEY, 1, 1), "expected lower < upper, got 1 and 1"),
        (lambda: random.truncated_normal(KEY, 1, np.nan), "expected a finite number, got nan"),
        (lambda: random.truncated_normal(KEY, 30, 31), r"of \[30, 31\] is 0 in float32"),
        (lambda: random.permutation(KEY, None), "permutation: expected an array or a size"),
        (lambda: random.permutation(KEY, 3, independent=1), "independent must be True or False"),
    ],
)  # fmt: skip
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        make()
