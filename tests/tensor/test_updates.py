"""`a.at[key]`: updates of elements against NumPy's assignment and ufunc.at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uopc
import uopc.numpy as unp
from uopc import dtypes

UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
I = np.array  # noqa: E741
KEYS: dict[str, tuple[Any, Any]] = {  # name -> shape, key
    "int": ((5,), 2), "negative int": ((5, 3), -1), "slice": ((5,), np.s_[1:4]),
    "all": ((2, 3), np.s_[:]), "ellipsis": ((2, 3), ...), "empty slice": ((5,), np.s_[3:1]),
    "steps": ((7, 5), np.s_[1::2, ::3]), "backwards": ((7, 5), np.s_[::-1, 4:0:-2]),
    "new axis": ((4, 5), np.s_[None, 1:3, None, 2]), "ints": ((4, 5), (1, 2)),
    "scalar": ((), ()), "no elements": ((0, 3), np.s_[:, 1]), "behind": ((2, 3, 4), np.s_[..., 1]),
    "array": ((5,), I([3, 0, 4])), "again": ((5,), I([1, 1, 1, 3, 1])), "ends": ((5,), I([-1, 0])),
    "rows": ((4, 3), I([2, 2, 0])), "columns": ((3, 4), np.s_[:, [1, 3, 1]]),
    "both": ((4, 5), (I([0, 0, 3]), I([1, 1, 2]))), "grid": ((4, 5), (I([[0], [3]]), I([[1, 4]]))),
    "int and array": ((3, 4, 5), np.s_[1, :, [0, 2, 0]]), "part": ((6, 4), np.s_[1:5:2, [3, 1, 3]]),
    "block": ((5, 6), I([[0, 1], [1, 4]])), "no updates": ((4,), I([], dtype=int)),
    "apart": ((3, 4, 5), np.s_[[1, 2, 1], :, [0, 2, 0]]),
}  # fmt: skip


def expected(how: str, x: Any, key: Any, value: Any) -> Any:
    out = x.copy()
    if how == "set":
        out[key] = value
    else:
        UFUNCS[how].at(out, key, value)
    return out


@pytest.mark.parametrize("how", ["set", *UFUNCS])
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.few(10)
def test_keys(name: str, how: str) -> None:
    shape, key = KEYS[name]
    rng = np.random.default_rng(3)
    x = rng.integers(1, 9, shape).astype(np.float64)
    p = uopc.param("x", shape, dtypes.float64)
    for value in (rng.integers(2, 6, x[key].shape).astype(np.float64), 7.0):
        want = expected(how, x, key, value)
        for options in ({}, {"optimize": False}):
            got = uopc.compile(getattr(p.at[key], how)(value), inputs=[p], **options)(x)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("t", [t for t in dtypes.ARRAY_TYPES if t.name[:2] != "fp"])
def test_dtypes(t: Any) -> None:
    x, v = np.arange(1, 7).astype(t.numpy), np.arange(2, 5).astype(t.numpy)
    key = np.array([1, 4, 1])
    p = uopc.param("x", (6,), t)
    for how in ("set", *UFUNCS):
        want = x.copy()
        for k, n in zip(key, v):
            want[k] = n if how == "set" else UFUNCS[how](want[k], n)
        got = uopc.compile(getattr(p.at[key], how)(v))(x)
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


@given(st.data())
def test_random_keys(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    key = []
    for n in shape[: data.draw(st.integers(1, len(shape)))]:
        ends = st.none() | st.integers(-5, 5)
        slices = st.builds(slice, ends, ends, st.none() | st.sampled_from([1, 2, -1, -3]))
        arrays = st.lists(st.integers(-n, n - 1), max_size=3).map(lambda v: I(v, dtype=int))
        kinds = [slices, arrays.filter(lambda v: len(v) == 2), st.integers(-n, n - 1)] if n else [
            slices]  # fmt: skip
        key.append(data.draw(st.one_of(kinds)))
    how = data.draw(st.sampled_from(["set", *UFUNCS]))
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    p = uopc.param("x", tuple(shape), dtypes.float64)
    value = np.arange(2.0, 2 + x[tuple(key)].size).reshape(x[tuple(key)].shape)
    made = getattr(p.at[tuple(key)], how)(value)
    got = uopc.compile(made, inputs=[p], optimize=False)(x)
    np.testing.assert_array_equal(got, expected(how, x, tuple(key), value))


def test_indices_from_data() -> None:
    """Those out of range update nothing."""
    x, i = uopc.param("x", (5,)), uopc.param("i", (4,), dtypes.int32)
    f = uopc.compile(x.at[i].add(1))
    a = np.zeros(5, "f4")
    np.testing.assert_array_equal(f(a, np.int32([0, 7, -1, -9])), [1, 0, 0, 0, 1])
    g = uopc.compile(x.at[i].set(np.float32([1, 2, 3, 4])))
    np.testing.assert_array_equal(g(a, np.int32([2, 2, 9, 2])), [0, 0, 4, 0, 0])


SCALARS: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda i, j: i, "part of a row": lambda i, j: (i, np.s_[1:3]),
    "column": lambda i, j: (np.s_[:], i), "with a number": lambda i, j: (np.s_[:], i, 2),
    "two": lambda i, j: (i, j), "two apart": lambda i, j: (i, 1, j), "last": lambda i, j: (..., j),
    "new axes": lambda i, j: (None, i, None, j), "beside an array": lambda i, j: (i, I([0, 2])),
}  # fmt: skip


@pytest.mark.parametrize(
    "how", ["set", "add", *[pytest.param(h, marks=pytest.mark.slow) for h in UFUNCS if h != "add"]]
)
@pytest.mark.parametrize("name", SCALARS)
def test_scalar_indices_from_data(name: str, how: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((4, 5, 3))
    f = uopc.jit(lambda x, v, i, j: getattr(x.at[SCALARS[name](i, j)], how)(v))
    for i, j in ((1, 2), (-1, 0), (2, -3)):
        key = SCALARS[name](i, j)
        for value in (0.5, rng.random(x[key].shape)):
            np.testing.assert_array_equal(f(x, value, i, j), expected(how, x, key, value))


def test_a_scalar_index_out_of_range_updates_nothing() -> None:
    x = np.arange(12.0).reshape(4, 3)
    f = uopc.jit(lambda x, i: x.at[i].set(9))
    for i in (4, -5, 1 << 40):
        np.testing.assert_array_equal(f(x, i), x)


def test_a_whole_array_of_which_a_part_is_written_in_place() -> None:
    """The time of a write is that of the part, and the result is the caller's memory."""
    at = uopc.variable("at", 0, 999)
    x, row = uopc.param("x", (1000, 8)), uopc.param("row", (8,))
    whole = x.after(x[at : at + 1].assign(row.reshape(1, 8)))
    program = uopc.compile(whole[at] * 2, inputs=[x, row])
    assert [k.name for k in program.kernels] == ["E_8", "E_8n1"]
    memory = np.zeros((1000, 8), "f4")
    for i in (0, 7, 999):
        np.testing.assert_array_equal(program(memory, np.full(8, i, "f4"), at=i), [2 * i] * 8)
        assert (memory[i] == i).all()


def test_masks() -> None:
    x = uopc.param("x", (2, 3))
    a = np.float32([[1, -2, 3], [-4, 5, -6]])
    np.testing.assert_array_equal(uopc.compile(x.at[x < 0].set(0))(a), np.maximum(a, 0))
    np.testing.assert_array_equal(uopc.compile(x.at[a > 0].mul(2))(a), np.where(a > 0, a * 2, a))
    with pytest.raises(uopc.UserError, match="must have the shape"):
        x.at[uopc.param("m", (2,), uopc.dtypes.bool_)].set(1)
    with pytest.raises(IndexError, match="a mask of 3 elements for axis 0 of size 2"):
        x.at[np.array([True, False, True])].set(1)


def test_symbolic_sizes() -> None:
    n = uopc.variable("n", 1, 9)
    x = uopc.param("x", (n, 3))
    f = uopc.compile((x.at[0].set(7), x.at[:, 1].add(1)))
    for size in (1, 2, 9):
        a = np.ones((size, 3), "f4")
        first, second = f(a)
        np.testing.assert_array_equal(first, expected("set", a, 0, 7))
        np.testing.assert_array_equal(second, expected("add", a, np.s_[:, 1], 1))


@pytest.mark.parametrize("low, high", [(0, 1), (0, 0), (1, 1), (0, 2)])
@pytest.mark.parametrize("how", ["set", "add", "max"])
def test_an_axis_that_may_be_empty(how: str, low: int, high: int) -> None:
    n = uopc.variable("n", low, high)
    x = uopc.param("x", (n, 2))
    keys: list[Callable[[Any], Any]] = [
        lambda n: np.s_[-1], lambda n: I([0, -1]), lambda n: n - 1, lambda n: np.s_[n // 2, 1:],
    ]  # fmt: skip
    f = uopc.compile(tuple([getattr(x.at[key(n)], how)(5) for key in keys]))
    for size in range(low, high + 1):
        a = np.arange(2.0 * size, dtype="f4").reshape(size, 2)
        for key, got in zip(keys, f(a)):
            want = expected(how, a, key(size), 5) if size else a
            np.testing.assert_array_equal(got, want)


def test_arrays_of_jit_and_of_the_namespace() -> None:
    x = np.arange(6.0).reshape(2, 3)
    f = uopc.jit(lambda x, i, v: x.at[i, 1:].add(v).at[0, 0].set(9))
    want = expected("set", expected("add", x, np.s_[[1, 1], 1:], 2.0), (0, 0), 9)
    np.testing.assert_array_equal(f(x, np.array([1, 1]), 2.0), want)
    assert unp.zeros(3).at[unp.asarray(1)].set(5).tolist() == [0, 5, 0]
    assert unp.zeros(3, dtype="i2").at[1].set(5).dtype is dtypes.int16


@pytest.mark.parametrize("wrong", [
    lambda x: x.at[0, 0, 0].set(1), lambda x: x.at[9].set(1), lambda x: x.at["a"].set(1),
    lambda x: x.at[0].set(np.ones(2)), lambda x: x.at[0].set("a"), lambda x: x.at[[0, 1]].set(
        np.ones((3, 3))), lambda x: x.at[1.5].set(1),
])  # fmt: skip
def test_bad_updates(wrong: Any) -> None:
    for x in (uopc.param("x", (2, 3)), unp.zeros((2, 3))):
        with pytest.raises(uopc.UserError):
            wrong(x)


def test_assignment_is_refused_with_the_way_out() -> None:
    x = uopc.param("x", (3,))
    with pytest.raises(uopc.UserError, match=r"x = x\.at\[i\]\.set\(v\)"):
        x[0] = 1
