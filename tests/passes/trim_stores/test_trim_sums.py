"""Sums over weights that a mask makes zero, and masks that are constant arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import uopc
from tests.machines import runnable
from tests.passes.trim_stores.test_trim_stores import (
    COMPARED,
    OFFSETS,
    guards,
    numbers,
    products,
    scores,
)
from uopc.driver import lower_only
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops

CPUS = runnable("", "x86-64-v3")
INF = float("inf")


@pytest.fixture(autouse=True, scope="module")
def _options():
    with uopc.options(trim_stores=True, fast_zeros=True):
        yield


def attention(there, rows, depth, columns, width=64, how="where"):
    """The weights of masked scores times values; `there`: a mask of uopc, or an array."""
    x = uopc.param("q", (rows, depth)) @ uopc.param("k", (depth, columns))
    if how == "where":
        x = uopc.where(there, x, -INF)
    else:
        x = x + uopc.where(there, 0.0, -INF)
    return x.softmax(-1) @ uopc.param("v", (columns, width))


def wanted(there, q, k, v):
    with np.errstate(invalid="ignore"):
        return softmax(np.where(there, q @ k, -np.inf), axis=1) @ v


def summed(outputs):
    """The guards of sums after `trim-stores`."""
    (run,) = [r for r in lower_only(outputs).runs if r.name == "trim-stores"]
    sums = [u.src[0] for u in walk.toposort(run.after[0]) if u.op is Ops.REDUCE]
    return [u.src[0].render() for u in sums if u.op is Ops.WHERE and u.src[1].op is Ops.MUL]


def loads_of_masks(outputs):
    (run,) = [r for r in lower_only(outputs).runs if r.name == "trim-stores"]
    return [u for u in walk.toposort(run.after[0]) if u.op is Ops.DATA]


# ---------------------------------------------------------------- sums
@pytest.mark.machine("laptop")
@pytest.mark.parametrize(("cpu", "threads"), [("x86-64-v3", 2), ("x86-64-v4", 1)])
def test_half_of_the_products_with_values(cpu, threads, monkeypatch):
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    n, width = 512, 64
    there = uopc.arange(n) <= uopc.arange(n).reshape(n, 1)
    graph = attention(there, n, 8, n, width)
    kernel = lower_only(graph, threads=threads).kernels[-1]
    whole = n * n * width
    assert 0.5 * whole < products(kernel) < 0.6 * whole + 4 * n * n
    with uopc.options(fast_zeros=False):
        kernel = lower_only(graph, threads=threads).kernels[-1]
    assert 0.5 * whole < products(kernel) < 0.6 * whole + 4 * n * n


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.sampled_from((1, 2)), st.integers(1, 90), st.integers(1, 9),
    st.integers(1, 140), st.integers(1, 40), st.sampled_from(OFFSETS),
    st.sampled_from(tuple(COMPARED)), st.sampled_from(("where", "add")),
    st.sampled_from(("graph", "bools")),
)  # fmt: skip
def test_masked_weights(cpu, threads, rows, depth, columns, width, offset, mask, how, form):
    i, j = np.arange(rows)[:, None], np.arange(columns)
    there = np.broadcast_to(COMPARED[mask](i, j, offset), (rows, columns))
    inside = COMPARED[mask](
        uopc.arange(rows).reshape(rows, 1), uopc.arange(columns).reshape(1, columns), offset
    )
    if form == "bools":
        inside = uopc.constant(np.ascontiguousarray(there))
    q, k, v = numbers(rows, depth), numbers(depth, columns), numbers(columns, width)
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        graph = attention(inside, rows, depth, columns, width, how)
        program = uopc.compile(graph, inputs=["q", "k", "v"], verify=True, threads=threads)
    got, want = program(q, k, v), wanted(there, q, k, v)
    some = there.any(1)  # a row that is hidden as a whole is NaN, or 0 where zeros are exact
    np.testing.assert_allclose(got[some], want[some], rtol=1e-5, atol=1e-5)
    assert (np.isnan(got[~some]) | (got[~some] == 0)).all()


def test_infinite_values_that_are_not_summed():
    """Values behind the mask do not matter, and those before it do."""
    n = 200
    there = np.tri(n, dtype=bool)
    q, k, v = numbers(n, 8), numbers(8, n), numbers(n, 20)
    v[120] = np.inf
    graph = attention(uopc.constant(there), n, 8, n, 20)
    got = uopc.compile(graph, inputs=["q", "k", "v"])(q, k, v)
    before = wanted(there, q, k, np.where(v < INF, v, 0))[:100]
    np.testing.assert_allclose(got[:100], before, rtol=2e-5, atol=1e-5)
    assert not np.isfinite(got[120:]).any()


@pytest.mark.few(3)
@pytest.mark.parametrize("position", [0, 5, 63])
@pytest.mark.parametrize(("fast", "chunk"), [(True, 8), (False, 8), (False, 32)])
def test_a_cache_filled_up_to_a_variable(fast, chunk, position):
    n, d = 64 + chunk, 16
    at = uopc.variable("at", 0, n - chunk)
    there = uopc.arange(n) <= uopc.arange(chunk).reshape(chunk, 1) + at
    graph = attention(there, chunk, d, n)
    q, k, v = numbers(chunk, d), numbers(d, n), numbers(n, 64)
    known = np.arange(n) <= np.arange(chunk)[:, None] + position
    with uopc.options(fast_zeros=fast):
        assert len(summed(graph)) == (fast or chunk >= 8)
        got = uopc.compile(graph, inputs=["q", "k", "v"], verify=True)(q, k, v, at=position)
    np.testing.assert_allclose(got, wanted(known, q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fast", [True, False])
def test_symbolic_lengths(fast):
    n = uopc.variable("n", 1, 300)
    x, v = uopc.param("q", (n, 8)) @ uopc.param("k", (n, 8)).T, uopc.param("v", (n, 24))
    there = uopc.arange(n).reshape(1, n) <= uopc.arange(n).reshape(n, 1)
    graph = uopc.where(there, x, -INF).softmax(-1) @ v
    with uopc.options(fast_zeros=fast):
        assert len(summed(graph)) == 1
        f = uopc.compile(graph, inputs=["q", "k", "v"], verify=True)
    for rows in (1, 7, 64, 131, 300):
        q, k, v = numbers(rows, 8), numbers(rows, 8), numbers(rows, 24)
        want = wanted(np.tri(rows, dtype=bool), q, k.T, v)
        np.testing.assert_allclose(f(q, k, v), want, rtol=1e-5, atol=1e-5)


def test_which_sums_have_a_guard():
    n = 40
    i, j = uopc.arange(n).reshape(n, 1), uopc.arange(n).reshape(1, n)
    x, v = scores(n, 4, n), uopc.param("v", (n, 9))
    assert len(summed(uopc.where(j <= i, x, -INF).softmax(-1) @ v)) == 1
    # A product with zeros is a selection as it is built, of which the sum is one, too.
    assert summed(uopc.where(j <= i + 38, x, -INF).softmax(-1) @ v) == [], "hardly an element"
    assert summed(uopc.where(j <= i, x, -1e9).softmax(-1) @ v) == [], "e to a number may be any"
    assert summed((uopc.where(j <= i, x, -INF) - 1.0) @ v) == [], "minus infinity is no zero"
    assert summed(uopc.where((j <= i) | (x > 0.0), x, -INF).softmax(-1) @ v) == []


def test_which_sums_have_a_guard_where_zero_times_infinity_is_nan():
    n = 80
    i, j = uopc.arange(n).reshape(n, 1), uopc.arange(n).reshape(1, n)
    x, v, z = scores(n, 4, n), uopc.param("v", (n, 9)), uopc.param("z", (n, 1))
    masked = uopc.where(j <= i, x, -INF)
    powers = (masked - masked.max(-1, keepdims=True)).exp()
    with uopc.options(fast_zeros=False):
        assert len(summed(masked.softmax(-1) @ v)) == 1
        assert len(summed(powers @ v)) == 1
        assert len(summed((powers / powers.sum(-1, keepdims=True)) @ v)) == 1
        assert summed((powers / z) @ v) == [], "it may be 0"
        assert summed((powers * z) @ v) == [], "it may be infinite"
        assert summed((masked - z).exp() @ v) == [], "it may be minus infinity"
        assert summed((masked - x.max(-1, keepdims=True)).exp() @ v) == [], "the same"
        assert summed(uopc.where(j <= i, x, -1e30).softmax(-1) @ v) == [], "scores may be less"
        assert summed(uopc.where(j < i, x, -INF).softmax(-1) @ v) == [], "a row has no weight"
        assert summed(masked[:8].softmax(-1) @ v) == [], "few rows"
        assert summed((masked + uopc.where(j <= i, 0.0, -INF)).softmax(-1) @ v) == []


LOST = (INF, -INF, np.nan)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(CPUS), st.sampled_from((1, 2)), st.integers(1, 100), st.integers(1, 140),
    st.integers(1, 40), st.sampled_from(OFFSETS), st.sampled_from(tuple(COMPARED)),
    st.sampled_from(("softmax", "quotient", "powers")),
    st.lists(st.tuples(st.sampled_from("qkvv"), st.floats(0, 1, exclude_max=True),
                       st.sampled_from(LOST)), max_size=4),
)  # fmt: skip
def test_values_that_are_no_numbers(
    cpu, threads, rows, columns, width, offset, mask, form, places
):  # fmt: skip
    """Infinities and NaN before the mask and behind it give what IEEE 754 says."""
    given = {"q": numbers(rows, 4), "k": numbers(4, columns), "v": numbers(columns, width)}
    for name, part, value in places:
        given[name].reshape(-1)[int(part * given[name].size)] = value
    i, j = np.arange(rows)[:, None], np.arange(columns)
    there = np.broadcast_to(COMPARED[mask](i, j, offset), (rows, columns))
    inside = COMPARED[mask](
        uopc.arange(rows).reshape(rows, 1), uopc.arange(columns).reshape(1, columns), offset
    )
    x = uopc.param("q", (rows, 4)) @ uopc.param("k", (4, columns))
    x = uopc.where(inside, x, -INF)
    powers = (x - x.max(-1, keepdims=True)).exp()
    weights = {
        "softmax": lambda: x.softmax(-1), "powers": lambda: powers,
        "quotient": lambda: powers / powers.sum(-1, keepdims=True),
    }[form]()  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, uopc.options(fast_zeros=False):
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        graph = weights @ uopc.param("v", (columns, width))
        program = uopc.compile(graph, inputs=["q", "k", "v"], verify=True, threads=threads)
    with np.errstate(invalid="ignore"):
        s = np.where(there, (given["q"][:, :, None] * given["k"]).sum(1), -np.inf)
        e = np.exp(s - s.max(1, keepdims=True))
        e = e if form == "powers" else e / e.sum(1, keepdims=True)
        want = (e[:, :, None] * given["v"]).sum(1)
    np.testing.assert_allclose(program(**given), want, rtol=2e-5, atol=1e-5)


def test_a_window_as_wide_as_a_variable_says():
    """The places where masks end may be beyond 32 bits."""
    n, t = 40, uopc.dtypes.int64
    i, j = uopc.arange(n).cast(t).reshape(n, 1), uopc.arange(n).cast(t)
    x = uopc.where(j > i - uopc.variable("w", 1, 1 << 40), scores(n, 4, n), -INF)
    with uopc.options(fast_zeros=False):
        f = uopc.compile(x.softmax(-1) @ uopc.param("v", (n, 9)), inputs=["x", "y", "v"])
    a, b, v = numbers(n, 4), numbers(4, n), np.ones((n, 9), "f4")
    v[5] = INF
    for w in (100, 2**31 + 3, 2**32 - 10, 2**32 + 5):
        assert (f(0 * a, 0 * b, v, w=w) == INF).all()


# ---------------------------------------------------------------- constant arrays
ARRAYS = {
    "tril": (np.tri(40, 40, dtype=bool), True),
    "tril of four dimensions": (np.tri(40, 40, dtype=bool)[None, None], True),
    "equal batches": (np.stack([np.tri(40, 40, -2, dtype=bool)] * 3), True),
    "triu": (~np.tri(40, 40, 3, dtype=bool), True),
    "numbers": (np.where(np.tri(40, 40), np.float32(0), np.float32(-np.inf)), True),
    "one element more": (np.tri(40, 40) + np.pad([[1.0]], ((2, 37), (9, 30))) > 0, False),
    "a band": (np.tri(40, 40, dtype=bool) & ~np.tri(40, 40, -4, dtype=bool), False),
    "steps of two": (np.arange(40) <= 2 * np.arange(40)[:, None], False),
    "other batches": (np.stack([np.tri(40, 40, c, dtype=bool) for c in (0, 1)]), False),
    "all": (np.ones((40, 40), bool), True),
    "not a number": (np.where(np.tri(40, 40), np.float32(0), np.float32(np.nan)), False),
    "zeros of both signs": (np.where(np.tri(40, 40), np.float32([*[0.0] * 39, -0.0]),
                                     np.float32(-INF)), False),
    "integers": (np.tri(40, 40, dtype="i4"), False),
    "one row": (np.tri(1, 40, 3, dtype=bool), True),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_constant_arrays_that_are_triangles(name):
    """Those that are comparisons, and the values of all."""
    array, known = ARRAYS[name]
    rows, columns = array.shape[-2:]
    a, b = numbers(rows, 4), numbers(4, columns)
    p, mask = scores(rows, 4, columns), uopc.constant(array)
    graph = uopc.where(mask if array.dtype == bool else mask > -1.0, p, -5.0).sum(-1)
    assert (loads_of_masks(graph) == []) is known
    got = uopc.compile(graph, inputs=["x", "y"], verify=True)(a, b)
    there = array if array.dtype == bool else array > -1
    np.testing.assert_array_equal(got, np.where(there, a @ b, np.float32(-5)).sum(-1))


def test_parts_of_a_constant_triangle():
    """GPT-2 takes rows and columns of one array of its longest text."""
    whole, n, past = np.tri(256, 256, dtype=bool)[None, None], 150, 9
    part = uopc.constant(whole)[:, :, past : past + n, : past + n]
    x = (uopc.param("x", (2, n, 4)) @ uopc.param("y", (2, 4, past + n))).reshape(1, 2, n, past + n)
    graph = uopc.where(part, x.contiguous(), -1e4).max(axis=-1)
    assert loads_of_masks(graph) == [] and len(guards(graph)) == 1
    a, b = numbers(2, n, 4), numbers(2, 4, past + n)
    want = np.where(whole[:, :, past : past + n, : past + n], a @ b, np.float32(-1e4)).max(-1)
    np.testing.assert_array_equal(uopc.compile(graph, inputs=["x", "y"], verify=True)(a, b), want)
