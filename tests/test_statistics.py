"""Histograms, against NumPy; bad calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate

Array = Any
RNG = np.random.default_rng(0)
EDGES = np.array([-40.0, -7.5, 0, 0, 3, 28, 31])


def param(name: str, value: Array) -> UOp:
    return uopc.param(name, value.shape, dtypes.from_numpy(value.dtype))


def same(got: Array, want: Array, rtol: float = 0) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=rtol)


# ---------------------------------------------------------------- histogram
@pytest.mark.parametrize("t", ("f4", "f8", "i1", "u1", "i4", "u8"))
def test_histograms_have_the_counts_and_edges_of_numpy(t: str) -> None:
    scale = 9 if t[0] != "u" else 1
    a = (RNG.normal(size=3000) * scale + 30 * (t[0] == "u")).astype(t)
    x = param("x", a)
    for options in (
        {}, {"bins": 1}, {"bins": 97}, {"bins": np.int32(7), "range": (-3, 11.5)},
        {"range": (2, 2)}, {"range": (1000, 1001)}, {"bins": EDGES},
        {"bins": [-3, 0, 3]}, {"bins": EDGES.astype("f4")}, {"bins": [1, 1]},
    ):  # fmt: skip
        wanted = np.histogram(a, **options)
        same(uopc.compile(x.histogram(**options))(a), wanted)
        same([np.asarray(v) for v in unp.histogram(unp.asarray(a), **options)], wanted)
        edges = unp.histogram_bin_edges(unp.asarray(a), **options)
        same([np.asarray(edges)], [np.histogram_bin_edges(a, **options)])


@pytest.mark.parametrize("w", ("f4", "f8", "i8", "u1", "?"))
def test_weights_and_density(w: str) -> None:
    a, weights = RNG.normal(size=(20, 30)), (RNG.random((20, 30)) * 9).astype(w)
    for options in ({"bins": 12}, {"bins": np.linspace(-2, 3, 30)}):
        rtol = 1e-5 if w == "f4" else 1e-12
        counts, _ = np.histogram(a, weights=weights.astype("f8"), **options)
        wide = counts.astype("i8" if w == "?" else "u8" if w == "u1" else w)
        x, y = unp.asarray(a), unp.asarray(weights)
        same([np.asarray(unp.histogram(x, weights=y, **options)[0])], [wide], rtol)
        f = uopc.compile(param("a", a).histogram(weights=param("w", weights), **options)[0])
        np.testing.assert_allclose(f(a=a, w=weights), counts, rtol)
        for given in (None, weights):
            exact = None if given is None else given.astype("f8")
            wanted = np.histogram(a, weights=exact, density=True, **options)
            found = np.histogram(x, weights=given, density=True, **options)
            same([np.asarray(v) for v in found], wanted, rtol)
            got = param("a", a).histogram(weights=given, density=True, **options)
            np.testing.assert_allclose(uopc.compile(got[0])(a=a), wanted[0], rtol)
    a4 = a.astype("f4")
    density = uopc.compile(param("a", a4).histogram(9, density=True)[0])(a4)
    assert density.dtype == np.float32
    np.testing.assert_allclose(density, np.histogram(a4, 9, density=True)[0], 1e-5)


def test_no_elements_one_value_and_what_is_no_number() -> None:
    for a in (np.zeros(0), np.zeros((3, 0), "i4"), np.full(9, 4.0), np.ones((), "f4")):
        same(uopc.compile(param("a", a).histogram())(a), np.histogram(a))
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0])
    for options in ({"bins": 4, "range": (0, 2)}, {"bins": [0.0, 1, 2]}):
        same(uopc.compile(param("a", odd).histogram(**options))(odd), np.histogram(odd, **options))
    counts, edges = uopc.compile(param("a", odd).histogram())(odd)
    assert counts.sum() == 0 and not np.isfinite(edges).any()


def test_elements_at_the_edges() -> None:
    """An edge that is rounded otherwise than NumPy's would move these to other bins."""
    edges = np.linspace(0.1, 0.9, 50, dtype="f4")
    a = np.concatenate([edges, np.nextafter(edges, 1), np.nextafter(edges, 0)])
    same(uopc.compile(param("a", a).histogram(49))(a), np.histogram(a, 49))
    same(
        uopc.compile(param("a", a).histogram(49, (0.1, 0.9)))(a), np.histogram(a, 49, (0.1, 0.9))
    )


def test_symbolic_sizes_threads_and_the_interpreter() -> None:
    n = uopc.variable("n", 0, 5000)
    f = uopc.compile(uopc.param("x", (n,)).histogram(13))
    for size in (0, 1, 2, 13, 4999):
        a = RNG.normal(size=size).astype("f4")
        same(f(a), np.histogram(a, 13), 0 if size else 1e-6)
    m = uopc.variable("m", 2, 40)
    f = uopc.compile(uopc.param("x", (7,)).histogram(uopc.param("e", (m,)))[0])
    a = RNG.normal(size=7).astype("f4")
    for size in (2, 3, 40):
        edges = np.sort(RNG.normal(size=size)).astype("f4")
        np.testing.assert_array_equal(f(x=a, e=edges), np.histogram(a, edges)[0])
    counts, edges = uopc.constant(a).histogram(3)
    wanted = np.histogram(a, 3)
    same([evaluate(counts, {}), evaluate(edges, {})], wanted)
    same(uopc.compile([counts, edges], optimize=False)(), wanted)
    for threads in (1, 2):
        same(uopc.compile([counts, edges], threads=threads)(), wanted)


def test_in_traced_functions() -> None:
    @uopc.jit
    def spread(x: Any) -> Any:
        counts, edges = np.histogram(x, bins=5)
        return counts, edges, unp.bincount(counts, length=9)

    a = RNG.normal(size=20)
    counts, edges, seen = spread(a)
    same((counts, edges), np.histogram(a, 5))
    np.testing.assert_array_equal(seen, np.bincount(counts, minlength=9)[:9])


def test_bincount_by_numpys_name() -> None:
    x, w = RNG.integers(0, 9, 50), RNG.random(50).astype("f4")
    a = unp.asarray(x)
    same([np.asarray(unp.bincount(a, length=12))], [np.bincount(x, minlength=12)])
    same([np.asarray(unp.bincount(a, w, length=9))], [np.bincount(x, w)], 1e-15)
    with pytest.raises(TypeError, match=r"write uopc.numpy.bincount\(x, length=12\)"):
        unp.bincount(a, minlength=12)
    with pytest.raises(TypeError, match="the length depends on values"):
        np.bincount(a)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bins": "auto"}, TypeError, "a number of bins, or a vector of edges, got 'auto'"),
        ({"bins": True}, TypeError, "expected a number of bins"),
        ({"bins": 2.0}, TypeError, "expected a number of bins"),
        ({"bins": 0}, ValueError, "needs a bin or more, got 0"),
        ({"bins": [1.0]}, ValueError, r"two edges or more, got \(1\)"),
        ({"bins": np.zeros((2, 2))}, ValueError, r"vector of two edges or more, got \(2, 2\)"),
        ({"bins": [1, 0]}, ValueError, "each edge must be at least the one before"),
        ({"bins": [0, np.nan]}, ValueError, "each edge must be at least the one before"),
        ({"range": (1, 0)}, ValueError, r"ends before it begins: \(1, 0\)"),
        ({"range": (0, np.inf)}, TypeError, "expected a finite number, got inf"),
        ({"range": 3}, TypeError, "must be a pair of numbers, got 3"),
        ({"range": (1, 2, 3)}, TypeError, "must be a pair of numbers"),
        ({"weights": np.ones(3)}, ValueError, r"weights of the shape \(3\) for \(4\)"),
        ({"density": 1}, TypeError, "density must be True or False, got 1"),
    ],
)
def test_bad_histograms(options: dict[str, Any], error: type, message: str) -> None:
    for function in (UOp.histogram, unp.histogram):
        with pytest.raises(error, match=f"histogram: .*{message}") as found:
            function(uopc.param("x", (4,)), **options)
        assert isinstance(found.value, uopc.Error)
