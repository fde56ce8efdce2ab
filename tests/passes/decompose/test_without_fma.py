"""Machines without FMA: one rounding all the same, and the functions built on it stay accurate."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import uopc
from tests import ulp
from uopc.ir.core.ops import Ops
from uopc.passes.decompose.functions.trig_without_fma import LARGE_ANGLE_64, PI_EXACT_64

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


EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.0, 709.5, -745.0, 88.5, -103.5]
EDGES += [6.385630492930564e22, -829.2535064577667, 4.870283869707588e274]


def _arguments(name, dtype):
    """Edges, numbers of all sizes, and those near multiples of pi / 2."""
    rng, info = np.random.default_rng(7), np.finfo(dtype)
    sizes = rng.integers(info.minexp, info.maxexp, 3000)
    with np.errstate(all="ignore"):
        parts = [
            EDGES, [info.max, -info.max, info.tiny, -info.smallest_subnormal, 2.0**40, 2.0**26],
            rng.uniform(-4, 4, 6000), rng.uniform(-90, 90, 3000), rng.uniform(-1e9, 1e9, 2000),
            rng.integers(-3000, 3000, 2000) * np.pi / 2, np.ldexp(rng.uniform(-2, 2, 3000), sizes),
            1 + rng.uniform(-1e-3, 1e-3, 1000),
        ]  # fmt: skip
        values = np.concatenate([np.asarray(p, np.float64) for p in parts]).astype(dtype)
    return rng.permutation(abs(values) if name.startswith("log") else values)


@pytest.mark.few(6)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ulp.FUNCTIONS[:9])
def test_functions_are_within_the_limits_of_the_table(name, dtype):
    values = _arguments(name, dtype)
    x = uopc.param("x", values.shape, uopc.dtypes.from_numpy(np.dtype(dtype)))
    with uopc.options(target_cpu="x86-64-v2"):
        got = uopc.compile(getattr(x, name)())(values)
    error = ulp.ulp_error(got, ulp.reference(name, values))
    limit = ulp.LIMITS[np.dtype(dtype).name][name]
    assert error.max() <= limit, (values[error.argmax()], error.max())


def test_products_with_the_parts_of_pi_are_exact():
    """For quotients of angles that are not large by pi / 2, and for halves of those by pi."""
    most = int(LARGE_ANGLE_64 / 1.5)
    quotients = {1, most, most - 1, 29, 464, *[(most >> k) | 1 for k in range(16)]}
    for part, n, unit in itertools.product(PI_EXACT_64[:2], quotients, (0.5, 1.0)):
        assert Fraction(n * unit * part) == Fraction(n * unit) * Fraction(part)


def _hard_angles():
    """Angles that cancel with multiples of pi / 2 to all degrees, such as differ by about the unit
    of the part that is exact, and those at both ends of the range of the short reduction."""
    rng = np.random.default_rng(11)
    turns = rng.integers(1, int(LARGE_ANGLE_64 / 1.6), 40_000) * (np.pi / 2)
    sides = rng.choice([-1.0, 1.0], turns.size)
    units = sides * 2.0**-15 * rng.integers(1, 4, turns.size)
    spread = 2.0 ** rng.integers(-30, -3, turns.size)
    ends = LARGE_ANGLE_64 * (1 + rng.uniform(-1, 1, 4000) * 2.0 ** rng.integers(-52, -1, 4000))
    parts = [
        turns, turns * (1 + sides * 2.0 ** rng.integers(-45, -10, turns.size)),
        turns + units * (1 + rng.uniform(-1, 1, turns.size) * spread), ends, [LARGE_ANGLE_64],
        np.arange(1, 4) * (np.pi / 2), rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-60, 0, 4000),
    ]  # fmt: skip
    values = np.concatenate(parts)
    return values * rng.choice([-1.0, 1.0], values.size)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_that_cancel(name):
    quick = np.finfo(np.longdouble).nmant > 52
    values = _hard_angles()[:: 1 if quick else 50]
    x = uopc.param("x", values.shape, uopc.dtypes.float64)
    with uopc.options(target_cpu="x86-64-v2"):
        got = uopc.compile(getattr(x, name)())(values)
    exact = ulp.reference if quick else ulp.reference_mpmath
    error = ulp.ulp_error(got, exact(name, values))
    assert error.max() <= ulp.LIMITS["float64"][name], (values[error.argmax()], error.max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_are_within_the_limit(dtype):
    rng = np.random.default_rng(3)
    a = np.concatenate([abs(_arguments("log", dtype))[:4000], rng.uniform(0, 2, 4000)])
    b = np.concatenate([_arguments("exp", dtype)[:4000], rng.uniform(-300, 300, 4000)])
    a, b = a.astype(dtype), b.astype(dtype)
    x, y = [uopc.param(n, a.shape, uopc.dtypes.from_numpy(np.dtype(dtype))) for n in "xy"]
    with uopc.options(target_cpu="x86-64-v2"):
        got = uopc.compile(x**y)(a, b)
    error = ulp.ulp_error(got, ulp.reference("pow", a, b))
    assert error.max() <= 3, (a[error.argmax()], b[error.argmax()])


def _operations(graph, cpu):
    """The operations on numbers outside of branches."""
    with uopc.options(target_cpu=cpu):
        (kernel,) = uopc.compile(graph).kernels
    depth, count = 0, 0
    for u in kernel.uops.src:
        depth += (u.op is Ops.IF) - (u.op is Ops.ENDIF)
        count += u.op.is_alu and not depth
    return count


def test_functions_consist_of_few_operations():
    """Some four for one with FMA; 60 for each product and sum would be twenty."""
    x = uopc.param("x", (8,), uopc.dtypes.float64)
    chain = x.exp().tanh().erf()
    assert _operations(chain, "x86-64-v2") < 5 * _operations(chain, "x86-64-v3")


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_take_few_operations(name):
    """Vectors of two lanes, as wide as the machine without FMA has them."""
    y = getattr(uopc.param("x", (2,), uopc.dtypes.float64), name)()
    assert _operations(y, "x86-64-v2") < 3 * _operations(y, "x86-64-v3")
