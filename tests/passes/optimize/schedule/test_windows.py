"""Sums over windows that overlap: depthwise convolutions, pools and filters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import uopc
from tests.machines import lowered_for, runnable
from tests.reference import numbers

TARGETS = runnable("", "x86-64-v3")


def windows(x, taps, stride, pad, dilation, value=0):
    """The windows of the last two dimensions, as two more dimensions."""
    beside = [(0, 0)] * (x.ndim - 2) + [(n, n) for n in pad]
    x = np.pad(x, beside, constant_values=value)
    reach = [d * (k - 1) + 1 for k, d in zip(taps, dilation)]
    seen = sliding_window_view(x, reach, (-2, -1))
    return seen[..., :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_each_channel_on_its_own(data):
    """Rows of any length, of one element and of no whole vector; several results of a channel."""
    draw = data.draw
    n, c, more = (draw(st.integers(low, 3)) for low in (0, 1, 1))
    taps, pad = [[draw(st.integers(low, high)) for _ in "xy"] for low, high in ((1, 7), (0, 4))]
    stride, dilation = [[draw(st.integers(1, most)) for _ in "xy"] for most in (3, 2)]
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(taps, pad, dilation)]
    rows, columns = [draw(st.integers(m, m + 40)) for m in least]
    dtype = draw(st.sampled_from(["float32", "float64", "int32"]))
    x = numbers(n, c, rows, columns, dtype=dtype)
    w = numbers(c * more, 1, *taps, dtype=dtype)
    seen = windows(x, taps, stride, pad, dilation)
    wanted = np.einsum("nchwij,cmij->ncmhw", seen, w.reshape(c, more, *taps))
    image = [rows, columns]
    for i, name in enumerate(draw(st.sampled_from([(), ("h",), ("h", "w"), ("n", "n")]))):
        if name != "n" or rows == columns:  # free: any size from the least to some more
            image[i] = uopc.variable(name, max(least) if name == "n" else least[i], rows + columns)
    graph = uopc.param("x", (n, c, *image), dtype).conv2d(
        uopc.param("w", w.shape, dtype), None, tuple(stride), tuple(pad), tuple(dilation), c
    )
    with uopc.options(target_cpu=draw(st.sampled_from(TARGETS))):
        program = uopc.compile(graph, threads=draw(st.sampled_from([1, 2])), verify=True)
    np.testing.assert_array_equal(program(x, w), wanted.reshape(n, c * more, *wanted.shape[3:]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("size", "taps", "stride", "pad"), [(21, 3, 2, 1), (20, 5, 1, 2)])
def test_the_greatest_of_a_window(size, taps, stride, pad, target):
    x = numbers(2, 3, size, size)
    both = [[n] * 2 for n in (taps, stride, pad, 1)]
    with uopc.options(target_cpu=target):
        graph = uopc.param("x", x.shape).max_pool2d(taps, stride, pad)
        made = uopc.compile(graph, threads=1, verify=True)(x)
    np.testing.assert_array_equal(made, windows(x, *both, value=-np.inf).max((-2, -1)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("length", "taps"), [(40, 4), (300, 31)])
def test_windows_of_one_dimension(length, taps, target):
    """Several vectors take the place of rows."""
    x, w = numbers(2, 8, length), numbers(8, 1, taps)
    seen = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (taps - 1, 0))), taps, 2)
    padded = uopc.param("x", x.shape).pad(((0, 0), (0, 0), (taps - 1, 0)))
    with uopc.options(target_cpu=target):
        program = uopc.compile(padded.conv(uopc.param("w", w.shape), groups=8), threads=1)
    np.testing.assert_array_equal(program(x, w), np.einsum("ncli,ci->ncl", seen, w[:, 0]))


def opts(machine, size, taps, stride, pad):
    x, w = uopc.param("x", (1, 64, size, size)), uopc.param("w", (64, 1, taps, taps))
    stages = lowered_for(machine, x.conv2d(w, None, stride, pad, 1, 64), 1)
    return [(o.op, o.arg) for k in stages.kernels for o in k.arg.opts or ()]


@pytest.mark.parametrize(
    ("size", "taps", "stride", "pad", "packed"),
    [(28, 3, 1, 1, True), (30, 3, 1, 0, False), (57, 5, 2, 0, True), (56, 7, 1, 3, True)],
)
def test_rows_share_elements(size, taps, stride, pad, packed):
    """Guarded and strided elements are packed; rows that read neighbours are read in place."""
    made = opts("laptop", size, taps, stride, pad)
    assert ("PACK" in [op for op, _ in made]) == packed
    assert any(op == "UPCAST" and n >= 4 for op, n in made)


def test_registers_decide_whether_all_taps_are_straight_code():
    """25 weights and 4 sums fit 32 registers. Of 16, each row of taps is straight code."""
    unrolled = [[op for op, _ in opts(name, 32, 5, 1, 0)].count("UNROLL") for name in MACHINES]
    assert unrolled == [1, 2]


def test_the_sums_of_a_tile_leave_registers_for_their_terms():
    """Lanes along channels that are the last axis: four columns beside two vectors are 8 sums, for
    16 registers; beside four vectors 16, for 32. Borders, which run seldom, get single vectors."""
    x, w = uopc.param("x", (1, 28, 28, 192)), uopc.param("w", (192, 1, 3, 3))
    y = x.permute(0, 3, 1, 2).conv2d(w, None, 1, 1, 1, 192).permute(0, 2, 3, 1)
    for name, vectors in zip(MACHINES, (2, 4)):
        (kernel,) = lowered_for(name, y.contiguous(), 1).kernels
        made = [(o.op, o.arg) for o in kernel.arg.opts or ()]
        copied = [n for (op, _), (after, n) in itertools.pairwise(made)
                  if op == "VECTOR" and after == "UPCAST"]  # fmt: skip
        assert ("UPCAST", 4) in made and copied == [vectors], made
        assert [op for op, _ in made].count("VECTOR") >= 9


MACHINES = ("laptop", "workstation")


def test_a_stride_of_many_phases_is_no_straight_code():
    """As in a spectrogram: each phase of the stride would be a loop of its own."""
    x, w = uopc.param("x", (1, 1, 12000)), uopc.param("w", (1, 1, 512))
    (kernel,) = lowered_for("laptop", x.conv(w, stride=40), 1).kernels
    assert [o.op for o in kernel.arg.opts or ()].count("PEEL") < 16


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("taps", "stride", "pad"), [(3, 2, 1), (2, 2, 0), (5, 1, 2), (3, 1, 1)])
def test_windows_of_a_free_image(taps, stride, pad, target):
    """At all sizes about those at which rows, vectors and their rests begin."""
    n = uopc.variable("n", taps - 2 * pad if taps > 2 * pad else 1, 200)
    x = uopc.param("x", (2, 3, n, n))
    graph = (x.max_pool2d(taps, stride, pad), x.avg_pool2d(taps, stride, pad))
    with uopc.options(target_cpu=target):
        program = uopc.compile(graph, threads=1, verify=True)
    for size in (*range(taps, 12), *range(15, 20), *range(31, 37), 50, 65):
        a = numbers(2, 3, size, size)
        both = [[k] * 2 for k in (taps, stride, pad, 1)]
        most, mean = program(a)
        np.testing.assert_array_equal(most, windows(a, *both, value=-np.inf).max((-2, -1)))
        np.testing.assert_allclose(mean, windows(a, *both).mean((-2, -1)), 1e-5, 1e-5)


def test_rows_of_a_free_image_are_side_by_side_between_its_borders():
    """Rows have no guards between the first and the last; guards of columns are masks."""
    n = uopc.variable("n", 1, 1024)
    for machine in MACHINES:
        made = [op for op, _ in opts(machine, n, 3, 1, 1)]
        assert made[:2] == ["PEEL", "SPLIT_AT"] and "UPCAST" in made and "PACK" not in made
