"""Stores that read what they overwrite: the new values are complete before the first is written."""

from __future__ import annotations

import numpy as np
import pytest

import uopc


def _launches(f: uopc.Program) -> int:
    return len(f._source.lowered.calls)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("n, launches", [(1, 1), (2, 1), (5, 1), (64, 1), (4096, 1), (4097, 2)])
def test_reversed_in_place(n: int, launches: int, optimize: bool) -> None:
    """In a tile of the kernel as long as it fits in half of a first-level cache."""
    x = uopc.param("x", (n,))
    f = uopc.compile(x.assign(x.flip(0) * 2 + 1), verify=True, optimize=optimize)
    a = np.arange(n, dtype=np.float32)
    want = a[::-1] * 2 + 1
    f(a)
    assert np.array_equal(a, want)
    assert _launches(f) == launches


@pytest.mark.parametrize("optimize", [True, False])
def test_each_row_reads_all_rows(optimize: bool) -> None:
    x = uopc.param("x", (5, 7))
    f = uopc.compile(x.assign(x[::-1] + x.sum(axis=0)), verify=True, optimize=optimize)
    a = np.random.default_rng(0).random((5, 7), np.float32)
    want = a[::-1] + a.sum(axis=0)
    f(a)
    np.testing.assert_allclose(a, want, rtol=1e-6)
    assert _launches(f) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_product_into_its_factor(threads: int) -> None:
    x = uopc.param("x", (48, 48), uopc.dtypes.float64)
    f = uopc.compile(x.assign(x @ x), verify=True, threads=threads)
    a = np.random.default_rng(1).random((48, 48))
    want = a @ a
    f(a)
    np.testing.assert_allclose(a, want, rtol=1e-13)


def test_symbolic_length_is_copied() -> None:
    """A tile's size is known when the kernel is compiled; here it is not. (The third launch copies
    the part that is returned.)"""
    x, n = uopc.param("x", (9,)), uopc.variable("n", 1, 9)
    part = x.shrink(((0, n),))
    f = uopc.compile(part.assign(part.flip(0)), verify=True)
    a = np.arange(9, dtype=np.float32)
    f(a, n=4)
    assert a.tolist() == [3, 2, 1, 0, 4, 5, 6, 7, 8]
    assert _launches(f) == 3


def test_disjoint_parts_are_not_copied() -> None:
    x = uopc.param("x", (8,))
    f = uopc.compile(x[:4].assign(x[4:].flip(0)), verify=True)
    a = np.arange(8, dtype=np.float32)
    f(a)
    assert a.tolist() == [7, 6, 5, 4, 4, 5, 6, 7]
    assert _launches(f) == 2  # one for the part that is returned


def test_two_tiles_that_differ_in_place_are_one_kernel() -> None:
    x = uopc.param("x", (2, 6))
    first = x[0].assign(x[0].flip(0))
    second = x[1].assign(x[1].flip(0))
    f = uopc.compile((first, second), verify=True)
    a = np.arange(12, dtype=np.float32).reshape(2, 6)
    want = a[:, ::-1].copy()
    f(a)
    assert np.array_equal(a, want)
    assert len(f.kernels) == 2  # the other one copies what is returned
