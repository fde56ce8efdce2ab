"""sort, argsort, top_k and searchsorted against NumPy: dtypes, lengths, axes, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc import UOp, dtypes
from uopc.ir.interpret.interpreter import evaluate

Array = Any
FLOATS = ["float16", "bfloat16", "float32", "float64", "fp8e4m3", "fp8e5m2"]
INTS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]
TYPES = ["bool_", *INTS, *FLOATS]
LENGTHS = [0, 1, 2, 13, 64, 65, 257, 1000]


def numbers(t: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Values with many repetitions, and all special ones."""
    rng, dtype = np.random.default_rng(seed), getattr(dtypes, t)
    if dtype.is_float:
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-8, 448, 3])
        some = rng.standard_normal(shape) * 100
        with np.errstate(all="ignore"):
            return np.where(rng.random(shape) < 0.4, rng.choice(special, shape), some).astype(
                dtype.numpy
            )
    low, high = dtype.bounds
    near = rng.integers(max(low, -5), min(high, 5), shape, dtype=np.int64, endpoint=True)
    if dtype.kind == "bool":
        return near.astype(bool)
    far = rng.integers(low, high, shape, dtype=dtype.numpy, endpoint=True)
    return np.where(rng.random(shape) < 0.4, near.astype(dtype.numpy), far)


def plain(a: Array) -> Array:
    """Floats in a dtype that NumPy orders."""
    return a if a.dtype.isbuiltin == 1 else a.astype("f4")


def places(a: Array, axis: int, descending: bool) -> Array:
    """The stable order; NaN is the greatest number, whatever its bits."""
    a = plain(a)
    if not descending:
        return np.argsort(a, axis, kind="stable")
    n = a.shape[axis]
    mirrored = np.argsort(np.flip(a, axis), axis, kind="stable")
    return n - 1 - np.flip(mirrored, axis)


def runs(value: Any, *arrays: Array) -> list[Any]:
    """The value, or several, compiled in two ways, and interpreted; the params are x and y."""
    found, named = [], dict(zip("xy", arrays))
    for optimize in (True, False):
        f = uopc.compile(value, optimize=optimize, verify=True)
        found.append(f(**{p.name: named[p.name] for p in f.inputs}))
    if arrays[0].size < 300:  # the interpreter takes a millisecond for each step of a loop
        found.append(evaluate(value, named))
    return found


def check(a: Array, dtype: Any, axis: int, descending: bool) -> None:
    x = uopc.param("x", a.shape, dtype)
    wanted = places(a, axis, descending)
    ordered = np.take_along_axis(a, wanted, axis)
    both = x.argsort(axis, descending), x.sort(axis, descending)
    for found, values in zip(*[runs(v, a) for v in both], strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)
        assert values.tobytes() == ordered.tobytes()  # also -0.0 and NaN as they came


QUICK = {("bool_", True), ("int8", False), ("uint16", True), ("float32", False), ("int32", True)}


@pytest.mark.parametrize("t, descending", [
    pytest.param(t, d, marks=() if (t, d) in QUICK else pytest.mark.slow)
    for t in TYPES for d in (False, True)
])  # fmt: skip
@pytest.mark.few(2)
def test_every_dtype(t: str, descending: bool) -> None:
    for shape, axis in (((40,), 0), ((2, 70), -1), ((2, 300), -1)):
        check(numbers(t, shape), getattr(dtypes, t), axis, descending)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.few(3)
def test_every_length(n: int) -> None:
    check(numbers("float32", (n,)), dtypes.float32, 0, n % 2 == 0)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 70, 2), (2, 9, 80), (70, 0, 2), (0, 70, 2)])
@pytest.mark.few(2)
def test_every_axis(shape: tuple[int, ...], axis: int) -> None:
    check(numbers("int32", shape), dtypes.int32, axis, False)


def check_rows(x: UOp, a: Array, descending: bool) -> None:
    """Rows that a network sorts, by one compiled program."""
    order = places(a, 1, descending)
    ordered = np.take_along_axis(a, order, 1)
    k = min(3, a.shape[1])
    best = places(a, 1, True)[:, :k]
    top = x.top_k(k, 1)
    program = uopc.compile((x.sort(1, descending), x.argsort(1, descending), *top))
    values, found, most, where = program(a)
    assert values.tobytes() == ordered.tobytes()  # also -0.0 and NaN as they came
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(where, best)
    assert most.tobytes() == np.take_along_axis(a, best, 1).tobytes()


@pytest.mark.parametrize("t, descending", [
    pytest.param(t, d, marks=() if (t, d) == ("float32", True) else pytest.mark.slow)
    for t in TYPES for d in (False, True)
])  # fmt: skip
def test_many_rows_of_every_dtype(t: str, descending: bool) -> None:
    a = numbers(t, (70, 40))
    check_rows(uopc.param("x", a.shape, getattr(dtypes, t)), a, descending)


@pytest.mark.slow
@pytest.mark.parametrize("n, t", [
    *[(n, "float32") for n in (2, 3, 7, 15, 16, 17, 31, 32, 33, 65, 100, 513, 1000)],
    *[(n, t) for n in (3, 16, 33, 1000) for t in ("int32", "float64")],
])  # fmt: skip
def test_many_rows_of_every_length(n: int, t: str) -> None:
    a = numbers(t, (37, n))
    check_rows(uopc.param("x", a.shape, getattr(dtypes, t)), a, n % 2 == 0)


@pytest.mark.parametrize("t", ["int16", pytest.param("float64", marks=pytest.mark.slow)])
def test_a_symbolic_number_of_rows(t: str) -> None:
    x = uopc.param("x", (uopc.variable("rows", 0, 100), 40), getattr(dtypes, t))
    f = uopc.compile(x.sort(1))
    assert "network" in str(f.kernels)
    for rows in (0, 1, 37, 100):
        a = numbers(t, (rows, 40))
        ordered = np.take_along_axis(a, places(a, 1, False), 1)
        assert f(a).tobytes() == ordered.tobytes()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(width=32, allow_subnormal=True), min_size=65, max_size=90), st.booleans())
def test_any_floats(numbers: list[float], descending: bool) -> None:
    a = np.resize(np.array(numbers, "f4"), 90)
    wanted = places(a, 0, descending)
    x = uopc.param("x", (90,))
    for value in (x, x[:60].cat(x[60:])):
        np.testing.assert_array_equal(uopc.compile(value.argsort(0, descending))(a), wanted)
    short = places(a[:60], 0, descending)
    np.testing.assert_array_equal(uopc.compile(x[:60].argsort(0, descending))(a), short)


@pytest.mark.parametrize("most", [50, 300])
@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.slow) for n in (1, 50)] + [0, 37])
@pytest.mark.few(2)
def test_a_symbolic_length(n: int, most: int) -> None:
    v = uopc.variable("n", 0, most)
    a = numbers("float32", (3, n))
    x = uopc.param("x", (3, v))
    wanted = places(a, -1, False)
    for value, expected in (
        (x.argsort(), wanted), (x.sort(), np.take_along_axis(a, wanted, -1)),
    ):
        for optimize in (True, False):
            got = uopc.compile(value, optimize=optimize, verify=True)(a)
            assert got.tobytes() == expected.astype(got.dtype).tobytes()
        got = evaluate(value, {"x": a}, {"n": n})
        assert got.tobytes() == expected.astype(got.dtype).tobytes()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n", [50, 300])
@pytest.mark.parametrize("k", [0, 1, 7, 50])
@pytest.mark.few(3)
def test_top_k(n: int, k: int, largest: bool) -> None:
    a = numbers("float32", (2, n))
    wanted = places(a, 1, largest)[:, :k]
    values, found = uopc.param("x", (2, n)).top_k(k, largest=largest)
    for result in runs(values, a):
        assert result.tobytes() == np.take_along_axis(a, wanted, 1).tobytes()
    for result in runs(found, a):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("t", [
    pytest.param(t, marks=() if t in ("uint8", "float32", "int64") else pytest.mark.slow)
    for t in ("bool", "uint8", "int8", "float16", "bfloat16", "float32", "int64", "uint64")
])  # fmt: skip
@pytest.mark.parametrize(("shape", "axis", "k", "first"), [
    ((1000,), 0, 1, True), ((257, 3), 0, 5, False), ((2, 5, 331), -1, 3, True),
    ((70_001,), 0, 32, False),
])  # fmt: skip
@pytest.mark.few(2)
def test_few_of_many(t: str, shape: tuple[int, ...], axis: int, k: int, first: bool) -> None:
    """Of blocks with the greatest elements: equal ones in their order, the least beside padding.
    Each shape is asked for both ends with one dtype; each dtype for both, by the shapes."""
    dtype, n = getattr(dtypes, t), shape[axis]
    for largest in (first, not first)[: 1 + (t == "float32")]:
        graph = uopc.param("x", shape, dtype).top_k(k, axis, largest)
        program = uopc.compile(graph, verify=True)
        for a in (numbers(t, shape, n), np.zeros(shape, dtype.numpy)):
            wanted = places(a, axis, largest).take(range(k), axis)
            values, found = program(a)
            np.testing.assert_array_equal(found, wanted)
            assert values.tobytes() == np.take_along_axis(a, wanted, axis).tobytes()


def test_the_greatest_of_a_product() -> None:
    """Elements are computed once."""
    a, b = (np.random.default_rng(s).normal(size=(40, 40)).astype("f4") for s in (0, 1))
    x, y = uopc.param("x", (40, 40)), uopc.param("y", (40, 40))
    f = uopc.compile((x @ y).flatten().top_k(3))
    np.testing.assert_allclose(f(a, b)[0], np.sort((a @ b).ravel())[:-4:-1], 1e-5)
    assert len([k for k in f.kernels if k.name.endswith("_40")]) == 1


def test_values_and_places_come_from_one_kernel() -> None:
    values, found = uopc.param("x", (1000,)).top_k(1000)
    kernels = [v.kernel.name for v in uopc.compile((values, found)).launches]
    assert len([name for name in kernels if name.startswith("sort")]) == 1


def test_a_sorted_expression_is_used_further() -> None:
    a, b = numbers("float32", (100,), 1), numbers("int32", (100,), 2)
    x, y = uopc.param("x", (100,)), uopc.param("y", (100,), dtypes.int32)
    a = np.where(np.isnan(a), 1, a)
    value = (x * 2).sort() + y.sort() + (x * 2).sort().sum()
    twice = np.sort(a.astype("f4") * 2)
    for result in runs(value, a.astype("f4"), b):
        assert result.shape == (100,)
    again = uopc.compile(x.sort().sort())(a.astype("f4"))
    np.testing.assert_array_equal(again * 2, twice)


@pytest.mark.parametrize("t", ["bool_", "uint64", "float32", *[
    pytest.param(t, marks=pytest.mark.slow) for t in ("int8", "int64", "float16", "float64")
]])  # fmt: skip
@pytest.mark.few(2)
def test_searchsorted(t: str) -> None:
    for n in LENGTHS:
        a, v = np.sort(numbers(t, (n,))), numbers(t, (4, 9), 1)
        x, y = (uopc.param(name, w.shape, getattr(dtypes, t)) for name, w in (("x", a), ("y", v)))
        for results in runs((x.searchsorted(y), x.searchsorted(y, "right")), a, v):
            for result, side in zip(results, ("left", "right"), strict=True):
                assert result.dtype == np.int32
                np.testing.assert_array_equal(result, np.searchsorted(a, v, side))


def test_searchsorted_by_a_sorter() -> None:
    a, v = numbers("float32", (100,)), numbers("float32", (50,), 1)
    x, y = uopc.param("x", (100,)), uopc.param("y", (50,))
    for result in runs(x.searchsorted(y, sorter=x.argsort()), a, v):
        np.testing.assert_array_equal(result, np.searchsorted(np.sort(a), v))
    assert uopc.compile(x.sort().searchsorted(3))(a) == np.searchsorted(np.sort(a), 3)


@pytest.mark.parametrize("most", [1, 60])
def test_searchsorted_in_a_symbolic_length(most: int) -> None:
    x, y = uopc.param("x", (uopc.variable("n", 0, most),)), uopc.param("y", (20,))
    v = numbers("float32", (20,))
    f = uopc.compile(x.searchsorted(y, "right"), verify=True)
    for n in (0, 1, most):
        a = np.sort(numbers("float32", (n,), 1))
        np.testing.assert_array_equal(f(a, v), np.searchsorted(a, v, "right"))


def test_wrong_use_is_an_error() -> None:
    x, scalar = uopc.param("x", (4, 5)), uopc.param("s")
    wrong = {
        "sort: a scalar has no axis": scalar.sort,
        "argsort: .*axis": lambda: x.argsort(2),
        "descending": lambda: x.sort(descending="no"),
        "stable": lambda: x.argsort(stable=2),
        "top_k: k must be at most the length of axis 1": lambda: x.top_k(6),
        "top_k: k must be an int, got 2.0": lambda: x.top_k(2.0),
        "top_k: largest must be True or False": lambda: x.top_k(2, largest=0),
        "side must be left or right, got 'up'": lambda: x[0].searchsorted(1, "up"),
        r"needs a vector to search in, got \(4, 5\)": lambda: x.searchsorted(1),
        "sorter": lambda: x[0].searchsorted(1, sorter=x[1]),
        "sorter must have": lambda: x[0].searchsorted(1, sorter=x.argsort()),
    }
    for message, call in wrong.items():
        with pytest.raises(uopc.Error, match=message):
            call()
