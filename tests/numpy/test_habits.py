"""Habits of NumPy in traced functions: NumPy's numbers, or an error that says what to do."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

X = np.array([[0.5, -2.0, 3.0], [1.0, 4.0, -1.5]])
NARROW = np.array([100, 27, -3], "i1")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.add.reduce(x),
        lambda x: np.multiply.reduce(x, axis=1),
        lambda x: np.maximum.reduce(x, axis=None),
        lambda x: np.minimum.reduce(x, axis=(0, 1), keepdims=True),
        lambda x: np.logical_and.reduce(x > 0, axis=1),
        lambda x: np.logical_or.reduce(x > 3),
        lambda x: np.add.accumulate(x),
        lambda x: np.multiply.accumulate(x, axis=1),
        lambda x: np.maximum.accumulate(x, axis=1),
        lambda x: np.minimum.accumulate(x),
        lambda x: np.subtract.outer(x, x[0]),
        lambda x: np.add.outer([1.0, 2.0], x[0]),
        lambda x: np.dot(x, [1.0, 2.0, 3.0]),
        lambda x: np.take(x, [0, 2], axis=1),
        lambda x: np.concatenate((x[0], [7.0])),
        lambda x: np.roll(x, np.int64(1)),
        lambda x: divmod(x, 0.75),
        lambda x: divmod(7.0, x),
        lambda x: round(x[0, 0] / 3, 2),
        lambda x: x.ravel(order="C"),
        lambda x: x.ravel(b"C".decode()),
        lambda x: x.flatten("F"),
        lambda x: np.ravel(x, order="F"),
        lambda x: x.ravel(order="f") + x.flatten("c"),
        lambda x: np.reshape(x, (3, -1), "F"),
        lambda x: x.reshape(3, 2, order="F"),
        lambda x: np.unravel_index(np.argmax(x), (2, 3), "F"),
        lambda x: np.ravel_multi_index((np.argmax(x) % 2, 1), (2, 3), order="F"),
        lambda x: np.copy(x, order="K").ravel(),
        lambda x: x.astype("f4", order="C", casting="same_kind"),
        lambda x: np.zeros_like(x, order="A", subok=False),
        lambda x: x[0].ravel("K"),
    ],
)
def test_the_same_numbers(f: Any) -> None:
    for got, expected in zip(*(v if type(v) is tuple else (v,) for v in (uopc.jit(f)(X), f(X)))):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize("f", [np.add.reduce, np.add.accumulate, np.multiply.reduce])
def test_narrow_integers_add_up_in_64_bits(f: Any) -> None:
    got = uopc.jit(lambda x: f(x))(NARROW)
    assert got.dtype == f(NARROW).dtype and got.tolist() == f(NARROW).tolist()


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x, k: np.arctan2.at(x, [0], 1.0), "have updates"),
        (lambda x, k: np.add.reduce(x, initial=3.0), "initial"),
        (lambda x, k: x.ravel("K"), "write order='C'"),
        (lambda x, k: np.reshape(x, -1, order="A"), "write order='C'"),
        (lambda x, k: x.copy("F"), "leave it out"),
        (lambda x, k: math.sin(x[0, 0]), r"write np\.sin"),
        (lambda x, k: x[k::-1], "a step above 0: flip the slice"),
        (lambda x, k: x.reshape(k, -1), "static_argnames"),
        (lambda x, k: np.roll(x, k), "static_argnames"),
        (lambda x, k: x * 10**-k, r"10\.0 \*\* k"),
        (lambda x, k: x * 2**k, r"10\.0 \*\* k"),
        (lambda x, k: x * k**-1, r"10\.0 \*\* k"),
    ],
)
def test_an_error_says_what_to_write(f: Any, words: str) -> None:
    with pytest.raises(uopc.UserError, match=words):
        uopc.jit(f)(X, 2)


def test_powers_of_python_numbers() -> None:
    powers = uopc.jit(lambda x, k: (x * 10.0**-k, x * k**2, x**k))
    for got, expected in zip(powers(X, 3), (X * 10.0**-3, X * 3**2, X**3)):
        np.testing.assert_allclose(got, expected, rtol=1e-14)


class Noisy:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def call(self, x: Any) -> Any:
        return x + self.rng.normal(size=3)


RNG, OLD = np.random.default_rng(0), np.random.RandomState(0)
CLOSED = (lambda rng: lambda x: x * rng.random(3))(np.random.default_rng(1))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + np.random.normal(size=3),
        lambda x: x + RNG.normal(size=3),
        lambda x: x + OLD.normal(size=3),
        lambda x: x * random.random(),
        CLOSED,
        Noisy().call,
    ],
)
def test_random_numbers_that_every_call_would_have(f: Any) -> None:
    with pytest.raises(uopc.UserError, match="draws random numbers"):
        uopc.jit(f)(X)


def test_a_static_generator() -> None:
    f = uopc.jit(lambda x, rng: x + rng.normal(size=3), static_argnames="rng")
    with pytest.raises(uopc.UserError, match="draws random numbers"):
        f(X, np.random.default_rng(0))


def test_a_generator_of_its_own_gives_the_same_numbers_in_numpy_too() -> None:
    def f(x: Any) -> Any:
        return x + np.random.default_rng(3).normal(size=3)

    np.testing.assert_array_equal(uopc.jit(f)(X), f(X))


def test_a_line_of_functools_is_no_users() -> None:
    names: dict[str, Any] = {"__name__": "uopc.inner", "functools": functools}
    lines = "class Held:", " @functools.cached_property", " def value(self): return self.x + 1"
    exec("\n".join(lines), names)
    held = names["Held"]()
    held.x = uopc.param("x", (3,))
    assert held.value.origin[0].co_filename == __file__


# ---------------------------------------------------------------- quotients and remainders
@pytest.mark.parametrize("t", ["f2", "f4", "f8"])
def test_quotients_and_remainders_of_special_values_fit(t: str) -> None:
    values = np.array([0.0, -0.0, 1, -1, 0.3, -7.5, 6e4, np.inf, -np.inf, np.nan], t)
    a, b = (v.ravel() for v in np.meshgrid(values, values))

    def f(a: Any, b: Any) -> Any:
        return a // b, np.floor_divide(a, b), *divmod(a, b), *np.divmod(a, b), np.fmod(a, b), a % b

    with np.errstate(all="ignore"):
        wanted = f(a, b)
    for got, want in zip(uopc.jit(f)(a, b), wanted):
        np.testing.assert_array_equal(got, want)
        there = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


# ---------------------------------------------------------------- masks that are known
MASK = np.array([True, False, True])


@pytest.mark.parametrize(
    "key",
    [
        MASK, MASK.tolist(), (slice(None), np.array([False, True])), (MASK, 1), (MASK, [0, 1]),
        (MASK, slice(None, None, -1)), (None, MASK, ..., None), (..., ~MASK[:2]),
        np.array([[True, False], [False, False], [True, True]]), MASK & False,
    ],
)  # fmt: skip
def test_a_mask_that_is_known_is_an_index(key: Any) -> None:
    x = np.arange(6.0).reshape(3, 2)
    part = x[key]
    v = np.arange(10.0, 10 + part.size).reshape(part.shape)
    written, added = x.copy(), x.copy()
    written[key], added[key] = v, added[key] + 1

    def f(x: Any, v: Any) -> Any:
        return x[key], x.at[key].set(v), x.at[key].add(1.0)

    for got, want in zip(uopc.jit(f)(x, v), (part, written, added)):
        np.testing.assert_array_equal(got, want)


def test_a_lazy_mask_is_known_if_it_hangs_on_no_argument() -> None:
    x = unp.asarray([3.0, 1.0, 2.0])
    assert np.asarray(x[x > 1]).tolist() == [3, 2]
    of_call = uopc.jit(lambda y: unp.asarray([1, 2])[y > 0])
    assert of_call(np.array([0.0, 1.0])).tolist() == [2]
    with pytest.raises(IndexError, match="a mask of 2 elements for axis 0 of size 3"):
        x[np.array([True, False])]


# ---------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    "value",
    [np.float32, np.ndarray, float, uopc.dtypes.float32, np.dtype("f4"), "float32", b"a"],
)
def test_what_is_no_array_is_named(value: Any) -> None:
    f = uopc.jit(lambda x, t: x + 1)
    f(np.ones(1, "u1"), np.ones(1, "u1"))
    for given in (value, [value], {"t": value}):
        with pytest.raises(uopc.UserError, match=r"argument t(\.\w+)? must be an array, got"):
            f(np.ones(1, "u1"), given)
    cast = uopc.jit(lambda x, t: x.astype(t), static_argnames="t")
    if value is not np.ndarray and type(value) is not bytes:
        assert cast(np.ones(2, "i1"), value).dtype.kind == "f"


def test_a_list_of_numbers_is_named_where_it_is_taken_for_an_array() -> None:
    for f, given, words in (
        (lambda x: np.sum(x), [1.0, 2.0], r"x is a list of 2, .* pass np\.array\(x\)"),
        (lambda x: np.mean(x["a"]), {"a": (1, 2, 3)}, r"x\.a is a tuple of 3"),
    ):
        with pytest.raises(uopc.UserError, match=words):
            uopc.jit(f)(given)
    assert float(uopc.jit(lambda x: sum(x))([1.0, 2.0])) == 3


# ---------------------------------------------------------------- statistics
def same_statistics(calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]], x: Any) -> None:
    """Functions of NumPy, by name, with these other arguments: their dtypes, shapes and numbers."""

    def f(x: Any) -> Any:
        return [getattr(np, name)(x, *args, **options) for name, args, options in calls]

    with np.errstate(all="ignore"):
        wanted = [np.asarray(v) for v in f(x)]
    for call, got, want in zip(calls, uopc.jit(f)(x), wanted):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), call
        rtol = 1e-3 if want.dtype == "f2" else 2e-6
        np.testing.assert_allclose(got, want, rtol=rtol, err_msg=str(call))


SHARES = (0.25, 1, np.float32(0.25), [0.25, 0.75], [0, 1], np.array([0.5], "f2"), np.array(1))


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("t", ["f2", "f4", "f8", "i1", "i8", "u4"])
@pytest.mark.few(2)
def test_dtypes_of_quantiles(method: str, t: str) -> None:
    x = np.array([5, 1, 7, 2, 2, 9, 4]).astype(t)
    names = ("quantile", "nanpercentile")
    same_statistics([(n, (q,), {"method": method}) for n in names for q in SHARES], x)
    got = uopc.jit(lambda x, q: np.quantile(x, q, method=method))(x, 0.25)
    assert got.dtype == np.quantile(x, 0.25, method=method).dtype


@pytest.mark.parametrize("q", [1, [0, 1], np.array(0)])
def test_a_quantile_of_bools_by_an_integer_is_a_bool(q: Any) -> None:
    calls = [(name, (q,), {"axis": 1}) for name in ("quantile", "nanquantile")]
    same_statistics(calls, np.array([[True, False], [True, True]]))


def test_an_element_of_large_integers_is_exact() -> None:
    x = np.array([2**60 + 1, 2**60 + 3, 2**60 + 5])
    assert uopc.jit(lambda x: np.quantile(x, 0.5, method="lower"))(x) == 2**60 + 3


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("t", ["f4", "f8", "i2", "?"])
@pytest.mark.few(2)
def test_options_of_statistics(t: str, keep: bool) -> None:
    x = np.array([[3, 0, 5, 1], [1, 7, 0, 2]]).astype(t)
    if t[0] == "f":
        x[0, 1] = np.nan
    mask = np.array([[True, True, True, False], [True, False, True, True]])
    how: dict[str, Any] = {"axis": 1, "keepdims": keep, "where": mask}
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    for prefix in ("", "nan"):
        for name in ("mean", "var", "std"):
            calls += [(prefix + name, (), how), (prefix + name, (), {"dtype": np.float64})]
        calls += [(prefix + name, (), how | {"ddof": 1}) for name in ("var", "std")]
        more = how | {"dtype": "f8", "initial": 3}
        calls += [(prefix + name, (), more) for name in ("sum", "prod")]
        calls += [(prefix + name, (), how | {"initial": 1}) for name in ("max", "min")]
    axis = {"axis": 0, "keepdims": keep}
    same_statistics(calls, x)
    same_statistics([(n, (), axis) for n in ("median", "nanmedian", "nanargmax", "nanargmin")], x)


def test_other_libraries_call_the_namespace_with_options_of_numpy() -> None:
    x = unp.asarray([1.0, np.nan, 3.0])
    assert float(unp.nanmean(x, axis=0, dtype=unp.float64)) == 2
    assert float(unp.nanvar(x, axis=0, ddof=1)) == float(unp.nanvar(x, correction=1)) == 2
    assert float(unp.nanstd(x, dtype=None)) == 1
