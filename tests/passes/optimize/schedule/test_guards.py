"""Ranges that are compared with constants: loops are cut there, and compute the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import runnable
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops

CPUS = runnable("", "x86-64-v3")
RNG = np.random.default_rng(31)
HOT = 0.05  # share of all iterations of innermost loops that may still compare


def param(name, *dims):
    return uopc.param(name, dims)


def counted(n):
    return uopc.arange(n)


def inside(n, low, high):
    return (counted(n) >= low) & (counted(n) < high)


X, Y = param("x", 300, 400), param("y", 300, 400)
SQUARE, ROWS, COLUMNS = param("x", 4000, 4000), counted(4000).reshape(4000, 1), counted(4000)
LONG, LONG_X = counted(100_003), param("x", 100_003)
GRAPHS = {
    "pad a row": param("x", 1000).pad(((3, 5),)),
    "pad both": X.pad(((2, 1), (3, 1))),
    "pad images": param("x", 8, 64, 96).pad(((0, 0), (1, 1), (1, 1))),
    "pad and add": X.pad(((1, 1), (1, 1))) + param("z", 302, 402),
    "sums of padded rows": X.pad(((1, 1), (1, 1))).sum(axis=1),
    "flip and pad": X.flip(1).pad(((1, 1), (1, 1))) * 3.0,
    "convolution": param("x", 1, 64, 56, 56).conv2d(param("w", 64, 64, 3, 3), padding=1),
    "strided convolution": param("x", 1, 3, 112, 112).conv2d(
        param("w", 64, 3, 7, 7), stride=2, padding=3
    ),
    "one channel": param("x", 1, 1, 256, 256).conv2d(param("w", 1, 1, 3, 3), padding=1),
    "pooling": param("x", 1, 64, 112, 112).max_pool2d(3, stride=2, padding=1),
    "cat": uopc.cat(param("x", 1000), param("y", 500)) * 2.0,
    "cat columns": uopc.cat(X, Y[:, :200], axis=1) * 2.0,
    "roll": uopc.cat(X[:, 10:], X[:, :10], axis=1) + 1.0,
    "mask": uopc.where(inside(1024, 0, 700), param("x", 1024), param("y", 1024)),
    "mask columns": uopc.where(inside(400, 20, 370).reshape(1, 400), X, 0.0),
    "mask rows and columns": uopc.where(
        inside(300, 100, 250).reshape(300, 1) & inside(400, 50, 400).reshape(1, 400), X, Y
    ),
    "sum under a mask": uopc.where(inside(400, 20, 370).reshape(1, 400), X, 0.0).sum(axis=1),
    "maximum under a mask": uopc.where(inside(400, 0, 370).reshape(1, 400), X, -1e9).max(axis=1),
    "all but one": uopc.where(counted(1000).ne(400), param("x", 1000), 0.0),
    "triangle": uopc.where(COLUMNS <= ROWS, SQUARE.exp(), 0.0),
    "upper triangle": uopc.where(COLUMNS > ROWS, SQUARE.exp(), 0.0),
    "sums of a triangle": SQUARE.tril().sum(axis=1),
    "maxima of an upper triangle": uopc.where(COLUMNS > ROWS, SQUARE, -1e9).max(axis=1),
    "every second column": uopc.where(COLUMNS * 2 < ROWS, SQUARE, 0.0).sum(axis=1),
    "causal softmax": uopc.where(COLUMNS <= ROWS, SQUARE, float("-inf")).softmax(),
    "causal attention": uopc.where(COLUMNS <= ROWS, param("s", 4, 4000, 4000), -1e9).softmax()
    @ param("v", 4, 4000, 48),
    "cat among threads": uopc.cat(param("x", 700_001), param("y", 300_000)).exp(),
    "three among threads": uopc.cat(*[param(n, 500, 700) for n in "xyz"]).exp(),
    "sums of cat rows among threads": uopc.cat(param("x", 700, 900), param("y", 300, 900))
    .sum(axis=1),
    "rows from one on among threads": uopc.where(ROWS >= 300, SQUARE, 0.0).exp(),
    "large sum, cut at a place": uopc.where(LONG < 300, LONG_X.exp(), LONG_X).sum(),
    "large sum of the last": uopc.where(LONG + 7 > 99_000, LONG_X.exp(), LONG_X).sum(),
    "large maximum of a part": uopc.where((LONG >= 200) & (LONG < 60_123), LONG_X.exp(), LONG_X)
    .max(),
    "large sum of one": uopc.where(LONG.eq(777), LONG_X.exp(), LONG_X).sum(),
    "large sum of all but one": uopc.where(LONG.ne(1_111), LONG_X.exp(), LONG_X).sum(),
    "large sum of several": uopc.where(
        LONG < 300, LONG_X.exp(), uopc.where(2 * LONG < 70_123, LONG_X * 3.0, LONG_X)
    ).sum(),
    "large sum of a corner": uopc.where((ROWS < 30) & (COLUMNS < 60), SQUARE.exp(), SQUARE).sum(),
    "sums down columns": uopc.where((ROWS < 30) & (COLUMNS >= 60), SQUARE.exp(), SQUARE)
    .sum(axis=0),
    "differences": param("x", 1024) - param("x", 1024)[:-1].pad(((1, 0),)),
}


def innermost(kernel):
    """The loops of a linear kernel without a loop inside: how often each runs, its statements."""
    found, around = [], []
    for u in kernel.src:
        if u.op is Ops.RANGE and u.arg.kind != "thread":
            runs = max(1, bounds.bounds(u.src[0])[1]) * (around[-1][0] if around else 1)
            around = [(n, None) for n, _ in around] + [(runs, [])]
        elif u.op is Ops.END and u.src[0].arg.kind != "thread":
            runs, body = around.pop()
            if body is not None:
                found.append((runs, body))
        elif around and around[-1][1] is not None:
            around[-1][1].append(u)
    return found


def compares(u):
    """True if a statement depends on the iteration of a loop, by a comparison or a gate."""
    if u.op in (Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE):
        return u.src[0].dtype.scalar in (dtypes.index, dtypes.int32)
    return (u.op is Ops.LOAD and len(u.src) > 1) or (u.op is Ops.STORE and len(u.src) > 2)


# TODO: gone when rows that windows share are packed without a comparison at their borders.
PACKED = pytest.mark.xfail(strict=True, reason="the loops that pack rows for windows compare")
PACKS = ("one channel", "pooling")


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=PACKED if n in PACKS else ()) for n in GRAPHS]
)
@pytest.mark.few(12)
def test_no_comparison_is_left_in_a_hot_loop(name, threads, cpu, monkeypatch):
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    for kernel in lower_only(GRAPHS[name], threads=threads).kernels:
        loops = innermost(kernel)
        guarded = sum(runs for runs, body in loops if any(compares(u) for u in body))
        assert guarded <= HOT * sum(runs for runs, _ in loops), kernel.arg.opts


def operations(graph, threads):
    """The number of operations that the kernels of a graph do."""
    total = 0
    for kernel in lower_only(graph, threads=threads).kernels:
        around = [1]
        for u in kernel.src:
            if u.op is Ops.RANGE:
                runs = 1 if u.arg.kind == "thread" else max(1, bounds.bounds(u.src[0])[1])
                around.append(around[-1] * runs)
            elif u.op is Ops.END:
                around.pop()
            elif u.op.is_alu:
                total += around[-1]
    return total


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.few(2)
def test_a_branch_of_few_iterations_is_computed_in_few(threads, axis):
    """A sine of 30 rows of 1000 costs little beside the sum of all of them."""
    x, first = param("x", 1000, 1000), counted(1000).reshape(1000, 1) < 30
    found = [uopc.where(first, y, x * 2.0).sum(axis=axis) for y in (x.sin(), x * 3.0)]
    assert operations(found[0], threads) < 2 * operations(found[1], threads)


@settings(deadline=None, max_examples=16)
@given(
    st.sampled_from((1, 2)), st.integers(30_000, 120_000), st.integers(-9, 125_000),
    st.integers(1, 3), st.sampled_from(("<", ">", "==", "!=")), st.sampled_from(("sum", "max")),
)  # fmt: skip
def test_large_reduces_under_a_mask(threads, n, place, step, op, what):
    """Two loops after the reduce is cut in two: a part of each may be mixed."""
    i, at = counted(n) * step, np.arange(n) * step
    compared = {
        "<": (i < place, at < place), ">": (i > place, at > place),
        "==": (i.eq(place), at == place), "!=": (i.ne(place), at != place),
    }  # fmt: skip
    mask, keep = compared[op]
    a = RNG.integers(-9, 9, n).astype("i4")
    x = uopc.param("x", (n,), dtypes.int32)
    graph = getattr(uopc.where(mask, x * 3, x - 1), what)()
    program = uopc.compile(graph, threads=threads)
    assert program(a) == getattr(np.where(keep, a * 3, a - 1), what)()


def on(cpu, threads, graph, *arrays):
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        return uopc.compile(graph, verify=True, threads=threads)(*arrays)


def numbers(*dims):
    return RNG.integers(-9, 9, dims).astype("f4")


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(CPUS), st.sampled_from((1, 2)), st.integers(1, 40), st.integers(1, 90),
    st.tuples(*[st.integers(0, 5)] * 4), st.sampled_from(("values", "sum", "max", "columns")),
)  # fmt: skip
def test_padded(cpu, threads, rows, columns, pads, what):
    a = numbers(rows, columns)
    width = (pads[:2], pads[2:])
    x, wide = param("x", rows, columns).pad(width), np.pad(a, width)
    graph, wanted = {
        "values": lambda: (x * 2.0, wide * 2),
        "sum": lambda: (x.sum(axis=1), wide.sum(axis=1)),
        "max": lambda: (x.max(axis=1), wide.max(axis=1)),
        "columns": lambda: (x.sum(axis=0), wide.sum(axis=0)),
    }[what]()
    np.testing.assert_array_equal(on(cpu, threads, graph, a), wanted)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CPUS), st.integers(1, 12), st.integers(1, 120), st.integers(-3, 130),
    st.integers(-3, 130), st.sampled_from(("int32", "int64", "uint8", "int8")),
    st.sampled_from(("values", "sum", "max", "min", "prod", "softmax", "one")),
)  # fmt: skip
def test_masked(cpu, rows, columns, low, high, dtype, what):
    """Masks compared in any integer, also in one that wraps or that a bound is not of."""
    a = numbers(rows, columns)
    at = np.arange(columns).astype(dtype)
    n = counted(columns).cast(getattr(uopc.dtypes, dtype))
    bounds = np.array([low, high]).astype(dtype)
    first, last = [uopc.constant(int(b), getattr(uopc.dtypes, dtype)) for b in bounds]
    mask, keep = (n >= first) & (n < last), (at >= bounds[0]) & (at < bounds[1])
    if what == "one":
        mask, keep = n.ne(first), at != bounds[0]
    other = 1.0 if what == "prod" else 0.0
    x = uopc.where(mask.reshape(1, columns), param("x", rows, columns), other)
    b = np.where(keep, a, np.float32(other))
    if what == "prod":
        a = np.sign(a)
        b = np.where(keep, a, np.float32(1))
    if what == "softmax":
        e = np.exp(b - b.max(axis=1, keepdims=True))
        np.testing.assert_allclose(
            on(cpu, 1, x.softmax(axis=-1), a), e / e.sum(axis=1, keepdims=True), rtol=2e-6
        )
        return
    if what in ("values", "one"):
        graph, wanted = x + 1.0, b + 1
    else:
        graph, wanted = getattr(x, what)(axis=1), getattr(b, what)(axis=1)
    np.testing.assert_array_equal(on(cpu, 1, graph, a), wanted)


def test_what_a_cut_part_adds_up_is_not_added_again():
    """The sum over a padded row has no loop over the padding."""
    rows = param("x", 4, 256).pad(((0, 0), (0, 256)))
    (kernel,) = lower_only(rows.sum(axis=1), threads=1).kernels
    assert kernel.arg.opts[0].op == "PEEL"
    assert sum(u.op is Ops.RANGE for u in kernel.src) == 2


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(CPUS), st.sampled_from((1, 2)), st.integers(1, 40), st.integers(1, 150),
    st.sampled_from((1, 2, 3, -1, -2)), st.sampled_from((1, 2, -1, 3)), st.integers(-60, 60),
    st.sampled_from(("<", "<=")), st.sampled_from(("values", "sum", "max", "min", "softmax")),
)  # fmt: skip
@example("", 1, 13, 128, 1, 3, -30, "<=", "softmax")  # a rest that is empty in every row
def test_bounded_by_the_row(cpu, threads, rows, columns, a, b, c, op, what):
    """A mask of two ranges, a·column < b·row + c, whichever blocks it cuts through."""
    array = numbers(rows, columns)
    i, j = counted(rows).reshape(rows, 1), counted(columns).reshape(1, columns)
    at, of = np.arange(rows)[:, None], np.arange(columns)[None]
    mask = j * a < i * b + c if op == "<" else j * a <= i * b + c
    keep = of * a < at * b + c if op == "<" else of * a <= at * b + c
    other = {"max": -np.inf, "min": np.inf, "softmax": -1e9}.get(what, 0.0)
    x = uopc.where(mask, param("x", rows, columns), other)
    wanted = np.where(keep, array, np.float32(other))
    if what == "values":
        close(on(cpu, threads, x.exp() * 2.0, array), np.exp(wanted) * 2)
    elif what == "softmax":
        e = np.exp(wanted - wanted.max(axis=1, keepdims=True))
        close(on(cpu, threads, x.softmax(), array), e / e.sum(axis=1, keepdims=True))
    else:
        got = on(cpu, threads, getattr(x, what)(axis=1), array)
        np.testing.assert_array_equal(got, getattr(wanted, what)(axis=1))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(CPUS), st.integers(1, 40), st.integers(1, 150), st.integers(-60, 60))
@example("", 13, 128, -30)  # most terms of a row are one number: rows may have lanes, or its sum
def test_terms_of_the_row_alone(cpu, rows, columns, c):
    """Sums of terms that depend on the row, and not on the loop that adds them up."""
    array = numbers(rows, columns)
    i, j = counted(rows).reshape(rows, 1), counted(columns).reshape(1, columns)
    keep = np.arange(columns)[None] <= np.arange(rows)[:, None] * 3 + c
    x = param("x", rows, columns)
    terms = uopc.where(j <= i * 3 + c, x, 0.5) * x[:, :1]
    wanted = np.where(keep, array, np.float32(0.5)) * array[:, :1]
    got = on(cpu, 1, terms.sum(axis=1), array)
    np.testing.assert_allclose(got, wanted.sum(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-4)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.integers(1, 5), st.lists(st.integers(1, 900), min_size=2, max_size=4),
    st.sampled_from(("values", "sum", "max")),
)  # fmt: skip
def test_parts_that_threads_cut_elsewhere(cpu, threads, parts, what):
    """Rows of several arrays: whichever chunk of a thread the seam lies in, or none."""
    arrays = [numbers(n, 300) for n in parts]
    x = uopc.cat(*[param(f"x{i}", n, 300) for i, n in enumerate(parts)])
    wanted = np.concatenate(arrays)
    if what == "values":
        graph, wanted = x * 2.0 + 1.0, wanted * 2 + 1
    else:
        graph, wanted = getattr(x, what)(axis=1), getattr(wanted, what)(axis=1)
    np.testing.assert_array_equal(on(cpu, threads, graph, *arrays), wanted)


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 20), st.integers(1, 8))
def test_bound_in_blocks(data, blocks, n):
    """The Opt alone, at any size of block: the same numbers as without it, or a refusal."""
    a, b, c = [data.draw(st.integers(-3, 3)) for _ in range(3)]
    rows, columns = data.draw(st.integers(2, 12)), blocks * n
    i, j = counted(rows).reshape(rows, 1), counted(columns).reshape(1, columns)
    inputs = [param("x", rows, columns)]  # a condition that never holds leaves no param
    x = uopc.where(j * a < i * b + c, inputs[0], -1.0)
    graph = x.sum(axis=1) if data.draw(st.booleans()) else x
    array = numbers(rows, columns)
    wanted = uopc.compile(graph, optimize=False, inputs=inputs)(array)
    try:
        opts = (Opt("SPLIT_AT", 1, n),)
        program = uopc.compile(graph.contiguous(opts), verify=True, inputs=inputs)
    except UserError:
        return
    np.testing.assert_array_equal(program(array), wanted)


def test_what_a_triangle_leaves_out_is_exact():
    """Infinities and NaN beside the diagonal: the weights of a row are what they were."""
    n = 96
    array = numbers(n, n)
    array[3, 90], array[40, 70], array[50, 2], array[60, 5] = np.nan, np.inf, np.nan, np.inf
    array[70, :] = -np.inf
    i = counted(n)
    x = uopc.where(i <= i.reshape(n, 1), param("x", n, n), float("-inf")).softmax()
    assert any(o.op == "SPLIT_AT" for k in lower_only(x, threads=1).kernels for o in k.arg.opts)
    wanted = uopc.compile(x, optimize=False)(array)
    np.testing.assert_allclose(uopc.compile(x, threads=1)(array), wanted, rtol=2e-6)
    assert np.isnan(wanted[[50, 60, 70]]).all() and np.isfinite(wanted[[3, 40]]).all()


def test_loops_of_free_sizes_are_cut_where_comparisons_change():
    """Both parts of a cat have vectors without masks, and a pool none between its ends; masks are
    cheaper than parts of an element where the lanes read neighbours."""
    n = uopc.variable("n", 1, 4096)
    x = param("x", 8, n)
    for graph, cut in [
        ((x * 2).cat(x.relu(), axis=1), ["SPLIT_AT"]),
        (x.reshape(1, 8, n).max_pool((3,), stride=2, padding=1), ["PEEL", "SPLIT_AT"]),
        (x.pad(((0, 0), (1, 1))), []),
    ]:
        (kernel,) = lower_only(graph, threads=1).kernels
        assert [o.op for o in kernel.arg.opts if o.op in ("PEEL", "SPLIT_AT")] == cut
