"""Exact zeros of floats: by default products with 0 and sums with 0 are IEEE 754's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.ir.builder.leaves import constant_in
from uopc.ir.builder.rebuild import marked_fast_zeros as exact
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1.5, -2.0, 1e-40], "f4")


def compiled(*graphs: uopc.UOp, **how: object) -> uopc.Program:
    """A program with exact zeros."""
    with uopc.options(fast_zeros=True):
        return uopc.compile(graphs[0] if len(graphs) == 1 else list(graphs), **how)


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
def test_zeros_fold_when_a_graph_is_compiled(t):
    x = uopc.param("x", (3, 4), t)
    zero = x.const_like(0.0)
    for product in (x * 0.0, zero * x, 0.0 * x):
        assert product.op is Ops.MUL and product.arg is None
        assert constant_in(exact(product)).arg == 0.0 and exact(product).shape == (3, 4)
    for total in (x + 0.0, zero + x, x - zero, x - (-0.0)):
        assert exact(total) is x
    assert exact(zero - x).op is Ops.NEG
    assert exact(x * x).arg == exact(x + 1.0).arg == 1
    assert exact(uopc.full((2, 3, 4), 0.0, dtype=t) + x).shape == (2, 3, 4)


def test_a_block_says_how_graphs_are_compiled_not_how_they_are_built():
    x = uopc.param("x", (8,))
    with uopc.options(fast_zeros=True):
        graph = x * 0.0
    assert graph is x * 0.0
    assert np.isnan(uopc.compile(graph)(SPECIAL)[:3]).all()
    assert compiled(graph)(SPECIAL).tolist() == [0.0] * 8


@pytest.mark.parametrize("optimize", (True, False))
@pytest.mark.parametrize("cut", (0, 1, 128, 511, 512))
def test_a_part_of_zeros_removes_the_work(cut, optimize):
    x = uopc.param("x", (512,))
    f = compiled(x.sin() * segments(512, cut), optimize=optimize, verify=True)
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
    graphs = [x * uopc.where(i < 2, 0.0, inner), mask * x, x * padded]
    f = compiled(*graphs, inputs=["x", "y"], verify=True)
    got = f(a, np.array([2.0, 3.0], "f4"))
    np.testing.assert_array_equal(got[0], [0, 0, 3.0, -10.0, 0, 0])
    np.testing.assert_array_equal(got[1], [0, 0, 1.5, -2.0, 3.0, 0])
    np.testing.assert_array_equal(got[2][2:4], [3.0, -6.0])


def test_one_hot_times_a_matrix_is_a_gather():
    table, rows = uopc.param("t", (50, 8)), uopc.param("i", (7,), dtypes.int32)
    hot = (rows.reshape(7, 1).eq(uopc.arange(50))).cast(dtypes.float32)
    f, plain = (how(hot @ table, inputs=["t", "i"]) for how in (compiled, uopc.compile))
    t = np.random.default_rng(0).random((50, 8), "f4")
    i = np.array([3, 0, 49, 7, 7, 1, 2], "i4")
    np.testing.assert_array_equal(f(t, i), t[i])
    assert len(ops_of(f)) < len(ops_of(plain))


def test_text_and_pickles():
    """A node with exact zeros says so: it is another node, in each copy of its graph."""
    x = uopc.param("x", (512,))
    plain = x.sin() * segments(512, 64)
    y = exact(plain)
    assert "fast_zeros=1" in str(uopc.print_graph(y))
    assert uopc.parse(uopc.print_graph(y)) is y
    assert y is not plain
    assert pickle.loads(pickle.dumps(y)) is y
    a = np.full(512, np.inf, "f4")
    with np.errstate(invalid="ignore"):
        assert np.isnan(uopc.compile(plain)(a)[100:]).all()
    assert (uopc.compile(y)(a)[100:] == 0).all()


def test_functions_and_loops():
    x, a = uopc.param("x", (4,)), np.full(4, np.inf, "f4")
    called = uopc.function(lambda u: u * 0.0 + 2.0)(x)
    carried, rows = uopc.scan(lambda c, _: (c * 0.0 + 1.0, c * 0.0), x, uopc.arange(3))
    repeated = uopc.fori_loop(0, 3, lambda i, c: c * 0.0, x)
    chosen = uopc.cond(x.sum() > 0, lambda u: u * 0.0, lambda u: u + 1.0, x)
    found = compiled(called, carried, rows, repeated, chosen, inputs=["x"])(a)
    for got, value in zip(found, (2.0, 1.0, 0.0, 0.0, 0.0), strict=True):
        np.testing.assert_array_equal(got, np.full(got.shape, value))


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
    for y in map(exact, (x + -inf, -inf + x, -inf - x, x - inf)):
        assert y.shape == (3, 4) and constant_in(y).arg == -float("inf")
    assert exact(x + inf).op is Ops.ADD and exact(x - -inf).op is Ops.SUB
    assert exact(inf - x).op is Ops.SUB
    assert exact(x + mask) is exact(mask + x)
    assert exact(x + mask).op is Ops.WHERE and exact(x + mask).src[1] is x
    assert exact(x + other).op is Ops.ADD and exact(x - mask).op is Ops.SUB
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

    a = np.linspace(0, 3, 512, dtype="f4")
    f, g = compiled(column(), verify=True), uopc.compile(column())
    np.testing.assert_allclose(f(a), g(a), rtol=1e-5)
    with np.errstate(all="ignore"):
        assert (f(np.full(512, np.nan, "f4"))[64:] == 0).all()


def column(n, begin, end, dtype="f4"):
    made = np.zeros(n, dtype)
    made[begin:end] = 2
    return made


def stacked(array, t):
    return uopc.stack(*[uopc.constant(float(v), t) for v in array])


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("made", (
    lambda a, t: uopc.constant(a).cast(t), stacked, lambda a, t: stacked(a, dtypes.float32).cast(t),
    lambda a, t: (uopc.constant(a) > 1.0).cast(t) * 2.0, lambda a, t: uopc.constant(a != 0).cast(t),
))  # fmt: skip
def test_a_constant_of_few_runs_is_these(made, t):
    """A column of a basis: a product with it is computed where it is not 0."""
    x, values = uopc.param("x", (200,), t), column(200, 40, 60)
    f = compiled(x.sin() * made(values, t), verify=True)
    assert ops_of(f).count("param") == 2  # the result and x, no array
    a = np.ones(200, t.numpy)
    a[:30], a[70:] = np.inf, np.nan
    wanted = np.where(values != 0, f(np.ones(200, t.numpy)), 0)
    assert (wanted[40:60] != 0).all()
    np.testing.assert_array_equal(f(a), wanted)


@pytest.mark.parametrize("how", ("rows", "columns", "blocks", "moved", "repeated"))
def test_runs_of_matrices(how):
    x = uopc.param("x", (16, 24))
    weights = np.zeros((16, 24), "f4")
    where = {"rows": np.s_[3:5], "columns": np.s_[:, 7:9], "blocks": np.s_[4:9, 2:20]}
    weights[where.get(how, np.s_[:, 4:9])] = 1.5
    constant = {
        "moved": lambda: uopc.constant(weights.T.copy()).transpose(),
        "repeated": lambda: uopc.constant(weights[:1]).expand(16, 24),
    }.get(how, lambda: uopc.constant(weights))()
    f = compiled(x.exp() * constant, verify=True)
    a = np.where(weights == 0, np.float32(np.inf), np.float32(0))
    np.testing.assert_array_equal(f(a), weights)


def test_an_added_array_of_minus_infinity():
    mask = np.where(column(64, 8, 32) == 0, -np.inf, 0).astype("f4")
    f = compiled(uopc.param("x", (64,)) + uopc.constant(mask))
    got = f(np.full(64, np.inf, "f4"))
    np.testing.assert_array_equal(got, np.where(mask == 0, np.inf, -np.inf))


@pytest.mark.parametrize("array", (
    np.arange(96.0, dtype="f4"), np.tile(np.array([0, 0, 1], "f4"), 32), np.ones(96, "f4"),
    column(96, 3, 90), column(12, 3, 9), np.zeros(96, "f4"), np.float32(0.5), np.zeros(0, "f4"),
))  # fmt: skip
def test_other_constants_stay(array):
    """Many runs, few zeros, few elements: their elements are read, and so are those of a plain
    product."""
    x = uopc.param("x", np.shape(array))
    a = np.linspace(1, 2, np.size(array), dtype="f4").reshape(np.shape(array))
    for how in (compiled, uopc.compile):
        got = how(x * uopc.constant(array), inputs=["x"], verify=True)(a)
        np.testing.assert_array_equal(got, a * array)


def test_a_plain_product_keeps_its_array():
    x = uopc.param("x", (200,))
    f = uopc.compile(x.sin() * uopc.constant(column(200, 40, 60)))
    with np.errstate(invalid="ignore"):
        assert np.isnan(f(np.full(200, np.inf, "f4"))).all()


def test_a_removed_name_says_what_to_write() -> None:
    for name in uopc._REMOVED:
        assert name not in dir(uopc)
    with pytest.raises(AttributeError, match=r"uopc\.options\(fast_zeros=True\)"):
        uopc.fast_zeros()  # type: ignore[attr-defined]
    assert not hasattr(uopc, "fast_zero")
