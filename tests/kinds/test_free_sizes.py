"""Programs of a free size beside NumPy, at sizes around those of vectors and of tiles.

All arrays lie between guard pages, in a child process: a vector or a tile that ends beyond an array
ends that process.
"""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.fuzz.guards import guarded, passes_in_a_child

MOST = 100
SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 49, 72, 73, MOST)


def _made(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape).astype("f4")


def _x(*shape):
    return uopc.param("x", shape)


def _windows(x, size, padding, stride, outside=0.0):
    """The windows along all axes but the first two."""
    rank = len(size)
    pads = [(0, 0), (0, 0), *[(padding, padding)] * rank]
    x = np.pad(x, pads, constant_values=outside)
    seen = np.lib.stride_tricks.sliding_window_view(x, size, tuple(range(2, 2 + rank)))
    return seen[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]


def _conv(x, w, padding, stride=1):
    """A convolution over all axes but the first two."""
    rank = w.ndim - 2
    seen = _windows(x, w.shape[2:], padding, stride)
    taps = tuple(range(2 + rank, 2 + 2 * rank))
    found = np.tensordot(seen, w, ((1, *taps), tuple(range(1, 2 + rank))))
    return np.moveaxis(found, -1, 1)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(x):
    return _softmax(x @ x.transpose(0, 2, 1)) @ x


def _pairs(x):
    """The greatest of each 2 x 2 of x and 2 x; windows at the ends may have one row or column."""
    n = x.shape[-1] % 2
    x = np.pad(
        np.concatenate([x, x * 2], 1), [(0, 0), (0, 0), (0, n), (0, n)], constant_values=-np.inf
    )
    return _windows(x, (2, 2), 0, 2).max((4, 5))


W, U = _made(5, 12, 3), _made(20, 5, 5)
W2, U2 = _made(16, 3, 3, 3), _made(8, 16, 3, 3)
A, B = _made(33, 20), _made(20, 40)
CASES = {
    "elementwise": (lambda n: _x(9, n).exp() + 1, lambda n: (9, n), lambda x: np.exp(x) + 1),
    "sum of rows": (lambda n: _x(9, n).sum(1), lambda n: (9, n), lambda x: x.sum(1)),
    "sum of columns": (lambda n: _x(n, 9).sum(0), lambda n: (n, 9), lambda x: x.sum(0)),
    "rows of a product": (lambda n: _x(n, 20) @ B, lambda n: (n, 20), lambda x: x @ B),
    "columns of a product": (
        lambda n: uopc.constant(A) @ _x(20, n), lambda n: (20, n), lambda x: A @ x,
    ),
    "a sum of products": (
        lambda n: _x(n, 33).permute(1, 0) @ _x(n, 33), lambda n: (n, 33), lambda x: x.T @ x,
    ),
    "both sides": (
        lambda n: _x(n, 20) @ _x(n, 20).permute(1, 0), lambda n: (n, 20), lambda x: x @ x.T,
    ),
    "bytes": (
        lambda n: _x(n).bitcast(uopc.dtypes.uint8), lambda n: (n,), lambda x: x.view(np.uint8),
    ),
    "twice": (lambda n: _x(n, 3).cat(_x(n, 3) * 2, axis=0), lambda n: (n, 3),
              lambda x: np.concatenate([x, x * 2])),
    "columns twice": (lambda n: _x(5, n).cat(_x(5, n) * 2, axis=1), lambda n: (5, n),
                      lambda x: np.concatenate([x, x * 2], 1)),
}  # fmt: skip
# Of sizes above 0, and of images.
FILLED = {
    "a padded convolution": (
        lambda n: _x(2, 12, n).conv(W, padding=[(1, 1)]),
        lambda n: (2, 12, n), lambda x: _conv(x, W, 1),
    ),
    "a convolution after a stride": (
        lambda n: _x(1, 12, n).conv(W, padding=[(1, 1)], stride=2).tanh().conv(U, padding=[(2, 2)]),
        lambda n: (1, 12, n), lambda x: _conv(np.tanh(_conv(x, W, 1, 2)), U, 2),
    ),
    "softmax": (lambda n: _x(9, n).softmax(-1), lambda n: (9, n), _softmax),
    "attention": (
        lambda n: (_x(2, n, 16) @ _x(2, n, 16).permute(0, 2, 1)).softmax(-1) @ _x(2, n, 16),
        lambda n: (2, n, 16), _attention,
    ),
    "an image": (
        lambda n: _x(1, 3, n, n).conv(W2, padding=1).relu(),
        lambda n: (1, 3, n, n), lambda x: np.maximum(_conv(x, W2, 1), 0),
    ),
    "an image after a stride": (
        lambda n: _x(1, 3, n, n).conv(W2, padding=1, stride=2).relu().conv(U2, padding=1),
        lambda n: (1, 3, n, n), lambda x: _conv(np.maximum(_conv(x, W2, 1, 2), 0), U2, 1),
    ),
    "a pool": (
        lambda n: _x(2, 3, n, 9).max_pool((3, 3), stride=2, padding=1),
        lambda n: (2, 3, n, 9),
        lambda x: _windows(x, (3, 3), 1, 2, -np.inf).max((4, 5)),
    ),
    "a pool of an image": (
        lambda n: _x(1, 3, n, n).cat(_x(1, 3, n, n) * 2, axis=1).max_pool((2, 2), ceil_mode=True),
        lambda n: (1, 3, n, n), _pairs,
    ),
    "averages of an image": (
        lambda n: _x(1, 3, n, n).avg_pool((3, 3), stride=1, padding=1),
        lambda n: (1, 3, n, n), lambda x: _windows(x, (3, 3), 1, 1).mean((4, 5)),
    ),
    "a depthwise image": (
        lambda n: _x(1, 16, n, n).conv(W2[:, :1], padding=1, groups=16).relu(),
        lambda n: (1, 16, n, n),
        lambda x: np.maximum(np.einsum("bcijkl,ckl->bcij", _windows(x, (3, 3), 1, 1), W2[:, 0]), 0),
    ),
}  # fmt: skip


def _agrees(graph, shape, expected, sizes):
    """The program of a free size gives NumPy's numbers at each of these sizes."""
    least = min(sizes)
    program = uopc.compile(graph(uopc.variable("n", least, MOST)), threads=1)
    for size in sizes:
        x = _made(*shape(size))
        np.testing.assert_allclose(
            program(x=guarded(x)), expected(x), 1e-4, 1e-4, err_msg=f"size {size}"
        )


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CASES | FILLED)
def test_a_free_size_gives_the_numbers_of_numpy(name):
    sizes = SIZES if name in CASES else SIZES[1:]
    sizes = [n for n in sizes if "image" not in name or n < 50]
    passes_in_a_child(lambda: _agrees(*(CASES | FILLED)[name], sizes))


@pytest.mark.parametrize("more", [0, 1])
def test_a_rest_that_may_be_empty_stores_only_what_it_has(more):
    """A rest of at most one element: its vector stored the last element of the whole vectors, too,
    where the rest was empty, as nothing in it moved with the loop that did not run."""
    least, most = uopc.variable("m", 5, 5), uopc.variable("n", 0, 1)
    padded = uopc.param("x", (least + 3,), "float64").pad([(0, most)])
    x = np.arange(1.0, 9)
    found = uopc.compile(padded.cat(padded[:0]))(x=x, m=5, n=more)
    np.testing.assert_array_equal(found, np.pad(x, (0, more)))


def test_bytes_of_zeros_behind_a_rest():
    """The bits of a value that is zero in all lanes were taken of one lane."""
    m, n = uopc.variable("m", 0, 0), uopc.variable("n", 1, 100)
    zeros = uopc.param("x", (m,), "int32").pad([(n, 0)]).bitcast(uopc.dtypes.uint8)
    found = uopc.compile(zeros, threads=1)(x=np.zeros(0, "i4"), n=37)
    np.testing.assert_array_equal(found, np.zeros(148, "u1"))


def test_a_row_loop_that_never_runs_reads_nothing():
    """The masked rest of a row that is read backwards was read before the empty loop of rows."""

    def run():
        rows, n = uopc.variable("m", 0, 0), uopc.variable("n", 0, 33)
        graph = uopc.param("x", (rows * 3 + 2, n), "float64")[: rows * 3].flip(1) * 2
        program = uopc.compile(graph, threads=1)
        for size in (0, 1, 6, 8, 15, 33):
            assert program(x=guarded(np.ones((2, size))), m=0).shape == (0, size)

    passes_in_a_child(run)
