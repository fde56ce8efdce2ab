"""Exact zeros of floats: by default products with 0 and sums with 0 are IEEE 754's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.ir.builder.leaves import constant_in
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.5, -2.0, 1e-40], "f4")


def ops_of(program: uopc.Program) -> list[str]:
    return [u.op.name for k in program.kernels for u in walk.toposort(k.uops)]


def segments(n: int, ones: int) -> uopc.UOp:
    return uopc.full((ones,), 1.0).cat(uopc.full((n - ones,), 0.0))


@pytest.mark.parametrize("optimize", (True, False))
def test_ieee_by_default(optimize):
    x = uopc.param("x", (8,))
    zero = uopc.full((8,), 0.0)
    f = uopc.compile([x * 0.0, x * zero, x + 0.0, zero - x, x * segments(8, 0)], optimize=optimize)
    with np.errstate(all="ignore"):
        wanted = [SPECIAL * 0, SPECIAL * 0, SPECIAL + 0, 0 - SPECIAL, SPECIAL * 0]
    for got, want in zip(f(SPECIAL), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        there = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


@pytest.mark.parametrize("t", FLOATS)
def test_zeros_fold_as_they_are_built(t):
    x = uopc.param("x", (3, 4), t)
    zero = x.const_like(0.0)
    with uopc.fast_zeros():
        assert constant_in(x * 0.0).arg == 0.0 == constant_in(zero * x).arg
        assert (x * 0.0).shape == (3, 4) == (0.0 * x).shape
        assert x + 0.0 is x is zero + x is x - zero is x - (-0.0)
        assert (zero - x).op is Ops.NEG
        assert (x * x).arg == (x + 1.0).arg == 1
        assert (uopc.full((2, 3, 4), 0.0, dtype=t) + x).shape == (2, 3, 4)
    assert (x * 0.0).op is Ops.MUL and (x * x).arg is None


@pytest.mark.parametrize("optimize", (True, False))
@pytest.mark.parametrize("cut", (0, 1, 128, 511, 512))
def test_a_part_of_zeros_removes_the_work(cut, optimize):
    x = uopc.param("x", (512,))
    with uopc.fast_zeros():
        y = x.sin() * segments(512, cut)
    f = uopc.compile(y, optimize=optimize, verify=True)
    a = np.linspace(-9, 9, 512, dtype="f4")
    a[500] = np.inf
    wanted = np.where(np.arange(512) < cut, np.sin(a), 0)
    np.testing.assert_allclose(f(a), wanted, rtol=1e-6)
    assert cut > 0 or "sin" not in str(f.kernels[0].uops)


def test_where_and_casts_and_pads():
    """A zero branch takes the other operand under its condition; a product stays in the rest."""
    x = uopc.param("x", (6,))
    i = uopc.arange(6)
    a = np.array([np.inf, np.nan, 1.5, -2.0, 3.0, np.inf], "f4")
    inner = uopc.where(i < 4, uopc.where(i < 3, 2.0, 5.0), 0.0)
    mask = ((i > 1) & (i < 5)).cast(dtypes.float32)
    padded = uopc.param("y", (2,)).pad([(2, 2)])
    with uopc.fast_zeros():
        graphs = [x * uopc.where(i < 2, 0.0, inner), mask * x, x * padded]
    f = uopc.compile(graphs, inputs=["x", "y"], verify=True)
    got = f(a, np.array([2.0, 3.0], "f4"))
    np.testing.assert_array_equal(got[0], [0, 0, 3.0, -10.0, 0, 0])
    np.testing.assert_array_equal(got[1], [0, 0, 1.5, -2.0, 3.0, 0])
    np.testing.assert_array_equal(got[2][2:4], [3.0, -6.0])


def test_one_hot_times_a_matrix_is_a_gather():
    table, rows = uopc.param("t", (50, 8)), uopc.param("i", (7,), dtypes.int32)
    hot = (rows.reshape(7, 1).eq(uopc.arange(50))).cast(dtypes.float32)
    with uopc.fast_zeros():
        y = hot @ table
    f, plain = (uopc.compile(u, inputs=["t", "i"]) for u in (y, hot @ table))
    t = np.random.default_rng(0).random((50, 8), "f4")
    i = np.array([3, 0, 49, 7, 7, 1, 2], "i4")
    np.testing.assert_array_equal(f(t, i), t[i])
    assert len(ops_of(f)) < len(ops_of(plain))


def test_text_pickles_functions_and_keys():
    x = uopc.param("x", (512,))
    with uopc.fast_zeros():
        y = x.sin() * segments(512, 64)

        def product(a, b):
            return a * b

        called = uopc.function(product)(x.sin(), segments(512, 64))
    plain = x.sin() * segments(512, 64)
    assert "fast_zeros=1" in str(uopc.print_graph(y))
    assert uopc.parse(uopc.print_graph(y)) is y
    assert y is not plain
    assert pickle.loads(pickle.dumps(y)) is y
    a = np.full(512, np.inf, "f4")
    with np.errstate(invalid="ignore"):
        assert np.isnan(uopc.compile(plain)(a)[100:]).all()
    assert (uopc.compile(y)(a)[100:] == 0).all()
    assert (uopc.compile(called)(a)[100:] == 0).all()


def test_the_option_is_for_the_whole_graph():
    x = uopc.param("x", (512,))
    graph = x.sin() * segments(512, 64) + 0.0
    a = np.full(512, np.inf, "f4")
    with uopc.options(fast_zeros=True):
        fast = uopc.compile(graph)
    plain = uopc.compile(graph)
    assert (fast(a)[100:] == 0).all()
    assert np.isnan(plain(a)[100:]).all()
    with uopc.options(fast_zeros=True):
        assert uopc.compile(x * 0.0)(a).tolist() == [0.0] * 512  # x stays an argument


@pytest.mark.parametrize("t", FLOATS)
def test_minus_infinity_stays(t):
    """A number plus -inf is -inf, and a selection of 0 or -inf that is added selects the number."""
    x, inf = uopc.param("x", (3, 4), t), uopc.full((3, 4), float("inf"), dtype=t)
    there = uopc.arange(4) <= uopc.arange(3).reshape(3, 1)
    mask, other = [uopc.where(there, x.const_like(v), -inf) for v in (0.0, 1.0)]
    with uopc.fast_zeros():
        for y in (x + -inf, -inf + x, -inf - x, x - inf):
            assert y.shape == (3, 4) and constant_in(y).arg == -float("inf")
        assert (x + inf).op is Ops.ADD and (x - -inf).op is Ops.SUB
        assert (inf - x).op is Ops.SUB
        assert x + mask is mask + x and (x + mask).op is Ops.WHERE and (x + mask).src[1] is x
        assert (x + other).op is Ops.ADD and (x - mask).op is Ops.SUB
    assert (x + -inf).op is Ops.ADD and (x + mask).op is Ops.ADD


@pytest.mark.parametrize("optimize", (True, False))
def test_an_added_mask(optimize):
    x = uopc.param("x", (8,))
    y = x + uopc.where(uopc.arange(8) < 5, 0.0, -float("inf"))
    with uopc.options(fast_zeros=True):
        f = uopc.compile([y, (y - 1.0).exp()], optimize=optimize, verify=True)
    got, powers = f(SPECIAL)
    np.testing.assert_array_equal(got[:5], SPECIAL[:5])
    assert (got[5:] == -np.inf).all() and (powers[5:] == 0).all()
    infinite = np.full(8, np.nan, "f4")
    assert (f(infinite)[0][5:] == -np.inf).all()


def test_dual_numbers_skip_what_does_not_depend():
    """A column of a Jacobian: the tangent is 1 in one segment, and zero elsewhere."""
    x = uopc.param("x", (512,))

    def column() -> uopc.UOp:
        tangent = segments(512, 64)
        return (x.cos() * tangent) * x.exp() + x.sin() * (x.exp() * tangent) + tangent * 0.0

    with uopc.fast_zeros():
        fast = column()
    a = np.linspace(0, 3, 512, dtype="f4")
    f, g = uopc.compile(fast, verify=True), uopc.compile(column())
    np.testing.assert_allclose(f(a), g(a), rtol=1e-5)
    with np.errstate(all="ignore"):
        assert (f(np.full(512, np.nan, "f4"))[64:] == 0).all()
