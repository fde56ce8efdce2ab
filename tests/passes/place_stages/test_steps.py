"""Steps that read the one before at two places: sorts, prefix sums, transforms by stages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.driver import lower_only
from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.ops import Ops

RNG = np.random.default_rng(59)


def prefix_sums(n: int) -> uopc.UOp:
    """By doubling: each step adds what stands a distance before, the distances powers of two."""
    y, distance = uopc.param("x", (n,)), 1
    while distance < n:
        y, distance = y + y.pad(((distance, 0),)).shrink(((0, n),)), 2 * distance
    return y


def sorted_by_networks(n: int) -> uopc.UOp:
    """Bitonic: partners at a distance are put in order, of which a bit of the index says which."""
    y, i, size = uopc.param("x", (n,)), uopc.arange(n), 2
    while size <= n:
        apart = size // 2
        while apart:
            pairs, at = [u.reshape(n // (2 * apart), 2, apart) for u in (y, i)]
            a, b, rises = pairs[:, 0], pairs[:, 1], (at[:, 0] & size).eq(0)
            low, high = a.minimum(b), a.maximum(b)
            swapped = rises.where(low, high), rises.where(high, low)
            y, apart = uopc.stack(*swapped, axis=1).reshape(n), apart // 2
        size *= 2
    return y


@pytest.mark.parametrize("n", [1, 2, 3, 37, 100, 1000, pytest.param(5001, marks=pytest.mark.slow)])
@pytest.mark.few(3)
def test_prefix_sums(n):
    array = RNG.random(n, dtype="f4")
    got = uopc.compile(prefix_sums(n), verify=True)(array)
    np.testing.assert_allclose(got, np.cumsum(array, dtype="f8"), rtol=1e-5)


@pytest.mark.parametrize("n", [2, 8, 64, pytest.param(256, marks=pytest.mark.slow)])
def test_sort(n):
    array = RNG.random(n, dtype="f4")
    got = uopc.compile(sorted_by_networks(n), verify=True)(array)
    np.testing.assert_array_equal(got, np.sort(array))


@pytest.mark.slow
def test_steps_are_stored_before_all_is_read():
    """Of 55 steps in a row few are in one kernel, whose code doubles with each."""
    assert len(lower_only(sorted_by_networks(1024), threads=1).kernels) >= 8


@pytest.mark.slow
def test_cuts_of_a_chunk_are_few():
    """Where many comparisons turn in a thread's chunk: cut where that decides most of them."""
    f = uopc.compile(prefix_sums(100_000), threads=2)
    cuts = [sum(o.op == "SPLIT_AT" for o in k.opts) for k in f.kernels]
    assert 1 <= max(cuts) < 32, cuts
    array = RNG.random(100_000, dtype="f4")
    np.testing.assert_allclose(f(array), np.cumsum(array, dtype="f8"), rtol=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 100), st.lists(st.integers(-60_000, 60_000), min_size=1, max_size=5))
def test_shifts_of_chunks(n, distances):
    """Sums of an array and itself, moved: comparisons that turn in either direction."""
    n = 100_000 + n
    x, array = uopc.param("x", (n,)), np.arange(n, dtype="f4") % 17
    y, wanted = x, array
    for d in distances:
        before, behind = max(d, 0), max(-d, 0)
        y = y + x.pad(((before, behind),)).shrink(((behind, behind + n),))
        wanted = wanted + np.pad(array, (before, behind))[behind : behind + n]
    np.testing.assert_array_equal(uopc.compile(y, threads=2)(array), wanted)


def test_masked_vectors_begin_inside():
    """Outside there may be no memory: reading nothing from there takes as long as a fault."""
    n, y = 1024, uopc.param("x", (1024,), dtypes.float32)
    for d in (16, 32, 64, 128):
        y = y + y.pad(((d, 0),)).shrink(((0, n),)) + y.pad(((0, d),)).shrink(((d, d + n),))
    f = uopc.compile(y, threads=1)
    loads = [u for k in f.kernels for u in walk.order(k.uops) if u.op is Ops.LOAD]
    masked = [u for u in loads if len(u.src) == 2 and u.dtype.lanes > 1]
    for u in masked:
        start, lanes = u.src[0].src[1], u.dtype.lanes
        least, most = bounds.bounds(start)
        assert start.op is Ops.WHERE or (-lanes < least and most < n), uopc.print_graph(start)
    assert masked
    array = RNG.random(n, dtype="f4")
    wanted = array.astype("f8")
    for d in (16, 32, 64, 128):
        wanted = wanted + np.pad(wanted, (d, 0))[:n] + np.pad(wanted, (0, d))[d:]
    np.testing.assert_allclose(f(array), wanted, rtol=1e-5)


def test_parts_that_grow_are_loops_of_their_own():
    """Haar's wavelet: 12 parts of an array, each with twice the reads of the one before."""
    n = 4096
    x, array = uopc.param("x", (n,)), RNG.random(n, dtype="f4")
    parts, wanted, left = [], [], array.astype("f8")
    while n > 1:
        x, left, n = x.reshape(n // 2, 2), left.reshape(n // 2, 2), n // 2
        parts, wanted = [x[:, 0] - x[:, 1], *parts], [left[:, 0] - left[:, 1], *wanted]
        x, left = (x[:, 0] + x[:, 1]) * 0.5, (left[:, 0] + left[:, 1]) * 0.5
    f = uopc.compile(uopc.cat(x, *parts, axis=0), threads=1)
    np.testing.assert_allclose(f(array), np.concatenate([left, *wanted]), atol=1e-6)
    assert any(o.op in ("PEEL", "SPLIT_AT") for k in f.kernels for o in k.opts)


def test_rows_exchanged_by_pivots():
    """LU: gathers at places that the step before has computed."""
    n = 4
    array = RNG.standard_normal((n, n))
    a, i = uopc.param("a", (n, n), dtypes.float64), uopc.arange(n)
    row, column, places = i.reshape(n, 1), i.reshape(1, n), i
    wanted, rows = array.copy(), [*range(n)]
    for k in range(n - 1):
        p = (i >= k).where(a[:, k].abs(), -1.0).argmax()
        moved = i.eq(k).where(p, i.eq(p).where(k, i))
        a, places = a.take(moved, 0), places.take(moved, 0)
        factors = (i > k).where(a[:, k] / a[k, k], 0.0).reshape(n, 1)
        a = a - factors * (i >= k).where(a[k], 0.0).reshape(1, n)
        a = ((row > k) & column.eq(k)).where(factors, a)
        best = k + int(np.argmax(np.abs(wanted[k:, k])))
        wanted[[k, best]], rows[k], rows[best] = wanted[[best, k]], rows[best], rows[k]
        wanted[k + 1 :, k] /= wanted[k, k]
        wanted[k + 1 :, k + 1 :] -= wanted[k + 1 :, k, None] * wanted[k, k + 1 :]
    got, order = uopc.compile((a, places))(array)
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    np.testing.assert_array_equal(order, rows)
