"""Generated functions for containers: they agree with flatten and unflatten."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import uopc
from uopc.ir.builder.pytrees import LEAF, flatten, unflatten
from uopc.ir.builder.tree_code import caller, writer

OTHER = (TypeError, ValueError)  # what a call with values of another structure raises


def reader(parts: Any, classes: Any, limits: Any = MappingProxyType({})) -> Any:
    """A function that gives the leaves of a tuple of values; None for other values."""
    call = caller(parts, classes, lambda *leaves: leaves, None, limits)

    def read(args: tuple[Any, ...]) -> Any:
        try:
            return call(*args)
        except OTHER:
            return None

    return read


Pair = namedtuple("Pair", "one other")


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


class Named:
    """A class that says how it comes apart."""

    def __init__(self, parts: list[Any], name: str) -> None:
        self.parts, self.name = parts, name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and vars(self) == vars(other)


uopc.register_pytree(Named, lambda v: (v.parts, v.name), lambda name, parts: Named(parts, name))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["a", "b", 1, ("c", 2)])
    listed = st.lists(inner, max_size=3)
    return st.one_of(
        listed, listed.map(tuple), st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.builds(Pair, inner, inner), st.builds(Point, inner, inner),
        st.builds(Named, listed, st.sampled_from("pq")),
    )  # fmt: skip


VALUES = st.recursive(st.one_of(st.floats(0, 1), st.none()), containers, max_leaves=8)


@given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3))
def test_it_agrees_with_flatten(args: list[Any], others: list[Any]) -> None:
    leaves, structure = flatten(args)
    read, write = reader(structure.parts, {}), writer(structure)
    assert read(tuple(args)) == tuple([leaf for _, leaf in leaves])
    values = [leaf for _, leaf in leaves]
    assert write(values) == args == unflatten(structure, values)
    found = read(tuple(others))
    other_leaves, other = flatten(others)
    if other == structure:
        assert found == tuple([leaf for _, leaf in other_leaves])
    elif found is not None:  # a container where a leaf stands: for the program to refuse
        assert len(found) == len(leaves)
        assert any(flatten(v)[1] != LEAF for v in found)


def test_the_order_of_keys_is_part_of_a_structure() -> None:
    read = reader(flatten([{"a": 1, "b": 2}])[1].parts, {})
    assert read(({"a": 3, "b": 4},)) == (3, 4)
    assert read(({"b": 4, "a": 3},)) is None
    assert read(({"a": 3},)) is None
    assert read((OrderedDict(a=3, b=4),)) is None


def test_classes_of_numbers() -> None:
    read = reader([LEAF, LEAF], {1: (int,)})
    assert read((2.0, 3)) == (2.0, 3)
    assert read((2.0, 3.0)) is None
    assert read((2.0, True)) is None
    assert read((2.0,)) is None


def test_limits_of_numbers() -> None:
    read = reader([LEAF, LEAF], {}, {1: (-4, 9)})
    assert [read((100, n)) for n in (-4, 9)] == [(100, -4), (100, 9)]
    assert read((100, -5)) is None
    assert read((100, 10)) is None


def test_a_hit_with_containers_keeps_kinds_apart() -> None:
    f = uopc.jit(lambda s, dt: {"x": (s["x"] + dt * s["v"],), "n": None, "p": Point(s["v"], dt)})
    one = {"x": np.zeros(2), "v": np.ones(2)}
    for _ in range(3):
        got = f(one, 0.5)
        np.testing.assert_array_equal(got["x"][0], [0.5, 0.5])
        assert got["n"] is None
        assert type(got["p"]) is Point
    assert f.cache_info() == (2, 1, 1)
    np.testing.assert_array_equal(f({"v": np.ones(2), "x": np.zeros(2)}, 0.5)["x"][0], [0.5, 0.5])
    assert f({"x": np.zeros(3), "v": np.ones(3)}, 0.5)["x"][0].shape == (3,)
    assert f({"x": np.zeros(2), "v": np.ones(2)}, 1)["p"].y.dtype == np.int64
    assert f.cache_info().programs == 4
    with pytest.raises(TypeError):
        f({"x": np.zeros(2), "v": "a text"}, 0.5)
    with pytest.raises(KeyError):
        f({"x": np.zeros(2)}, 0.5)


def test_deep_containers() -> None:
    deep: Any = np.ones(2)
    for _ in range(150):
        deep = [deep]
    f = uopc.jit(lambda x: x)
    for _ in range(2):
        got = f(deep)
        for _ in range(150):
            (got,) = got
        np.testing.assert_array_equal(got, np.ones(2))
    assert f.cache_info() == (1, 1, 1)
