"""The Array API namespace against NumPy, over dtypes, shapes and axes, on Arrays and UOps."""

from __future__ import annotations

import inspect
import operator
import warnings
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from uopc import UOp, dtypes
from uopc.numpy import linalg
from uopc.numpy.elementwise import FUNCTIONS, NUMPY_NAMES

DTYPES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (3, 0), (1, 5, 2)]


def drawn(shape: Any, dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    a = rng.integers(1, 9, shape)
    if dtype[0] in "if":
        a = a * rng.choice([-1, 1], shape)
    return a.astype(dtype) if dtype != "bool" else (a % 2).astype(bool)


def equal(got: Any, want: Any, dtype: bool = True) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    if dtype:
        assert got.dtype == np.asarray(want).dtype
    rtol = {2: 1e-2, 4: 2e-6, 8: 1e-13}[got.dtype.itemsize] if got.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


# ---------------------------------------------------------------- elementwise
NUMPY_OF = {"bitwise_invert": "invert", "pow": "power", "bitwise_left_shift": "left_shift",
            "bitwise_right_shift": "right_shift", "divide": "true_divide"}  # fmt: skip
NO_BOOL = {"ceil", "conj", "float_power", "floor", "floor_divide", "fmod", "imag", "negative",
           "positive", "pow", "real", "remainder", "round", "sign", "square", "subtract",
           "trunc"}  # fmt: skip
BITS = {"bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
        "bitwise_right_shift", "bitwise_xor"}  # fmt: skip
STANDARD = sorted(FUNCTIONS.keys() - NUMPY_NAMES.keys())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.few(32)
def test_elementwise_functions_agree_with_numpy(name: str, dtype: str) -> None:
    theirs = getattr(np, NUMPY_OF.get(name, name))
    arity = len(inspect.signature(FUNCTIONS[name]).parameters)
    values = [drawn((2, 5), dtype, seed) for seed in range(arity)]
    if name in ("bitwise_left_shift", "bitwise_right_shift", "pow", "log", "log2", "sqrt"):
        values = [v if v.dtype == bool else np.abs(v) for v in values]
    refused = (dtype == "bool" and name in NO_BOOL) or (dtype[0] == "f" and name in BITS)
    if refused:
        with pytest.raises(TypeError, match=f"^{name} needs"):
            getattr(unp, name)(*values)
        return
    with np.errstate(all="ignore"):
        want = theirs(*values)
    if (want.dtype.kind == "f" or name == "reciprocal") and dtype[:5] != "float":
        want = theirs(*[v.astype(np.float64) for v in values])  # NumPy takes float16 for int8
    elif dtype == "bool" and want.dtype == np.int8:
        want = want.astype(bool) if name not in ("bitwise_left_shift", "bitwise_right_shift") else (
            want)  # fmt: skip
    equal(getattr(unp, name)(*[unp.asarray(v) for v in values]), want)


def test_numpys_names_are_the_standards_functions() -> None:
    for name, standard in NUMPY_NAMES.items():
        assert getattr(unp, name) is getattr(unp, standard)


def test_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 2.5, -2.5, 3.5])
    for name in ("isnan", "isinf", "isfinite", "sign", "floor", "ceil", "trunc", "round"):
        np.testing.assert_array_equal(np.asarray(getattr(unp, name)(unp.asarray(x))),
                                      getattr(np, name)(x))  # fmt: skip
    assert np.signbit(np.asarray(unp.round(unp.asarray(x)))).tolist() == np.signbit(x).tolist()


# ---------------------------------------------------------------- promotion
@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_dtypes_promote_as_in_numpy(a: str, b: str) -> None:
    found = unp.result_type(getattr(unp, a), getattr(unp, b))
    assert found.numpy == np.result_type(a, b)
    assert (unp.ones(2, dtype=a) * unp.ones(2, dtype=b)).dtype is found


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", "float16"])
def test_numbers_do_not_widen(dtype: str) -> None:
    x = unp.ones(3, dtype=dtype)
    assert (x + 1).dtype is x.dtype and (2 * x).dtype is x.dtype
    assert (x + True).dtype is x.dtype
    assert (x + 1.5).dtype is (x.dtype if x.dtype.is_float else dtypes.float64)
    assert unp.where(x > 0, x, 0).dtype is x.dtype
    assert (x + 1j).dtype == (np.zeros(1, dtype) + 1j).dtype


def test_dtype_arguments() -> None:
    for given in (np.float64, "f8", float, unp.float64, dtypes.float64, np.dtype("f8")):
        assert unp.zeros(2, dtype=given).dtype is dtypes.float64
    assert unp.zeros(2, dtype=int).dtype is dtypes.int64
    assert unp.zeros(2, dtype=bool).dtype is dtypes.bool_
    assert unp.zeros(2, dtype="c16").dtype is unp.zeros(2, dtype=complex).dtype is unp.complex128
    for wrong in ("c32", "text", object):
        with pytest.raises(TypeError):
            unp.zeros(2, dtype=wrong)


def test_kinds_and_limits_of_dtypes() -> None:
    assert unp.isdtype(unp.int8, "signed integer") and not unp.isdtype(unp.uint8, "signed integer")
    assert unp.isdtype(unp.float32, ("integral", "real floating"))
    assert unp.iinfo(unp.int16).max == 32767 and unp.finfo(unp.float32).bits == 32
    assert unp.finfo(unp.float64).eps == np.finfo(np.float64).eps
    assert unp.can_cast(unp.int8, unp.int16) and not unp.can_cast(unp.int16, unp.int8)
    for wrong in (lambda: unp.iinfo("f4"), lambda: unp.finfo("i4"),
                  lambda: unp.isdtype("f4", "no")):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()


# ---------------------------------------------------------------- creation
CREATIONS = {
    "arange": [((5,), {}), ((2, 9, 3), {}), ((5, 0, -2), {}), ((0.0, 1.0, 0.3), {}), ((0,), {})],
    "linspace": [((0, 1, 5), {}), ((0, 1, 1), {}), ((2, 3, 0), {}),
                 ((0, 1, 4), {"endpoint": False})],
    "eye": [((3,), {}), ((2, 4), {"k": 1}), ((4, 2), {"k": -1}), ((0,), {}), ((3,), {"k": 7})],
    "zeros": [((3,), {}), (((2, 0),), {}), (((),), {})],
    "ones": [((3,), {"dtype": "int8"})],
    "full": [(((2, 2), 7), {}), ((3, 1.5), {}), ((2, True), {})],
}  # fmt: skip


@pytest.mark.parametrize("name", CREATIONS)
def test_creation(name: str) -> None:
    for args, named in CREATIONS[name]:
        equal(getattr(unp, name)(*args, **named), _creation_of_numpy(name)(*args, **named))


def _creation_of_numpy(name: str) -> Any:
    def eye(n: int, m: Any = None, k: int = 0) -> Any:
        return np.eye(n, m, k=k)

    return eye if name == "eye" else getattr(np, name)


def test_arrays_of_lists_and_arrays() -> None:
    assert unp.asarray([1, 2]).dtype is dtypes.int64
    assert unp.asarray([1, 2.0]).dtype is dtypes.float64
    x = unp.ones(3)
    equal(unp.asarray([x, [1, 2, 3], x * 2]), [[1, 1, 1], [1, 2, 3], [2, 2, 2]], dtype=False)
    for name in ("zeros_like", "ones_like"):
        assert getattr(unp, name)(unp.asarray([1, 2], dtype="i2")).dtype is dtypes.int16
    equal(unp.full_like(unp.asarray([1, 2]), 7), [7, 7])
    equal(unp.from_dlpack(np.arange(3)), np.arange(3))
    for got, want in zip(unp.meshgrid(np.arange(3), np.arange(2)), np.meshgrid(range(3), range(2))):
        equal(got, want)
    for wrong in (lambda: unp.asarray("text"), lambda: unp.asarray([None]),
                  lambda: unp.zeros(2, device="gpu"), lambda: unp.asarray([1], copy=False),
                  lambda: unp.arange(0, 5, 0), lambda: unp.meshgrid(x, indexing="no")):  # fmt: skip
        with pytest.raises(uopc.UserError):
            wrong()


# ---------------------------------------------------------------- moving elements
MOVES = {
    "reshape": [((2, 3), (3, 2)), ((6,), (-1, 2)), ((0, 3), (3, 0))],
    "squeeze": [((1, 5, 1), 0), ((1, 5, 1), (0, 2))],
    "flip": [((2, 3), None), ((2, 3), 1), ((2, 3), (0, -1))],
    "roll": [((7,), 2), ((7,), -9), ((2, 3), 1), ((2, 3), (1, 2), (0, 1)), ((0,), 1)],
    "tile": [((2, 3), (2,)), ((2, 3), (2, 1, 3)), ((3,), (0,)), ((2, 3), ())],
    "repeat": [((2, 3), 2), ((2, 3), 3, 1), ((2, 3), 0, 0)],
    "moveaxis": [((2, 3, 4), 0, 2), ((2, 3, 4), (0, 1), (-1, 0))],
    "swapaxes": [((2, 3, 4), 0, 2)],
    "broadcast_to": [((3,), (2, 3)), ((1, 3), (4, 2, 3)), ((), (2,))],
    "expand_dims": [((2, 3), 0), ((2, 3), (0, -1))],
    "permute_dims": [((2, 3, 4), (2, 0, 1))],
    "tril": [((3, 4),), ((2, 3, 3), 1)],
    "triu": [((3, 4),), ((2, 3, 3), -1)],
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    theirs = getattr(np, {"permute_dims": "transpose"}.get(name, name))
    for shape, *args in MOVES[name]:
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        equal(getattr(unp, name)(unp.asarray(x), *args), theirs(x, *args))


def test_joining_and_parting() -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(6.0).reshape(2, 3) * 2
    for axis in (0, 1, -1, None):
        equal(unp.concat([a, b], axis=axis), np.concatenate([a, b], axis=axis))
    for axis in (0, 1, -1):
        equal(unp.stack([a, b], axis=axis), np.stack([a, b], axis=axis))
        for got, want in zip(unp.unstack(unp.asarray(a), axis=axis), np.moveaxis(a, axis, 0)):
            equal(got, want)
    both = unp.broadcast_arrays(unp.asarray(a), b[:1])
    for got, want in zip(both, np.broadcast_arrays(a, b[:1])):
        equal(got, want)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("widths", [1, (2, 1), ((0, 3), (2, 0)), ((7, 5), (4, 9)), ((0, 0),) * 2])
def test_padding(mode: str, widths: Any) -> None:
    x = np.arange(6.0).reshape(2, 3)
    equal(unp.pad(unp.asarray(x), widths, mode), np.pad(x, widths, mode))
    equal(unp.pad(unp.asarray(x[:, :1]), ((0, 0), (2, 1)), mode), np.pad(x[:, :1], ((0, 0), (2, 1)),
                                                                         mode))  # fmt: skip


def test_taking() -> None:
    x, i = np.arange(12).reshape(3, 4), np.array([[2, 0, -1], [1, 1, 0]])
    equal(unp.take(unp.asarray(x), i, axis=1), np.take(x, i, axis=1))
    equal(unp.take_along_axis(unp.asarray(x[:, :3]), i[:1], axis=0),
          np.take_along_axis(x[:, :3], i[:1], 0))  # fmt: skip
    for key in (0, -1, np.s_[1:], np.s_[:, ::2], np.s_[..., None], np.s_[1, 2], np.s_[::-1]):
        equal(unp.asarray(x)[key], x[key])
    equal(unp.asarray(x)[unp.asarray([0, 2])], x[[0, 2]])
    equal(unp.asarray(x)[unp.asarray(1), 0], x[1, 0])
    with pytest.raises(IndexError):
        unp.asarray(x)[3]


# ---------------------------------------------------------------- reductions
SOME = [pytest.param(t, marks=() if t in ("bool", "int32", "float32") else pytest.mark.slow)
        for t in DTYPES]  # fmt: skip


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean", "argmax",
                                  "argmin", "count_nonzero", "std", "var"])  # fmt: skip
@pytest.mark.few(3)
def test_reductions(name: str, dtype: str) -> None:
    for shape in SHAPES:
        x = drawn(shape, dtype)
        axes = [None, *range(-len(shape), len(shape))] + ([(0, -1)] if len(shape) > 1 else [])
        for axis in axes:
            if name[:3] == "arg" and isinstance(axis, tuple):
                continue
            for keep in (False, True):
                with np.errstate(all="ignore"):
                    want = _reduced(name, x, axis, keep)
                if want is None:
                    with pytest.raises(ValueError):
                        getattr(unp, name)(unp.asarray(x), axis=axis, keepdims=keep)
                    continue
                got = np.asarray(getattr(unp, name)(unp.asarray(x), axis=axis, keepdims=keep))
                np.testing.assert_allclose(got, want, rtol=1e-5, equal_nan=True)
                if not (name in ("mean", "std", "var") and dtype == "float32"):
                    assert got.dtype == np.asarray(want).dtype


def _reduced(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(np, name)(x, axis=axis, keepdims=keepdims)
        except ValueError:
            return None


def test_sums_in_a_dtype_and_running_sums() -> None:
    x = np.arange(6, dtype="i1").reshape(2, 3)
    assert unp.sum(unp.asarray(x)).dtype is dtypes.int64
    assert unp.sum(unp.asarray(x), dtype="f4").dtype is dtypes.float32
    equal(unp.cumulative_sum(unp.asarray(x), axis=1), np.cumulative_sum(x, axis=1))
    equal(unp.cumulative_sum(unp.asarray(x), axis=0, include_initial=True),
          np.cumulative_sum(x, axis=0, include_initial=True))  # fmt: skip
    equal(unp.cumsum(unp.asarray(x)), np.cumsum(x))
    for how in ({}, {"axis": 0}, {"n": 2}, {"prepend": x[:, :1]}, {"append": x[:, :2]}):
        equal(unp.diff(unp.asarray(x), **how), np.diff(x, **how))
    with pytest.raises(uopc.UserError):
        unp.cumulative_sum(unp.asarray(x))


# ---------------------------------------------------------------- sorting
@pytest.mark.parametrize("dtype", SOME)
def test_sorting(dtype: str) -> None:
    for shape in ((0,), (1,), (7,), (3, 5), (2, 40)):
        x = drawn(shape, dtype)
        for axis in range(-len(shape), len(shape)):
            equal(unp.sort(unp.asarray(x), axis=axis), np.sort(x, axis))
            equal(unp.argsort(unp.asarray(x), axis=axis), np.argsort(x, axis, stable=True))
    values, places = unp.top_k(unp.asarray(x), 3)
    order = np.argsort(x.astype("f8") * -1, axis=-1, stable=True)[:, :3]
    equal(places, order)
    equal(values, np.take_along_axis(x, order, -1))
    row = np.sort(x[0])
    for side in ("left", "right"):
        equal(unp.searchsorted(row, x, side=side), np.searchsorted(row, x, side))


# ---------------------------------------------------------------- linear algebra
def test_products() -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(shape) for shape in ((3, 4), (4, 5), (2, 4, 3)))
    equal(unp.matmul(a, b), a @ b)
    equal(unp.asarray(c) @ a, c @ a)
    equal(a @ unp.asarray(b), a @ b)
    equal(unp.tensordot(a, c, axes=((1, 0), (1, 2))), np.tensordot(a, c, ((1, 0), (1, 2))))
    equal(unp.tensordot(a, b, axes=1), np.tensordot(a, b, 1))
    equal(unp.tensordot(a, b, axes=0), np.tensordot(a, b, 0))
    equal(unp.vecdot(a, a[0]), np.vecdot(a, a[0]))
    equal(unp.dot(a[0], b), np.dot(a[0], b))
    equal(unp.dot(a, unp.asarray(c)), np.dot(a, c))
    equal(unp.outer(a[0], b[0]), np.outer(a[0], b[0]))
    equal(linalg.cross(a[:, :3], a[:, 1:]), np.cross(a[:, :3], a[:, 1:]))
    for k in (-4, -1, 0, 2, 5):
        equal(linalg.diagonal(unp.asarray(c), offset=k), np.diagonal(c, k, 1, 2))
        equal(linalg.trace(unp.asarray(c), offset=k), np.trace(c, k, 1, 2))
    for order in (0, 1, 2, 3, np.inf, -np.inf):
        equal(linalg.vector_norm(unp.asarray(a), axis=1, ord=order), np.linalg.norm(a, order, 1))
    for order in ("fro", 1, -1, np.inf, -np.inf):
        equal(linalg.matrix_norm(unp.asarray(a), ord=order), np.linalg.norm(a, order))
    for wrong in (lambda: unp.matmul(a, 3.0), lambda: unp.tensordot(a, b, axes=2),
                  lambda: unp.vecdot(a, b), lambda: linalg.cross(a, a),
                  lambda: linalg.matrix_norm(a, ord=2), lambda: unp.outer(a, a)):  # fmt: skip
        with pytest.raises(ValueError):
            wrong()


# ---------------------------------------------------------------- NumPy's functions
X = np.linspace(-1, 2, 12).reshape(3, 4)
NUMPY_CALLS = {
    "ufunc": lambda x: np.sin(x) + np.exp2(x) * np.maximum(x, 0.5) - np.power(x, 2),
    "left array": lambda x: np.ones((3, 4)) * x - np.float64(2) / (x + 5),
    "comparison": lambda x: (np.zeros((3, 4)) == x) | (np.ones((3, 4)) < x),
    "matmul": lambda x: np.ones((2, 3)) @ x,
    "stack": lambda x: np.stack([x, x * 2], axis=1),
    "concatenate": lambda x: np.concatenate([x, np.ones((1, 4))]),
    "where": lambda x: np.where(x > 0, x, -1),
    "clip": lambda x: np.clip(x, -0.5, 1.5) + np.clip(x, a_min=0, a_max=None),
    "round": lambda x: np.round(x, 1) + np.around(x),
    "std": lambda x: np.std(x, 0, ddof=1) + np.var(x, axis=0),
    "mean": lambda x: np.mean(x, 1, keepdims=True),
    "sum": lambda x: np.sum(x, 0, keepdims=True) * np.prod(x, axis=1).sum(),
    "diff": lambda x: np.diff(x, 2) * np.diff(x, axis=-1)[:, :2],
    "argmax": lambda x: np.argmax(x, axis=0) + np.argmin(x, 0),
    "reshape": lambda x: np.reshape(x, (2, 6)).T,
    "transpose": lambda x: np.transpose(x) + np.swapaxes(x, 0, 1),
    "flip": lambda x: np.flip(x) + np.roll(x, 1, 1) + np.flip(x, 0),
    "pad": lambda x: np.pad(x, 1, "edge"),
    "outer": lambda x: np.outer(x, x),
    "dot": lambda x: np.dot(x, x.T) + np.tensordot(x, x, ((1,), (1,))),
    "take": lambda x: np.take(x, np.array([0, 2]), axis=1),
    "likes": lambda x: np.zeros_like(x) + np.ones_like(x) + np.full_like(x, 3),
    "squeeze": lambda x: np.squeeze(np.expand_dims(x, 0)),
    "cumsum": lambda x: np.cumsum(x, axis=1) + np.cumsum(x).reshape(3, 4),
    "norm": lambda x: np.broadcast_to(np.any(x > 0, axis=0), (3, 4)),
    "facts": lambda x: x * np.shape(x)[0] + np.size(x) + np.ndim(x),
    "methods": lambda x: x.reshape(4, 3).T.flatten().astype("i4").sum() + x.mean(0).max(),
}


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_numpy_code_traces(name: str) -> None:
    function = NUMPY_CALLS[name]
    equal(uopc.jit(function)(X), function(X))


@pytest.mark.parametrize("name", sorted(NUMPY_CALLS.keys() - {"methods", "facts", "likes"}))
def test_numpy_code_makes_graphs_of_uops(name: str) -> None:
    function, x = NUMPY_CALLS[name], uopc.param("x", (3, 4), dtypes.float64)
    made = function(x)
    assert isinstance(made, UOp)
    equal(uopc.compile(made)(X), function(X))


REFUSED = {
    "union1d": lambda x: np.union1d(x, x),
    "reduceat": lambda x: np.add.reduceat(x, [0, 1]),
    "where=": lambda x: np.sin(x, where=np.ones((3, 4), bool)), "svd": lambda x: np.linalg.svd(x),
    "order": lambda x: np.reshape(x, (12,), order="A"),
    "save": lambda x: np.array2string(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_an_error(name: str) -> None:
    x = uopc.param("x", (3, 4), dtypes.float64)
    with pytest.raises(TypeError):
        REFUSED[name](x)
    with pytest.raises(TypeError):
        uopc.jit(REFUSED[name])(X)


# ---------------------------------------------------------------- Arrays
def test_arrays_that_are_not_traced_have_values() -> None:
    x = unp.asarray([[1, 2], [3, 4]])
    assert bool(unp.all(x > 0)) and int(x[1, 1]) == 4 and float(x.mean()) == 2.5
    assert x.tolist() == [[1, 2], [3, 4]] and x.sum().item() == 10 and len(x) == 2
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert np.asarray(x).flags.writeable and not x.value().flags.writeable
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert [1, 2, 3][x[0, 0]] == 2
    assert repr(x + 1) == "Array(int64(2, 2), not computed)"
    assert "[3, 4]]" in repr(x)
    assert x.to_device("cpu") is x and x.device == "cpu" and x.mT.tolist() == [[1, 3], [2, 4]]
    for wrong in (lambda: bool(x), lambda: int(x), lambda: [1][x[0, 0] * 1.0], lambda: hash(x),
                  lambda: x.to_device("gpu"), lambda: len(x[0, 0]),
                  lambda: x.__array_namespace__(api_version="1900")):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_arrays_of_uops_have_no_values() -> None:
    x = unp.Array(uopc.param("x", (3,)))
    with pytest.raises(uopc.UserError, match=r"depends on the param 'x'"):
        float(x.sum())


def test_functions_of_uops_alone_give_uops() -> None:
    x = uopc.param("x", (3,))
    assert isinstance(unp.sin(x), UOp) and isinstance(unp.sum(x), UOp)
    assert isinstance(unp.sin(unp.asarray([1.0])), unp.Array)
    assert isinstance(unp.sin(np.ones(3)), unp.Array) and isinstance(unp.zeros(3), unp.Array)
    assert x.__array_namespace__() is unp and unp.ones(2).__array_namespace__() is unp


def test_the_namespace_tells_about_itself() -> None:
    info = unp.__array_namespace_info__()
    assert unp.__array_api_version__ == "2024.12"
    assert info.default_dtypes()["integral"] is dtypes.int64
    assert list(info.dtypes(kind="bool")) == ["bool"] and "float64" in info.dtypes()
    assert info.capabilities()["data-dependent shapes"] and info.devices() == ["cpu"]


@pytest.mark.parametrize("name", ("svd", "eigh", "pinv", "matrix_rank"))
def test_decompositions_by_iteration_are_refused_with_a_reason(name: str) -> None:
    assert not hasattr(unp.linalg, name)
    reason = f"no {name}: it iterates until .* use numpy.linalg.{name}"
    with pytest.raises(AttributeError, match=reason):
        getattr(unp.linalg, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        unp.linalg.nothing  # noqa: B018


def test_a_name_that_there_is_not_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        unp.nothing  # noqa: B018


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_an_array_answers_an_operator_on_either_side_of_a_graph(dtype: str) -> None:
    graph = uopc.param("mixed_graph", (3,), "int32")
    array = unp.asarray(np.array([1, 2, 3], dtype))
    for op in (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
        operator.mod, operator.lt, operator.le, operator.gt, operator.ge, operator.matmul,
    ):  # fmt: skip
        left, right = op(graph, array), op(array, graph)
        assert type(left) is type(right) is unp.Array
        assert left.dtype is right.dtype
    quotient, rest = divmod(graph, array)
    assert quotient.dtype is rest.dtype is (array // graph).dtype
