"""What a kernel reads as indices while it is measured: each address stays inside."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.search.bench import Bench
from uopc.driver import lower_only
from uopc.errors import Unsupported
from uopc.program.tuned import schedules
from uopc.search import searcher
from uopc.search.indices import limits
from uopc.search.worker import Worker

pytestmark = pytest.mark.usefixtures("no_rows")
RNG = np.random.default_rng(5)


def param(name, *dims, dtype="float32"):
    return uopc.param(name, dims, dtype)


def indices(*dims):
    return param("i", *dims, dtype="int32")


def padded(window=3, stride=1, pad=1, groups=1):
    x, w = param("x", 2, 4, 9, 7), param("w", 8, 4 // groups, window, window)
    return x.conv2d(w, param("b", 8), stride, pad, 1, groups)


def kernels(graph):
    """Each kernel of a program as a request of its own."""
    request = uopc.compile(graph, threads=1)._source.request
    calls = lower_only(graph, threads=1).program.src
    return [searcher.standalone(call.src[0], call, request) for call in calls]


# The limits of each kernel of a graph.
KNOWN = {
    "rows": (lambda: param("x", 300, 8).take(indices(50), 0), [{1: 300}]),
    "row-sums": (lambda: param("x", 300, 8).take(indices(50, 4), 0).sum(1), [{1: 300}]),
    "two-arrays": (lambda: param("x", 9, 7)[indices(5), param("j", 5, dtype="int32")],
                   [{1: 7, 2: 7}]),
    "bytes": (lambda: param("x", 300, 8).take(param("i", 50, dtype="uint8"), 0), [{1: 256}]),
    "scatter": (lambda: param("x", 6, 6).at[indices(50)].add(param("z", 50, 6)), [{}, {}, {1: 6}]),
    "convolution": (padded, [{}]),
    "strided": (lambda: padded(7, 2, 3), [{}]),
    "depthwise": (lambda: padded(3, 1, 1, 4), [{}, {}]),
    "pool": (lambda: param("x", 1, 3, 9, 9).max_pool2d(3, 2, 1), [{}]),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_integers_below_the_limits_are_inside(name):
    """The limits are the sizes that NumPy allows, and the kernel has the numbers of NumPy there."""
    made, want = KNOWN[name]
    assert [limits(request.graph) for request in kernels(made())] == want


def test_addresses_that_values_decide_are_not_measured():
    """An order that the kernel itself computes is inside for it, and not for random arrays."""
    x = param("x", 300)
    found = []
    for request in kernels(x.take(x.argsort(), 0)):
        try:
            found.append(limits(request.graph))
        except Unsupported:
            found.append(None)
    assert {1: 300} in found


@pytest.mark.parametrize("name", KNOWN)
def test_measured_kernels_agree(name):
    """A process of the search runs the schedule's list and the empty list on such arrays."""
    for request in kernels(KNOWN[name][0]()):
        worker = Worker()
        worker.open(request, {})
        assert worker.agrees(())


def convolved(x, w, b):
    """A padded convolution in NumPy."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,kcij->nkhw", windows, w) + b[:, None, None]


SEARCHED = {
    "rows": lambda x, i: x[i],
    "row-sums": lambda x, i: x[i].sum(1),
    "convolution": convolved,
}


@pytest.mark.parametrize("name", SEARCHED)
def test_searched_kernels_compute_what_numpy_does(name):
    """The list that a search finds is in the program."""
    own = uopc.compile(KNOWN[name][0](), threads=1).kernels[0].opts
    bench = Bench(lambda opts: 1.0 if opts == own else 0.5, start=own)
    token = schedules.searching.set(searcher.Session(lambda *_: bench, 1, 60.0))
    try:
        program = uopc.compile(KNOWN[name][0](), threads=1)
    finally:
        schedules.searching.reset(token)
    assert program.kernels[0].opts != own
    arrays = {
        p.name: RNG.integers(0, 7 if p.dtype.is_integral else 4, p.shape).astype(p.dtype.name)
        for p in program.inputs
    }
    want = SEARCHED[name](*arrays.values())
    np.testing.assert_allclose(program(**arrays), want, 1e-6)
