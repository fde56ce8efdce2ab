"""Products of small integers, added up in float32: the bits are those of integers."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.machines import runnable
from uopc import dtypes
from uopc.driver import lower_only
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

RNG = np.random.default_rng(18)
TARGETS = runnable("", "x86-64-v3", "x86-64")
KINDS = {"i1": dtypes.int8, "u1": dtypes.uint8, "?": dtypes.bool_, "i2": dtypes.int16}


def extremes(kind, *dims):
    """Numbers that are mostly the least and the greatest of their type."""
    if kind == "?":
        return RNG.random(dims) < 0.9
    limits = np.iinfo(kind)
    sure = RNG.integers(limits.min, limits.max + 1, dims).astype(kind)
    return np.where(RNG.random(dims) < 0.5, np.array(limits.min or limits.max, kind), sure)


def in_floats(graph):
    """True if products of a graph are added up in float32."""
    narrowed = next(r for r in lower_only(graph, threads=1).runs if r.name == "narrow-products")
    nodes = walk.toposort(narrowed.after[0])
    return any(u.op is Ops.REDUCE and u.dtype is dtypes.float32 for u in nodes)


@pytest.mark.parametrize(
    ("kinds", "depth", "wanted"),
    [
        ("i1 i1", 1024, True), ("i1 i1", 1031, False), ("i1 i1", 2050, True), ("i1 i1", 7, True),
        ("u1 i1", 514, True), ("u1 i1", 521, False), ("u1 u1", 258, True), ("u1 u1", 516, True),
        ("i1 ?", 1031, True), ("u1 ?", 300, True), ("i2 i1", 8, False),
        ("i2 i1", 1, False), ("i2 i1", 4, True), ("i2 ?", 512, True),
    ],
)  # fmt: skip
@pytest.mark.few(3)
def test_products_of_any_depth(kinds, depth, wanted):
    one, other = kinds.split()
    a, b = extremes(one, 5, depth), extremes(other, depth, 19)
    x, y = uopc.param("x", a.shape, KINDS[one]), uopc.param("y", b.shape, KINDS[other])
    for of in (dtypes.int32, dtypes.int64, dtypes.uint32):
        graph = x.cast(of) @ y.cast(of)
        assert in_floats(graph) == (wanted and (of is not dtypes.uint32 or "i" not in kinds))
        exact = a.astype(of.numpy) @ b.astype(of.numpy)
        target = TARGETS[depth % len(TARGETS)]
        with uopc.options(target_cpu=target):
            program = uopc.compile(graph, threads=2, verify=True)
        np.testing.assert_array_equal(program(a, b), exact)
        np.testing.assert_array_equal(interpreter.evaluate(graph, {"x": a, "y": b}), exact)


def test_zero_points_and_the_least_of_all():
    """Sums of 2**24 itself, and numbers from which a zero point is taken."""
    a, b = np.full((3, 1024), -128, "i1"), np.full((1024, 4), -128, "i1")
    x, y = uopc.param("x", a.shape, dtypes.int8), uopc.param("y", b.shape, dtypes.int8)
    graph = x.cast(dtypes.int32) @ y.cast(dtypes.int32)
    assert in_floats(graph)
    np.testing.assert_array_equal(uopc.compile(graph)(a, b), np.full((3, 4), 1 << 24))
    shifted = (x.cast(dtypes.int32) - 127) @ (y.cast(dtypes.int32) + 128)
    assert in_floats(shifted)
    c = extremes("i1", 1024, 4)
    wanted = (a.astype("i4") - 127) @ (c.astype("i4") + 128)
    np.testing.assert_array_equal(uopc.compile(shifted, verify=True)(a, c), wanted)


@pytest.mark.parametrize(("channels", "stride", "padding"), [(3, 1, 1), (130, 2, 0), (64, 1, 2)])
def test_convolutions(channels, stride, padding):
    """Blocks of channels, where a window of all has too many terms; borders of zeros."""
    a, b = extremes("u1", 2, channels, 9, 8), extremes("i1", 6, channels, 3, 3)
    x, w = uopc.param("x", a.shape, dtypes.uint8), uopc.param("w", b.shape, dtypes.int8)
    graph = x.cast(dtypes.int32).conv2d(w.cast(dtypes.int32), None, stride, padding)
    assert in_floats(graph)
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(a.astype("i4"), pads), (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    wanted = np.einsum("ncijkl,ockl->noij", windows, b.astype("i4"))
    np.testing.assert_array_equal(uopc.compile(graph, verify=True, threads=1)(a, b), wanted)


def test_what_stays_in_integers():
    """Sums without a factor that is used again, sizes that are symbols, given Opts, and GPUs."""
    x, y = (uopc.param(n, (64, 64), dtypes.int8).cast(dtypes.int32) for n in "xy")
    n = uopc.variable("n", 1, 64)
    z = uopc.param("z", (n, 8), dtypes.int8).cast(dtypes.int32)
    assert not in_floats((x * y).sum(axis=1))
    assert not in_floats(uopc.param("w", (4, n), dtypes.int8).cast(dtypes.int32) @ z)
    assert not in_floats((x @ y).contiguous(()))
    lowered = lower_only(x @ y, device="cuda:sm_80")
    nodes = walk.toposort(next(r for r in lowered.runs if r.name == "narrow-products").after[0])
    assert not any(u.dtype.is_float for u in nodes)
