"""Kernels that differ only in their storage are made once, and only those are."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.ir.core.args import Opt
from uopc.passes.split_kernels import split_kernels

N = 8


def made(outputs):
    """The number of kernels that split-kernels made, and the program."""
    spy = mock.patch.object(split_kernels, "make_kernel", wraps=split_kernels.make_kernel)
    with spy as make, uopc.options(cache_dir="", programs=0):
        program = uopc.compile(outputs)
    return make.call_count, program


def floats(count):
    return [np.arange(N, dtype="f4") * (i + 1) + i for i in range(count)]


def test_stores_that_are_alike_are_made_once():
    xs = [uopc.param(f"x{i}", (N,)) for i in range(6)]
    count, program = made([x.exp() * 2.0 for x in xs])
    assert count == 1
    arrays = floats(6)
    for got, a in zip(program(*[a / 100 for a in arrays]), arrays):
        np.testing.assert_allclose(got, np.exp(a / 100) * 2, rtol=1e-6)


def test_places_in_one_array_are_offsets_of_one_kernel():
    x = uopc.param("x", (6, N))
    outputs = [x[i] * 2.0 for i in range(1, 6)]
    count, program = made(outputs)
    assert count == 1
    a = np.arange(6 * N, dtype="f4").reshape(6, N)
    for i, got in enumerate(program(a), 1):
        np.testing.assert_array_equal(got, a[i] * 2)


def test_a_constant_tells_kernels_apart():
    x, y = uopc.param("x", (N,)), uopc.param("y", (N,))
    assert made([x * 2.0, y * 3.0])[0] == 2


def test_storage_in_other_places_tells_kernels_apart():
    x, y = uopc.param("x", (N,)), uopc.param("y", (N,))
    count, program = made([x - y * x, y - y * x])
    assert count == 2
    a, b = floats(2)
    for got, wanted in zip(program(a, b), (a - b * a, b - b * a)):
        np.testing.assert_array_equal(got, wanted)


def test_opts_tell_kernels_apart():
    x, y = uopc.param("x", (N,)), uopc.param("y", (N,))
    one, two = (x * 2.0).contiguous((Opt("UPCAST", 0, 4),)), (y * 2.0).contiguous(())
    assert made([one, two])[0] == 2


@pytest.mark.parametrize("same", [True, False])
def test_arrays_of_places_take_their_own_part(same):
    """x[i] + i against x[i] + j: what is gathered is the same, but not what stands beside it."""
    x = uopc.param("x", (N,), uopc.dtypes.int32)
    i, j = uopc.param("i", (N,), uopc.dtypes.int32), uopc.param("j", (N,), uopc.dtypes.int32)
    _, program = made([x[i] + i, x[i] + (i if same else j), x[j] + j, x[j] + i])
    rng = np.random.default_rng(1)
    a = rng.integers(0, 99, N).astype("i4")
    p, q = (rng.integers(0, N, N).astype("i4") for _ in range(2))
    other = p if same else q
    got = program(x=a, i=p, j=q)
    for result, wanted in zip(got, (a[p] + p, a[p] + other, a[q] + q, a[q] + p)):
        np.testing.assert_array_equal(result, wanted)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=8
    )
)
def test_random_stores(choices):
    """A few forms over a few arrays, so that many are alike in part."""
    xs = [uopc.param(f"x{i}", (N,), uopc.dtypes.int32) for i in range(4)]
    arrays = [(np.arange(N) * (3 + 2 * i) % N).astype("i4") for i in range(4)]
    forms = [
        lambda a, b: a + b, lambda a, b: a[b], lambda a, b: a[b] + b, lambda a, b: a[1:] * b[:-1],
        lambda a, b: a[b] + a,
    ]  # fmt: skip
    outputs = [forms[k](xs[i], xs[j]) for i, j, k in choices]
    _, program = made(outputs)
    used = {f"x{n}": arrays[n] for n in {n for i, j, _ in choices for n in (i, j)}}
    for got, (i, j, k) in zip(program(**used), choices):
        np.testing.assert_array_equal(got, forms[k](arrays[i], arrays[j]))
