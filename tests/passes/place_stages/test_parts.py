"""Arrays put together from parts, again and again: code and time grow with the steps, not with the
number of ways through them."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes

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


def solved_by_pivots(a, b, lib):
    """a·x = b by elimination, each column by its largest element: rows are gathered."""
    n = a.shape[0]
    rows, i = lib.concatenate_columns(a, b), np.arange(n)
    for k in range(n):
        largest = lib.argmax(lib.where(i >= k, abs(rows[:, k]), -1.0))
        order = lib.exchanged(i, k, largest)
        rows = lib.rows(rows, order)
        factor = lib.where(i != k, rows[:, k] / rows[k, k], 0.0)
        rows = rows - factor.reshape(n, 1) * rows[k].reshape(1, n + 1)
    return rows[:, n] / lib.diagonal(rows[:, :n])


class Pivots:
    where = staticmethod(lambda c, a, b: uopc.where(uopc.constant(c), a, b))
    argmax = staticmethod(lambda v: v.argmax())
    rows = staticmethod(lambda a, order: a.take(order, 0))

    @staticmethod
    def concatenate_columns(a, b):
        return uopc.cat(a, b.reshape(-1, 1), axis=1)

    @staticmethod
    def exchanged(i, k, largest):
        places = uopc.constant(i.astype("i4"))
        return uopc.where(places.eq(k), largest, uopc.where(places.eq(largest), k, places))

    @staticmethod
    def diagonal(a):
        n = a.shape[0]
        return uopc.stack(*[a[k, k] for k in range(n)])


@pytest.mark.parametrize("n", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_elimination_with_pivots(n):
    """Places that are read one by the other, and reduces between them."""
    a, b = uopc.param("a", (n, n), dtypes.float64), uopc.param("b", (n,), dtypes.float64)
    program = uopc.compile(solved_by_pivots(a, b, Pivots))
    given_a, given_b = RNG.standard_normal((n, n)), RNG.standard_normal(n)
    expected = np.linalg.solve(given_a, given_b)
    np.testing.assert_allclose(program(a=given_a, b=given_b), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("many", [24, 96])
def test_short_sums_of_one_kernel_are_unrolled_in_one_walk(many, monkeypatch):
    """A kernel of many short reduces is made again as often as one of few."""
    walks = []
    whole = rebuild.rewritten
    monkeypatch.setattr(rebuild, "rewritten", lambda *a, **k: walks.append(0) or whole(*a, **k))
    x = uopc.param("x", (many, 3))
    total = x[0].sum()
    for row in range(1, many):
        total = total * 0.5 + (x[row] * total).max()
    with uopc.options(cache_dir="", programs=0):
        program = uopc.compile(total)
    given = RNG.uniform(0.1, 1, (many, 3)).astype("f4")
    expected = given[0].sum()
    for row in range(1, many):
        expected = expected * np.float32(0.5) + (given[row] * expected).max()
    np.testing.assert_allclose(program(given), expected, rtol=1e-4)
    assert len(walks) <= 40, len(walks)
