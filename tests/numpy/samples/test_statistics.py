"""Statistics of scripts and functions of samples, traced: NumPy's numbers, dtypes and errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.numpy.test_scripts import DTYPES, close, drawn, outcome, same


# ---------------------------------------------------------------- statistics
def weighted(m: Any, a: Any, w: Any, **named: Any) -> Any:
    return m.average(a, weights=w, **named)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", (None, 0, -1, (0, 1), (1, 0), (2, 0), 5))
@pytest.mark.few(4)
def test_average(axis: Any, dtype: str) -> None:
    a = drawn((2, 3, 4), dtype)
    same(lambda a: np.average(a, axis=axis), a)
    same(lambda a: np.average(a, axis=axis, keepdims=True, returned=True), a)
    if axis == 5:
        return
    for t in ("i4", "f4", "f8"):
        whole = np.abs(drawn((2, 3, 4), t, 1)) + 1
        same(lambda a, w: np.average(a, axis, w, returned=True), a, whole.astype(t))
        if axis is not None:
            dims = [a.shape[i] for i in (axis if isinstance(axis, tuple) else (axis,))]
            of_axes = (np.abs(drawn(dims, t, 1)) + 1).astype(t)
            same(lambda a, w: np.average(a, axis, w, keepdims=True), a, of_axes)
    same(lambda a: np.average(a, weights=[1, 2]), a)
    same(lambda a: np.average(a, axis=0, weights=[1, 2, 3]), a)


COVARIANCES = {
    "cov": lambda a, b: np.cov(a),
    "columns": lambda a, b: np.cov(a, rowvar=False),
    "bias": lambda a, b: np.cov(a, bias=True),
    "ddof": lambda a, b: np.cov(a, ddof=2),
    "ddof 0": lambda a, b: np.cov(a, b, ddof=0),
    "two": lambda a, b: np.cov(a, b),
    "two columns": lambda a, b: np.cov(a, b, rowvar=False),
    "f4": lambda a, b: np.cov(a, dtype="f4"),
    "corrcoef": lambda a, b: np.corrcoef(a),
    "corrcoef of two": lambda a, b: np.corrcoef(a, b),
    "corrcoef of columns": lambda a, b: np.corrcoef(a, rowvar=False),
}


@pytest.mark.parametrize("name", COVARIANCES)
@pytest.mark.parametrize("shape", ((7,), (3, 7), (1, 7), (2, 1), (0, 3), (2, 2, 2)))
@pytest.mark.few(20)
def test_covariances(name: str, shape: Any) -> None:
    rng = np.random.default_rng(5)
    for dtype in ("f8", "f4", "i4"):
        a, b = ((rng.standard_normal(shape) * 9).astype(dtype) for _ in range(2))
        f = COVARIANCES[name]
        want, error = outcome(f, a, b)
        if error:
            with pytest.raises(uopc.UserError):
                uopc.jit(f)(a, b)
            continue
        got = uopc.jit(f)(a, b)
        assert got.shape == want.shape and (got.dtype == want.dtype or not want.size)
        tolerance = 1e-4 if name == "f4" else 1e-9
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ddof", (None, 0, 1, 2))
def test_covariances_of_weighted_observations(ddof: Any) -> None:
    rng = np.random.default_rng(6)
    a, w, n = rng.standard_normal((3, 8)), rng.random(8), rng.integers(1, 4, 8)
    same(lambda a, w, n: np.cov(a, ddof=ddof, aweights=w), a, w, n)
    same(lambda a, w, n: np.cov(a, ddof=ddof, fweights=n), a, w, n)
    same(lambda a, w, n: np.cov(a, ddof=ddof, fweights=n, aweights=w), a, w, n)
    for f in (
        lambda a, w, n: np.cov(a, fweights=w), lambda a, w, n: np.cov(a, aweights=w[:5]),
        lambda a, w, n: np.cov(a, ddof=1.5), lambda a, w, n: np.cov(a, dtype="i4"),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match="cov"):
            uopc.jit(f)(a, w, n)


REDUCED = ("sum", "prod", "max", "min", "any", "all", "mean")


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("dtype", ("f4", "f8", "i4", "i1", "?"))
@pytest.mark.few(4)
def test_reductions_of_chosen_elements(name: str, dtype: str) -> None:
    f = getattr(np, name)
    start = {} if name in ("any", "all", "mean") else {"initial": 2}

    def along(axis: int | None, a: Any, mask: Any) -> None:
        same(lambda a, m: f(a, axis, where=m, keepdims=True, **start), a, mask)
        same(lambda a: f(a, axis=axis, where=a > 1, **start), a)
        same(lambda a: f(a, axis=axis, **start), a)

    for shape in ((3, 4), (0, 3), (1, 1)):
        a, mask = drawn(shape, dtype), drawn(shape, "?", 1)
        for axis in (None, 0, -1):
            along(axis, a, mask)
        same(lambda a, m: f(a, where=m, **start), a, drawn(shape[1:], "?", 2))
    if start and dtype[0] == "f":
        same(lambda a, s: f(a, axis=0, initial=s), drawn((3, 4), dtype), np.asarray(1.5, dtype))


def test_options_of_reductions() -> None:
    a = drawn((3, 4), "f4")
    for f in (
        lambda a: np.sum(a, 0, "f8", None, True), lambda a: np.max(a, 0, None, True),
        lambda a: np.mean(a, 1, "f8", None, True), lambda a: a.sum(axis=1, where=a > 0),
        lambda a: a.max(initial=3.0, axis=0), lambda a: np.all(a > 0, 0, None, True),
        lambda a: np.amax(a, initial=9.0), lambda a: np.std(a, where=a > -1),
    ):  # fmt: skip
        same(f, a)
    for f in (
        lambda a: np.max(a, where=a > 0), lambda a: np.sum(a, 0, None, np.zeros(4)),
        lambda a: a.mean(out=np.zeros(())),
    ):  # fmt: skip
        with pytest.raises(uopc.UserError, match=r"where=|out="):
            uopc.jit(f)(a)
    for f in (
        lambda a: np.median(a, out=np.zeros(())), lambda a: np.cumsum(a, out=np.zeros(12)),
    ):  # fmt: skip
        same(f, a)


# ---------------------------------------------------------------- samples
SAMPLES = {
    "trapezoid": lambda y: np.trapezoid(y),
    "dx": lambda y: np.trapezoid(y, dx=0.5, axis=0),
    "x": lambda y: np.trapezoid(y, np.arange(y.shape[0]) ** 2.0, axis=0),
    "x of all": lambda y: np.trapezoid(y, y.astype("f8") * 2, axis=-1),
    "gradient": lambda y: np.gradient(y),
    "distance": lambda y: np.gradient(y, 0.5),
    "order 2": lambda y: np.gradient(y, axis=0, edge_order=2),
    "coordinates": lambda y: np.gradient(y, np.arange(y.shape[0]) ** 1.5, axis=0),
    "coordinates 2": lambda y: np.gradient(y, np.arange(y.shape[-1]) ** 2, axis=-1, edge_order=2),
    "axes": lambda y: np.gradient(y, 2, 3.0, axis=(1, 0)),
    "three": lambda y: np.gradient(y, 1, 2, 3),
    "unwrap": lambda y: np.unwrap(y * 2),
    "discont": lambda y: np.unwrap(y * 3, discont=4.0, axis=0),
    "period": lambda y: np.unwrap(y, period=4),
    "period 5": lambda y: np.unwrap(y, period=5),
    "polyval": lambda y: np.polyval([1.0, -2.0, 3.0], y),
    "polyval i": lambda y: np.polyval([1, 2], y),
    "polyval p": lambda y: np.polyval(y, 2.0),
    "digitize": lambda y: np.digitize(y, [-2.0, 0.0, 1.0, 3.0]),
    "right": lambda y: np.digitize(y, np.array([-2, 0, 3]), right=True),
    "decreasing": lambda y: np.digitize(y, [3.0, 1.0, 1.0, -2.0]),
    "no bins": lambda y: np.digitize(y, []),
    "no order": lambda y: np.digitize(y, [1, 3, 2]),
    "interp": lambda y: np.interp(y, [-2.0, 0.0, 1.0, 5.0], [1.0, 3.0, -1.0, 0.0]),
    "outside": lambda y: np.interp(y, [-1, 0, 2], [5, 1, 3], left=-7, right=9.5),
    "periodic": lambda y: np.interp(y, [3, 1, 8], [10.0, 20.0, 30.0], period=5),
    "one sample": lambda y: np.interp(y, [1.0], [4.0], left=2.0),
    "infinite": lambda y: np.interp(y, [-1.0, 0.0, 2.0, 4.0], [np.inf, 1.0, np.inf, np.inf]),
    "lengths": lambda y: np.interp(y, [1.0, 2.0], [1.0]),
    "none": lambda y: np.interp(y, [], []),
    "no period": lambda y: np.interp(y, [1.0], [2.0], period=0),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("dtype", ("f8", "f4", "i4", "i1", "?"))
@pytest.mark.few(8)
def test_samples(name: str, dtype: str) -> None:
    for shape in ((), (0,), (1,), (2,), (7,), (3, 4), (3, 3, 5)):
        names = SAMPLES[name].__code__.co_names
        if ("shape" in names and not shape) or ("gradient" in names and dtype == "?"):
            continue  # an error of the test itself; NumPy takes some bools here, and we all
        same(SAMPLES[name], drawn(shape, dtype))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_interp_of_traced_samples(data: Any) -> None:
    n = data.draw(st.integers(1, 9))
    xp = np.cumsum(np.array(data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)))) * 0.5
    fp = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, -2.5, np.inf, np.nan]), min_size=n,
                                     max_size=n)))  # fmt: skip
    x = np.array(data.draw(st.lists(st.sampled_from([*xp, 0.0, 0.75, 99.0, np.nan, np.inf]))))
    same(lambda *a: np.interp(*a), x, xp, fp)
    same(lambda *a: np.interp(*a, left=a[2][0], right=3, period=None), x, xp, fp)


@pytest.mark.few(3)
@pytest.mark.parametrize("degree", (0, 1, 3, 6))
@pytest.mark.parametrize("dtype", ("f8", "f4", "i4"))
def test_polynomials_of_least_squares(degree: int, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = (rng.permutation(17) * 0.5 - 3).astype(dtype)
    x = np.unique(x) if dtype == "i4" else x
    y, w = (rng.standard_normal((x.size, 3)) * 5).astype(dtype), rng.random(x.size) + 0.5
    for f in (
        lambda x, y, w: np.polyfit(x, y[:, 0], degree), lambda x, y, w: np.polyfit(x, y, degree),
        lambda x, y, w: np.polyfit(x, y[:, 1], degree, w=w),
        lambda x, y, w: np.polyfit(x, y, degree, w=w),
    ):  # fmt: skip
        got, want = uopc.jit(f)(x, y, w), f(x, y, w)
        close(got, want, rtol=1e-5 if dtype == "f4" else 1e-8)


@pytest.mark.parametrize("words", ("singular values", "needs 4 known samples", "w must have", "-1"))
def test_polynomials_that_cannot_be_found(words: str) -> None:
    f = {
        "singular values": lambda x: np.polyfit(x, x, 1, full=True),
        "needs 4 known samples": lambda x: np.polyfit(x, x, 3),
        "w must have": lambda x: np.polyfit(x, x, 1, w=x[:2]), "-1": lambda x: np.polyfit(x, x, -1),
    }[words]  # fmt: skip
    with pytest.raises(uopc.UserError, match=words):
        uopc.jit(f)(np.arange(3.0))


def test_old_names_of_numpy() -> None:
    a = drawn((3, 4), "f4")
    for f in (lambda a: np.row_stack((a, a)), lambda a: np.trapz(a)):
        if hasattr(np, f.__code__.co_names[1]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same(f, a)


def test_bins_that_are_traced_may_decrease() -> None:
    x, bins = np.array([0.0, 1.0, 2.5, 9.0, np.nan]), np.array([1.0, 2.0, 4.0])
    for right in (False, True):
        same(lambda x, b, r=right: np.digitize(x, b, right=r), x, bins)
        same(lambda x, b, r=right: np.digitize(x, b, right=r), x, bins[::-1].copy())
        same(lambda x, b, r=right: np.digitize(x, b, right=r), x, bins[:1])
