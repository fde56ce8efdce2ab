"""Kernels that stream: transposes, stencils, tails. Same numbers as NumPy on every vector width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import only_lowered, runnable
from uopc.backends import detect
from uopc.driver import lower_only
from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.nest.nest import nest_of
from uopc.passes.optimize.opts import reuse
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.schedule import alternatives

CPUS = runnable("", "x86-64-v3")  # the machine's own vectors (AVX-512 where it has them), and AVX2
RNG = np.random.default_rng(11)


@pytest.fixture(params=CPUS, ids=lambda c: c or "host")
def cpu(request, monkeypatch):
    if request.param:
        monkeypatch.setenv("UOPC_TARGET_CPU", request.param)
    return request.param


def numbers(*dims, dtype="float32"):
    return RNG.integers(-100, 100, dims).astype(dtype)


def on(cpu, graph, *arrays):
    with pytest.MonkeyPatch.context() as patch:
        if cpu:
            patch.setenv("UOPC_TARGET_CPU", cpu)
        return uopc.compile(graph, verify=True, threads=1)(*arrays)


def opts_of(graph):
    return [o.op for o in lower_only(graph, threads=1).kernels[0].arg.opts]


# ---------------------------------------------------------------- transposed reads
TYPES = ("float32", "float64", "int16", "uint8", "bool", "float16")


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(CPUS), st.sampled_from(TYPES), st.integers(1, 70), st.integers(1, 70),
    st.booleans(),
)  # fmt: skip
def test_transposes(cpu, dtype, rows, columns, together):
    a, b = numbers(rows, columns, dtype=dtype), numbers(columns, rows, dtype=dtype)
    x = uopc.param("x", a.shape, getattr(uopc.dtypes, dtype)).permute(1, 0)
    if together:
        y = uopc.param("y", b.shape, getattr(uopc.dtypes, dtype))
        np.testing.assert_array_equal(on(cpu, x + y, a, b), a.T + b)
    else:
        np.testing.assert_array_equal(on(cpu, x.contiguous(), a), a.T)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.permutations(range(4)), st.tuples(*[st.integers(1, 19)] * 4),
    st.sampled_from(("float32", "float64")),
)  # fmt: skip
def test_permutes(cpu, order, dims, dtype):
    a = numbers(*dims, dtype=dtype)
    x = uopc.param("x", dims, getattr(uopc.dtypes, dtype))
    got = on(cpu, x.permute(order) * 2, a)
    np.testing.assert_array_equal(got, a.transpose(order) * 2)


def test_large_transposes_go_block_by_block():
    a, b = numbers(512, 384), numbers(384, 512)
    x, y = uopc.param("x", a.shape), uopc.param("y", b.shape)
    with only_lowered("desktop"):  # whose second-level cache holds them
        assert opts_of(x.permute(1, 0) + y)[:3] == ["TILE", "TILE", "SWAP"]
    np.testing.assert_array_equal(uopc.compile(x.permute(1, 0) + y)(a, b), a.T + b)


@pytest.mark.machine("laptop")
@pytest.mark.parametrize(
    ("dtype", "dims", "threads"),
    [
        ("float32", (512, 640), 1), ("int16", (64, 2100), 1),
        *[pytest.param(*case, marks=pytest.mark.slow)
          for case in [("float64", (613, 541), 3), ("uint8", (33, 9001), 1),
                       ("float16", (9001, 33), 2), ("bool", (613, 541), 2)]],
    ],
)  # fmt: skip
def test_a_large_array_is_turned_over_into_tiles(dims, dtype, threads, cpu, monkeypatch):
    """L2 does not hold it: all loops outside of the tile then run along memory. Here no cost
    prefers copies alone."""
    monkeypatch.setattr(alternatives, "RUNS", 0.0)
    a = numbers(*dims, dtype=dtype)
    b, c = numbers(*dims[::-1], dtype=dtype), numbers(*dims, dtype=dtype)
    t = getattr(uopc.dtypes, dtype)
    x, y, z = uopc.param("x", a.shape, t), uopc.param("y", b.shape, t), uopc.param("z", c.shape, t)
    program = uopc.compile(x.permute(1, 0) + y + z.permute(1, 0), threads=threads, verify=True)
    np.testing.assert_array_equal(program(a, b, c), a.T + b + c.T)
    chosen = [o.op for o in program.kernels[0].opts].count("COMPUTE_AT")
    large = a.nbytes > detect.host(cpu).l2_bytes
    assert chosen == 2 * large


def test_a_small_array_is_turned_over_in_registers():
    assert "COMPUTE_AT" not in opts_of(uopc.param("x", (64, 64)).permute(1, 0) * 2.0)


def test_a_transposed_read_loads_rows_and_shuffles(cpu):
    """Blocks as wide as a vector: pieces of four floats, two stages of shuffles, no scalars."""
    n = detect.host(cpu).lanes(32)
    lowered = lower_only(uopc.param("x", (16, 16)).permute(1, 0) * 2.0, threads=1)
    loads = [u for u in lowered.kernels[0].src if u.op is Ops.LOAD]
    assert len(loads) == n * n // 4 and {u.dtype.lanes for u in loads} == {4}
    shuffles = sum(u.op is Ops.SHUFFLE for u in lowered.kernels[0].src)
    assert shuffles == 2 * n


@pytest.mark.parametrize("dtype, columns", [("uint8", 20), ("int8", 20), ("float16", 13)])
def test_the_rest_of_a_row_is_read_at_once(cpu, dtype, columns):
    """Rows of bytes are read 16 at a time, and then four; a single element stays alone."""
    graph = uopc.param("x", (64, columns), getattr(uopc.dtypes, dtype)).permute(1, 0).cast("f4")
    loads = [u for u in lower_only(graph, threads=1).kernels[0].src if u.op is Ops.LOAD]
    read = [sum(u.dtype.lanes == n for u in loads) * n for n in (1, 4)]
    assert 4 * read[0] == (columns % 4) * read[1]
    a = numbers(64, columns, dtype=dtype)
    np.testing.assert_array_equal(uopc.compile(graph, threads=1, verify=True)(a), a.T)


@pytest.mark.machine("desktop")
def test_a_transposed_read_of_fewer_columns_than_a_piece_is_picked_from_vectors(cpu):
    a = numbers(16, 3)
    graph = uopc.param("x", (16, 3)).permute(1, 0) * 2.0
    loads = [u for u in lower_only(graph).kernels[0].src if u.op is Ops.LOAD]
    assert {u.dtype.lanes for u in loads} == {detect.host(cpu).lanes(32)}
    np.testing.assert_array_equal(uopc.compile(graph)(a), a.T * 2)


# ---------------------------------------------------------------- stencils
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_second_to_fifth_element(data):
    """With and without a border: what is read lies within the array, up to its last element."""
    dtype = data.draw(st.sampled_from(["float32", "float64", "int16", "uint8", "bool"]))
    step, n = data.draw(st.integers(2, 5)), data.draw(st.integers(8, 70))
    first = data.draw(st.integers(0, step - 1))
    before, after = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    x = (numbers(3, n) * 10).astype(dtype)
    graph = uopc.param("x", x.shape, getattr(uopc.dtypes, dtype + "_" * (dtype == "bool")))
    graph = graph.pad(((0, 0), (before, after)))[:, first::step]
    wanted = np.pad(x, ((0, 0), (before, after)))[:, first::step]
    for target_cpu in CPUS:
        with uopc.options(target_cpu=target_cpu):
            program = uopc.compile((graph, graph.cast(uopc.dtypes.float32) * 2.0), verify=True)
        same, doubled = program(x)
        np.testing.assert_array_equal(same, wanted)
        np.testing.assert_array_equal(doubled, wanted.astype("f4") * 2)


def test_every_second_element_is_picked_from_vectors():
    with uopc.options(target_cpu="x86-64-v3"):
        program = uopc.compile(uopc.param("x", (4096,))[::2] * 2.0, threads=1)
    loads = [u for u in program.kernels[0].uops.src if u.op is Ops.LOAD]
    assert loads and all(u.dtype.lanes == 8 for u in loads if u.dtype.lanes > 1)
    assert any(u.op is Ops.SHUFFLE for u in program.kernels[0].uops.src)


def blurred(x, o=None):
    rows = x[:, :-2] + x[:, 1:-1] * 2 + x[:, 2:]
    return rows[:-2] + rows[1:-1] * 2 + rows[2:]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(CPUS), st.integers(3, 60), st.integers(3, 90))
def test_stencils(cpu, rows, columns):
    a = numbers(rows, columns)
    got = on(cpu, blurred(uopc.param("x", a.shape)), a)
    np.testing.assert_array_equal(got, blurred(a))


def test_rows_of_a_stencil_share_what_they_read():
    """Eight rows side by side read ten rows, not 24."""
    graph = blurred(uopc.param("x", (130, 66)))
    lowered = lower_only(graph, threads=1)
    assert Opt("UPCAST", 0, 8) in lowered.kernels[0].arg.opts
    kernel = lowered.kernels[0]
    stores = sum(u.op is Ops.STORE for u in kernel.src)
    loads = sum(u.op is Ops.LOAD for u in kernel.src)
    assert loads == 30 * stores // 8


def turned(x, y, o):
    """Complex numbers multiplied: pairs next to one another."""
    parts = (x[:, 0] * y[:, 0] - x[:, 1] * y[:, 1], x[:, 0] * y[:, 1] + x[:, 1] * y[:, 0])
    return o.stack(*parts, axis=1) if o is uopc else o.stack(parts, axis=1)


def unit(x, o):
    """Vectors of length 1."""
    return x / ((x * x).sum(axis=1).reshape(-1, 1) + 1.0) ** 0.5 if o is np else (
        x / ((x * x).sum(axis=1, keepdims=True) + 1.0).sqrt()
    )


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.integers(1, 70), st.integers(2, 5),
    st.sampled_from(("float32", "float64", "int16")),
)  # fmt: skip
def test_rows_of_few_elements(cpu, rows, columns, dtype):
    a, b = (numbers(rows, columns).astype(dtype) for _ in "ab")
    t = getattr(uopc.dtypes, dtype)
    x, y = uopc.param("x", a.shape, t), uopc.param("y", a.shape, t)
    product, length = on(cpu, (turned(x, y, uopc), unit(x.cast(uopc.dtypes.float64), uopc)), a, b)
    np.testing.assert_allclose(product, turned(a, b, np), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(length, unit(a.astype("f8"), np), rtol=1e-6)


def test_lanes_are_rows_where_rows_are_short_and_computed_with(monkeypatch):
    monkeypatch.setenv("UOPC_TARGET_CPU", "x86-64-v3")
    x, y = uopc.param("x", (100, 2)), uopc.param("y", (100, 2))
    for graph in (turned(x, y, uopc), unit(uopc.param("x", (100, 3)), uopc)):
        assert "UPCAST" in opts_of(graph) and opts_of(graph)[-1] == "VECTOR"
    assert "UPCAST" not in opts_of(uopc.param("x", (100, 3)) * uopc.param("y", (3,)))


def scaled(x, centre, spread):
    return (x - centre) / (spread + 1.0).sqrt()


@pytest.mark.parametrize(("columns", "opt"), [(16, (1, 2)), (128, (1, 16)), (4096, (0, 4))])
def test_what_rows_have_in_common_is_computed_once(monkeypatch, columns, opt):
    monkeypatch.setenv("UOPC_TARGET_CPU", "x86-64-v3")
    row = [uopc.param(name, (columns,)) for name in ("centre", "spread")]
    lowered = lower_only(scaled(uopc.param("x", (96, columns)), *row), threads=1)
    assert Opt("UPCAST", *opt) in lowered.kernels[0].arg.opts
    roots = sum(u.op is Ops.SQRT for u in lowered.kernels[0].src)
    assert roots == (1 if columns == 4096 else columns // 8)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(CPUS), st.integers(1, 30), st.integers(1, 300))
def test_rows_with_something_in_common(cpu, rows, columns):
    a, row, squares = numbers(rows, columns), numbers(columns), numbers(columns) ** 2
    graph = scaled(uopc.param("x", a.shape), uopc.param("c", row.shape), uopc.param("s", row.shape))
    got = on(cpu, graph, a, row, squares)
    np.testing.assert_allclose(got, (a - row) / np.sqrt(squares + 1), rtol=1e-6, atol=1e-6)


def test_rows_that_share_nothing_stay_in_a_loop():
    assert "UPCAST" not in opts_of(uopc.param("x", (64, 64)) * uopc.param("y", (64, 64)))


# ---------------------------------------------------------------- conversions and extremes
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.99, -0.99, -1.0, 127.0, 127.9, 128.0, 254.5, 255.0,
         255.9, 256.0, -128.0, -128.9, -129.0, 32767.0, 32768.0, 65535.9, 65536.0, 1e30, -1e30,
         2147483648.0, -2147483648.0, 4294967296.0]  # fmt: skip


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("to", [f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)])
@pytest.mark.few(7)
def test_floats_to_integers_saturate(cpu, source, to):
    bounds = np.iinfo(to)
    values = np.array([*EDGES, bounds.min, bounds.max, *(x / 3 for x in range(-60, 60))], source)
    values = np.unique([np.nextafter(values, values.dtype.type(v)) for v in (-np.inf, 0, np.inf)])
    wide = [0 if np.isnan(v) else int(max(min(v, 2.0**70), -(2.0**70))) for v in values]
    wanted = np.array([min(max(v, bounds.min), bounds.max) for v in wide], to)
    for n in (1, 7, len(values)):
        x = uopc.param("x", (n,), getattr(uopc.dtypes, source))
        got = on(cpu, x.cast(getattr(uopc.dtypes, to)), values[:n])
        np.testing.assert_array_equal(got, wanted[:n])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("constant", [None, 0.0, 1.5, np.nan, np.inf])
def test_extremes_keep_nan(cpu, name, constant):
    a = np.array([*EDGES, *EDGES[::-1]], "f4")
    b = np.roll(a, 5) if constant is None else np.full_like(a, constant)
    x, y = uopc.param("x", a.shape), uopc.param("y", a.shape)
    other = y if constant is None else constant
    arrays = (a, b) if constant is None else (a,)
    wanted = getattr(np, name)(a, b)
    np.testing.assert_array_equal(on(cpu, getattr(x, name)(other), *arrays), wanted)
    if constant is not None:
        got = on(cpu, getattr(uopc.full(a.shape, constant), name)(x), a)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("at", range(0, 70, 7))
@pytest.mark.few(7)
def test_the_maximum_of_a_row_with_a_nan_is_nan(cpu, at):
    a = numbers(2, 70)
    a[1, at] = np.nan
    x = uopc.param("x", a.shape)
    top, low = on(cpu, (x.max(axis=1), x.min(axis=1)), a)
    np.testing.assert_array_equal(top, a.max(axis=1))
    np.testing.assert_array_equal(low, a.min(axis=1))


# ---------------------------------------------------------------- reduces
@settings(deadline=None, max_examples=25)
@given(st.sampled_from(CPUS), st.integers(1, 40), st.integers(1, 200))
def test_sums_down_columns(cpu, rows, columns):
    a = numbers(rows, columns)
    np.testing.assert_array_equal(on(cpu, uopc.param("x", a.shape).sum(axis=0), a), a.sum(axis=0))


@pytest.mark.machine("desktop")
@pytest.mark.parametrize(("rows", "opts"), [(100, ["UNROLL", "VECTOR", "UPCAST"])])
def test_columns_are_summed_side_by_side_and_rows_two_at_a_time(rows, opts):
    lowered = lower_only(uopc.param("x", (rows, 1024)).sum(axis=0), threads=1)
    assert [o.op for o in lowered.kernels[0].arg.opts] == opts
    assert [o.arg for o in lowered.kernels[0].arg.opts][::2] == [2, 8]


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_one_vector_of_columns_does_not_wait_for_its_own_sums(cpu, monkeypatch):
    """As many rows as hide the latency of an addition, where no other vector does; not where each
    row takes longer than that."""
    monkeypatch.setenv("UOPC_TARGET_CPU", cpu)
    x = uopc.param("x", (4096, 8))
    (sums,), (dear,) = (
        lower_only(g.sum(axis=0), threads=1).kernels for g in (x, (x * x).exp().sin())
    )
    assert Opt("UNROLL", 1, 4) in sums.arg.opts
    assert not any(o.op == "UNROLL" for o in dear.arg.opts)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(CPUS), st.integers(1, 40), st.integers(1, 9), st.integers(1, 70))
def test_gathered_rows_are_summed(cpu, rows, bags, width):
    table = numbers(rows, width)
    index = RNG.integers(-rows, rows, (bags, 5)).astype("int32")
    x = uopc.param("x", table.shape)
    i = uopc.param("i", index.shape, uopc.dtypes.int32)
    got = on(cpu, x.take(i, axis=0).sum(axis=1), table, index)
    np.testing.assert_array_equal(got, table[index].sum(axis=1))


def test_what_a_gate_makes_zero_is_not_chosen_again():
    """Rows beyond the table give zeros: the gated loads say so, and no select repeats it."""
    graph = uopc.param("x", (50, 64)).take(uopc.param("i", (8,), uopc.dtypes.int32), axis=0)
    ops = [u.op for u in lower_only(graph.sum(axis=0), threads=1).kernels[0].src]
    assert Ops.LOAD in ops
    zeros = [u for u in lower_only(graph.sum(axis=0)).kernels[0].src
             if u.op is Ops.WHERE and u.dtype.is_float]  # fmt: skip
    assert not zeros


# ---------------------------------------------------------------- contractions inside a reduce
def test_a_contraction_inside_a_reduce_is_stored():
    a, b = numbers(30, 12), numbers(20, 12)
    x, y = uopc.param("x", a.shape), uopc.param("y", b.shape)
    graph = (x @ y.permute(1, 0)).max(axis=1)
    np.testing.assert_array_equal(uopc.compile(graph)(a, b), (a @ b.T).max(axis=1))
    large = (uopc.param("x", (64, 96)) @ uopc.param("y", (96, 64))).max(axis=1)
    assert len(lower_only(large).kernels) == 2


def test_a_pooled_convolution_keeps_its_own_loops(cpu):
    image, weights = numbers(1, 2, 12, 12), numbers(5, 2, 3, 3)
    x, w = uopc.param("x", image.shape), uopc.param("w", weights.shape)
    got = on(cpu, x.conv2d(w, padding=1).relu().max_pool2d(2), image, weights)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.maximum(np.einsum("nchwij,kcij->nkhw", windows, weights), 0)
    wanted = wanted.reshape(1, 5, 6, 2, 6, 2).max((3, 5))
    np.testing.assert_array_equal(got, wanted)


# ---------------------------------------------------------------- what a reduce adds up is kept
@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.integers(1, 9), st.integers(1, 200), st.integers(1, 2),
    st.sampled_from(("float32", "float64")),
)  # fmt: skip
def test_softmax_of_every_width(cpu, rows, columns, threads, dtype):
    a = RNG.standard_normal((rows, columns)).astype(dtype)
    wide = a.astype("float64")
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    x = uopc.param("x", a.shape, getattr(uopc.dtypes, dtype))
    got = on(cpu, (x.softmax(), x.log_softmax()), a)
    total = e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got[0], e / total, rtol=3e-6)
    np.testing.assert_allclose(got[1], np.log(e / total), atol=3e-6, rtol=3e-6)


def test_the_exponentials_of_a_softmax_are_computed_once():
    lowered = lower_only(uopc.param("x", (64, 512)).softmax(), threads=1)
    assert lowered.kernels[0].arg.opts[0] == Opt("REUSE", 3, 0)
    assert sum(u.op is Ops.BUFFER for u in lowered.kernels[0].src) == 1
    cheap = uopc.param("x", (64, 512))
    cheap = cheap / cheap.sum(axis=1, keepdims=True)
    assert "REUSE" not in opts_of(cheap)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(CPUS), st.lists(st.integers(1, 18), min_size=1, max_size=3), st.integers(-1, 0),
    st.booleans(),
)  # fmt: skip
def test_short_softmax(cpu, dims, axis, logarithm):
    a = numbers(*dims)
    x = uopc.param("x", a.shape)
    graph = x.log_softmax(axis=axis) if logarithm else x.softmax(axis=axis)
    moved = a.astype("f8") - a.max(axis=axis, keepdims=True)
    sums = np.exp(moved).sum(axis=axis, keepdims=True)
    wanted = moved - np.log(sums) if logarithm else np.exp(moved) / sums
    np.testing.assert_allclose(on(cpu, graph, a), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.machine("desktop")
def test_lanes_are_rows_where_reduces_along_them_are_short_and_dear():
    x = uopc.param("x", (100, 10))
    for graph in (x.softmax(axis=1), x.log_softmax(axis=1)):
        opts = lower_only(graph, threads=1).kernels[0].arg.opts
        assert Opt("UPCAST", 1, 10) in opts and opts[-1] in (
            Opt("VECTOR", 0, 8), Opt("VECTOR", 0, 16), Opt("OVERLAP", 0, 8), Opt("OVERLAP", 0, 16)
        )  # fmt: skip
    assert opts_of(x - x.max(axis=1, keepdims=True))[-1] != "UPCAST"
    assert "REUSE" in opts_of(uopc.param("x", (2, 16)).softmax(axis=1))  # no rows to be lanes


@pytest.mark.parametrize("graph", [
    lambda x: x.softmax(),
    lambda x: (x.exp() * x).sum(axis=1, keepdims=True) + (x.exp() * x) + x.exp().sum(axis=1)[0],
    lambda x: x.pad(((0, 0), (2, 3))).sigmoid().softmax(),
    lambda x: (x - x.tanh().sum(axis=1, keepdims=True)) * x.tanh(),
])  # fmt: skip
def test_what_is_kept_is_what_another_loop_makes_of_the_value(graph):
    runs = lower_only(graph(uopc.param("x", (6, 40))), threads=1).runs
    kernels = next(r.before for r in runs if r.name == "optimize")
    found = 0
    for kernel in kernels:
        known = walk.toposort(kernel)
        loops = nest_of(kernel).axes
        for r in loops:
            try:
                value, others = reuse.find_recomputed(kernel, r)
            except Refused:
                continue
            like = [q for q in loops if q is not r and q.src[0] is r.src[0]]
            same = {rebuild.rebuild(value, {r: q}): q for q in like}
            assert others == {v: q for v, q in same.items() if v in known}
            found += len(others)
    assert found


def test_kept_values_in_threads():
    a = RNG.standard_normal((3000, 301)).astype("f4")
    program = uopc.compile(uopc.param("x", a.shape).softmax(), threads=3, verify=True)
    assert {o.op for o in program.kernels[0].opts} >= {"THREAD", "REUSE"}
    e = np.exp(a - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(program(a), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


# ---------------------------------------------------------------- threads
@pytest.mark.parametrize(
    ("small", "large"),
    [
        (lambda: uopc.param("x", (4, 64)).softmax(), lambda: uopc.param("x", (512, 64)).softmax()),
        (lambda: uopc.param("x", (9999,)) + 1.0, lambda: uopc.param("x", (999999,)) + 1.0),
        (lambda: uopc.param("x", (9999,)).exp(), lambda: uopc.param("x", (99999,)).exp()),
        (
            lambda: uopc.param("x", (64, 64)).permute(1, 0).contiguous(),
            lambda: uopc.param("x", (640, 640)).permute(1, 0).contiguous(),
        ),
    ],
    ids=["softmax", "add", "exp", "transpose"],
)
def test_only_kernels_with_work_enough_are_shared_among_threads(small, large):
    for make, shared in ((small, False), (large, True)):
        kernels = lower_only(make(), threads=2).kernels
        assert shared == any(o.op == "THREAD" for k in kernels for o in k.arg.opts)
    assert not any(o.op == "THREAD" for k in lower_only(large(), threads=1).kernels
                   for o in k.arg.opts)  # fmt: skip


# ---------------------------------------------------------------- loops are cut where guards turn
def guards(graph):
    """Gated accesses and selects of a graph's kernels."""
    found = [u for k in lower_only(graph, threads=1).kernels for u in k.src]
    gated = [u for u in found if (u.op, len(u.src)) in ((Ops.LOAD, 2), (Ops.STORE, 3))]
    return len(gated) + sum(u.op is Ops.WHERE for u in found)


def test_loops_over_pads_and_joined_parts_have_no_guards(cpu):
    a, b = numbers(70, 100), numbers(70, 60)
    x, y = uopc.param("x", a.shape), uopc.param("y", b.shape)
    graphs = [
        (uopc.cat(x, y, axis=1), np.concatenate([a, b], axis=1), (a, b)),
        (x.pad(((1, 1), (2, 3))) * 2.0, np.pad(a, ((1, 1), (2, 3))) * 2, (a,)),
        (x.pad(((0, 0), (7, 9))) + 1.0, np.pad(a, ((0, 0), (7, 9))) + 1, (a,)),
    ]
    for graph, wanted, arrays in graphs:
        assert guards(graph) == 0
        np.testing.assert_array_equal(on(cpu, graph, *arrays), wanted)


def test_a_triangle_is_not_cut():
    a = numbers(100, 130)
    graph = uopc.param("x", a.shape).tril()
    assert "PEEL" not in opts_of(graph)
    np.testing.assert_array_equal(uopc.compile(graph)(a), np.tril(a))


def test_rows_that_read_nothing_are_not_put_side_by_side():
    """The edges of a pad only write zeros."""
    assert "UPCAST" not in opts_of(uopc.param("x", (512, 512)).pad(((1, 1), (1, 1))) * 2.0)
