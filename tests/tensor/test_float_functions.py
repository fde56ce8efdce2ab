"""Functions composed of others, against NumPy: special values, dtypes, sizes, both evaluators.

How exact they are over their whole range is measured in `test_accuracy.py`.
"""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import uopc
from tests import ulp
from uopc.ir.interpret.interpreter import evaluate

ONE = (
    "expm1", "log1p", "log10", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan",
)  # fmt: skip
TWO = ("atan2", "hypot", "copysign", "logaddexp", "nextafter")
CLASSES = ("isnan", "isinf", "isfinite", "signbit")
FLOATS = ("float16", "float32", "float64")
INTS = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")


def of_numpy(name):
    return getattr(np, ulp.IN_NUMPY.get(name, name))


def corners(t):
    """The values where something special happens."""
    f = np.finfo(t)
    some = [
        0.0, 0.5, 1.0, 1.5, 2.0, 10.0, 100.0, 1000.0, 1 / 3, 30.0, 0.41, 1.25, 2.0**15, f.max,
        f.tiny, f.smallest_subnormal, f.eps, 1 - f.epsneg, 1 + f.eps, np.inf,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.array([*some, *[-v for v in some], np.nan, -np.nan], t)


def run(graph, *arrays):
    return uopc.compile(graph, verify=True)(*arrays)


def params(*arrays):
    named = zip("xy", arrays)
    return [uopc.param(n, a.shape, uopc.dtypes.from_numpy(a.dtype)) for n, a in named]


def wanted(name, *arrays):
    """NumPy's, computed wider and rounded once where there is something wider."""
    wide = {"float16": np.float32, "float32": np.float64}.get(arrays[0].dtype.name)
    with np.errstate(all="ignore"):
        if name == "nextafter":  # C99: the second of two zeros; NumPy's of float16 is the first
            return np.where(np.equal(*arrays), arrays[1], np.nextafter(*arrays))
        if wide is None or name in CLASSES:
            return of_numpy(name)(*arrays)
        return of_numpy(name)(*[a.astype(wide) for a in arrays]).astype(arrays[0].dtype)


def check(got, want, ulps):
    """NaN, infinities, zeros and signs are exact, all else within some units of the last place."""
    assert got.dtype == want.dtype
    if got.dtype.kind == "b":
        np.testing.assert_array_equal(got, want)
        return
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    got, want = got[kept], want[kept]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    bits = f"i{got.dtype.itemsize}"
    apart = np.abs(got.view(bits).astype(object) - want.view(bits).astype(object))
    at = int(apart.argmax()) if apart.size else 0
    assert not apart.size or apart[at] <= ulps, (got[at], want[at])
    special = np.isinf(want) | (want == 0)
    np.testing.assert_array_equal(got[special], want[special])


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("name", (*ONE, *CLASSES))
@pytest.mark.few(11)
def test_special_values(name, t):
    a = corners(t)
    (x,) = params(a)
    check(run(getattr(x, name)(), a), wanted(name, a), 3)


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("name", TWO)
def test_pairs_of_special_values(name, t):
    a, b = [m.ravel() for m in np.meshgrid(corners(t), corners(t))]
    x, y = params(a, b)
    got, want = run(getattr(x, name)(y), a, b), wanted(name, a, b)
    if name == "logaddexp":  # two that cancel leave the rounding of the greater
        near = np.isfinite(want) & (np.abs(want) < 0.1)
        np.testing.assert_allclose(got[near], want[near], atol=4 * np.finfo(t).eps, rtol=1e-2)
        got, want = got[~near], want[~near]
    check(got, want, 0 if name in ("copysign", "nextafter") else 3)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.few(9)
def test_the_interpreter_agrees(name, t):
    a = np.concatenate([corners(t), np.random.default_rng(0).normal(size=50).astype(t)])
    (x,) = params(a)
    graph = getattr(x, name)()
    got, other = run(graph, a), evaluate(graph, {"x": a})
    within = 0 if t == "float16" else 4  # its exponentials and logarithms are NumPy's
    check(got, np.asarray(other), within)


@pytest.mark.parametrize("name", (*ONE, *CLASSES))
@pytest.mark.parametrize("t", INTS)
@pytest.mark.few(24)
def test_integers(name, t):
    a = np.array([0, 1, 2, 100], t) if t != "bool" else np.array([False, True])
    (x,) = params(a)
    got = uopc.compile(getattr(x, name)(), inputs=[x])(a)
    if name in CLASSES:
        want = np.isfinite(a) if name == "isfinite" else np.zeros(a.shape, bool)
        np.testing.assert_array_equal(got, want)
        return
    small = np.dtype(t).itemsize <= 2
    check(got, wanted(name, a.astype("f4" if small else "f8")), 3)


@pytest.mark.parametrize("t", ("int8", "int64"))
def test_sign_of_integers(t):
    a = np.array([-128, -1, 0, 1, 127], t)
    (x,) = params(a)
    np.testing.assert_array_equal(run(x.signbit(), a), a < 0)


@pytest.mark.parametrize("name", TWO)
def test_pairs_promote_and_broadcast(name):
    a, b = np.array([[3], [-4]], "i1"), np.array([0.5, -2.0, 7.0], "f8")
    x, y = params(a, b)
    check(run(getattr(x, name)(y), a, b), of_numpy(name)(a.astype("f8"), b), 3)
    (x,) = params(b)
    check(run(getattr(x, name)(2), b), of_numpy(name)(b, 2.0), 3)


@pytest.mark.parametrize("name", (*ONE, *TWO[:4], *CLASSES))
@pytest.mark.few(8)
def test_bfloat16_rounds_once(name):
    every = np.arange(1 << 16, dtype="u2").view(ml_dtypes.bfloat16)
    arrays = [every, every[::-1].copy()] if name in TWO else [every]
    x, *others = params(*arrays)
    got = run(getattr(x, name)(*others), *arrays)
    with np.errstate(all="ignore"):
        want = of_numpy(name)(*[a.astype("f8") for a in arrays])
        if name in CLASSES:
            np.testing.assert_array_equal(got, want)
            return
        want = want.astype("f4").astype(every.dtype)
    nan = np.isnan(want.astype("f4"))
    np.testing.assert_array_equal(np.isnan(got.astype("f4")), nan)
    apart = np.abs(got.view("i2").astype("i4") - want.view("i2"))[~nan]
    assert apart.max() <= (0 if name == "copysign" else 1)


@pytest.mark.parametrize("t", ("float16", "bfloat16"))
def test_every_neighbour_of_16_bits(t):
    kind = np.dtype(getattr(ml_dtypes, t, t))
    a = np.arange(1 << 16, dtype="u2").view(kind)
    b = np.random.default_rng(1).permutation(a)
    x, y = params(a, b)
    got = run(x.nextafter(y), a, b)
    with np.errstate(all="ignore"):
        want = np.where(a == b, b, np.nextafter(a, b))
    nan = np.isnan(want.astype("f4"))
    np.testing.assert_array_equal(np.isnan(got.astype("f4")), nan)
    np.testing.assert_array_equal(got.view("u2")[~nan], want.view("u2")[~nan])


def test_neighbours_of_8_bits_are_refused():
    x = uopc.param("x", (3,), uopc.dtypes.fp8e4m3)
    with pytest.raises(TypeError, match="nextafter: needs floats of 16 bits"):
        x.nextafter(x)


@pytest.mark.parametrize("t", FLOATS)
def test_powers_of_ten_have_whole_logarithms(t):
    powers = np.arange({"float16": 5, "float32": 11, "float64": 23}[t])
    a = np.array([float(10**int(p)) for p in powers], t)
    (x,) = params(a)
    np.testing.assert_array_equal(run(x.log10(), a), powers.astype(t))


@pytest.mark.parametrize("t", FLOATS)
def test_right_triangles_of_whole_sides(t):
    a, b, c = np.array([(3, 4, 5), (5, 12, 13), (20, 21, 29), (119, 120, 169)], t).T.copy()
    x, y = params(a, b)
    np.testing.assert_array_equal(run(x.hypot(y), a, b), c)
    scale = np.array(np.finfo(t).max / 512).astype(t)
    np.testing.assert_allclose(run(x.hypot(y), a * scale, b * scale), c * scale, rtol=1e-3)


@given(
    name=st.sampled_from(TWO[:3]),
    pair=st.sampled_from(FLOATS[1:]).flatmap(
        lambda t: st.tuples(*[hnp.arrays(t, (8,), elements=st.floats(width=int(t[5:])))] * 2)
    ),
)
@settings(deadline=None, max_examples=60)
def test_any_pair(name, pair):
    x, y = params(*pair)
    check(run(getattr(x, name)(y), *pair), wanted(name, *pair), 3)


@given(
    name=st.sampled_from(ONE),
    a=st.sampled_from(FLOATS).flatmap(
        lambda t: hnp.arrays(t, (8,), elements=st.floats(width=int(t[5:])))
    ),
)
@settings(deadline=None, max_examples=60)
def test_any_number(name, a):
    (x,) = params(a)
    check(run(getattr(x, name)(), a), wanted(name, a), 3)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("n", (0, 1, 7, 1021))
@pytest.mark.few(7)
def test_symbolic_sizes(name, n):
    x = uopc.param("x", (uopc.variable("n", 0, 2000),))
    a = np.linspace(0.1, 0.9, n, dtype="f4")
    check(run(getattr(x, name)(), a), wanted(name, a), 3)


@pytest.mark.parametrize("name, t", list(itertools.product((*ONE, *TWO), FLOATS[1:])))
def test_they_are_vectors_without_calls(name, t):
    """The vector loop holds arithmetic on lanes; of calls only LLVM's own instructions, and those
    of rare branches that several vectors share."""
    a = np.zeros(1024, t)
    x, y = params(a, a)
    graph = getattr(x, name)(*([y] if name in TWO else []))
    (kernel,) = uopc.compile(graph).kernels
    assert f"x {'float' if t == 'float32' else 'double'}>" in kernel.source
    called = [line for line in kernel.source.splitlines() if " call " in line]
    assert all("@llvm." in line or line.endswith(" cold") for line in called), called


def test_the_inverse_of_erf():
    """Against mpmath, to 4 units in the last place; exact at the ends."""
    random = np.random.default_rng(5)
    tails = [1 - 10.0**-random.uniform(0, 15.6, 60), 10.0 ** -random.uniform(0, 300, 60)]
    a = np.concatenate([random.uniform(-1, 1, 60), *tails, *[-t for t in tails]])
    with mpmath.workdps(40):
        want = np.array([float(mpmath.erfinv(mpmath.mpf(float(v)))) for v in a])
    (x,) = params(a)
    check(run(x.erfinv(), a), want, 4)
    edges = np.array([0.0, -0.0, 1.0, -1.0, 1.5, -np.inf, np.nan])
    (x,) = params(edges)
    check(run(x.erfinv(), edges), np.array([0.0, -0.0, np.inf, -np.inf, *[np.nan] * 3]), 0)


def check_remainder(a, b):
    pair = np.array([a]), np.array([b])
    x, y = params(*pair)
    known = math.isfinite(a) and b == b and b
    want = math.remainder(a, b) if known else math.nan
    check(run(x.ieee_remainder(y), *pair), np.array([want]), 0)


@given(st.floats(), st.floats())
@settings(deadline=None)
def test_the_remainder_of_c(a, b):
    """Every bit, also of subnormals and where a quotient has a thousand digits."""
    check_remainder(a, b)


@given(st.integers(-40, 40), st.integers(-9, 9).filter(bool))
@settings(deadline=None)
def test_the_remainder_of_a_quotient_in_the_middle_is_even(a, b):
    check_remainder(a / 2, float(b))
