"""Reduces of terms that combine an element of each of two arrays, such as distances: tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import lowered_for, runnable
from tests.reference import as_param, numbers

TARGETS = runnable("", "x86-64-v3")
SIZES = st.one_of(st.integers(1, 40), st.sampled_from([47, 48, 49, 64, 65, 97]))
KINDS = {
    "squares": lambda x, y: ((x - y) * (x - y)).sum(2),
    "absolute": lambda x, y: abs(x - y).sum(2),
    "tropical": lambda x, y: (x + y).max(2),
    "least": lambda x, y: (x * 2 - y).min(2) + 1,
    "counts": lambda x, y: (x < y).sum(2),
}


def pairs(kind, x, y, m, n):
    return KINDS[kind](x.reshape(m, 1, -1), y.reshape(1, n, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@settings(max_examples=40, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from(sorted(KINDS)), st.booleans(), st.integers(1, 2),
       st.sampled_from(TARGETS))  # fmt: skip
def test_any_size(dtype, m, n, k, kind, turned, threads, target):
    a, b = numbers(m, k, dtype=dtype), numbers(*((k, n) if turned else (n, k)), dtype=dtype)
    x, y = as_param(a, "x"), as_param(b, "y")
    graph = pairs(kind, x, y.transpose() if turned else y, m, n)
    with uopc.options(target_cpu=target):
        program = uopc.compile(graph, inputs=[x, y], threads=threads, verify=True)
    got, wanted = program(a, b), pairs(kind, a, np.ascontiguousarray(b.T) if turned else b, m, n)
    np.testing.assert_array_equal(got, wanted.astype(got.dtype))


@pytest.mark.parametrize("kind", ["squares", "tropical"])
def test_symbolic_sizes(kind):
    m, n = uopc.variable("m", 1, 200), uopc.variable("n", 1, 200)
    graph = pairs(kind, uopc.param("x", (m, 24)), uopc.param("y", (n, 24)), m, n)
    program = uopc.compile(graph, verify=True)
    for rows, columns in [(1, 1), (7, 8), (200, 1), (1, 200), (127, 193)]:
        a, b = numbers(rows, 24), numbers(columns, 24)
        np.testing.assert_array_equal(program(a, b), pairs(kind, a, b, rows, columns))


def kernel_of(kind, m, n, k, machine="laptop"):
    graph = pairs(kind, uopc.param("x", (m, k)), uopc.param("y", (n, k)), m, n)
    (kernel,) = lowered_for(machine, graph, 1).kernels
    return [o.op for o in kernel.arg.opts]


@pytest.mark.parametrize("kind", ["squares", "absolute", "tropical"])
@pytest.mark.parametrize("machine", ["laptop", "workstation"])
def test_many_pairs_get_a_tile(kind, machine):
    """Rows and vectors of accumulators; the vectors come from packed columns."""
    ops = kernel_of(kind, 200, 300, 64, machine)
    assert "PACK" in ops and ops.count("UPCAST") >= 2 and "UNROLL" not in ops


def test_few_columns_keep_their_schedule():
    """Packing three columns costs more than it saves: lanes are along the sum."""
    assert "PACK" not in kernel_of("squares", 200, 3, 64)
