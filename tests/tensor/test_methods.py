"""Elementwise methods and reductions against NumPy and SciPy, through the reference interpreter."""

from __future__ import annotations

import math
import operator
import warnings

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import uopc
from tests.reference import SEED, as_param, run, same, values
from uopc.errors import UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

FLOATS = ["float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NARROW = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


# ---------------------------------------------------------------- operators
ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISON = [operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISON, ids=lambda f: f.__name__)
@pytest.mark.parametrize("left", [*FLOATS, *INTS, "bool"])
@pytest.mark.parametrize("right", ["float32", "float64", "int8", "uint8", "int64", "uint64"])
@pytest.mark.few(161)
def test_operators_promote_as_numpy(op, left, right):
    a, b = values((3, 1), left), values((4,), right)
    with np.errstate(all="ignore"):
        same(run(op, a, b), op(a, b))


@pytest.mark.parametrize("t", [*INTS, "bool"])
def test_bit_operators(t):
    a, b = values((2, 5), t), values((5,), t)
    for op in BITS:
        same(run(op, a, b), op(a, b))
    same(run(operator.invert, a), ~a)


@pytest.mark.parametrize("t", INTS)
def test_shifts_by_less_than_the_width(t):
    a, count = values((20,), t), np.arange(20).astype(t) % (np.dtype(t).itemsize * 8)
    same(run(operator.lshift, a, count), a << count)
    same(run(operator.rshift, a, count), a >> count)
    same(run(lambda x: x << 3, a), a << 3)
    same(run(lambda x: 3 >> x, count), 3 >> count)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift])
def test_bit_operators_refuse_floats(op):
    with pytest.raises(UserTypeError, match="needs integers or bool, got float32"):
        op(uopc.param("x", (2,)), 1)
    with pytest.raises(UserTypeError, match="~ needs integers"):
        ~uopc.param("x", (2,))


@pytest.mark.parametrize("t", [*FLOATS, *INTS, "bool"])
def test_division(t):
    a, b = values((4, 5), t), values((5,), t)
    with np.errstate(all="ignore"):
        same(run(operator.truediv, a, b), np.true_divide(a, b))
        same(run(lambda x: 2 / x, a), 2 / a)
    b = np.where(b == 0, np.ones_like(b), b)
    same(run(operator.floordiv, a, b), a // b)
    same(run(operator.mod, a, b), a % b)
    same(run(lambda x: 7 // x, b), 7 // b)
    same(run(lambda x: 7 % x, b), 7 % b)


def test_integer_division_by_zero_is_zero():
    a = np.array([-3, 0, 5], "i4")
    zero = np.zeros(3, "i4")
    same(run(operator.floordiv, a, zero), zero)
    same(run(operator.mod, a, zero), zero)


@pytest.mark.parametrize("t", [*FLOATS, "int32", "int64", "uint8"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5])
def test_power_with_a_fixed_exponent(t, exponent):
    a = values((11,), t)
    same(run(lambda x: x**exponent, a), a**exponent, 1e-6 if t in FLOATS else 0)


def test_power():
    a, b = values((5, 1), "f8", 0.1, 4), values((7,), "f8")
    same(run(operator.pow, a, b), a**b, 1e-14)
    same(run(lambda x: 2**x, b), 2**b, 1e-14)
    same(run(lambda x: x**-1, a), 1 / a)
    same(run(lambda x: x**0.5, a), a**0.5, 1e-14)
    same(run(lambda x: x ** np.float64(1), b), b)
    same(run(lambda x: x**0, np.array([np.nan, np.inf])), np.ones(2))


def test_python_scalars_are_weak():
    x = uopc.param("x", (2,), dtypes.int8)
    assert (x + 1).dtype is dtypes.int8
    assert (x + 1.5).dtype is dtypes.float64
    assert (x / 2).dtype is dtypes.float64
    assert (uopc.param("h", (2,), dtypes.float16) * 2.5).dtype is dtypes.float16
    assert (uopc.param("b", (2,), dtypes.bool) + 1).dtype is dtypes.int64
    with pytest.raises(uopc.UserError, match="does not fit int8"):
        x + 1000


@pytest.mark.parametrize("t", NARROW)
def test_narrow_floats_keep_their_dtype(t):
    x = as_param(np.zeros((3,), t))
    for made in (x + 1, x.exp(), x.sigmoid(), x.gelu(), x.softmax(), x.sum(), x.var(), x @ x,
                 x.layer_norm(), x.rms_norm(), x.rsqrt(), x / 3, x**2, x.cumsum(0)):  # fmt: skip
        assert made.dtype.numpy == t


def test_arrays_on_the_left():
    a, b = values((3, 4), "f8"), values((4,), "f4")
    same(run(lambda x: a - x, b), a - b)
    same(run(lambda x: np.float64(2) / x, b), 2 / b.astype("f8"))
    same(run(lambda x: a @ x, b), a @ b, 1e-14)
    same(run(lambda x: a < x, b), a < b)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(uopc.UserError, match=r"\(2, 3\) and \(4\) do not broadcast"):
        uopc.param("x", (2, 3)) + uopc.param("y", (4,))


# ---------------------------------------------------------------- functions
FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "sqrt": np.sqrt, "erf": scipy.special.erf,
    "reciprocal": np.reciprocal, "rsqrt": lambda a: 1 / np.sqrt(a), "sigmoid": scipy.special.expit,
    "silu": lambda a: a * scipy.special.expit(a),
    "gelu": lambda a: a * scipy.special.ndtr(a),
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, math.nan, 1e-30, 700.0, -700.0]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("t", FLOATS)
def test_float_functions(name, t):
    a = np.concatenate([values((50,), t), np.array(SPECIAL, t)])
    with np.errstate(all="ignore"):
        expected = np.asarray(FUNCTIONS[name](a)).astype(t)
    same(run(lambda x: getattr(x, name)(), a), expected, 3e-6 if t == "float32" else 1e-14)


@pytest.mark.parametrize("name", [*FUNCTIONS, "mean", "softmax"])
def test_float_functions_of_integers(name):
    small, large = values((3,), "int8"), values((3,), "int64")
    assert run(lambda x: getattr(x, name)(), small).dtype == np.float32
    wide = np.float32 if name == "mean" else np.float64
    assert run(lambda x: getattr(x, name)(), large).dtype == wide


def test_gelu_by_tanh():
    a = values((40,), "f8")
    inner = math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)
    same(run(lambda x: x.gelu("tanh"), a), 0.5 * a * (1 + np.tanh(inner)), 1e-14)
    with pytest.raises(uopc.UserError, match="approximate"):
        uopc.param("x", (2,)).gelu("fast")


def test_narrow_functions_round_once():
    a = values((1000,), "float16")
    wide = run(lambda x: x.sigmoid(), a.astype("f4"))
    np.testing.assert_allclose(wide, scipy.special.expit(a.astype("f8")), rtol=1e-6)
    same(run(lambda x: x.sigmoid(), a), wide.astype("f2"))


@pytest.mark.parametrize("t", [*FLOATS, *INTS, "bool"])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
def test_rounding(name, t):
    a = values((30,), t)
    if t in FLOATS:
        a[:6] = [0.5, 1.5, 2.5, -0.5, -1.5, np.nan]
        expected = getattr(np, name)(a)
    else:
        expected = a
    same(run(lambda x: getattr(x, name)(), a), expected)


@pytest.mark.parametrize("t", [*FLOATS, *INTS, "bool"])
def test_signs(t):
    a = values((30,), t)
    if t in FLOATS:
        a[:4] = [0.0, -0.0, np.nan, -np.inf]
    same(run(abs, a), np.abs(a))
    same(run(lambda x: x.sign(), a), a if t == "bool" else np.sign(a))
    same(run(lambda x: x.relu(), a), np.maximum(a, np.zeros((), t)))
    same(run(operator.neg, a), ~a if t == "bool" else -a)


@pytest.mark.parametrize("t", [*FLOATS, *INTS])
def test_clip(t):
    a = values((30,), t)
    same(run(lambda x: x.clip(3, 50), a), np.clip(a, 3, 50))
    same(run(lambda x: x.clip(None, 50), a), np.clip(a, None, 50))
    same(run(lambda x: x.clip(3), a), np.clip(a, 3, None))
    low, high = values((1, 30), t), values((2, 1), t)
    same(run(lambda x, y, z: x.clip(y, z), a, low, high), np.clip(a, low, high))


def test_maximum_and_minimum_propagate_nan():
    a, b = np.array([1, np.nan, 3], "f4"), np.array([np.nan, 2, 2], "f4")
    same(run(lambda x, y: x.maximum(y), a, b), np.maximum(a, b))
    same(run(lambda x, y: x.minimum(y), a, b), np.minimum(a, b))


def test_comparisons_by_name():
    a, b = values((20,), "int8"), values((20,), "int8")
    same(run(lambda x, y: x.eq(y), a, b), a == b)
    same(run(lambda x, y: x.ne(y), a, b), a != b)


def test_where():
    c, a, b = values((4, 1), "bool"), values((3,), "f4"), values((4, 3), "f8")
    same(run(lambda x, y, z: x.where(y, z), c, a, b), np.where(c, a, b))
    same(run(lambda x: uopc.where(x, 1.0, 0), c), np.where(c, np.float32(1), np.float32(0)))
    same(run(lambda x: x.where(2, 3), c), np.where(c, np.int32(2), np.int32(3)))
    same(run(lambda x, y: uopc.where(x, y, 0), c, a), np.where(c, a, np.float32(0)))
    with pytest.raises(UserTypeError, match="condition must be bool"):
        uopc.where(uopc.param("i", (3,), dtypes.int32), 1, 2)


def test_mulacc():
    a, b, c = values((3, 1), "f4"), values((4,), "f4"), values((), "f8")
    same(run(lambda x, y, z: x.mulacc(y, z), a, b, c), a.astype("f8") * b + c, 1e-15)
    i = values((5,), "int8")
    same(run(lambda x: x.mulacc(x, x), i), i * i + i)


# ---------------------------------------------------------------- reductions
REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all"]


def expected_reduction(name, a, axis, keepdims):
    """NumPy's value in the dtype of the contract."""
    t = a.dtype
    small = t.kind == "b" or (t.kind in "iu" and t.itemsize < 4)
    if name in ("sum", "prod"):
        wide = np.dtype("uint32" if t.kind == "u" else "int32") if small else t
        return getattr(np, name)(a, axis=axis, keepdims=keepdims, dtype=wide)
    if name in ("mean", "var", "std"):
        exact = getattr(np, name)(a.astype("f8"), axis=axis, keepdims=keepdims)
        return np.asarray(exact).astype(t if t.kind == "f" else "f4")
    if name in ("max", "min") and 0 in a.shape:
        bounds = (-np.inf, np.inf) if t.kind == "f" else (0, 1) if t.kind == "b" else (
            np.iinfo(t).min, np.iinfo(t).max)  # fmt: skip
        initial = bounds[0] if name == "max" else bounds[1]
        return getattr(np, name)(a, axis=axis, keepdims=keepdims, initial=t.type(initial))
    return getattr(np, name)(a, axis=axis, keepdims=keepdims)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(REDUCTIONS),
    t=st.sampled_from([*FLOATS, "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]),
    shape=shapes,
    keepdims=st.booleans(),
    data=st.data(),
)
def test_reductions(name, t, shape, keepdims, data):
    axes = st.lists(st.integers(0, max(len(shape) - 1, 0)), unique=True, max_size=len(shape))
    axis = data.draw(st.none() | axes.map(tuple)) if shape else None
    if isinstance(axis, tuple) and len(axis) == 1 and data.draw(st.booleans()):
        axis = axis[0] - data.draw(st.sampled_from([0, len(shape)]))
    a = values(shape, t, -2, 2)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's mean of nothing
        expected = np.asarray(expected_reduction(name, a, axis, keepdims))
    out = run(lambda x: getattr(x, name)(axis=axis, keepdims=keepdims), a)
    same(out, expected, 1e-4 if name in ("sum", "prod", "mean", "var", "std") else 0)


def test_correction():
    a = values((7, 5), "f8")
    same(run(lambda x: x.var(0, correction=1), a), a.var(0, ddof=1), 1e-14)
    same(run(lambda x: x.std(correction=2), a), np.asarray(a.std(ddof=2)), 1e-14)
    assert np.isnan(run(lambda x: x.var(correction=1), np.ones((1,), "f4")))


def test_variance_is_two_pass():
    a = (values((1000,), "f4", 0, 1) + np.float32(4096)).astype("f4")
    same(run(lambda x: x.var(), a), np.asarray(a.astype("f8").var().astype("f4")), 1e-4)


@pytest.mark.parametrize("t", NARROW)
def test_narrow_sums_accumulate_in_float32(t):
    a = np.full((4096,), 0.1, t)
    exact = a.astype("f4").sum(dtype="f4").astype(t)
    same(run(lambda x: x.sum(), a), np.asarray(exact), 1e-3)
    same(run(lambda x: x.mean(), a), np.asarray(t.type(0.1)), 1e-3)


def test_reductions_propagate_nan():
    a = np.array([[1, np.nan, 3], [4, 5, 6]], "f4")
    same(run(lambda x: x.max(1), a), np.max(a, 1))
    same(run(lambda x: x.min(1), a), np.min(a, 1))


@pytest.mark.parametrize("axis", [2, -3, (0, 5)])
def test_axis_out_of_range(axis):
    with pytest.raises(uopc.UserError, match="out of range for 2 dimensions"):
        uopc.param("x", (2, 3)).sum(axis)


def test_axis_errors():
    with pytest.raises(uopc.UserError, match="given twice"):
        uopc.param("x", (2, 3)).sum((0, -2))
    with pytest.raises(UserTypeError, match="must be an int"):
        uopc.param("x", (2, 3)).sum(1.0)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["argmax", "argmin"]),
    t=st.sampled_from([*FLOATS, "int8", "uint64", "bool"]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=7),
    keepdims=st.booleans(),
    nans=st.booleans(),
    data=st.data(),
)
def test_places(name, t, shape, keepdims, nans, data):
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1)) if shape else None
    a = np.asarray(np.round(values(shape, t, -2, 2))).astype(t)
    if nans and t in FLOATS:
        a[SEED.random(shape) < 0.3] = np.nan
    expected = getattr(np, name)(a, axis=axis, keepdims=keepdims)
    out = run(lambda x: getattr(x, name)(axis=axis, keepdims=keepdims), a)
    same(out, np.asarray(expected).astype("i4"))


def test_places_of_long_and_empty_axes():
    assert uopc.param("x", (1 << 31,)).argmax().dtype is dtypes.int32
    assert uopc.param("x", ((1 << 31) + 1,)).argmax().dtype is dtypes.int64
    with pytest.raises(uopc.UserError, match=r"axis 1 of \(3, 0\) is empty"):
        uopc.param("x", (3, 0)).argmin(1)


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 97, 128, 1031, 4099])
@pytest.mark.parametrize("t", ["float32", "int8", "bool"])
def test_running_sums(n, t):
    a = values((2, n), t)
    wide = {"float32": "f8", "int8": "i4", "bool": "i4"}[t]
    expected = np.cumsum(a, 1, dtype=wide).astype("f4" if t == "float32" else "i4")
    same(run(lambda x: x.cumsum(1), a), expected, 1e-3 if t == "float32" else 0)
    same(run(lambda x: x.cumsum(0), a.T), expected.T, 1e-3 if t == "float32" else 0)


def test_running_sums_of_any_axis():
    a = values((3, 4, 5), "i4")
    for axis in (0, 1, 2, -1, -3):
        same(run(lambda x, axis=axis: x.cumsum(axis), a), np.cumsum(a, axis, dtype="i4"))
    same(run(lambda x: x.cumsum(), a), np.cumsum(a, dtype="i4"))
    with pytest.raises(uopc.UserError, match="no axis"):
        uopc.param("x").cumsum(0)


def test_running_sums_do_not_mix_infinities():
    a = np.ones(200, "f4")
    a[100] = np.inf
    same(run(lambda x: x.cumsum(0), a), np.cumsum(a))


def test_running_sums_of_a_symbolic_axis():
    n = uopc.variable("n", 0, 300)
    graph = uopc.param("x", (n, 2), dtypes.int32).cumsum(0)
    for size in (0, 1, 2, 100):
        a = values((size, 2), "i4")
        same(interpreter.evaluate(graph, {"x": a}), np.cumsum(a, 0, dtype="i4"))


def test_means_over_symbolic_axes():
    n = uopc.variable("n", 1, 300)
    x = uopc.param("x", (n, 3), dtypes.float64)
    a = values((17, 3), "f8")
    same(interpreter.evaluate(x.mean(0), {"x": a}), a.mean(0), 1e-14)
    same(interpreter.evaluate(x.std(correction=1), {"x": a}), np.asarray(a.std(ddof=1)), 1e-14)
    same(interpreter.evaluate(x.argmax(0), {"x": a}), a.argmax(0).astype("i4"))


# ---------------------------------------------------------------- marks and variables
def test_contiguous_and_detach():
    x = uopc.param("x", (3,))
    kept = x.exp().contiguous()
    assert kept.op is Ops.CONTIGUOUS
    assert kept.contiguous() is kept
    assert kept.contiguous([Opt("upcast", 0, 4)]).arg == (Opt("upcast", 0, 4),)
    assert x.detach().detach() is x.detach()
    a = values((3,))
    same(run(lambda y: y.exp().contiguous().detach(), a), np.exp(a), 1e-6)


def test_bind():
    n = uopc.variable("n", 1, 10)
    bound = n.bind(7)
    assert bound.op is Ops.BIND
    assert bound.unbind() == (n, 7)
    for wrong in (0, 11):
        with pytest.raises(uopc.UserError, match="n takes an integer from 1 to 10"):
            n.bind(wrong)
    with pytest.raises(UserTypeError, match="must be an int"):
        n.bind(2.5)
    with pytest.raises(uopc.UserError, match="expected a variable"):
        bound.bind(3)
    with pytest.raises(uopc.UserError, match="expected a bound variable"):
        n.unbind()


def test_building_folds_what_is_nothing():
    x = uopc.param("x", (3,))
    assert x.sum(()) is x
    assert x.cast(dtypes.float32) is x
    assert uopc.param("i", (3,), dtypes.int32).floor().op is Ops.PARAM
    assert uopc.param("u", (3,), dtypes.uint8).abs().op is Ops.PARAM
    assert x**1 is x
    assert x.cumsum(0).shape == (3,)


@pytest.mark.parametrize("t", [dtypes.uint8, dtypes.int8, dtypes.int32, dtypes.float16])
def test_bits_of_bools(t):
    a = np.array([True, False, True, True, False, False, True, False])
    x = uopc.param("x", (8,), dtypes.bool_)
    np.testing.assert_array_equal(uopc.compile(x.bitcast(t))(a), a.view(t.numpy))
    back = uopc.compile(uopc.param("y", (8 // t.itemsize,), t).bitcast(dtypes.bool_))
    np.testing.assert_array_equal(back(a.view(t.numpy)), a)
