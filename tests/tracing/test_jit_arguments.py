"""`uopc.jit`: the kinds of arguments, containers, static and donated ones, and which are equal."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import uopc
import uopc.numpy as unp
from tests.tracing.test_jit import Matrix, Pair, Point, State, X, Y


# ---------------------------------------------------------------- containers
def test_containers_of_every_kind() -> None:
    def f(state: Any) -> Any:
        return {
            "list": [state["pair"].first, (state["point"].x + state["point"].y,)],
            "none": None,
            "state": State(state["state"].position + state["state"].speed, state["state"].speed),
            "point": Point(state["matrix"].data, state["ordered"]["b"]),
            "matrix": Matrix(state["matrix"].data * 2, "made"),
            "pair": Pair(state["pair"].second, 1.0),
            "ordered": OrderedDict(z=state["ordered"]["a"]),
        }

    given = {
        "pair": Pair(X, Y), "point": Point(X, 2.0), "matrix": Matrix(X, "given"),
        "state": State(X, Y), "ordered": OrderedDict(b=X + 5, a=Y), "none": None, "empty": [],
    }  # fmt: skip
    got, want = uopc.jit(f)(given), f(given)
    assert list(got) == list(want) and got["none"] is None
    np.testing.assert_array_equal(got["list"][0], X)
    np.testing.assert_array_equal(got["list"][1][0], X + 2)
    assert type(got["point"]) is Point and type(got["ordered"]) is OrderedDict
    np.testing.assert_array_equal(got["point"].y, X + 5)
    np.testing.assert_array_equal(got["state"].position, X + Y)
    assert got["matrix"].label == "made" and got["pair"] is not None
    np.testing.assert_array_equal(got["matrix"].data, X * 2)
    assert got["pair"].second == 1.0


def test_the_rest_of_a_registered_class_is_part_of_the_kind() -> None:
    f = uopc.jit(lambda m: m.data * len(m.label))
    np.testing.assert_array_equal(f(Matrix(X, "a")), X)
    np.testing.assert_array_equal(f(Matrix(X, "abc")), 3 * X)
    assert f.cache_info().programs == 2


def test_results_without_arrays() -> None:
    assert uopc.jit(lambda x: None)(X) is None
    assert uopc.jit(lambda x: ())(X) == ()
    assert uopc.jit(lambda x: {"a": []})(X) == {"a": []}
    made = uopc.jit(lambda x: (3, np.arange(2), x))(X)
    assert made[0] == 3 and made[1].tolist() == [0, 1]


def test_no_arguments_and_unused_ones() -> None:
    assert uopc.jit(lambda: unp.arange(3) * 2)().tolist() == [0, 2, 4]
    assert uopc.jit(lambda x, unused: x)(X, Y).tolist() == X.tolist()


def test_a_container_in_itself() -> None:
    loop: list[Any] = [X]
    loop.append(loop)
    with pytest.raises(uopc.UserError, match=r"nested too deeply, or contains itself"):
        uopc.jit(lambda v: v[0])(loop)


def test_names_of_arguments_that_meet() -> None:
    f = uopc.jit(lambda a, a_b, out, **k: a["b"] - a_b * out + k["in"])
    np.testing.assert_array_equal(f({"b": X}, Y, 2.0, **{"in": X}), X - Y * 2 + X)


# ---------------------------------------------------------------- static and donated arguments
def test_static_arguments_are_part_of_the_program() -> None:
    @uopc.jit(static_argnames=("axis", "mode"))
    def f(x: Any, axis: Any = None, mode: str = "sum") -> Any:
        return x.sum(axis) if mode == "sum" else x.max(axis)

    x = np.arange(6.0).reshape(2, 3)
    assert f(x) == 15 and f(x, mode="max") == 5
    np.testing.assert_array_equal(f(x, 0), x.sum(0))
    np.testing.assert_array_equal(f(x, axis=1, mode="max"), x.max(1))
    assert f.cache_info().programs == 4
    f(x, 1)
    assert uopc.jit(lambda x, n: x * n, static_argnames="n")(X, 1).dtype == np.float64
    one, true = (uopc.jit(lambda n: unp.asarray(n), static_argnames="n")(n) for n in (1, True))
    assert one.dtype == np.int64 and true.dtype == np.bool_
    with pytest.raises(uopc.UserError, match=r"static argument 'axis' must be hashable, got list"):
        f(x, [0])


def test_static_values_that_are_equal_and_of_other_types_differ() -> None:
    f = uopc.jit(lambda n: unp.asarray(n), static_argnames="n")
    assert [f(n).dtype for n in (1, 1.0, True)] == [np.int64, np.float64, np.bool_]


def test_donated_memory_is_taken() -> None:
    @uopc.jit(donate_argnames="state")
    def f(state: Any, x: Any) -> Any:
        return state + x, (state * x).sum()

    state = X.copy()
    new, total = f(state, Y)
    assert new is state or np.shares_memory(new, state)
    np.testing.assert_array_equal(state, X + Y)
    assert total == (X * Y).sum()
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(uopc.UserError, match="read-only"):
        f(fixed, Y)


def test_a_donated_argument_without_a_result_of_its_kind_is_left_alone() -> None:
    f = uopc.jit(lambda a, b: (a + b).sum(), donate_argnames=["a", "b"])
    x = X.copy()
    assert f(x, Y) == (X + Y).sum()
    np.testing.assert_array_equal(x, X)


# ---------------------------------------------------------------- frozen dataclasses as statics
@dataclasses.dataclass(frozen=True)
class Settings:
    scale: Any
    name: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Loose:
    """All with a sign are equal; its field may be a list."""

    values: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose)

    def __hash__(self) -> int:
        return 7


@pytest.mark.parametrize("values", [(0.0, -0.0), (1, 1.0, True), ((1,), (True,)), (2.0, 2)])
def test_fields_of_static_dataclasses_are_told_apart(values: tuple[Any, ...]) -> None:
    seen: list[Any] = []
    f = uopc.jit(lambda x, s: (seen.append(s.scale), x)[1], static_argnames="s")
    for _ in range(2):
        for value in values:
            f(X, Settings(value))
            f(X, Settings(value, name="another"))  # which does not count
    assert list(map(repr, seen)) == list(map(repr, values))


def test_static_dataclasses_in_others_and_with_their_own_hash() -> None:
    f = uopc.jit(lambda x, s: x / s.scale.scale, static_argnames="s")
    assert f(X, Settings(Settings(0.0)))[0] == np.inf
    assert f(X, Settings(Settings(-0.0)))[0] == -np.inf
    g = uopc.jit(lambda x, s: x * len(s.values), static_argnames="s")
    for _ in range(2):
        np.testing.assert_array_equal(g(X, Loose([1, 2])), X * 2)
    assert g.cache_info().programs == 1


# ---------------------------------------------------------------- equal and not the same
EQUALS = (1, 1.0, True, np.int8(1)), (0.0, -0.0, False, 0)


@pytest.mark.parametrize("values", EQUALS)
def test_details_of_a_class_that_are_equal_have_programs_of_their_own(values: Any) -> None:
    x = np.arange(1, 3)
    f = uopc.jit(lambda m: m.data * m.label)
    for v in values * 2:
        got, want = f(Matrix(x, v)), x * v
        assert got.dtype == want.dtype and (np.signbit(got) == np.signbit(want)).all()


@pytest.mark.parametrize("values", EQUALS)
def test_keys_that_are_equal_stay_themselves(values: Any) -> None:
    f = uopc.jit(lambda d: d)
    for v in values * 2:
        assert [repr(k) for k in f({v: X, "a": Y})] == [repr(v), "'a'"]


def test_a_detail_that_cannot_be_hashed_is_an_error() -> None:
    with pytest.raises(uopc.UserError, match=r"the parts of a Matrix must be hashable"):
        uopc.jit(lambda m: m.data)(Matrix(X, [1]))  # type: ignore[arg-type]  # wrong


@pytest.mark.parametrize("path", ("s.b", "s.a.c", "s", "s.a.0"))
def test_dims_of_no_array_are_an_error(path: str) -> None:
    f = uopc.jit(lambda s: s["a"] + 1, dims={path: ("n",)})
    with pytest.raises(uopc.UserError, match=r"dims: "):
        f({"a": X})
    f = uopc.jit(lambda x, s=None: x + 1, dims={path: ("n",)})
    np.testing.assert_array_equal(f(X), X + 1)
