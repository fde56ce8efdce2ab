"""Stores of a vector's first lanes: pieces where masks have no registers of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.machines import runnable
from uopc.driver import lower_only
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.passes.devectorize.partial_stores import store_chunks


@given(st.integers(0, 16), st.integers(0, 16))
def test_pieces_are_the_lanes_that_are_let_through(count, closed):
    gates = [leaves.const(dtypes.bool_, i < count) for i in range(count + closed)]
    pieces = store_chunks(gates)
    assert [i for at, n in pieces for i in range(at, at + n)] == list(range(count))
    assert all(n & (n - 1) == 0 for _, n in pieces)


def test_what_is_not_known_or_not_the_first_lanes_has_no_pieces():
    opened, closed = leaves.const(dtypes.bool_, True), leaves.const(dtypes.bool_, False)
    assert store_chunks([closed, opened]) is None
    assert store_chunks([opened, uopc.param("x", ()) < 1]) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 40), st.sampled_from(["float32", "float64", "int32"]))
def test_columns_that_fill_no_vector(rows, columns, dtype):
    rng = np.random.default_rng(rows * 41 + columns)
    a, b = (rng.integers(-3, 4, s).astype(dtype) for s in ((rows, 5), (5, columns)))
    t = getattr(dtypes, dtype)
    graph = uopc.param("a", a.shape, t) @ uopc.param("b", b.shape, t)
    for target in runnable("", "x86-64-v3"):
        with uopc.options(target_cpu=target):
            got = uopc.compile(graph, threads=1, verify=True)(a, b)
        np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize(("target", "masked"), [("x86-64-v3", False), ("x86-64-v4", True)])
def test_masks_of_registers_of_their_own_stay(target, masked):
    graph = uopc.param("a", (64, 16)) @ uopc.param("b", (16, 22))
    with uopc.options(target_cpu=target):
        (kernel,) = lower_only(graph, threads=1).kernels
    stores = [u for u in kernel.src if u.op is Ops.STORE]
    assert stores and any(len(u.src) > 2 for u in stores) == masked
