"""Operands of contractions that are packed, computed or turned over: when, and the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import uopc
from tests.machines import only_lowered
from tests.passes.optimize.schedule.test_contractions import (
    RNG,
    TARGETS,
    check,
    of_a_desktop,
    plain_conv,
)
from tests.reference import numbers
from uopc.driver import lower_only
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.passes.analysis import thresholds


@pytest.mark.parametrize(("dilation", "apart"), [(1, False), (2, True)])
def test_windows_that_a_panel_does_not_join_are_packed_by_panel(dilation, apart):
    """Rows of 40 in one loop: taps 80 columns apart are in other panels of 64, and a tile of all
    windows would hold each element nine times."""
    w = uopc.constant(numbers(64, 48, 3, 3))
    x = uopc.param("x", (1, 48, 40, 40))
    with only_lowered("server"):
        lowered = lower_only(x.conv2d(w, padding=dilation, dilation=dilation), threads=1)
    names = [o.op for o in lowered.runs[-1].after[0].arg.opts]
    assert "COALESCE" in names and ("SWAP" in names) is apart


@of_a_desktop
@pytest.mark.parametrize("dims", [(40, 5003), (513, 13, 13)])
def test_columns_whose_windows_leave_the_cache_are_packed_a_panel_at_a_time(dims):
    """A long convolution in one dimension, and rows of a picture that are joined: all windows take
    more than half of L2."""
    c, *size = dims
    x, w = numbers(1, c, *size), numbers(64, c, *[3] * len(size))
    graph = uopc.param("x", x.shape).conv(uopc.param("w", w.shape), None, 1, 1)
    padded = np.pad(x[0], [(0, 0), *[(1, 1)] * len(size)])
    axes = tuple(range(1, x.ndim - 1))
    seen = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axes)
    moved = np.moveaxis(seen, 0, len(size)).reshape(math.prod(size), -1)
    wanted = (w.reshape(64, -1) @ moved.T).reshape(1, 64, *size)
    program = check(graph, [x, w], wanted)
    ops = [o.op for o in program.kernels[0].opts]
    assert "SWAP" in ops[: ops.index("PACK")]


@of_a_desktop
@pytest.mark.parametrize(("size", "rows"), [(3, 24), (9, 25), (5, 64)])
def test_rows_of_both_products_of_a_sum_are_joined(size, rows):
    """A strided convolution and another one added: images smaller than the vectors of a tile."""
    x, y = uopc.param("x", (1, 6, 2 * size, 2 * size)), uopc.param("y", (1, 9, size, size))
    w, v = uopc.param("w", (rows, 6, 1, 1)), uopc.param("v", (rows, 9, 1, 1))
    graph = x.conv2d(w, None, 2) + y.conv2d(v)
    arrays = [numbers(*p.shape) for p in (x, y, w, v)]
    a, b, c, d = (array.astype("i4") for array in arrays)
    wanted = np.einsum("ncij,oc->noij", a[:, :, ::2, ::2], c[:, :, 0, 0])
    wanted = wanted + np.einsum("ncij,oc->noij", b, d[:, :, 0, 0])
    program = check(graph, arrays, wanted)
    assert "COALESCE" in [o.op for o in program.kernels[0].opts]


@pytest.mark.parametrize("size", [5, 14, 56])
def test_both_products_of_a_sum_get_a_tile_where_their_operands_are_computed(
    size, without_predictions
):
    """A block of a quantised residual network: images and weights of 8 bits, with scales."""
    shapes = {"x": (1, 6, 2 * size, 2 * size), "y": (1, 9, size, size),
              "w": (24, 6, 1, 1), "v": (24, 9, 1, 1)}  # fmt: skip
    names = [uopc.param(n, s, uopc.dtypes.uint8) for n, s in shapes.items()]
    floats = [(p.cast(uopc.dtypes.float32) - 3.0) * 0.5 for p in names]
    graph = floats[0].conv2d(floats[2], None, 2) + floats[1].conv2d(floats[3])
    arrays = [RNG.integers(0, 7, s).astype("u1") for s in shapes.values()]
    a, b, c, d = ((array.astype("f4") - 3) / 2 for array in arrays)
    wanted = np.einsum("ncij,oc->noij", a[:, :, ::2, ::2], c[:, :, 0, 0])
    wanted = wanted + np.einsum("ncij,oc->noij", b, d[:, :, 0, 0])
    program = check(graph, arrays, wanted)
    assert [o.op for o in program.kernels[0].opts].count("PACK") >= 4
    (kernel,) = next(r for r in lower_only(graph, threads=1).runs if r.name == "optimize").after
    for u in walk.toposort(kernel):
        if u.op is Ops.REDUCE:
            copies = [q.src[0].arg for q in ranges.ranges(u) if q.arg.kind == "upcast"]
            assert max(copies, default=1) > 2


@of_a_desktop
def test_computed_weights_of_a_convolution_are_packed_before_its_rows():
    """All of them at once: rows of the result then share the vectors of the image."""
    x, w = numbers(1, 5, 18, 18), numbers(24, 5, 3, 3)
    graph = uopc.param("x", x.shape).conv2d(uopc.param("w", w.shape) * 2.0 - 1.0, None, 1, 1)
    program = check(graph, [x, w], plain_conv(x, w * 2 - 1, 1, 1, 1))
    (kernel,) = next(r for r in lower_only(graph, threads=1).runs if r.name == "optimize").after
    assert [o.op for o in program.kernels[0].opts].count("PACK") >= 2
    for u in walk.toposort(kernel):
        if u.op is Ops.REDUCE:
            copies = [q.src[0].arg for q in ranges.ranges(u) if q.arg.kind == "upcast"]
            assert max(copies, default=1) > 2


def test_the_exponentials_of_a_computed_operand_are_kept():
    """Those that its rows' sums add up are those that are packed."""
    s, v = uopc.param("s", (96, 80)), uopc.param("v", (80, 64))
    (kernel,) = lower_only(s.softmax() @ v, threads=1).kernels
    chosen = [o.op for o in kernel.arg.opts]
    assert chosen.index("PACK") < chosen.index("REUSE") < chosen.index("VECTOR")
    a, b = RNG.standard_normal((96, 80)).astype("f4"), numbers(80, 64)
    e = np.exp(a - a.max(axis=1, keepdims=True))
    program = uopc.compile(s.softmax() @ v, threads=2, verify=True)
    np.testing.assert_allclose(program(a, b), e / e.sum(axis=1, keepdims=True) @ b, atol=1e-5)


@of_a_desktop
def test_an_operand_is_packed_where_it_serves_many_rows():
    def chosen(rows):
        graph = uopc.param("a", (rows, 256)) @ uopc.param("b", (256, 512))
        return {o.op for o in lower_only(graph, threads=1).kernels[0].arg.opts}

    few = thresholds.LEAST_ROWS_TO_PACK - 1
    assert "PACK" not in chosen(few) and "PACK" in chosen(few + 1)
    with uopc.options(target_cpu="x86-64-v4"):  # a vector is a line of the cache
        few = thresholds.LEAST_ROWS_OF_LINES - 1
        assert "PACK" not in chosen(few) and "PACK" in chosen(few + 1)


@of_a_desktop
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "packed"),
    [
        (16, 64, 1024, True), (15, 64, 1024, False), (96, 64, 256, True), (95, 64, 256, False),
        (512, 8, 1024, False), (512, 64, 260, False), (512, 32, 256, False),
    ],
)  # fmt: skip
def test_an_operand_whose_rows_share_cache_sets_is_packed(rows, depth, columns, packed):
    """A small one too, if it has more rows than the sets hold; of whole pages from 16 rows on."""
    a, b = numbers(rows, depth), numbers(depth, columns)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape)
    (kernel,) = lower_only(graph, threads=1).kernels
    assert packed == any(o.op == "PACK" for o in kernel.arg.opts)
    check(graph, [a, b], a @ b)


@pytest.mark.parametrize("rows", [3, 4, 20])
@pytest.mark.parametrize("target", [*TARGETS, "x86-64-v4"])
def test_transposed_columns_are_turned_over_in_registers(rows, target):
    """From 4 rows on they are packed: read in pieces, none of them a single element."""
    a, b = numbers(rows, 40), numbers(80, 40)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape).permute(1, 0)
    with uopc.options(target_cpu=target):
        (kernel,) = lower_only(graph, threads=1).kernels
    packed = [o for o in kernel.arg.opts if o.op == "PACK"]
    assert bool(packed) == (rows >= thresholds.LEAST_ROWS_TO_TRANSPOSE)
    if packed:
        whole = [u for u in kernel.src if u.op is Ops.SHUFFLE and len(u.src) == 2]
        assert len(whole) >= 2 * 8
    if target in TARGETS:
        check(graph, [a, b], a @ b.T, target=target)


@pytest.mark.parametrize("shape", [(192, 200), (33, 70), (1, 5), (0, 4)])
@pytest.mark.parametrize("target", [*TARGETS, "x86-64-v4"])
def test_bools_are_turned_over_as_bytes_are(shape, target):
    """With the shuffles of bytes and no element alone: there is no shuffle of single bits."""
    a = np.random.default_rng(shape[1]).integers(0, 2, shape).astype(np.bool_)
    alone = {}
    for t in (uopc.dtypes.bool_, uopc.dtypes.uint8):
        x = uopc.param("x", shape, t)
        graph = x.permute(1, 0).contiguous()
        with uopc.options(target_cpu=target, threads=1):
            kernels = lower_only(graph).kernels
        nodes = [u for k in kernels for u in k.src]
        alone[t] = sum(u.op is Ops.LOAD and u.dtype.lanes == 1 for u in nodes)
        assert not [u for u in nodes if u.op is Ops.SHUFFLE and u.dtype.kind == "bool"]
        if target in TARGETS:
            with uopc.options(target_cpu=target):
                got = uopc.compile(graph, threads=1, verify=True)(a.astype(t.numpy))
            np.testing.assert_array_equal(got, a.T.astype(t.numpy))
    assert alone[uopc.dtypes.bool_] == alone[uopc.dtypes.uint8]
