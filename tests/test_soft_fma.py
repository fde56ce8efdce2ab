"""Machines without FMA: one rounding all the same, and the functions built on it stay accurate."""

from fractions import Fraction

import numpy as np
import pytest
import ulp

import uopc

OLD = ("x86-64", "x86-64-v2")
FUNCTIONS = tuple(f for f in ulp.FUNCTIONS if f not in ulp.PAIRS)
SIZE = 2000


def _mulacc(t, cpu):
    a, b, c = [uopc.param(name, (SIZE,), t) for name in "abc"]
    with uopc.options(target_cpu=cpu):
        return uopc.compile(a.mulacc(b, c))


def _rounded_once(a, b, c, dtype):
    """a*b + c by fractions; Python rounds a quotient of integers once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if dtype == np.float64:
        return float(exact)
    near = np.float32(float(exact))  # off by one at most, where float64 rounded before
    around = [np.nextafter(near, np.float32(d)) for d in (-np.inf, np.inf)]
    return min([near, *around], key=lambda v: (abs(Fraction(float(v)) - exact), v.view("u4") & 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cpu", OLD)
def test_a_product_and_a_sum_round_once(dtype, cpu):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, SIZE)).astype(dtype)
    c = (-(a * b) * rng.choice([1, 1, 2.0**-20, 2.0**20, 0], SIZE)).astype(dtype)  # they cancel
    half = SIZE // 2
    a[half:] *= dtype(2.0) ** rng.integers(-30, 30, half).astype(dtype)
    got = _mulacc(uopc.dtypes.from_numpy(np.dtype(dtype)), cpu)(a, b, c)
    want = np.array([_rounded_once(*v, dtype) for v in zip(a, b, c)], dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_has_no_exact_parts(dtype):
    most = np.finfo(dtype).max
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, most, -most], dtype)
    a, b, c = [m.ravel() for m in np.meshgrid(edges, edges, edges)]
    a, b, c = [np.resize(v, SIZE) for v in (a, b, c)]
    with np.errstate(all="ignore"):
        wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
        want = wide.astype(dtype)
    got = _mulacc(uopc.dtypes.from_numpy(np.dtype(dtype)), "x86-64")(a, b, c)
    np.testing.assert_array_equal(got, want)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions(dtype):
    values = np.linspace(0.05, 3, 37).astype(dtype)
    x = uopc.param("x", (37,), uopc.dtypes.from_numpy(np.dtype(dtype)))
    with uopc.options(target_cpu="x86-64"):
        results = uopc.compile({name: getattr(x, name)() for name in FUNCTIONS})(values)
    for name, got in results.items():
        error = ulp.ulp_error(got, ulp.reference(name, values))
        assert error.max() <= 3, name
