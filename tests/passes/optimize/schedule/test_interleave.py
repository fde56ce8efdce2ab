"""Loops whose bodies wait for their results have iterations side by side."""

from __future__ import annotations

import math

import numpy as np
import pytest

import uopc
from tests.machines import described, only_lowered
from uopc import dtypes
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.ir.nest.arithmetic import chain
from uopc.passes.analysis import thresholds

RNG = np.random.default_rng(3)
ROWS, COLUMNS = 8, 64


def chains(x, rows, count, length):
    """For each row: chains over a column's values, multiplied one after the other."""
    column = x.reshape(1, COLUMNS)
    made = []
    for i in range(count):
        u = rows * (1.0 + i / 16) + column
        for k in range(length):
            u = u * column + rows * (0.25 + k / 64)
        made.append(u)
    return sum(made[1:], made[0])


def compiled(rows, columns, count, length):
    x = uopc.param("x", (COLUMNS,), dtypes.float64)
    t = uopc.param("t", (ROWS, COLUMNS), dtypes.float64)
    return uopc.compile(chains(x, t, count, length), verify=True)


def is_interleaved(program):
    return any(
        o.op == "UPCAST" and o.arg == thresholds.INTERLEAVED
        for k in program.kernels
        for o in k.opts
    )


@pytest.mark.parametrize("count, length, waits", [
    (2, 24, True), (3, 16, True), (1, 40, True), (1, 4, False), (2, 200, False),
])  # fmt: skip
def test_where_a_body_waits(count, length, waits):
    f = compiled(ROWS, COLUMNS, count, length)
    assert is_interleaved(f) == waits, [k.opts for k in f.kernels]
    x, t = RNG.uniform(-1, 1, COLUMNS), RNG.uniform(-1, 1, (ROWS, COLUMNS))
    wanted = chains(x, t, count, length)
    np.testing.assert_allclose(f(x=x, t=t), wanted, rtol=1e-12)


# ---------------------------------------------------------------- functions of vectors
def gelu(x):
    return x.gelu()


def call_price(x):
    """Black and Scholes' price of an option: two error functions, an exponential, a logarithm."""
    price, strike, years = x * x + 1.0, x.abs() + 0.5, x * x + 0.1
    root = years.sqrt() * 0.3
    first = ((price / strike).log() + years * 0.065) / root
    normal = [0.5 * (1.0 + (d * math.sqrt(0.5)).erf()) for d in (first, first - root)]
    return price * normal[0] - strike * (years * -0.02).exp() * normal[1]


def functions_of(x):
    """Functions in which few operations wait, and in which many do."""
    return {"few": [x.exp(), x.log(), x.sin()], "many": [(x.exp() + 1.0).log().tanh(), gelu(x)]}


def kernel(machine, graph, threads=1):
    """The linear kernel of a graph, lowered for a machine that need not be this one."""
    with only_lowered(machine):
        return lower_only(graph, threads=threads).runs[-1].after[0]


def vectors(final):
    return next((o.arg for o in final.arg.opts if o.op == "UPCAST"), 1)


each_float = pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
UNARY = [Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF]


@each_float
@pytest.mark.parametrize("op", [*UNARY, Ops.POW], ids=lambda op: op.name)
def test_the_chain_of_a_function_is_that_of_its_code(op, dtype):
    """Each column of the op table within a tenth, but for an operation or two."""
    given = [uopc.param(name, (64,), dtype) for name in "ab"[: len(op.operands)]]
    final = kernel("workstation", given[0].alu(op, *given[1:]))
    rare = 0  # how many branches are around a statement
    outside = (Ops.PARAM, Ops.CONST, Ops.LOAD, Ops.STORE)
    until = {u: 0 for u in final.src if u.op in outside or u.op.opens or u.op.closes}
    found = np.zeros(3, int)
    for u in final.src:
        rare += (u.op is Ops.IF) - (u.op is Ops.ENDIF)
        if u not in until and not rare and u.dtype.scalar is not dtypes.index:
            *own, cycles = chain(u)
            found += own
            until[u] = cycles + max([until.get(s, 0) for s in u.src], default=0)
    written = op.chain[dtype is dtypes.float64]
    assert tuple(written) == pytest.approx((*found, max(until.values())), rel=0.1, abs=2)


@each_float
def test_vectors_stand_side_by_side_where_many_operations_wait(dtype):
    """With one multiply-add of 64 bytes per cycle; with two, more functions wait for each other."""
    x = uopc.param("x", (4096,), dtype)
    for graph in functions_of(x)["few"]:
        assert vectors(kernel("workstation", graph)) == 1
        assert vectors(kernel("desktop", graph)) == thresholds.VECTORS_OF_A_FUNCTION
    for graph in functions_of(x)["many"]:
        assert vectors(kernel("workstation", graph)) == thresholds.VECTORS_OF_A_FUNCTION
    assert vectors(kernel("desktop", x * 2.0 + 1.0)) == 1


def test_what_takes_turns_already_or_runs_seldom_has_no_copies():
    x = uopc.param("x", (4096,))
    assert vectors(kernel("desktop", sum((x * (1 + i / 8)).cos() for i in range(8)))) == 1
    assert vectors(kernel("desktop", gelu(uopc.param("x", (100,))))) == 1


def test_long_functions_have_fewer_copies_than_short_ones():
    """A list schedule sees so many statements at once."""
    x = uopc.param("x", (4096,), dtypes.float64)
    assert vectors(kernel("desktop", call_price(x))) == 2
    assert vectors(kernel("desktop", call_price(call_price(x)))) == 1
    assert vectors(kernel("old", x.pow(x))) == 1


@pytest.mark.few(16)
@each_float
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("f", [gelu, call_price, uopc.UOp.sin], ids=["gelu", "price", "sin"])
@pytest.mark.parametrize("size", [0, 1, 7, 509, 512, 4099, (37, 129), "n"])
def test_every_element_has_the_same_bits(size, f, threads, dtype):
    """Copies, what is left of the loop and vectors that overlap compute the same, for each size."""
    dims = {"n": (uopc.variable("n", 0, 5000),)}.get(size, size)
    dims = dims if isinstance(dims, tuple) else (dims,)
    given = RNG.standard_normal(3).astype(dtype.numpy)
    with described("desktop"):
        whole = uopc.compile(f(uopc.param("x", dims, dtype)), threads=threads)
        single = uopc.compile(f(uopc.param("x", (1,), dtype)), threads=1)
    for value in given:
        shape = (4099,) if size == "n" else dims
        got = whole(np.full(shape, value))
        np.testing.assert_array_equal(got, np.full(shape, single(value[None])))


@pytest.mark.parametrize("shape", [(1237,), (31, 333)])
def test_interleaved_functions_are_right(shape):
    given = RNG.standard_normal(shape)
    x = uopc.param("x", shape, dtypes.float64)
    for machine in ("desktop", "workstation", "old"):
        with described(machine):
            found = uopc.compile((x.exp() + 1.0).log().tanh() * x, verify=True)(given)
        np.testing.assert_allclose(found, np.tanh(np.log1p(np.exp(given))) * given, rtol=1e-14)


@pytest.mark.parametrize("rows", [13, 17])
def test_functions_behind_a_tile_stand_side_by_side(rows):
    """Loops over the tile of a product wait for their functions as other loops do."""
    a, b = RNG.standard_normal((rows, 64)), RNG.standard_normal((64, 96))
    x, w = uopc.param("a", a.shape, dtypes.float64), uopc.param("b", b.shape, dtypes.float64)
    graph = ((x @ w).exp() + 1.0).log()
    with described("desktop"):
        program = uopc.compile(graph, threads=1, verify=True)
        found = program(a=a, b=b)
    opts = [o.op for k in program.kernels for o in k.opts]
    assert "UPCAST" in opts[opts.index("DISTRIBUTE") :]
    np.testing.assert_allclose(found, np.log1p(np.exp(a @ b)), rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- sums
def losses(rows, columns):
    """Rows of a cross entropy: strided elements of a short row, and the row's own values."""
    x, y = uopc.param("x", (rows, columns)), uopc.param("y", (rows, columns))
    highest, total = uopc.param("m", (rows, 1)), uopc.param("t", (rows, 1))
    return ((x - highest - total.log()) * y).sum()


@pytest.mark.machine("workstation")
@pytest.mark.parametrize("graph, sums", [
    (losses(128, 10), 1), (losses(1000, 3), 1),
    (uopc.param("x", (1 << 14,)).sum(), 4), ((uopc.param("x", (1 << 14,)) ** 2.5).sum(), 4),
])  # fmt: skip
def test_a_sum_gets_copies_only_where_its_body_waits(graph, sums):
    """Loads from as many places as a vector has lanes keep a processor busy; a power waits."""
    opts = [o for k in lower_only(graph, threads=1).kernels for o in k.arg.opts]
    assert max([o.arg for o in opts if o.op == "UNROLL"], default=0) == (sums if sums > 1 else 0)


@pytest.mark.parametrize("rows, columns", [(1, 1), (16, 3), (17, 10), (128, 10), (1000, 7)])
def test_a_sum_of_a_long_body_is_what_numpy_computes(rows, columns):
    x, y = (RNG.random((rows, columns), np.float32) for _ in range(2))
    m, t = (RNG.random((rows, 1), np.float32) + 0.5 for _ in range(2))
    want = ((x.astype("f8") - m - np.log(t.astype("f8"))) * y).sum()
    got = uopc.compile(losses(rows, columns))(x=x, y=y, m=m, t=t)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * rows * columns)
