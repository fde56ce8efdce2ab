"""Habits of NumPy in traced functions: NumPy's numbers, or an error that says what to do."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest

import uopc

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
        (lambda x, k: np.add.at(x, [0], 1.0), r"use x = x\.at"),
        (lambda x, k: np.add.reduce(x, initial=3.0), "initial"),
        (lambda x, k: x.ravel("F"), "order="),
        (lambda x, k: x[:k], "static_argnames"),
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
