"""Kernels of several sums whose windows, strides and guards differ: one tile for all sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import lowered_for, runnable
from tests.reference import as_param, numbers

TARGETS = runnable("", "x86-64-v3")


def plain_conv(x, w, stride, pad, dilation):
    """A convolution, a tap at a time."""
    taps = w.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    reach = dilation * (taps - 1) + 1
    down, across = [(n - reach) // stride + 1 for n in x.shape[2:]]
    out = np.zeros((len(x), len(w), down, across), x.dtype)
    for i in range(taps):
        for j in range(taps):
            rows = slice(i * dilation, i * dilation + (down - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (across - 1) * stride + 1, stride)
            out += np.einsum("ncyx,oc->noyx", x[:, :, rows, columns], w[:, :, i, j])
    return out


JOINED = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: (a + 1) * b,
    "squares": lambda a, b: a * a + b * b,
}


@st.composite
def convolutions(draw, dtype):
    """Two convolutions with results of equal shape: (x, w, stride, pad, dilation) each. One or two
    images, a prime or a single output, guards at no edge, one or both."""

    def whole(low, high):
        return draw(st.integers(low, high))

    n, o, down, across = whole(1, 2), whole(1, 19), whole(1, 9), whole(1, 41)
    shared = draw(st.booleans())  # both read one image
    found = []
    for _ in range(2):
        taps, stride, dilation = whole(1, 4), whole(1, 2), whole(1, 2)
        if shared:
            taps, stride, dilation = 2 * (taps // 2) + 1, 1, 1
        reach = dilation * (taps - 1) + 1
        pad = reach // 2 if shared else whole(0, reach // 2)
        height, width = [(m - 1) * stride + reach - 2 * pad for m in (down, across)]
        if height < 1 or width < 1:
            taps, stride, dilation, pad, height, width = 1, 1, 1, 0, down, across
        x = found[0][0] if shared and found else numbers(n, whole(1, 5), height, width, dtype=dtype)
        w = numbers(o, x.shape[1], taps, taps, dtype=dtype)
        found.append((x, w, stride, pad, dilation))
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_two_convolutions_of_any_size(dtype, data):
    each = data.draw(convolutions(dtype))
    join = JOINED[data.draw(st.sampled_from(sorted(JOINED)))]
    params = [(as_param(x, f"x{i}"), as_param(w, f"w{i}")) for i, (x, w, *_) in enumerate(each)]
    if each[0][0] is each[1][0]:
        params[1] = (params[0][0], params[1][1])
    made = [
        x.conv2d(w, stride=stride, padding=pad, dilation=dilation)
        for (x, w), (*_, stride, pad, dilation) in zip(params, each)
    ]
    arrays = {p.arg.name: a for pair, (x, w, *_) in zip(params, each) for p, a in zip(pair, (x, w))}
    target, threads = data.draw(st.sampled_from(TARGETS)), data.draw(st.integers(1, 2))
    with uopc.options(target_cpu=target):
        program = uopc.compile(join(*made), threads=threads, verify=True)
    wanted = join(*[plain_conv(*c) for c in each])
    got = program(*[arrays[spec.name] for spec in program.inputs])
    np.testing.assert_array_equal(got, wanted)


def padded(i, outputs, channels, size, taps, dilation=1):
    """A convolution whose result is as large as its image."""
    x = uopc.param(f"x{i}", (1, channels, size, size))
    weights = uopc.param(f"w{i}", (outputs, channels, taps, taps))
    return x.conv2d(weights, padding=dilation * (taps // 2), dilation=dilation)


def correlated(i):
    """The products of a wave with 65 patterns, every 80 samples."""
    x = uopc.param("x", (1, 1, 1, 4240))
    return x.conv2d(uopc.param(f"w{i}", (65, 1, 1, 256)), stride=(1, 80))


CASES = {
    "two images": lambda: padded(0, 48, 32, 40, 3) + padded(1, 48, 32, 40, 3),
    "different taps": lambda: padded(0, 24, 16, 28, 3) + padded(1, 24, 8, 28, 1),
    "different dilation": lambda: (padded(0, 32, 24, 20, 3) + 1.0) * padded(1, 32, 24, 20, 3, 2),
    "a spectrum": lambda: JOINED["squares"](correlated(0), correlated(1)),
}


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("machine", ["laptop", "workstation"])
@pytest.mark.usefixtures("without_predictions")
def test_all_sums_get_one_tile(case, machine):
    """Each sum has rows of vectors of accumulators, and reads its windows from a packed operand."""
    (kernel,) = lowered_for(machine, CASES[case](), 1).kernels
    kinds = [o.op for o in kernel.arg.opts]
    assert kinds.count("PACK") >= 2 and "UPCAST" in kinds
