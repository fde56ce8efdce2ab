"""The different values of arrays that the call brings, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uopc
from uopc.tensor.sorts.unique import unique


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8", "u4", "?"])
@pytest.mark.parametrize("shape", [(0,), (1,), (200,), (3, 40)])
def test_unique(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    x = uopc.param("x", shape, np.dtype(dtype))
    program = uopc.compile(list(unique(x)))
    for most in (1, 5, 100):
        a = rng.integers(0, most, shape).astype(dtype)
        expected: list[Any] = list(np.unique(a, True, True, True))
        expected[2] = expected[2].reshape(shape)
        for made, wanted in zip(program(a), expected, strict=True):
            assert made.dtype == wanted.dtype
            np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("equal", [False, True])
def test_zeros_are_one_value_and_nans_are_many_or_one(equal: bool) -> None:
    x = uopc.param("x", (7,))
    a = np.array([np.nan, -0.0, 0.0, np.nan, np.inf, -np.inf, np.nan], "f4")
    made = uopc.compile(list(unique(x, equal)))(a)
    for got, wanted in zip(made, np.unique(a, True, True, True, equal_nan=equal)):
        np.testing.assert_array_equal(got, wanted)


def test_what_follows_works_on_the_number_of_values() -> None:
    x = uopc.param("x", (uopc.variable("n", 1, 100),), np.dtype("i8"))
    found = unique(x)
    program = uopc.compile([found.counts.max(), found.values[found.counts > 1], found.values * 2])
    a = np.random.default_rng(5).integers(0, 30, 60)
    values, counts = np.unique(a, return_counts=True)
    most, often, twice = program(a)
    assert most == counts.max()
    np.testing.assert_array_equal(often, values[counts > 1])
    np.testing.assert_array_equal(twice, values * 2)
