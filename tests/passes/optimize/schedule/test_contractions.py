"""Contractions as `compile` chooses to run them: any size, transposed, padded, threaded."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import MACHINES, lowered_for, runnable
from tests.reference import numbers
from uopc.backends import detect
from uopc.cost.machine import machine_of
from uopc.driver import lower_only
from uopc.ir.core import ranges, walk
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.passes.analysis import register_tiles, thresholds

SERVER = MACHINES["server"].target
RNG = np.random.default_rng(11)
SIZES = st.one_of(st.integers(1, 40), st.sampled_from([47, 48, 49, 64, 65, 97, 131]))
TARGETS = runnable("", "x86-64-v3")
of_a_desktop = pytest.mark.machine("desktop")  # its caches decide what is chosen


def check(graph, arrays, wanted, threads=1, target=""):
    with uopc.options(target_cpu=target):
        program = uopc.compile(graph, threads=threads, verify=True)
    np.testing.assert_array_equal(program(*arrays), wanted)
    return program


@settings(max_examples=40, deadline=None)
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from(TARGETS))
def test_matmul_of_any_size(m, k, n, a_turned, b_turned, target):
    a, b = numbers(m, k), numbers(k, n)
    x, y = uopc.param("x", (k, m) if a_turned else (m, k)), uopc.param("y", (k, n))
    left = x.permute(1, 0) if a_turned else x
    right = uopc.param("y", (n, k)).permute(1, 0) if b_turned else y
    given_a = np.ascontiguousarray(a.T) if a_turned else a
    given_b = np.ascontiguousarray(b.T) if b_turned else b
    check(left @ right, [given_a, given_b], a @ b, target=target)


def plain_conv(x, w, stride, pad, groups):
    """A convolution, a tap at a time."""
    n, _, h, width = x.shape
    o, per, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = (h + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    out = np.zeros((n, o, oh, ow), x.dtype)
    for i in range(kh):
        for j in range(kw):
            seen = x[:, :, i : i + oh * stride : stride, j : j + ow * stride : stride]
            for g in range(groups):
                part = slice(g * o // groups, (g + 1) * o // groups)
                out[:, part] += np.einsum(
                    "ncyx,oc->noyx", seen[:, g * per : (g + 1) * per], w[part, :, i, j]
                )
    return out


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolution_of_any_size(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    groups, taps = draw(1, 2), draw(1, 4)
    n, c, o = draw(1, 2), groups * draw(1, 5), groups * draw(1, 18)
    h, width, stride, pad = draw(taps, 24), draw(taps, 70), draw(1, 3), draw(0, 2)
    x, w = numbers(n, c, h, width), numbers(o, c // groups, taps, taps)
    graph = uopc.param("x", x.shape).conv2d(
        uopc.param("w", w.shape), stride=stride, padding=pad, groups=groups
    )
    check(
        graph,
        [x, w],
        plain_conv(x, w, stride, pad, groups),
        target=data.draw(st.sampled_from(TARGETS)),
    )


def exact_softmax(x):
    """A producer with reduces of its own whose numbers are exact: x - max + Σ x."""
    return x - x.max(axis=-1, keepdims=True) + x.sum(axis=-1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from(TARGETS), st.integers(1, 3))
def test_an_operand_that_is_computed(m, k, n, target, threads):
    """Its rows are computed once, whatever number of panels reads them."""
    x, y = numbers(2, m, k), numbers(2, k, n)
    a, b = uopc.param("x", x.shape), uopc.param("y", y.shape)
    wanted = np.matmul(exact_softmax(x), y * 2) + 1
    got = uopc.where(a > -99, a, 0.0)
    got = got - got.max(axis=-1, keepdims=True) + got.sum(axis=-1, keepdims=True)
    check(got @ (b * 2.0) + 1.0, [x, y], wanted, threads, target)


@pytest.mark.parametrize(("rows", "threads"), [(333, 2), (331, 3), (129, 5), (1000, 2)])
def test_chunks_of_an_operand_that_is_computed(rows, threads):
    """Rows that threads do not share evenly: each computes its own once, not for each panel."""
    x, y = numbers(rows, 96), numbers(96, 80)
    a, b = uopc.param("a", x.shape), uopc.param("b", y.shape)
    program = check((a * a - a.max(axis=-1, keepdims=True)) @ b, [x, y],
                    (x * x - x.max(axis=1, keepdims=True)) @ y, threads)  # fmt: skip
    chosen = [o.op for o in program.kernels[-1].opts]
    assert "THREAD" in chosen and "PACK" in chosen


@pytest.mark.parametrize("threads", [1, 3])
def test_symbolic_rows_of_an_operand_that_is_computed(threads):
    n = uopc.variable("n", 1, 400)
    graph = (uopc.param("a", (n, 96)) * 2.0 + 1.0).relu() @ uopc.param("b", (96, 80))
    program, y = uopc.compile(graph, threads=threads, verify=True), numbers(96, 80)
    assert "PACK" in [o.op for o in program.kernels[-1].opts]
    for rows in (1, 2, 7, 64, 399, 400):
        x = numbers(rows, 96)
        np.testing.assert_array_equal(program(x, y), np.maximum(x * 2 + 1, 0) @ y)


def test_the_last_rows_of_a_free_number_are_halves_of_a_tile():
    """As long as their sums hide each other's latency: one row costs no whole tile."""
    n, b = uopc.variable("n", 1, 400), numbers(96, 256)
    graph = uopc.param("a", (n, 96)) @ uopc.constant(b)
    (kernel,) = lowered_for("workstation", graph).kernels
    made = [(o.op, o.arg) for o in kernel.arg.opts or ()]
    assert made[-3:] == [("SPLIT", 2), ("UPCAST", 2), ("UPCAST", 5)], made
    program = uopc.compile(graph, threads=1, verify=True)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 64):
        a = numbers(rows, 96)
        np.testing.assert_array_equal(program(a), a @ b)


def test_rows_without_a_bound_are_computed_in_blocks():
    """The memory of a block is that of the caches, and no bound changes the schedule."""
    y, chosen = numbers(96, 80), []
    for most in (4096, 1 << 20, 1 << 40):
        n = uopc.variable("n", 1, most)
        graph = (uopc.param("a", (n, 96)) * 2.0 + 1.0).relu() @ uopc.param("b", (96, 80))
        program = uopc.compile(graph, threads=1, verify=True)
        chosen.append(program.kernels[-1].opts)
        for rows in (1, 7, 333, 680, 1100):
            x = numbers(rows, 96)
            np.testing.assert_array_equal(program(x, y), np.maximum(x * 2 + 1, 0) @ y)
    assert chosen[0] == chosen[1] == chosen[2]
    assert {"BLOCK", "PACK"} <= {o.op for o in chosen[0]}
    assert program.stats["arena"] <= 1 << 20


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_pooled_convolution(data):
    """The maximum over windows of a convolution: sums and maxima are registers side by side."""
    c, o = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 20))
    h, width = 2 * data.draw(st.integers(2, 9)), 2 * data.draw(st.integers(2, 20))
    x, w = numbers(1, c, h, width), numbers(o, c, 3, 3)
    graph = uopc.param("x", x.shape).conv2d(uopc.param("w", w.shape), padding=1)
    wanted = plain_conv(x, w, 1, 1, 1).reshape(1, o, h // 2, 2, width // 2, 2).max((3, 5))
    check((graph + 1.0).relu().max_pool2d(2), [x, w], np.maximum(wanted + 1, 0))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("dims", [(97, 65, 131), (64, 300, 64), (5, 200, 999), (333, 40, 17)])
@pytest.mark.few(3)
def test_shared_among_threads(dims, threads):
    m, k, n = dims
    a, b = numbers(m, k), numbers(k, n)
    check(uopc.param("a", (m, k)) @ uopc.param("b", (k, n)), [a, b], a @ b, threads)


@pytest.mark.slow
@of_a_desktop
@settings(max_examples=12, deadline=None)
@given(st.integers(400, 440), st.integers(90, 110), st.integers(1, 400), st.integers(1, 3),
       st.sampled_from(TARGETS))  # fmt: skip
def test_blocks_of_rows_and_columns(m, k, n, threads, target):
    """With a last cache of 512 KiB, so to say, rows and packed columns are walked in blocks."""
    a, b = numbers(m, k), numbers(k, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "BLOCK_SHARE", 1 << 9)
        patch.setattr(thresholds, "PACKED_SHARE", 1 << 12)
        graph = uopc.param("blocked", (m, k)) @ uopc.param("b", (k, n))
        check(graph, [a, b], a @ b, threads, target)
        with uopc.options(target_cpu=target):
            chosen = lower_only(graph, threads=1).kernels[0].arg.opts
    assert n < 128 or {"BLOCK", "PACK"} <= {o.op for o in chosen}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_images_smaller_than_a_vector(data):
    """Their rows are joined: lanes go along rows and columns of the result."""

    def draw(low, high):
        return data.draw(st.integers(low, high))

    n, c, o, taps = draw(1, 2), draw(1, 5), draw(6, 70), draw(1, 3)
    x, w = numbers(n, c, draw(3, 15), draw(3, 15)), numbers(o, c, taps, taps)
    stride, pad, threads = draw(1, 2), draw(0, 1), draw(1, 2)
    graph = uopc.param("x", x.shape).conv2d(uopc.param("w", w.shape), stride=stride, padding=pad)
    target = data.draw(st.sampled_from(TARGETS))
    wanted = plain_conv(x, w, stride, pad, 1)
    check((graph * 2.0 + 1.0).relu(), [x, w], np.maximum(wanted * 2 + 1, 0), threads, target)


@pytest.mark.machine("workstation")
@pytest.mark.parametrize(
    ("outputs", "inputs", "taps", "joins"), [(64, 32, 3, 2), (64, 32, 5, 1), (16, 8, 2, 1)]
)
def test_taps_and_channels_of_the_gradient_of_weights_are_joined(outputs, inputs, taps, joins):
    """As long as that fills lanes: 9 taps leave 7 of 16 empty, 25 leave 7 of 32."""
    x, w = uopc.param("x", (2, inputs, 6, 6)), uopc.param("w", (outputs, inputs, taps, taps))
    y = x.conv2d(w, padding=taps // 2)
    back = uopc.param("back", y.shape)
    program = uopc.compile(uopc.vjp(y, w, back), inputs=[x, back], threads=1)
    assert [o.op for o in program.kernels[-1].opts].count("COALESCE") == joins
    rng = np.random.default_rng(taps)
    a, g = rng.standard_normal(x.shape), rng.standard_normal(y.shape)
    wide = np.pad(a, ((0, 0), (0, 0), *[(taps // 2,) * 2] * 2))
    seen = np.lib.stride_tricks.sliding_window_view(wide, y.shape[2:], (2, 3))
    want = np.einsum("ncijyx,nkyx->kcij", seen, g)
    np.testing.assert_allclose(program(a.astype("f4"), g.astype("f4")), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "size", "joined"),
    [(128, 4, True), (128, 28, True), (64, 24, False), (8, 30, False)],
)
def test_rows_are_joined_where_they_leave_lanes_empty(channels, size, joined):
    graph = uopc.param("x", (1, 64, size, size)).conv2d(
        uopc.param("w", (channels, 64, 3, 3)), padding=1
    )
    with uopc.options(target_cpu="x86-64-v3"):
        opts = lower_only(graph, threads=1).kernels[0].arg.opts
    assert ("COALESCE" in [o.op for o in opts]) == joined


@of_a_desktop
def test_few_rows_are_packed_in_blocks_and_threads_share_their_columns():
    a, b = numbers(96, 900), numbers(900, 2560)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape)
    for target in TARGETS:
        program = check(graph, [a, b], a @ b, 2, target)
        opts = program.kernels[0].opts
        assert [o.op for o in opts[:2]] == ["SWAP", "THREAD"]
        assert "BLOCK" in [o.op for o in opts]


def test_threads_share_transposed_columns_of_any_size():
    a, b = numbers(16, 300), numbers(384, 300)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape).permute(1, 0)
    program = check(graph, [a, b], a @ b.T, 2)
    assert [o.op for o in program.kernels[0].opts[:2]] == ["SWAP", "THREAD"]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int8"])
def test_dtypes(dtype):
    t = getattr(uopc.dtypes, dtype)
    a, b = numbers(37, 20).astype(t.numpy), numbers(20, 53).astype(t.numpy)
    wanted = (a.astype("f8") @ b.astype("f8")).astype("i4" if dtype == "int8" else t.numpy)
    check(uopc.param("a", a.shape, t) @ uopc.param("b", b.shape, t), [a, b], wanted)


def test_a_symbolic_size():
    n = uopc.variable("n", 1, 300)
    program = uopc.compile(uopc.param("a", (n, 33)) @ uopc.param("b", (33, 50)), verify=True)
    b = numbers(33, 50)
    for size in (1, 7, 64, 299):
        a = numbers(size, 33)
        np.testing.assert_array_equal(program(a, b), a @ b)


def test_no_comparison_in_the_loop_over_taps():
    """The border of a padded convolution is filled once, before the loops that multiply."""
    graph = uopc.param("x", (1, 8, 30, 30)).conv2d(uopc.param("w", (16, 8, 3, 3)), padding=1)
    (kernel,) = lower_only(graph, threads=1).kernels
    depth, deepest = 0, []
    for u in kernel.src:
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u.op is Ops.RANGE and u.arg.kind == "reduce":
            deepest.append(depth)
        if u.op is Ops.CMPLT and deepest:
            assert depth < max(deepest)


@of_a_desktop
def test_a_large_matmul_is_packed_and_a_small_one_not():
    def opts(n):
        (kernel,) = lower_only(uopc.param("a", (n, n)) @ uopc.param("b", (n, n)), threads=1).kernels
        return [o.op for o in kernel.arg.opts]

    assert "PACK" in opts(1024) and "PACK" not in opts(64)


def test_the_border_of_a_sum_is_no_scalar_loop():
    """17 x 33 times 33 x 65: each column is in a vector, each row in a block of accumulators."""
    graph = uopc.param("a", (17, 33)) @ uopc.param("b", (33, 65))
    with uopc.options(target_cpu="x86-64-v3"):
        (kernel,) = lower_only(graph, threads=1).kernels
    sums = [u for u in kernel.src if u.op is Ops.CARRY]
    assert sums and all(u.dtype.lanes > 1 for u in sums)
    assert any(isinstance(o, Opt) and o.op in ("PADTO", "SPLIT") for o in kernel.arg.opts)


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [(65536, 16, (16, 1)), (1024, 1024, (4, 4)), (333, 777, (9, 3)), (1, 300, (1, 7))],
)
def test_register_tiles(rows, columns, tile):
    found = register_tiles.register_tile(rows, columns, 16, 32, 4 * 777, machine_of(SERVER))
    assert found[:2] == tile and found[0] * found[1] + found[1] < 32


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "target", "held"),
    [(4001, 27, 7, "x86-64-v4", True), (4001, 28, 7, "x86-64-v4", True),
     (4001, 29, 7, "x86-64-v4", False), (4001, 3, 17, "x86-64-v4", False),
     (255, 3, 7, "x86-64-v4", False), (256, 3, 7, "x86-64-v4", True),
     (4001, 11, 8, "x86-64-v3", True), (4001, 12, 8, "x86-64-v3", False)],
)  # fmt: skip
def test_registers_hold_a_short_and_narrow_factor(rows, steps, columns, target, held):
    graph = uopc.param("a", (rows, steps)) @ uopc.param("b", (steps, columns))
    with uopc.options(target_cpu=target):
        (kernel,) = lower_only(graph, threads=1).kernels
        (function,) = lower_only(graph.sin(), threads=1).kernels
    assert ("UNROLL" in [o.op for o in kernel.arg.opts]) is held
    assert "UNROLL" not in [o.op for o in function.arg.opts]


@settings(max_examples=30, deadline=None)
@given(st.integers(250, 600), st.integers(1, 29), st.integers(1, 16),
       st.sampled_from(["float32", "float64", "int32"]), st.sampled_from([1, 2]),
       st.sampled_from(TARGETS))  # fmt: skip
def test_products_of_a_short_and_narrow_factor(m, k, n, dtype, threads, target):
    a, b, c = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype), numbers(n, dtype=dtype)
    x, y, z = (uopc.param(s, v.shape, dtype) for s, v in zip("xyz", (a, b, c)))
    check((x @ y + z).relu(), [a, b, c], np.maximum(a @ b + c, 0), threads, target)


def test_register_tiles_of_a_small_machine():
    rows, vectors, _ = register_tiles.register_tile(
        960, 960, 8, 16, 4096, machine_of(MACHINES["laptop"].target)
    )
    assert rows * vectors + vectors + 1 <= 16 and rows * vectors >= 8


def test_rows_in_the_second_cache_are_read_once():
    """A processor that begins two multiply-adds in a cycle waits for vectors of L2, so a tile of
    all rows beats two that read its panel."""
    usual = SERVER.figures
    fast = replace(usual, multiply_bytes=128.0, load_bytes=128.0)

    def tile(rows, held, figures=fast):
        machine = machine_of(replace(SERVER, figures=figures))
        return register_tiles.register_tile(
            rows, 512, 16, 32, 4 * 77, machine, vectors_in_l1=held
        )[:2]  # fmt: skip

    assert tile(8, 0) == (8, 3) and tile(8, 32) == tile(8, math.inf) == (4, 4)
    assert tile(16, 0) == (8, 3) == tile(8, 8), "the first tile brings a panel that L1 then holds"
    assert tile(64, 8) == tile(64, math.inf), "most of 64 rows find it there"
    assert tile(8, 0, usual) == (4, 4), "one unit: L2 brings a vector while it multiplies"


@pytest.mark.parametrize(
    ("depth", "columns", "rows"),
    [(256, 512, 8), (100, 512, 8), (16, 512, 4), (200, 320, 8), (16, 320, 4)],
    ids=["long and crowded", "crowded sets", "all of b", "a long panel", "all of b, again"],
)
def test_columns_that_the_first_cache_does_not_hold(depth, columns, rows, monkeypatch):
    """Eight rows are one tile where a second one would wait for L2, else two."""
    server = MACHINES["server"].target
    fast = replace(server.figures, multiply_bytes=128.0, load_bytes=128.0)
    monkeypatch.setattr(detect, "this_machine", lambda: replace(server, figures=fast))
    graph = uopc.param("a", (8, depth)) @ uopc.param("b", (depth, columns))
    (kernel,) = lower_only(graph, threads=1).kernels
    assert [o.arg for o in kernel.arg.opts if o.op == "UPCAST"][-1] == rows


def test_a_mask_takes_a_register():
    """22 columns: two vectors and one that is not full; 24 fill theirs."""
    for columns, masked, tile in ((22, True, (3, 3)), (22, False, (4, 3)), (24, True, (4, 3))):
        found = register_tiles.register_tile(
            64, columns, 8, 16, 4 * 77, machine_of(MACHINES["laptop"].target), masked
        )
        assert found[:2] == tile
    graph = uopc.param("x", (1, 16, 28, 28)).conv2d(uopc.param("w", (16, 16, 1, 7)))
    with uopc.options(target_cpu="x86-64-v3"):
        text = uopc.compile(graph, threads=1).kernels[0].asm
    loops = [loop.split("\n\tj")[0] for loop in text.split("\n.LBB") if "vfmadd" in loop]
    assert not any("(%rsp)" in loop for loop in loops)


def test_cache_sizes_are_read_from_the_system(tmp_path):
    """Each index is a folder of files; instruction caches and empty folders are passed by."""
    told = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    for i, parts in enumerate(told):
        (tmp_path / f"index{i}").mkdir()
        for name, text in zip(("level", "type", "size"), parts):
            (tmp_path / f"index{i}" / name).write_text(text + "\n", "utf-8")
    (tmp_path / "index9").mkdir()
    root = str(tmp_path)
    assert detect.cache_bytes(1, 7, root) == 48 << 10
    assert detect.cache_bytes(2, 7, root) == 2 << 20
    assert detect.cache_bytes(3, 7, root) == detect.cache_bytes(1, 7, root + "/none") == 7


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_thin_products_with_a_long_sum(data):
    """Cut in pieces that are small products: with and without a batch, in any order of the axes."""
    m, n, k = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20)), 8 * 4100
    batch = data.draw(st.sampled_from([(), (2,)]))
    a, b = numbers(*batch, m, k), numbers(*batch, k, n)
    x, y = uopc.param("x", (*batch, k, m)), uopc.param("y", b.shape)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    given_a = np.ascontiguousarray(np.swapaxes(a, -1, -2))
    program = check(x.permute(order) @ y, [given_a, b], a @ b, data.draw(st.integers(1, 2)))
    assert len(program.kernels) == 2


@of_a_desktop
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_long_sums_of_few_results_are_cut(data):
    """In blocks whose sums are added up in memory, the rest of the loop after them."""
    m, n = data.draw(st.integers(8, 40)), data.draw(st.integers(24, 40))
    k = data.draw(st.integers(8_000, 9_000))
    batch = data.draw(st.sampled_from([(), (2,)]))
    a, b = numbers(*batch, m, k, dtype="float64"), numbers(*batch, k, n, dtype="float64")
    x = uopc.param("x", (*batch, k, m), uopc.dtypes.float64)
    y = uopc.param("y", b.shape, uopc.dtypes.float64)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    arrays = [np.ascontiguousarray(np.swapaxes(a, -1, -2)), b]
    target = data.draw(st.sampled_from(TARGETS))
    program = check(x.permute(order) @ y * 2.0 + 1.0, arrays, a @ b * 2 + 1, 1, target)
    names = [o.op for o in program.kernels[0].opts]
    assert names.count("REDUCE_OUT") == 1 and "UPCAST" in names[names.index("REDUCE_OUT") :]


@of_a_desktop
@pytest.mark.parametrize(("rows", "columns"), [(12, 10), (33, 49), (5, 31)])
def test_ragged_columns_of_a_cut_sum_have_lanes(rows, columns):
    """Guards keep the columns that were added apart from the next row of the sums in memory."""
    a, b = numbers(rows, 20_001), numbers(20_001, columns)
    program = check(uopc.param("a", a.shape) @ uopc.param("b", b.shape), [a, b], a @ b, 1)
    names = [o.op for o in program.kernels[0].opts]
    lanes = [names[i + 1] for i, name in enumerate(names) if name == "PADTO"]
    assert "REDUCE_OUT" in names and lanes == ["VECTOR", "VECTOR"]


@of_a_desktop
def test_long_sums_of_many_results_are_not_cut():
    """Their sums would be loaded and stored too often; or the columns of a register tile stay in L2
    for its next rows, so that nothing is read again from farther away."""
    for m, n, k in ((256, 256, 8192), (48, 48, 1000), (320, 49, 960)):
        program = uopc.compile(uopc.param("a", (m, k)) @ uopc.param("b", (k, n)), threads=1)
        assert all(o.op != "REDUCE_OUT" for kernel in program.kernels for o in kernel.opts)


# ---------------------------------------------------------------- functions of the sums
@of_a_desktop
@pytest.mark.parametrize(("rows", "columns", "depth"), [(8, 256, 64), (13, 70, 5), (1, 64, 33)])
def test_functions_of_a_tile_of_sums_are_a_loop(rows, columns, depth):
    """Functions of much code are not spelled out for each of the sums: a loop computes them."""
    x, w = uopc.param("x", (rows, depth)), uopc.param("w", (depth, columns))
    graph = ((x @ w) + 1.0).tanh().exp()
    program = uopc.compile(graph, verify=True, threads=2)
    (made,) = program.kernels
    if rows > 1:
        assert "DISTRIBUTE" in [o.op for o in made.opts]
        assert made.source.count("\n") < 1500
    a, b = (RNG.standard_normal(u.shape).astype("f4") * 0.3 for u in (x, w))
    wanted = np.exp(np.tanh(a.astype("f8") @ b + 1.0))
    np.testing.assert_allclose(program(a, b), wanted, rtol=3e-6)


@of_a_desktop
@pytest.mark.parametrize(("channels", "size"), [(26, 40), (16, 20), (40, 40)])
@pytest.mark.usefixtures("without_predictions")
def test_functions_of_sums_at_an_edge_leave_the_other_sums_side_by_side(channels, size):
    """The columns that fill no tile have sums of their own, in the same rows."""
    x, y = uopc.param("x", (1, 8, size, size)), uopc.param("y", (1, 5, size, size))
    w, v = uopc.param("w", (channels, 8, 3, 3)), uopc.param("v", (channels, 5, 1, 1))
    arrays = [numbers(*p.shape) for p in (x, y, w, v)]
    padded = np.pad(arrays[0], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    first = np.einsum("ncijkl,ockl->noij", windows, arrays[2])
    second = np.einsum("ncij,oc->noij", arrays[0][:, :5] + arrays[1], arrays[3][:, :, 0, 0])
    cases = (
        (x.conv2d(w, None, 1, 1), first, [arrays[0], arrays[2]]),
        (x[:, :5].conv2d(v) + y.conv2d(v), second, [arrays[0], arrays[1], arrays[3]]),
    )
    for sums, wanted, arrays in cases:
        graph = (sums * 0.01).tanh().exp()
        runs = lower_only(graph, threads=1).runs
        kernel = next(run for run in runs if run.name == "optimize").after[-1]
        assert "DISTRIBUTE" in [o.op for o in kernel.arg.opts]
        reduces = [u for u in walk.toposort(kernel) if u.op is Ops.REDUCE]
        assert len(reduces) > 1 or size != 40 or len(arrays) == 3  # columns of their own
        for u in reduces:  # beside those of other rows, which share its operand
            assert any(q.arg.kind == "upcast" for q in ranges.ranges(u))
        program = uopc.compile(graph, verify=True, threads=1)
        wanted = np.exp(np.tanh(wanted.astype("f8") * 0.01))
        np.testing.assert_allclose(program(*arrays), wanted, rtol=3e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(2, 70), st.sampled_from(TARGETS))
def test_rows_of_any_length_are_computed_in_vectors(m, k, target):
    """The elements that whole vectors leave over are one narrower vector: nothing is masked, and
    one element at most goes alone."""
    s, v = uopc.param("s", (m, k)), uopc.param("v", (k, 32))
    with uopc.options(target_cpu=target):
        for kernel in lower_only(s.softmax() @ v, threads=1).kernels:
            gated = [u for u in kernel.src if u.op is Ops.STORE and len(u.src) > 2]
            alone = [u for u in kernel.src if u.op is Ops.STORE and u.src[1].dtype.lanes == 1]
            assert not gated and len(alone) <= 4
        program = uopc.compile(s.softmax() @ v, threads=1, verify=True)
    a, b = RNG.standard_normal((m, k)).astype("f4"), numbers(k, 32)
    e = np.exp(a.astype("f8") - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(program(a, b), e / e.sum(axis=1, keepdims=True) @ b, atol=1e-5)


def test_copies_of_what_is_unrolled_stay_few():
    """A convolution and that of a shortcut in one sum: its register tile has fewer rows."""
    rng = np.random.default_rng(1)
    shapes = {"x": (1, 16, 12, 12), "h": (1, 32, 6, 6), "w": (32, 32, 3, 3), "s": (32, 16, 1, 1)}
    arrays = {n: rng.standard_normal(dims).astype("f4") for n, dims in shapes.items()}
    x, h, w, s = [uopc.param(n, dims) for n, dims in shapes.items()]
    graph = (h.conv2d(w, padding=1) + x.conv2d(s, stride=2)).relu()
    assert max([len(k.src) for k in lower_only(graph).kernels]) < 4000
    padded = np.pad(arrays["h"], ((0, 0), (0, 0), (1, 1), (1, 1))).astype("f8")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, arrays["w"])
    wanted += np.einsum("nchw,oc->nohw", arrays["x"][:, :, ::2, ::2], arrays["s"][:, :, 0, 0])
    got = uopc.compile(graph, verify=True)(**arrays)
    np.testing.assert_allclose(got, np.maximum(wanted, 0), rtol=1e-4, atol=1e-3)


def put_side_by_side(h):
    """(batch, heads, rows, width) → (batch, rows, heads · width)"""
    b, n, t, d = h.shape
    axes = (0, 2, 1, 3)
    moved = h.permute(axes) if isinstance(h, uopc.UOp) else h.transpose(axes)
    return moved.reshape(b, t, n * d)


@settings(max_examples=15, deadline=None)
@given(SIZES, st.lists(st.tuples(SIZES, *[st.booleans()] * 3), min_size=2, max_size=3), SIZES,
       st.sampled_from([1, 2]), st.sampled_from(TARGETS))  # fmt: skip
def test_a_sum_of_products_of_any_size(m, depths, n, threads, target):
    """Operands of each product as they are, or computed; turned or not."""
    graph, wanted, names, arrays = uopc.zeros((m, n)), 0, [], []
    for i, (k, turned, left, right) in enumerate(depths):
        a, b = numbers(m, k), numbers(*((n, k) if turned else (k, n)))
        x, y = uopc.param(f"x{i}", a.shape), uopc.param(f"y{i}", b.shape)
        names, arrays = [*names, x, y], [*arrays, a, b]
        x, a = (x * 2.0 - 1.0, a * 2 - 1) if left else (x, a)
        y, b = (y * y + 1.0, b * b + 1) if right else (y, b)
        graph = graph + x @ (y.transpose() if turned else y)
        wanted = wanted + a @ (b.T if turned else b)
    with uopc.options(target_cpu=target):
        program = uopc.compile(graph, inputs=names, threads=threads, verify=True)
    np.testing.assert_array_equal(program(*arrays), wanted)


@of_a_desktop
@pytest.mark.parametrize("terms", [1, 2, 3])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.few(3)
@pytest.mark.usefixtures("without_predictions")
def test_each_product_of_a_sum_has_a_tile(terms, turned):
    """Heads put side by side, times matrices: one kernel, which packs the matrix of each."""
    heads = [numbers(2, 4, 64, 32) for _ in range(terms)]
    weights = [numbers(128, 128) for _ in range(terms)]
    names = [uopc.param(f"h{i}", (2, 4, 64, 32)) for i in range(terms)]
    names += [uopc.param(f"w{i}", (128, 128)) for i in range(terms)]
    graph, wanted = uopc.zeros((2, 64, 128)), 0
    for h, w, x, y in zip(names, names[terms:], heads, weights):
        graph = graph + put_side_by_side(h) @ (w.transpose() if turned else w)
        wanted = wanted + put_side_by_side(x) @ (y.T if turned else y)
    program = uopc.compile(graph, inputs=names, threads=1, verify=True)
    np.testing.assert_array_equal(program(*heads, *weights), wanted)
    (kernel,) = program.kernels
    ops = [o.op for o in kernel.opts]
    assert not turned or ops.count("PACK") == terms
    assert "UNROLL" not in ops  # no lanes along the sums


@pytest.mark.parametrize("dilation, kernels", [(64, (3, 1)), (64, (1, 3)), (32, (3, 3, 1))])
@pytest.mark.parametrize("machine", [
    pytest.param(name, marks=pytest.mark.machine(name)) for name in ("desktop", "workstation")
])  # fmt: skip
@pytest.mark.few(2)
def test_a_dilated_convolution_beside_others_of_its_input(dilation, kernels, machine):
    """Some copies of a term stand outside of the image in all lanes: a number, not a vector."""
    x, total, graph = numbers(1, 4, 600), np.zeros((2, 600), "f4"), None
    p = uopc.param("x", x.shape)
    for size in kernels:
        w, side = numbers(2, 4, size), dilation * (size // 2)
        wide = np.pad(x[0], ((0, 0), (side, side)))
        total += sum(w[:, :, k] @ wide[:, k * dilation : k * dilation + 600] for k in range(size))
        conv = p.conv(uopc.constant(w), padding=[(side, side)], dilation=[dilation])
        graph = conv if graph is None else graph + conv
    for threads in (1, 2):
        check(graph, [x], total[None], threads)
