"""The functions are as exact as `docs/accuracy.md` says: a quick look; `tests.ulp` takes more."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import uopc
from tests import ROOT, ulp

# A float16 is computed in float32, and all 65,536 take a second: two functions are enough.
EACH = [
    pytest.param(t, f, marks=pytest.mark.slow if t == "float16" and f not in ("exp", "tan") else ())
    for t, f in itertools.product(ulp.LIMITS, ulp.FUNCTIONS)
]
DOCUMENT = ROOT / "docs" / "accuracy.md"


@pytest.mark.parametrize("dtype, function", EACH)
@pytest.mark.few(3)
def test_within_the_limit(dtype, function):
    error, at = ulp.measure(function, dtype, 6000, every=False)
    assert error <= ulp.LIMITS[dtype][function], at


@pytest.mark.parametrize("dtype, function", EACH)
def test_documented(dtype, function):
    """The table has a row for it, within the limit that is enforced."""
    rows = [line.split("|")[1:-1] for line in DOCUMENT.read_text("utf-8").splitlines()]
    found = [[c.strip() for c in row] for row in rows if row[:1] == [f" {function} "]]
    (row,) = [row for row in found if row[1] == dtype]
    assert float(row[2]) <= float(row[3]) == ulp.LIMITS[dtype][function]


@pytest.mark.parametrize("function", ("exp", "exp2"))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("n", (3, 4, 8, 16, 1021))
def test_powers_of_two_of_the_machine_are_ours(function, dtype, n, monkeypatch):
    """Where results are subnormal, overflow, or not numbers, SCALE gives the same bits."""
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 88.8, -87.5, -104.2, -745.2, 709.9, 1024, -1074.5]
    x = np.resize([*edges, *np.linspace(-1100, 1100, 997)], n).astype(dtype)
    graph = getattr(uopc.param("x", (n,), getattr(uopc.dtypes, dtype)), function)()
    got = uopc.compile(graph, verify=True)(x)
    monkeypatch.setenv("UOPC_TARGET_CPU", "x86-64-v3")
    want = uopc.compile(graph, verify=True)(x)
    np.testing.assert_array_equal(got.view(f"u{x.itemsize}"), want.view(f"u{x.itemsize}"))


@pytest.mark.parametrize("cpu", ("", "x86-64-v3"))
@pytest.mark.parametrize("function", ("exp", "exp2"))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_below_all_numbers(function, dtype, cpu, monkeypatch):
    """Where the exact result is nearer to 0 than to a number it is 0, and takes as long as others:
    products that underflow took 20 times as long."""
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    least = np.finfo(dtype).smallest_subnormal
    of_two = np.log(np.longdouble(2)) if function == "exp" else 1
    edge = np.log2(np.longdouble(least) / 2) * of_two
    n = 4096
    f = uopc.compile(getattr(uopc.param("x", (n,), getattr(uopc.dtypes, dtype)), function)())
    x = np.linspace(float(edge) * 1.02, float(edge) * 0.98, n).astype(dtype)
    exact = getattr(np, function)(x.astype(np.longdouble)).astype(dtype)
    np.testing.assert_array_equal(f(x) == 0, exact == 0)
    assert 0 < np.count_nonzero(exact) < n
    arrays = {k: np.full(n, k * float(edge), dtype) for k in (0.5, 1.01, 1.3, 1.9, 2.5, 20.0)}
    best = dict.fromkeys(arrays, np.inf)
    for _ in range(9):
        for k, array in arrays.items():
            start = time.perf_counter()
            f(array)
            best[k] = min(best[k], time.perf_counter() - start)
    assert max(best.values()) < 5 * best[0.5], best


@pytest.mark.parametrize("cpu", ("", "x86-64-v3"))
@pytest.mark.parametrize("function", ("sin", "cos"))
def test_angles_near_multiples_of_half_pi(function, cpu, monkeypatch):
    """Both sides of where float64 takes over, and where almost everything cancels."""
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    turns = (np.arange(1, 50_000) * (np.pi / 2)).astype("f4")
    x = np.concatenate([np.nextafter(turns, np.float32(s)) for s in (0, np.inf)] + [turns])
    x = np.concatenate([x, -x, np.linspace(65_500, 65_600, 2001, dtype="f4"), [0.0, -0.0]])
    x = x.astype("f4")
    got = uopc.compile(getattr(uopc.param("x", x.shape), function)())(x)
    assert ulp.ulp_error(got, getattr(np, function)(x.astype("f8"))).max() <= 1.0


def test_cosine_where_half_pi_is_rounded():
    """For |x| < 0.57 float64 x + pi/2 is above 1: bits of x and the low part of pi/2 are lost."""
    x = np.random.default_rng(0).uniform(0.4, 0.58, 400_000)
    x[:2] = 0.5531816722881365, 0.5678801442886078
    x = np.concatenate([x, -x])
    quick = np.finfo(np.longdouble).nmant > 52
    exact = ulp.reference if quick else ulp.reference_mpmath
    x = x if quick else x[:4000]
    error, at = ulp.worst("cos", "float64", [x], ulp.compiled("cos", "float64", x.size), exact)
    assert error <= ulp.LIMITS["float64"]["cos"], at
