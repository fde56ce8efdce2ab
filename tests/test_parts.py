"""Arrays put together from parts, again and again: code and time grow with the steps, not with the
number of ways through them."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir import dtypes

RNG = np.random.default_rng(7)


def lines(program):
    """Linear UOps of all kernels."""
    return sum(len(k.uops.src) for k in program.kernels)


def exchanged(x, size, stride, lib):
    """One step of a bitonic sort: pairs `stride` apart, in order by turns of `size`."""
    n = x.shape[0] // (2 * stride)
    pairs = x.reshape(n, 2, stride)
    low, high = lib.minimum(pairs[:, 0], pairs[:, 1]), lib.maximum(pairs[:, 0], pairs[:, 1])
    rising = (np.arange(n) * 2 * stride // size % 2 == 0).reshape(n, 1)
    a, b = lib.where(rising, low, high), lib.where(rising, high, low)
    return lib.stack([a, b], 1).reshape(-1)


class Graphs:
    minimum = staticmethod(lambda a, b: a.minimum(b))
    maximum = staticmethod(lambda a, b: a.maximum(b))
    where = staticmethod(lambda c, a, b: uopc.where(uopc.constant(c), a, b))
    stack = staticmethod(lambda parts, axis: uopc.stack(*parts, axis=axis))
    concatenate = staticmethod(lambda parts: uopc.cat(*parts))


def bitonic(x, lib):
    size = 2
    while size <= x.shape[0]:
        stride = size // 2
        while stride:
            x, stride = exchanged(x, size, stride, lib), stride // 2
        size *= 2
    return x


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_bitonic_sort(n):
    program = uopc.compile(bitonic(uopc.param("x", (n,)), Graphs), verify=True)
    x = RNG.standard_normal(n).astype("f4")
    np.testing.assert_array_equal(program(x), np.sort(x))
    assert lines(program) <= 8000


def diffused(x, steps, lib):
    """A rod whose ends keep their temperature."""
    for _ in range(steps):
        middle = x[1:-1] + 0.25 * (x[2:] - 2.0 * x[1:-1] + x[:-2])
        x = lib.concatenate([x[:1], middle, x[-1:]])
    return x


def test_a_stencil_with_edges_many_times():
    x = RNG.standard_normal(61)
    found = {}
    for steps in (10, 40):
        graph = diffused(uopc.param("x", (61,), dtypes.float64), steps, Graphs)
        program = uopc.compile(graph, verify=True)
        np.testing.assert_allclose(program(x), diffused(x, steps, np), rtol=1e-12, atol=1e-14)
        found[steps] = program.stats["launches"], lines(program)
    assert found[40][0] <= 4 * found[10][0] + 4
    assert found[40][1] <= 2 * found[10][1]  # of equal kernels
