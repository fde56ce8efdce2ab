"""Histograms, quantiles and reductions without NaN, against NumPy; bad calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate
from uopc.tensor import statistics

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
@pytest.mark.few(2)
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
@pytest.mark.few(3)
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
        ({"bins": 0}, ValueError, "bins must be 1 to 2\\*\\*30, got 0"),
        ({"bins": 2**62, "range": (0, 1)}, ValueError, "1 to 2..30, got 4611"),
        ({"bins": [1.0]}, ValueError, r"two edges or more, got \(1\)"),
        ({"bins": np.zeros((2, 2))}, ValueError, r"vector of two edges or more, got \(2, 2\)"),
        ({"bins": [1, 0]}, ValueError, "each edge must be at least the one before"),
        ({"bins": [0, np.nan]}, ValueError, "each edge must be at least the one before"),
        ({"range": (1, 0)}, ValueError, r"ends before it begins: \(1, 0\)"),
        ({"range": (0, np.inf)}, TypeError, "expected a finite number, got inf"),
        ({"range": 3}, TypeError, "must be a pair of numbers, got 3"),
        ({"range": (1, 2, 3)}, TypeError, "must be a pair of numbers"),
        ({"weights": np.ones(3)}, ValueError, r"weights must have the shape \(4\), got \(3\)"),
        ({"density": 1}, TypeError, "density must be True or False, got 1"),
    ],
)
def test_bad_histograms(options: dict[str, Any], error: type, message: str) -> None:
    for function in (UOp.histogram, unp.histogram):
        with pytest.raises(error, match=f"histogram: .*{message}") as found:
            function(uopc.param("x", (4,)), **options)
        assert isinstance(found.value, uopc.Error)


# ---------------------------------------------------------------- quantiles
SHARES = (0, 1.0, 0.5, 0.3, [0.25, 0.75, 1], np.array([[0, 0.1], [0.999, 0.5]]))
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def some(t: str, *shape: int, nan: float = 0.0) -> Array:
    a = RNG.normal(size=shape) * 50
    if t[0] == "u":
        a = abs(a)
    a = a.astype(t)
    if nan:
        a[RNG.random(shape) < nan] = np.nan
    return a


def close(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    if want.dtype.kind == "f" and got.dtype.kind == "f":
        rtol, top = (1e-6, 1e-5) if got.dtype == "f4" else (1e-13, 1e-13)
        np.testing.assert_allclose(got, want, rtol, top)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("method", INTERPOLATIONS)
@pytest.mark.parametrize("t", ("f4", "f8", "i4", "u1"))
@pytest.mark.few(2)
def test_quantiles(t: str, method: str) -> None:
    a = some(t, 4, 7, 5)
    wide = np.float64(a) if t[0] != "f" else a
    for i, axis in enumerate((None, 0, -1, (0, 2), (2, 1))):
        for j, q in enumerate(SHARES):
            how = {"axis": axis, "method": method, "keepdims": (i + j) % 2 == 1}
            close(unp.quantile(unp.asarray(a), q, **how), np.quantile(wide, q, **how))
    hundred = np.percentile(wide, [3, 50, 99.5], 1, method=method)
    close(unp.percentile(unp.asarray(a), [3, 50, 99.5], 1, method=method), hundred)
    f = uopc.compile(param("a", a).quantile([0.03, 0.5, 0.995], 1, method=method))
    assert f(a).dtype == (t if t[0] == "f" else "f4")
    np.testing.assert_allclose(f(a), hundred, 1e-5, 1e-4)


@pytest.mark.parametrize("n", (1, 2, 3, 64, 65, 1000))
@pytest.mark.few(2)
def test_medians(n: int) -> None:
    for t in ("f8", "i2", "u8"):
        a = some(t, 3, n)
        for axis in (None, 0, 1):
            close(unp.median(unp.asarray(a), axis), np.median(a, axis))
            close(unp.median(unp.asarray(a), axis, True), np.median(a, axis, keepdims=True))
            f = uopc.compile(param("a", a).median(axis))
            close(f(a), np.median(a, axis).astype(f(a).dtype))
    a = np.array([3, 1, 2, 4], "f2")
    assert uopc.compile(param("a", a).median())(a) == np.float16(2.5)


def test_quantiles_of_what_is_no_number() -> None:
    inf, big = np.inf, 1.5e308
    for row, q, wanted in (
        ([1.0, np.nan], 0.0, np.nan), ([inf, 1.0], 0.0, 1.0), ([inf, 1.0], 0.7, inf),
        ([-inf, 1.0], 0.3, -inf), ([-inf, 1.0], 1, 1.0), ([-inf, inf], 0.5, np.nan),
        ([inf, inf], 0.5, inf), ([big, -big], 0.5, 0.0), ([big, big, big], 0.5, big),
        ([1.0], np.nan, np.nan), ([1.0, 2.0], 1.5, np.nan), ([0.1, 0.1], 0.3, 0.1),
    ):  # fmt: skip
        a, share = np.array(row), uopc.param("q", (), dtypes.float64)
        f = uopc.compile(param("a", a).quantile(share))
        np.testing.assert_equal(f(a=a, q=q), wanted)
    a = np.array([big, big])
    assert uopc.compile(param("a", a).median())(a) == big


def test_quantiles_of_symbolic_sizes_and_shares_from_data() -> None:
    n, q = uopc.variable("n", 0, 300), uopc.param("q", (3,))
    f = uopc.compile([uopc.param("x", (n, 2)).quantile(q, 0), uopc.param("x", (n, 2)).median()])
    for size in (1, 2, 5, 64, 65, 300):
        a, shares = some("f4", size, 2), np.array([0.25, 0.5, 1], "f4")
        of_shares, middle = f(x=a, q=shares)
        close(of_shares, np.quantile(a, shares, 0))
        close(middle, np.median(a))
    assert np.isnan(f(x=np.zeros((0, 2), "f4"), q=shares)[0]).all()
    x = uopc.constant(some("f4", 9, nan=0.2))
    skipping = statistics.quantile_of("nanquantile", x, 0.4, None, False, "linear", skip=True)
    for value in (x.quantile([0.2, 0.5]), skipping):
        np.testing.assert_allclose(evaluate(value, {}), uopc.compile(value)(), 1e-6)
        np.testing.assert_array_equal(
            uopc.compile(value, optimize=False)(), uopc.compile(value)()
        )


# ---------------------------------------------------------------- without NaN
REDUCTIONS = "nansum nanprod nanmax nanmin nanmean nanvar nanstd nanmedian nancumsum nancumprod"


@pytest.mark.parametrize("name", REDUCTIONS.split())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.few(3)
def test_reductions_without_nan(name: str) -> None:
    ours, theirs = getattr(unp, name), getattr(np, name)
    spoiled = some("f8", 4, 5, 6, nan=0.3)
    spoiled[1, :, 2] = np.nan
    with_inf = np.array([[np.inf, 1, np.nan], [-np.inf, np.inf, 3], [np.nan, 2, -np.inf]])
    alone = np.array([[np.nan, 2.0], [np.nan, np.nan]])
    for a in (spoiled, with_inf, alone, some("i4", 3, 4), some("u1", 3, 2), some("f4", 0, 3)):
        for axis in (None, 0, -1) if "cum" in name else (None, 0, -1, (0, 1)):
            if a.size == 0 and name in ("nanmax", "nanmin", "nanmedian"):
                continue
            want = theirs(a, axis=axis)
            assert np.asarray(ours(unp.asarray(a), axis=axis)).dtype == want.dtype
            close(ours(unp.asarray(a), axis=axis), want)
            close(theirs(unp.asarray(a), axis), want)  # NumPy's function calls ours
            if "cum" not in name:
                kept = theirs(a, axis=axis, keepdims=True)
                close(ours(unp.asarray(a), axis=axis, keepdims=True), kept)
    if name in ("nanvar", "nanstd"):
        close(ours(unp.asarray(spoiled), 0, correction=2), theirs(spoiled, 0, ddof=2))
        close(theirs(unp.asarray(spoiled), 0, ddof=2), theirs(spoiled, 0, ddof=2))
    if name in ("nansum", "nanprod", "nancumsum", "nancumprod"):
        assert ours(unp.asarray(some("f4", 3)), dtype=unp.float64).dtype is dtypes.float64


def test_axes_are_those_that_the_text_names() -> None:
    """A function whose text has `a tuple` takes several axes."""
    x = unp.asarray(np.ones((2, 3)))
    texts = {name: getattr(unp, name).__doc__ or "" for name in dir(unp)}
    over = [name for name, text in texts.items() if "an int, a tuple, or None" in text]
    assert {"sum", "max", "mean", "median", "nanmax"} <= set(over) and "nanargmax" not in over
    for name in over:
        assert getattr(unp, name)(x, axis=(0, 1)).shape == (), name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_quantiles_and_places_without_nan() -> None:
    a, b = some("f8", 5, 40, nan=0.4), some("f8", 50, 40, nan=0.4)
    for axis in (None, 0, 1):
        for method in INTERPOLATIONS:
            for q in (0.5, [0.1, 0.9]):
                want = np.nanquantile(a, q, axis, method=method)
                close(unp.nanquantile(unp.asarray(a), q, axis, method=method), want)
        close(np.nanpercentile(unp.asarray(a), 30, axis), np.nanpercentile(a, 30, axis))
        for name in ("nanargmax", "nanargmin"):
            close(getattr(unp, name)(unp.asarray(b), axis), getattr(np, name)(b, axis))
    a[2] = np.nan
    close(unp.nanquantile(unp.asarray(a), [0.1, 0.9], 1), np.nanquantile(a, [0.1, 0.9], 1))
    assert int(unp.nanargmax(unp.asarray(a), 1)[2]) == 0


BAD_QUANTILES = [
    (lambda x: x.quantile(1.5), "quantile: q must be from 0 to 1, got 1.5"),
    (lambda x: x.quantile([0.5, np.nan]), "quantile: q must be from 0 to 1"),
    (lambda x: x.quantile(True), "quantile: q must be numbers from 0 to 1, got True"),
    (lambda x: x.quantile("0.5"), "quantile: "),
    (lambda x: x.quantile(0.5, 2), "quantile: axis 2"),
    (lambda x: x.quantile(0.5, (0, 0)), "quantile: axis given twice"),
    (lambda x: x.quantile(0.5, method="hazen"), "one of linear, lower, .*, got 'hazen'"),
    (lambda x: x.median(keepdims=1), "median: keepdims must be True or False, got 1"),
    (lambda x: x[:, :0].median(), r"median: an axis of \(3, 0\) has no elements"),
    (lambda x: x[:, :0].quantile(0.5, 1), r"quantile: an axis of \(3, 0\) has no elements"),
    (lambda x: unp.percentile(x, 101), "^percentile: q must be from 0 to 100, got 101"),
    (lambda x: unp.nanpercentile(x, True), "nanpercentile: q must be numbers from 0 to 100"),
    (lambda x: unp.nanmax(x[:0]), r"nanmax: an axis of \(0, 4\) has no elements"),
    (lambda x: unp.nanvar(x, correction="1"), "nanvar: expected a finite number, got '1'"),
    (lambda x: np.median(x, overwrite_input=True), "overwrite_input"),
    (lambda x: np.median(x, out=np.zeros(())), "out="),
    (lambda x: np.quantile(x, 0.5, weights=np.ones((3, 4))), "weights are not supported"),
]


@pytest.mark.parametrize(("make", "message"), BAD_QUANTILES)
def test_bad_quantiles(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        make(uopc.param("x", (3, 4)))
