"""A reduce whose terms repeat along a kept axis is computed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.reference import as_param, numbers
from uopc.driver import lower_only
from uopc.ir.core import ranges
from uopc.ir.nest.loops import trips
from uopc.ir.nest.nest import nest_of
from uopc.passes.canonicalize.repeated_terms import without_repeats

REDUCTIONS = {"sum": np.sum, "max": np.max, "prod": np.prod}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_terms(data):
    """Operands that are repeated, reshaped, turned and combined, in terms of one to four axes."""
    rank = data.draw(st.integers(1, 4))
    dims = data.draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=rank, max_size=rank))
    params, arrays, term, wanted = [], [], None, None
    for i in range(data.draw(st.integers(1, 3))):
        kept = [d if data.draw(st.booleans()) else 1 for d in dims]
        array = numbers(*kept, dtype=data.draw(st.sampled_from(["float32", "float16", "int32"])))
        x = as_param(array, f"x{i}")
        params, arrays = [*params, x], [*arrays, array]
        how = data.draw(st.sampled_from(["as it is", "repeated", "turned", "with an axis"]))
        if how == "repeated":
            x, array = x.expand(*dims), np.broadcast_to(array, dims)
        elif how == "turned":  # and turned back
            axes = data.draw(st.permutations(range(rank)))
            x = x.permute(axes).expand(*[dims[a] for a in axes]).permute(np.argsort(axes).tolist())
        elif how == "with an axis":
            x = x.reshape(1, *kept).expand(1, *dims).reshape(*dims)
        term = x if term is None else term * x
        wanted = array if wanted is None else wanted * array
    axes = sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    name = data.draw(st.sampled_from(sorted(REDUCTIONS)))
    term, wanted = term.expand(*dims), np.broadcast_to(wanted, dims)
    if name == "prod":
        term, wanted = uopc.where(term > 0, 2, 1), np.where(wanted > 0, 2, 1)
    got = uopc.compile(getattr(term, name)(axes), inputs=params, verify=True)(*arrays)
    np.testing.assert_array_equal(got, REDUCTIONS[name](wanted, axis=tuple(axes)))


def terms_added(graph):
    """The terms of all sums of a program, as often as its kernels compute them."""
    kernels = [nest_of(k) for k in lower_only(graph, threads=1).kernels]
    return sum([trips(ranges.ranges(u.src[0])) for k in kernels for u in k.reduces])


@pytest.mark.parametrize("padding", [0, 1])
def test_weights_of_one_number(padding):
    """One output channel is computed, not 64."""
    x, size = uopc.param("x", (1, 16, 9, 9)), 7 + 2 * padding
    graph = x.conv2d(uopc.full((64, 16, 3, 3), 0.5), padding=padding)
    own = uopc.param("x", (1, 16, 9, 9)).conv2d(uopc.param("w", (1, 16, 3, 3)), padding=padding)
    assert terms_added(graph) <= 2 * terms_added(own)
    array = numbers(1, 16, 9, 9)
    padded = np.pad(array, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.broadcast_to(0.5 * windows.sum((1, 4, 5))[:, None], (1, 64, size, size))
    np.testing.assert_array_equal(uopc.compile(graph, verify=True)(array), wanted)


def test_a_symbolic_size():
    n = uopc.variable("n", 1, 20)
    graph = (uopc.param("x", (n, 1, 30)) * uopc.param("y", (30,)).expand(7, 30)).sum(2)
    program = uopc.compile(graph, verify=True)
    for rows in (1, 2, 19, 20):
        x, y = numbers(rows, 1, 30), numbers(30)
        np.testing.assert_array_equal(program(x, y), np.repeat((x * y).sum(2), 7, axis=1))


def test_a_chain_of_many_operations():
    """The walk takes no stack of Python's."""
    x = uopc.param("x", (1, 8))
    y = x.expand(3, 8)
    for i in range(3000):
        y = y * 2.0 if i % 2 else y * 0.5 + x
    assert without_repeats(y, (1,)).shape == (1, 8)
    assert without_repeats(y + uopc.param("z", (3, 1)), (1,)).shape == (3, 8)
