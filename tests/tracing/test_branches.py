"""`cond` and `select`: choices by values that are not known while a function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp

A = np.array([1.0, -3.0, 2.0])


def test_cond_chooses_each_value_of_a_container() -> None:
    def both(x: Any, y: Any) -> Any:
        return uopc.cond(
            x.sum() > 0,
            lambda x, y: {"a": x + y, "b": [x.sum(), 1]},
            lambda x, y: {"a": x - y, "b": [y.sum(), 2]},
            x, y,
        )  # fmt: skip

    jitted = uopc.jit(both)
    for x in (A, -A, A * np.nan):
        y = np.arange(3.0)
        got = jitted(x, y)
        positive = x.sum() > 0
        np.testing.assert_array_equal(got["a"], x + y if positive else x - y)
        np.testing.assert_array_equal(got["b"][0], x.sum() if positive else 3.0)
        assert int(got["b"][1]) == (1 if positive else 2)


def test_cond_of_graphs() -> None:
    x = uopc.param("x", (3,))
    graph = uopc.cond((x.sum() > 0), lambda: x, lambda: -x)
    assert isinstance(graph, uopc.UOp)
    program = uopc.compile(graph)
    for a in (A.astype("f4"), np.ones(3, "f4")):
        np.testing.assert_array_equal(program(a), a if a.sum() > 0 else -a)


@pytest.mark.parametrize("known", (True, False, np.bool_(True)))
def test_one_function_is_called_for_a_known_bool(known: Any) -> None:
    called = []
    uopc.cond(known, lambda: called.append(True), lambda: called.append(False))
    assert called == [bool(known)]


def test_cond_refuses() -> None:
    x = uopc.param("x", (3,))
    one = x.sum() > 0
    for condition in (x > 0, x.sum(), 1, None, "yes"):
        with pytest.raises((uopc.UserError, TypeError), match="cond"):
            uopc.cond(condition, lambda: x, lambda: x)
    with pytest.raises(uopc.UserError, match="the same containers"):
        uopc.cond(one, lambda: (x, x), lambda: x)
    with pytest.raises(uopc.UserError, match=r"float32\(3\) and float32\(\) at the result"):
        uopc.cond(one, lambda: x, lambda: x.sum())
    with pytest.raises(uopc.UserError, match=r"float32\(3\) and float64\(3\) at \.a"):
        uopc.cond(one, lambda: {"a": x}, lambda: {"a": x.cast(uopc.dtypes.float64)})


@pytest.mark.parametrize("default", (0, 7.5, A))
def test_select(default: Any) -> None:
    def chosen(xp: Any, x: Any) -> Any:
        return xp.select([x < -2, x < 1.5], [x * 10, x + 0.5], default)

    np.testing.assert_array_equal(uopc.jit(lambda x: chosen(unp, x))(A), chosen(np, A))
    np.testing.assert_array_equal(uopc.jit(lambda x: chosen(np, x))(A), chosen(np, A))


def test_select_promotes_as_numpy_does() -> None:
    i = np.arange(4, dtype="i4")
    for choices in ([i, i * 0.5], [i, i.astype("u1")], [i > 1, i > 2]):
        want = np.select([i > 2, i > 1], choices)
        got = np.asarray(unp.select([unp.asarray(i) > 2, unp.asarray(i) > 1], choices))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_select_refuses() -> None:
    x = uopc.param("x", (3,))
    with pytest.raises(uopc.UserError, match="as many choices as conditions, got 1 and 2"):
        unp.select([x > 0], [x, x])
    with pytest.raises(uopc.UserError, match="got 0 and 0"):
        unp.select([], [])
    with pytest.raises(TypeError, match="must be bool, got float32"):
        unp.select([x], [x])
    with pytest.raises(TypeError, match="select"):
        unp.select([x == 0], [9], x)


@pytest.mark.parametrize("call", (
    lambda x: uopc.cond(True, 1, 2, x), lambda x: uopc.cond(x.sum() > 0, len, 2, x),
    lambda x: uopc.switch(0, [2], x),
))  # fmt: skip
def test_a_branch_that_is_no_function_is_refused(call) -> None:
    with pytest.raises(uopc.errors.UserTypeError, match=r"expected functions, got [12]"):
        call(uopc.param("x", (3,)))
