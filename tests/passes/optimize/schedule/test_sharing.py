"""Threads share the loop with which each takes least: what it does not count, all of them do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import THIS, lowered_for
from tests.reference import numbers
from uopc import UOp
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root


def image(channels: int, size: int) -> UOp:
    return uopc.param("x", (1, channels, size, size))


def larger(x: UOp) -> UOp:
    """Each row and each column twice."""
    _, c, h, w = x.shape
    return x.reshape((1, c, h, 1, w, 1)).expand((1, c, h, 2, w, 2)).reshape((1, c, 2 * h, 2 * w))


def convolution(x: UOp, channels: int) -> UOp:
    return x.conv2d(np.ones((channels, x.shape[1], 3, 3), "f4"), padding=1)


def product(*dims: int, columns: int) -> UOp:
    return uopc.param("x", dims) @ np.ones((dims[-1], columns), "f4")


def channels_last(channels: int, size: int) -> UOp:
    """A 3 x 3 convolution whose channels are the last axis of the image and of the result."""
    x = uopc.param("x", (channels, size, size))
    y = convolution(x.transpose(1, 2, 0).contiguous().transpose(2, 0, 1)[None], channels)
    return y[0].transpose(1, 2, 0)


CHOICES = {
    "rows of an image, which each thread would bring in order": (convolution(image(32, 64), 32), 1),
    "rows of an image that is made larger": (convolution(larger(image(64, 8)), 64), 1),
    "channels of a small image, whose weights are large": (convolution(image(512, 8), 512), 0),
    "columns of weights for few rows": (product(64, 768, columns=3072), 1),
    "columns for rows that are computed":
        (uopc.param("x", (64, 3072)).gelu() @ np.ones((3072, 768), "f4"), 1),
    "rows that no thread has as many of": (product(49, 512, columns=2048), 1),
    "columns that no thread has as many of": (product(64, 768, columns=3071), 1),
    "as many rows as columns": (product(512, 512, columns=512), 0),
    "columns that each thread would bring in order from a far cache":
        (uopc.param("x", (1024, 1024)) @ uopc.param("y", (1024, 1024)), 1),
    "as many rows as columns that lie near":
        (uopc.param("x", (256, 256)) @ uopc.param("y", (256, 256)), 1),
    "rows of three matrices": (uopc.param("x", (3, 64, 512)) @ np.ones((3, 512, 512), "f4"), 1),
    "channels that are lanes, of an image of seven rows": (channels_last(512, 7), 2),
    "no product": (uopc.param("x", (512, 2048)).exp(), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_the_loop_that_leaves_a_thread_less_is_shared(name: str) -> None:
    graph, depth = CHOICES[name]
    opts = lowered_for("dots", graph, threads=2).kernels[-1].arg.opts
    names = [o.op for o in opts]
    assert names[: depth + 1] == ["SWAP"] * depth + ["THREAD"]


def test_the_loops_around_keep_their_order() -> None:
    """Channels are outside of the rows that a tile holds, as they are with one thread."""
    graph = convolution(image(32, 64), 32)
    one, two = (lowered_for("dots", graph, threads=n).kernels[-1].arg.opts for n in (1, 2))
    assert [o.op for o in two] == ["SWAP", "THREAD", "SWAP", *[o.op for o in one]]


def test_no_two_threads_bring_the_same_rows_of_an_image() -> None:
    """The loop that fills a tile depends on the thread."""
    (kernel,) = lowered_for("dots", convolution(image(32, 64), 32), threads=2).kernels
    order = walk.order(kernel)
    (thread,) = {r for u in order for r in ranges.ranges(u) if r.arg.kind == "thread"}
    fills = [u for u in order if u.op is Ops.STORE and storage_root(u.src[0]).op is Ops.BUFFER]
    assert fills and all([thread in ranges.ranges(u.src[1]) for u in fills])


@pytest.mark.machine(THIS)
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_products_are_exact_whichever_loop_is_shared(threads: int) -> None:
    for dims, columns in [((60, 200), 768), ((49, 96), 516), ((3, 36, 80), 96), ((5, 300), 700)]:
        a, b = numbers(*dims), numbers(dims[-1], columns)
        for right in (uopc.constant(b), uopc.param("b", b.shape)):
            x = uopc.param("a", dims)
            graph = (x @ right, x.maximum(0) @ right)
            inputs = [x] if right.op is not Ops.PARAM else [x, right]
            program = uopc.compile(graph, inputs=inputs, threads=threads, verify=True)
            found = program(*([a] if len(inputs) == 1 else [a, b]))
            np.testing.assert_array_equal(found[0], a @ b)
            np.testing.assert_array_equal(found[1], np.maximum(a, 0) @ b)


@pytest.mark.machine(THIS)
@settings(max_examples=4, deadline=None)
@given(st.integers(1, 24), st.integers(1, 24), st.integers(4, 40), st.integers(4, 40),
       st.sampled_from([2, 3, 4]), st.booleans())  # fmt: skip
def test_convolutions_are_exact_whichever_loop_is_shared(
    channels: int, results: int, rows: int, columns: int, threads: int, doubled: bool
) -> None:
    w, given = numbers(results, channels, 3, 3), numbers(1, channels, rows, columns)
    x = uopc.param("x", given.shape)
    seen = larger(x) if doubled else x
    program = uopc.compile(seen.conv2d(w, padding=1), threads=threads)
    image = given.repeat(2, 2).repeat(2, 3) if doubled else given
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    np.testing.assert_array_equal(program(given), np.einsum("nchwij,kcij->nkhw", windows, w))
