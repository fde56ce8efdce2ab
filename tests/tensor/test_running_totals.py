"""Running sums, products and extremes, logsumexp and convolve, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import uopc
import uopc.numpy as unp
from uopc import Ops, UOp, dtypes
from uopc.driver import lower_only
from uopc.ir.core.args import ReduceArg
from uopc.ir.interpret.interpreter import evaluate

RUNNING = {
    "cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
}  # fmt: skip
SIZES = (0, 1, 2, 31, 32, 33, 64, 65, 97, 1024, 2081)


def compiled(f, *arrays):
    made = [
        uopc.param(n, a.shape, dtypes.from_numpy(a.dtype)) for n, a in zip("xy", arrays)
    ]  # fmt: skip
    return uopc.compile(f(*made), inputs=made, verify=True)(*arrays)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.few(5)
def test_running_along_each_axis(name, n):
    a = np.random.default_rng(n).uniform(0.5, 1.5, (n, 3))
    want = RUNNING[name](a, axis=0)
    np.testing.assert_allclose(compiled(lambda x: getattr(x, name)(0), a), want, rtol=1e-12)
    flipped = compiled(lambda x: getattr(x, name)(-1), a.T.copy())
    np.testing.assert_allclose(flipped, want.T, rtol=1e-12)
    flat = compiled(lambda x: getattr(x, name)(), a)
    np.testing.assert_allclose(flat, RUNNING[name](a.ravel()), rtol=1e-11)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("t", ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32"))
@pytest.mark.few(12)
def test_running_dtypes(name, t):
    a = np.random.default_rng(0).integers(0, 2, 70).astype(t) + np.array(1, t)
    got = compiled(lambda x: getattr(x, name)(), a)
    total = {"bool": "i4", "int8": "i4", "uint16": "u4"}.get(t, t)
    kind = np.dtype(total if name in ("cumsum", "cumprod") else t)
    assert got.dtype == kind
    with np.errstate(over="ignore"):
        want = RUNNING[name](a.astype("f4" if t == "float16" else kind)).astype(kind)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ("cummax", "cummin"))
@pytest.mark.parametrize("n", (20, 200))
def test_nan_stays_in_running_extremes(name, n):
    a = np.random.default_rng(0).normal(size=n).astype("f4")
    a[n // 2], a[1], a[2] = np.nan, np.inf, -np.inf
    got = compiled(lambda x: getattr(x, name)(), a)
    np.testing.assert_array_equal(got, RUNNING[name](a))


@pytest.mark.parametrize("name", RUNNING)
def test_running_along_a_symbolic_axis(name):
    x = uopc.param("x", (uopc.variable("n", 0, 300), 2))
    program = uopc.compile(getattr(x, name)(0))
    for n in (0, 1, 7, 211):
        a = np.random.default_rng(n).uniform(0.9, 1.1, (n, 2)).astype("f4")
        np.testing.assert_allclose(program(a), RUNNING[name](a, axis=0), rtol=1e-4)


@pytest.mark.parametrize("name", RUNNING)
def test_running_along_an_inner_axis_of_variable_sizes(name):
    n, m = uopc.variable("n", 0, 90), uopc.variable("m", 0, 20)
    x = uopc.param("x", (m, n, 3))
    for optimize in (True, False):
        program = uopc.compile(getattr(x, name)(1), optimize=optimize, verify=True)
        for shape in ((0, 0, 3), (2, 0, 3), (0, 5, 3), (1, 1, 3), (20, 90, 3), (7, 41, 3)):
            a = np.random.default_rng(1).uniform(0.9, 1.1, shape).astype("f4")
            np.testing.assert_allclose(program(a), RUNNING[name](a, axis=1), rtol=1e-4)


@pytest.mark.parametrize("shape, axis", (((300,), 0), ((5, 40), 1), ((40, 5), 0), ((3, 50, 4), 1)))
@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.few(5)
def test_one_kernel_in_order(name, shape, axis):
    """Sums are those of NumPy, bit for bit, compiled and interpreted."""
    x = uopc.param("x", shape)
    graph = getattr(x, name)(axis)
    assert uopc.parse(uopc.print_graph(graph)) is graph
    a = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("f4")
    want = RUNNING[name](a, axis=axis)
    for options in ({}, {"optimize": False}, {"threads": 2}, {"threads": 1}):
        program = uopc.compile(graph, verify=True, **options)
        assert len(program.kernels) == 1
        np.testing.assert_array_equal(program(a), want)
    np.testing.assert_array_equal(evaluate(graph, {"x": a}), want)


def test_threads_share_the_rows():
    program = uopc.compile(uopc.param("x", (512, 1024)).cumsum(1), threads=2)
    assert program.kernels[0].opts == (uopc.Opt("THREAD", 0, 2),)
    a = np.random.default_rng(0).random((512, 1024), "f4")
    np.testing.assert_array_equal(program(a), np.cumsum(a, 1))


def test_no_thread_of_a_gpu_adds_up_a_long_axis():
    lowered = lower_only(uopc.param("x", (1 << 20,)).cumsum(), device="cuda:sm_80")
    assert len(lowered.kernels) > 1
    for kernel in lowered.kernels:
        opts = str(kernel.arg.opts).lower()
        assert any([name in opts for name in ("thread", "local", "group")])


def test_malformed_nodes_are_refused():
    x = uopc.param("x", (4, 5))
    for arg in (ReduceArg("add", ()), ReduceArg("add", (0, 1)), ReduceArg("add", (2,)),
                ReduceArg("sub", (0,)), None):  # fmt: skip
        with pytest.raises(uopc.Error):
            uopc.compile(UOp(Ops.ACCUMULATE, dtypes.float32, (x,), arg))
    with pytest.raises(uopc.Error):
        uopc.compile(UOp(Ops.ACCUMULATE, dtypes.int32, (x,), ReduceArg("add", (0,))))


@pytest.mark.parametrize("name", RUNNING)
def test_a_scalar_has_nothing_to_run_along(name):
    x = uopc.param("x", ())
    with pytest.raises(uopc.UserError, match=f"{name}: a scalar has no axis"):
        getattr(x, name)(0)
    with pytest.raises(uopc.UserError, match=name):
        getattr(uopc.param("y", (3,)), name)(1)


@pytest.mark.parametrize(
    "name, function", [("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod")]
)
def test_of_the_standard(name, function):
    a = np.arange(1, 7, dtype="i1").reshape(2, 3)
    x = unp.asarray(a)
    got = getattr(unp, name)(x, axis=1, include_initial=True)
    assert got.dtype is dtypes.int64
    np.testing.assert_array_equal(got, getattr(np, name)(a, axis=1, include_initial=True))
    np.testing.assert_array_equal(getattr(unp, function)(x), getattr(np, function)(a))
    with pytest.raises(ValueError, match=f"{name}: axis is needed for 2 dimensions"):
        getattr(unp, name)(x)


# ---------------------------------------------------------------- logsumexp
@pytest.mark.parametrize("axis", (None, 0, -1, (0, 2)))
@pytest.mark.parametrize("keepdims", (False, True))
@pytest.mark.parametrize("t", ("float16", "float32", "float64"))
@pytest.mark.few(6)
def test_logsumexp(axis, keepdims, t):
    a = (np.random.default_rng(0).normal(size=(3, 4, 5)) * 100).astype(t)
    got = compiled(lambda x: x.logsumexp(axis, keepdims), a)
    want = special.logsumexp(a.astype("f8"), axis, keepdims=keepdims)
    assert got.dtype == a.dtype and got.shape == np.shape(want)
    rtol = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-14}[t]
    np.testing.assert_allclose(got, want, rtol=rtol)


def test_logsumexp_of_what_is_not_finite():
    inf, nan = np.inf, np.nan
    a = np.array([[inf, 1], [-inf, -inf], [nan, 1], [inf, -inf], [-inf, 2], [inf, inf]])
    got = compiled(lambda x: x.logsumexp(1), a)
    np.testing.assert_array_equal(got, [inf, -inf, nan, inf, 2, inf])
    assert compiled(lambda x: x.logsumexp(), np.zeros(0)) == -inf
    whole = compiled(lambda x: x.logsumexp(0), np.arange(3))
    assert whole.dtype == np.float64
    np.testing.assert_allclose(whole, special.logsumexp(np.arange(3)))


# ---------------------------------------------------------------- convolve
@pytest.mark.parametrize("mode", ("full", "same", "valid"))
@pytest.mark.parametrize(
    "n, m", ((5, 3), (3, 5), (1, 1), (7, 7), (8, 4), (1, 4), (100, 17), (101, 2))
)
@pytest.mark.few(6)
def test_convolve(mode, n, m):
    rng = np.random.default_rng(0)
    a, v = rng.normal(size=n), rng.normal(size=m)
    got = compiled(lambda x, y: x.convolve(y, mode), a, v)
    np.testing.assert_allclose(got, np.convolve(a, v, mode), rtol=1e-12, atol=1e-12)
    whole, part = np.arange(n), np.arange(m)
    got = compiled(lambda x, y: x.convolve(y, mode), whole, part)
    np.testing.assert_array_equal(got, np.convolve(whole, part, mode))


def test_convolve_refuses():
    x = uopc.param("x", (5,))
    for wrong in (uopc.param("m", (2, 2)), uopc.param("e", (0,)), uopc.param("s", ())):
        with pytest.raises(uopc.UserError, match="convolve: needs two vectors"):
            x.convolve(wrong)
    with pytest.raises(uopc.UserError, match="convolve: needs two vectors"):
        x.convolve(uopc.param("v", (uopc.variable("n", 1, 9),)))
    with pytest.raises(uopc.UserError, match='mode must be "full", "same" or "valid"'):
        x.convolve(x, "most")


def test_numpy_reaches_convolve():
    x = uopc.param("x", (5,))
    assert np.convolve(x, x, mode="same") is x.convolve(x, "same")
