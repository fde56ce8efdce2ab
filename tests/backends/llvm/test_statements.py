"""The LLVM IR of a kernel's statements: no code that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc

SUM = re.compile(r"(%v\d+) = add (?:nsw |nuw )*i\d+ %v\d+, \d+")


def stencil() -> uopc.UOp:
    x = uopc.param("x", (70, 90))
    return x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] * x[1:-1, 2:]


def product() -> uopc.UOp:
    return uopc.param("a", (40, 50)) @ uopc.param("b", (50, 70))


def convolution() -> uopc.UOp:
    return uopc.param("x", (1, 5, 13, 11)).conv2d(uopc.param("w", (7, 5, 3, 3)), padding=1)


@pytest.mark.parametrize("graph", [stencil, product, convolution])
def test_each_sum_is_read(graph: Callable[[], uopc.UOp]) -> None:
    """Addresses add their constants to a base that they share."""
    for kernel in uopc.compile(graph()).kernels:
        read = re.findall(r"%v\d+\b", kernel.source)
        assert all([read.count(name) > 1 for name in SUM.findall(kernel.source)])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.sampled_from([0.0, -0.0, 1.5]))
def test_extremes_beside_a_constant_are_those_of_numpy(values: list[float], c: float) -> None:
    a = np.array(values, np.float32)
    x = uopc.param("x", a.shape)
    low, high = uopc.compile([x.minimum(c), x.maximum(c)])(a)
    np.testing.assert_array_equal(low, np.minimum(a, np.float32(c)))
    np.testing.assert_array_equal(high, np.maximum(a, np.float32(c)))


def test_a_maximum_with_zero_restores_no_nan() -> None:
    x = uopc.param("x", (64,))
    (kernel,) = uopc.compile(x.relu()).kernels
    assert "fcmp uno" not in kernel.source


@pytest.mark.machine("desktop")
def test_loops_say_how_often_they_turn() -> None:
    """LLVM presumes as many turns of each loop, and keeps registers for the innermost."""
    n = uopc.variable("n", 1, 100)
    for size, weights in ((1000, {"999"}), (n, set())):
        x = uopc.param("x", (size,))
        (kernel,) = uopc.compile(x.at[x.cast(uopc.dtypes.int32)].set(x), threads=1).kernels[-1:]
        assert set(re.findall(r'branch_weights", i32 (\d+), i32 1', kernel.source)) == weights
