"""Stored elements that no reader uses: neither computed nor stored, and never seen in a result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import uopc
import uopc.numpy as unp
from tests.machines import runnable
from uopc.driver import lower_only
from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine

CPUS = runnable("", "x86-64-v3")
RNG = np.random.default_rng(188)


@pytest.fixture(autouse=True, scope="module")
def _trim_stores():
    with uopc.options(trim_stores=True):
        yield


def numbers(*dims):
    return RNG.integers(-9, 9, dims).astype("f4")


def scores(rows, depth, columns):
    x, y = uopc.param("x", (rows, depth)), uopc.param("y", (depth, columns))
    return (x @ y).contiguous()


def mask(rows, columns, offset=0):
    return uopc.arange(columns) <= uopc.arange(rows).reshape(rows, 1) + offset


def guards(outputs):
    """The conditions on the stores that `trim-stores` guards."""
    (run,) = [r for r in lower_only(outputs).runs if r.name == "trim-stores"]
    stores = [u for u in walk.toposort(run.after[0]) if u.op is Ops.STORE]
    first = [u.src[0].src[1] for u in stores]
    return [x.src[0].render() for x in first if x.op is Ops.WHERE]


def products(kernel):
    """The sums of products that a linear kernel adds to in one run: loops are counted out."""
    ends, open_ = {}, []
    for i, u in enumerate(kernel.src):
        if u.op is Ops.RANGE:
            open_.append(i)
        elif u.op is Ops.END:
            ends[open_.pop()] = i

    def count(begin, end, at):
        total, i = 0, begin
        while i < end:
            u = kernel.src[i]
            if u.op is Ops.RANGE:
                length = rebuild.rebuild(u.src[0], at).arg
                inner = any(k in ends for k in range(i + 1, ends[i]))
                for n in range(length if inner else min(length, 1)):
                    part = count(i + 1, ends[i], {**at, u: affine.const(n)})
                    total += part if inner else part * length
                i = ends[i]
            elif u.op is Ops.MULACC:
                total += u.dtype.lanes
            i += 1
        return total

    return count(0, len(kernel.src), {})


@pytest.mark.few(5)
@pytest.mark.machine("laptop")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [8, 64])  # rows in blocks around all panels of columns
@pytest.mark.parametrize(("width", "share"), [(512, 0.5), (64, 0.13)])
def test_hidden_products_are_left_out(cpu, threads, depth, width, share, monkeypatch):
    """512 scores a row in tiles: what is computed is the triangle, or a band of it, and the tiles
    on the edge."""
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    n = 512
    x = uopc.param("x", (4, n, depth)) @ uopc.param("y", (4, depth, n))
    inside = mask(n, n) & ~mask(n, n, -width)
    graph = uopc.where(inside, x, float("-inf")).softmax(-1)
    whole, trimmed = [
        products(lower_only(y, threads=threads).kernels[0]) for y in (x.softmax(-1), graph)
    ]
    assert whole == 4 * n * n * depth
    assert share * whole * 0.9 < trimmed < (share + 0.15) * whole


def test_the_weakest_condition_of_all_readers():
    n = 160
    p, i, j = scores(n, 4, n), uopc.arange(n).reshape(n, 1), uopc.arange(n)
    inf = float("inf")
    first = uopc.where(j <= i, p, -inf).max(axis=1)
    more = uopc.where(j <= i + 2, p * 2.0, 0.0).sum(axis=1)
    assert len(guards([first, more])) == 1 and guards([first]) != guards([first, more])
    for others in ([p.sum(axis=1)], [uopc.where(j > i, p, inf).min(axis=1)], [p]):
        assert guards([first, *others]) == [], "all elements are read"
    assert guards([uopc.where(j <= i + 158, p, -inf).max(axis=1)]) == [], "one element is left out"
    assert guards([uopc.where(uopc.param("m", (n, n)) > 0.0, p, -inf).max(axis=1)]) == []


def test_integers_are_stored_whole():
    """An integer may be an index, or a divisor, before a selection drops it."""
    t = uopc.dtypes.int32
    p = (uopc.param("x", (40, 4), t) @ uopc.param("y", (4, 40), t)).contiguous()
    assert guards([uopc.where(mask(40, 40), p, 0).sum(axis=1)]) == []


OFFSETS = (-3, 0, 1, 7)
COMPARED = {
    "at most": lambda i, j, c: j <= i + c,
    "less": lambda i, j, c: j < i + c,
    "from": lambda i, j, c: j >= i + c,
    "not above": lambda i, j, c: ~(j > i + c),
    "twice": lambda i, j, c: 2 * j <= i + c,
    "band": lambda i, j, c: (j <= i + c) & (j > i - 9),
    "row": lambda i, j, c: j < 9 + c,
}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CPUS), st.sampled_from((1, 2)), st.integers(1, 90), st.integers(1, 9),
    st.integers(1, 140), st.sampled_from(OFFSETS), st.sampled_from(tuple(COMPARED)),
    st.sampled_from(("max", "sum", "two", "softmax", "moved", "output")),
)  # fmt: skip
def test_masked(cpu, threads, rows, depth, columns, offset, how, what):
    a, b = numbers(rows, depth), numbers(depth, columns)
    i, j = np.arange(rows)[:, None], np.arange(columns)
    p, there = a @ b, COMPARED[how](i, j, offset)
    x = scores(rows, depth, columns)
    inside = COMPARED[how](
        uopc.arange(rows).reshape(rows, 1), uopc.arange(columns).reshape(1, columns), offset
    )
    stored = uopc.where(inside, x, -1e9).contiguous()
    filled = np.where(there, p, np.float32(-1e9))
    graphs, wanted = {
        "max": lambda: ([stored.max(axis=1)], [filled.max(1)]),
        "sum": lambda: ([uopc.where(inside, x, 0.0).sum(axis=1)], [np.where(there, p, 0).sum(1)]),
        "two": lambda: (
            [stored.max(axis=1), uopc.where(inside, x, 0.0).sum(axis=0)],
            [filled.max(1), np.where(there, p, 0).sum(0)],
        ),
        "softmax": lambda: ([stored.softmax(-1)], [softmax(filled, -1)]),
        "moved": lambda: ([stored.permute(1, 0).max(axis=1)], [filled.max(0)]),
        "output": lambda: ([stored.max(axis=1), stored], [filled.max(1), filled]),
    }[what]()
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        f = uopc.compile(graphs, inputs=["x", "y"], verify=True, threads=threads)
    got = f(a, b)
    for one, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_in_numpy_style(threads):
    """Infinite scores, NaN and wholly masked rows are those of the same functions in NumPy."""
    heads, n, d = 2, 200, 16
    q, k, v = [numbers(heads, n, d) / 4 for _ in range(3)]
    k[0, 150], q[1, 3, 0] = np.inf, np.nan

    def attention(np, softmax, q, k, v):
        s = q @ np.swapaxes(k, 1, 2)
        i = np.arange(n)
        s = np.where(i[None, :] + 2 <= i[:, None], s, -np.inf)  # rows 0 and 1 have nothing
        return softmax(s, -1) @ v

    def own_softmax(s, axis):
        e = unp.exp(s - unp.max(s, axis=axis, keepdims=True))
        return e / unp.sum(e, axis=axis, keepdims=True)

    with np.errstate(invalid="ignore"):
        want = attention(np, softmax, q, k, v)
    got = uopc.jit(lambda *a: attention(unp, own_softmax, *a), threads=threads)(q, k, v)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.isnan(want[:, :2]).all() and np.isfinite(want).any()


@pytest.mark.parametrize("position", [0, 5, 63])
def test_a_cache_filled_up_to_a_variable(position):
    """Positions of a cache of keys after that of the first query, a variable: chunks of 8."""
    n, chunk, d = 72, 8, 16
    at = uopc.variable("at", 0, n - chunk)
    q, k = uopc.param("q", (chunk, d)), uopc.param("k", (n, d))
    i, j = uopc.arange(chunk).reshape(chunk, 1), uopc.arange(n)
    s = uopc.where(j <= i + at, (q @ k.T).contiguous(), float("-inf"))
    a, b = numbers(chunk, d), numbers(n, d)
    there = np.arange(n) <= np.arange(chunk)[:, None] + position
    got = uopc.compile(s.max(axis=1), verify=True)(a, b, at=position)
    np.testing.assert_array_equal(got, np.where(there, a @ b.T, -np.inf).max(1))


def test_symbolic_lengths():
    n = uopc.variable("n", 1, 300)
    q, k = uopc.param("q", (n, 8)), uopc.param("k", (n, 8))
    i = uopc.arange(n)
    p = (q @ k.T).contiguous()
    s = uopc.where(i.reshape(1, n) <= i.reshape(n, 1), p, float("-inf"))
    f = uopc.compile(s.max(axis=1), verify=True)
    for rows in (1, 7, 64, 131, 300):
        a, b = numbers(rows, 8), numbers(rows, 8)
        want = np.where(np.tril(np.ones((rows, rows), bool)), a @ b.T, -np.inf).max(1)
        np.testing.assert_array_equal(f(a, b), want)


def checked(graph, want, *inputs):
    program = uopc.compile(graph, inputs=["x", "y"], verify=True)
    np.testing.assert_array_equal(program(*inputs), want)


@pytest.mark.machine("laptop")
def test_a_mask_with_a_part_that_is_no_comparison_of_loops_stays_in_the_store():
    n, fill = 40, -99.0
    a, b, there = numbers(n, 4), numbers(4, n), RNG.integers(0, 2, n).astype(bool)
    i, j = uopc.arange(n).reshape(n, 1), uopc.arange(n).reshape(1, n)
    row, column = np.arange(n)[:, None], np.arange(n)
    others = [
        (uopc.constant(there).reshape(1, n), there),
        ((j % 2).eq(0), column % 2 == 0),
        ((j < 9) | (i < 20), (column < 9) | (row < 20)),
    ]
    for other, known in others:
        p, want = scores(n, 4, n), np.where((column <= row) & known, a @ b, fill).max(1)
        assert guards([uopc.where((j <= i) & other, p, fill).contiguous().max(axis=1)])
        checked(uopc.where((j <= i) & other, p, fill).contiguous().max(axis=1), want, a, b)


def test_conditions_on_loops_that_do_not_choose_the_element():
    """The rows of a reader and of a store may be the same node."""
    n = 40
    a, b = numbers(n, 4), numbers(4, n)
    p, q = scores(n, 4, n), a @ b
    i, j = uopc.arange(n).reshape(n, 1, 1), uopc.arange(n).reshape(1, 1, n)
    inside = np.tril(np.ones((n, n), bool))
    every = uopc.where(j <= i, p.reshape(1, n, n), 0.0).sum(axis=2)
    assert guards([every]) == []
    checked(every, np.where(inside[:, None], q, 0).sum(2), a, b)
    one = uopc.where(mask(n, n), p[3].reshape(1, n), 0.0).sum(axis=1)
    checked(one, np.where(inside, q[3], 0).sum(1), a, b)
    turned = uopc.where(mask(n, n), p[::-1], 0.0).sum(axis=1)
    checked(turned, np.where(inside, q[::-1], 0).sum(1), a, b)


@pytest.mark.machine("laptop")
def test_a_masked_value_of_a_masked_value():
    n = 40
    a, b = numbers(n, 4), numbers(4, n)
    first = uopc.where(mask(n, n), scores(n, 4, n), 0.0).contiguous()
    second = uopc.where(mask(n, n), first @ first, -5.0).contiguous()
    inside = np.tril(np.ones((n, n), bool))
    p = np.where(inside, a @ b, 0)
    q = np.where(inside, p @ p, -5)
    assert len(guards([second.max(axis=1)])) == 2
    checked(second.max(axis=1), q.max(1), a, b)
    checked(second.max(axis=1) + first.sum(axis=0), q.max(1) + p.sum(0), a, b)


def test_rows_of_which_hardly_an_element_is_used():
    """Copies of rows whose guard never holds are stores of nothing."""
    a, b = numbers(64, 4), numbers(4, 7)
    i, j = uopc.arange(64).reshape(64, 1), uopc.arange(7)
    there = np.arange(64)[:, None] + np.arange(7) >= 69
    graph = uopc.where(i + j >= 69, scores(64, 4, 7), 1.0).contiguous().max(axis=1)
    checked(graph, np.where(there, a @ b, 1).max(1), a, b)
