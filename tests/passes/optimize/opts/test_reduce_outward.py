"""REDUCE_OUT: any reduce outside of any loop keeps the numbers, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.by_hand import apply_opt, plain_kernel
from tests.machines import MACHINES, only_lowered, runnable
from tests.passes.optimize.opts.test_opts import results
from tests.reference import numbers
from uopc.driver import lower_only
from uopc.errors import UserError
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis import thresholds
from uopc.passes.optimize.opts.legality import Refused

DIMS = st.integers(1, 9)
TARGETS = runnable("", "x86-64-v3")
OTHERS = ("TILE", "SPLIT", "SWAP", "VECTOR", "UPCAST", "UNROLL", "PACK", "BLOCK")
MACHINE = "desktop"
HALF_OF_L2 = MACHINES[MACHINE].target.l2_bytes // 8  # elements, of float32
pytestmark = pytest.mark.machine(MACHINE)


@st.composite
def reduced(draw):
    """A product, sums and maxima along an axis, and their arrays."""
    m, k, n = draw(DIMS), draw(DIMS), draw(DIMS)
    a, b = uopc.param("a", (m, k)), uopc.param("b", (k, n))
    made = draw(st.sampled_from(["product", "sum", "max", "batch"]))
    if made == "product":
        return a @ b * 2.0 + 1.0, [numbers(m, k), numbers(k, n)]
    if made == "batch":
        a, b = uopc.param("a", (2, m, k)), uopc.param("b", (2, k, n))
        return a @ b, [numbers(2, m, k), numbers(2, k, n)]
    value = b.sum(axis=0) if made == "sum" else b.max(axis=0)
    return value + 1.0, [numbers(k, n)]


@settings(max_examples=50, deadline=None)
@given(reduced(), st.data())
def test_sums_in_memory_keep_the_numbers(case, data):
    """With other Opts before and after; by machine code and by the interpreter."""
    graph, arrays = case
    kernel, opts = plain_kernel(graph), []
    if len(arrays) != sum(u.op is Ops.PARAM for u in kernel.toposort()) - 1:
        return
    for _ in range(data.draw(st.integers(1, 7))):
        op = data.draw(st.sampled_from(("REDUCE_OUT", "REDUCE_OUT", *OTHERS)))
        axis = data.draw(st.integers(0, max(0, len(nest_of(kernel).axes) - 1)))
        opt = Opt(op, axis, data.draw(st.integers(0, 4)))
        try:
            kernel = apply_opt(kernel, opt)
        except Refused:
            continue
        opts.append(opt)
    wanted = results(graph, arrays, [])
    np.testing.assert_array_equal(results(graph, arrays, opts), wanted, str(opts))
    out = np.zeros_like(wanted)
    interpreter.run_kernel(kernel, [out, *[a.reshape(-1) for a in arrays]])
    np.testing.assert_array_equal(out, wanted, str(opts))


def test_the_loop_around_the_tile_is_cut_into_blocks():
    """Its parts and the loops over the tile have places of their own in the nest."""
    array = numbers(17, 17)
    opts = [Opt("REDUCE_OUT", 1, 0), Opt("BLOCK", 1, 8), Opt("BLOCK", 3, 1)]
    got = results(uopc.param("a", (17, 17)).tril().sum(axis=1), [array], opts)
    np.testing.assert_array_equal(got, np.tril(array).sum(axis=1))


def product(m, k, n):
    return uopc.param("a", (m, k)) @ uopc.param("b", (k, n))


REFUSED = [
    ([Opt("REDUCE_OUT", 0, 1)], "exactly one reduce must close the range"),
    ([Opt("REDUCE_OUT", 2, 2)], "there is no output loop 2"),
    ([Opt("REDUCE_OUT", 2, 7)], "there is no output loop 7"),
    ([Opt("VECTOR", 1, 4), Opt("REDUCE_OUT", 3, 0)], "copies of the loop would share the tile"),
    ([Opt("UPCAST", 0, 3), Opt("REDUCE_OUT", 2, 1)], "copies of the loop would share the tile"),
    ([Opt("REDUCE_OUT", 2, 0), Opt("UNROLL", 5, 0)], "UNROLL is for reduce loops"),
    ([Opt("REDUCE_OUT", 2, 0), Opt("UPCAST", 4, 5)], "write to one element, in order"),
]


@pytest.mark.parametrize(("opts", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refusals(opts, reason):
    with pytest.raises(UserError, match=reason):
        lower_only(product(3, 5, 8), opts=tuple(opts))


@pytest.mark.parametrize("n", [0, 2, 3, 5])
@pytest.mark.parametrize("dims", [(3, 5, 8), (4, 7, 6), (2, 8, 2)])
def test_its_loop_may_be_unrolled(dims, n):
    """It keeps its order: UNROLL writes its iterations one after another."""
    m, k, width = dims
    a, b = numbers(m, k), numbers(k, width)
    opts = [Opt("REDUCE_OUT", 2, 0), Opt("UNROLL", 4, n)]
    np.testing.assert_array_equal(results(product(*dims), [a, b], opts), (a @ b).ravel())


def test_a_tile_that_is_too_large_is_refused():
    with pytest.raises(UserError, match="a tile of 16777216 elements is too large"):
        lower_only(product(4096, 2, 4096), opts=(Opt("REDUCE_OUT", 2, 0),))


def test_one_place_of_the_tile_in_two_loops():
    """Without loops over outputs, an element of the tile has the same constant index inside the
    loop that adds to it and after it: the index of an ended loop was used again."""
    a, b = numbers(2, 8), numbers(8, 2)
    copied = [Opt("UPCAST", axis, 2) for axis in (5, 6, 0, 1)]
    opts = [Opt("TILE", 2, 4), Opt("REDUCE_OUT", 2, 0), *copied]
    np.testing.assert_array_equal(results(product(2, 8, 2), [a, b], opts), (a @ b).ravel())


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_few_rows_times_a_large_matrix(data):
    """As chosen: rows, blocks of columns, batches, what is left over, threads."""
    m, k = data.draw(st.integers(1, 9)), data.draw(st.integers(32, 260))
    threads, target = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(TARGETS))
    least = threads * HALF_OF_L2 // k + 200  # columns, shared evenly but for a vector or so
    n = data.draw(st.integers(least, 2 * least))
    batch = data.draw(st.sampled_from([(), (2,)]))
    a, b = numbers(*batch, m, k), numbers(*batch, k, n)
    graph = uopc.param("a", a.shape) @ uopc.param("b", b.shape) + 1.0
    with uopc.options(target_cpu=target):
        program = uopc.compile(graph, threads=threads, verify=True)
    chosen = any(o.op == "REDUCE_OUT" for o in program.kernels[0].opts)
    assert chosen == (m <= thresholds.MOST_SUMMED_ROWS)
    np.testing.assert_array_equal(program(a, b), a @ b + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.few(3)
def test_down_the_columns_of_a_large_array(op, dtype):
    a = numbers(501, 2003, dtype=dtype)
    graph = getattr(uopc.param("a", a.shape, getattr(uopc.dtypes, dtype)), op)(axis=0)
    program = uopc.compile(graph, threads=2, verify=True)
    assert any(o.op == "REDUCE_OUT" for o in program.kernels[0].opts)
    np.testing.assert_array_equal(program(a), getattr(a, op)(axis=0))


def test_columns_whose_number_is_not_known():
    n = uopc.variable("n", 1, 4000)
    a, b = numbers(2, 300), numbers(300, 2011)
    program = uopc.compile(uopc.param("a", (2, 300)) @ uopc.param("b", (300, n)), threads=2)
    np.testing.assert_array_equal(program(a, b), a @ b)


# ---------------------------------------------------------------- sums in registers
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
@pytest.mark.parametrize("columns", [1, 5, 16, 53, 140])
@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.few(6)
def test_columns_side_by_side(cpu, columns, dtype):
    """A sum reads its rows once for each block of vectors, the last of which leaves lanes out."""
    a = numbers(101, columns, dtype=dtype)
    x = uopc.param("a", a.shape, getattr(uopc.dtypes, dtype))
    with uopc.options(target_cpu=cpu):
        program = uopc.compile((x.sum(axis=0), x.max(axis=0)), threads=1, verify=True)
    total, most = program(a)
    np.testing.assert_array_equal(total, a.sum(axis=0, dtype=total.dtype))
    np.testing.assert_array_equal(most, a.max(axis=0))


@pytest.mark.parametrize(("columns", "walks"), [(53, 1), (100, 1), (140, 2), (96, 1)])
def test_a_sum_walks_down_few_times(columns, walks):
    with only_lowered("workstation"):
        kernel = lower_only(uopc.param("x", (701, columns)).sum(axis=0), threads=1).kernels[0]
    loops = [u for u in kernel.src if u.op is Ops.RANGE and u.arg.kind == "reduce"]
    assert len([u for u in loops if u.src[0].arg > 1]) == walks
