"""Bugs that were found once: each test names what went wrong."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
from uopc import dtypes
from uopc.driver import lower_only
from uopc.ir.builder import kernel
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.ir.interpret import interpreter
from uopc.passes.analysis.parts import MOST_PARTS
from uopc.tensor import creation

BOTH = pytest.mark.parametrize("optimize", [True, False])


def check(graphs, arrays, **options):
    """The compiled program gives what the interpreter gives, and leaves the same arrays behind."""
    mine = {k: a.copy() for k, a in arrays.items()}
    reference = {k: a.copy() for k, a in arrays.items()}
    got = uopc.compile(graphs, verify=True, **options)(**mine)
    wanted = interpreter.evaluate(graphs, reference)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    for k in arrays:
        np.testing.assert_array_equal(mine[k], reference[k])


def kernels_of(graph):
    return lower_only(graph).calls


# ---------------------------------------------------------------- order of stores
@BOTH
def test_slices_assigned_independently_do_not_wait_for_each_other(optimize):
    """Stores to disjoint parts of one param were a circular wait."""
    x, z = uopc.param("x", (8,)), uopc.param("z", (2,))
    arrays = {"x": np.arange(8, dtype="f4"), "z": np.ones(2, "f4")}
    parts = tuple(x[2 * i : 2 * i + 2].assign(z + float(i)) for i in range(4))
    check(parts, arrays, optimize=optimize)
    own = tuple(x[2 * i : 2 * i + 2].assign(x[2 * i : 2 * i + 2] * z) for i in range(4))
    check(own, arrays, optimize=optimize)


@BOTH
def test_a_slice_is_read_before_it_is_overwritten(optimize):
    """x[0:4] = x[4:8] * 2 and x[4:8] = 1: the second write waits for the first one's read."""
    x, z = uopc.param("x", (8,)), uopc.param("z", (4,))
    arrays = {"x": np.arange(8, dtype="f4"), "z": np.ones(4, "f4")}
    program = uopc.compile(
        (x[4:8].assign(z), x[0:4].assign(x[4:8] * 2.0)), verify=True, optimize=optimize
    )
    program(**arrays)
    np.testing.assert_array_equal(arrays["x"], [8, 10, 12, 14, 1, 1, 1, 1])


@BOTH
def test_parts_that_change_places(optimize):
    x = uopc.param("x", (8,))
    swapped = (x[0:4].assign(x[4:8] * 2.0), x[4:8].assign(x[0:4] * 2.0))
    check(swapped, {"x": np.arange(8, dtype="f4")}, optimize=optimize)


@BOTH
def test_overlapping_writes_whose_results_are_both_wanted(optimize):
    x, z = uopc.param("x", (8,)), uopc.param("z", (4,))
    given, added = np.zeros(8, "f4"), np.arange(1, 5, dtype="f4")
    program = uopc.compile((x[0:4].assign(z), x[2:6].assign(z * 2.0)), optimize=optimize)
    first, second = program(x=given, z=added)
    np.testing.assert_array_equal(first, added)
    np.testing.assert_array_equal(second, added * 2)
    np.testing.assert_array_equal(given, [1, 2, 2, 4, 6, 8, 0, 0])


# ---------------------------------------------------------------- many parts
@BOTH
@pytest.mark.parametrize(
    "n", [pytest.param(MOST_PARTS, marks=pytest.mark.slow), MOST_PARTS + 1, 40]
)
def test_many_parts(n, optimize):
    """A STACK of n params was one loop that chose among n values for every element."""
    params = [uopc.param(f"p{i}", (3, 2)) for i in range(n)]
    arrays = {f"p{i}": np.full((3, 2), i, "f4") + np.eye(3, 2, dtype="f4") for i in range(n)}
    stacked = params[0].stack(*params[1:])
    rows = params[0].cat(*[p[: i % 4] for i, p in enumerate(params[1:])], axis=0)
    columns = params[0].sum(axis=1, keepdims=True).cat(*params[1:], axis=1)
    scalars = params[0].sum().stack(*[p.max() for p in params[1:]])
    check((stacked, stacked.sum(axis=0), rows, columns * 2.0, scalars), arrays, optimize=optimize)


def test_equal_parts_share_a_kernel():
    params = [uopc.param(f"p{i}", (4,)) for i in range(100)]
    lowered = lower_only(params[0].stack(*params[1:]))
    assert len(lowered.calls) == 100 and len(lowered.kernels) == 1


@BOTH
def test_many_parts_of_symbolic_length(optimize):
    x = uopc.param("x", (uopc.variable("n", 0, 9), 2))
    graph = (x.cat(*[x + float(i) for i in range(MOST_PARTS + 3)], axis=0),)
    for n in (0, 1, 9):
        a = np.arange(2 * n, dtype="f4").reshape(n, 2)
        check(graph, {"x": a}, optimize=optimize)


# ---------------------------------------------------------------- closed forms
@BOTH
def test_counts_at_the_ends_of_64_bit_integers(optimize):
    """The bound of a closed form wrapped: 8 iterations were counted where there are none."""
    low, high = -(2**63), 2**63 - 1
    k = uopc.param("k", (4, 1), dtypes.int64)
    i = uopc.arange(8, dtype=dtypes.int64)
    graphs = (i < k, k < i, k <= i, i <= k, i * 2 < k, k < i * 3 + 5, i.eq(k), (i + 5).eq(k))
    counts = tuple(g.sum(axis=1) for g in graphs)
    check(counts, {"k": np.array([[high], [low], [3], [-1]])}, optimize=optimize)
    u = uopc.param("k", (3, 1), dtypes.uint64)
    j = uopc.arange(8).cast(dtypes.uint64)
    counts = tuple(g.sum(axis=1) for g in (j < u, u < j, j <= u, j.eq(u)))
    check(counts, {"k": np.array([[2**64 - 1], [2**63 + 5], [3]], "u8")}, optimize=optimize)


def test_a_count_that_cannot_wrap_has_no_loop():
    k = uopc.param("k", (4, 1), dtypes.int32)
    (call,) = kernels_of((uopc.arange(8) < k).sum(axis=1))
    assert not [u for u in call[0].toposort() if u.op is Ops.CARRY]


# ---------------------------------------------------------------- the front
def tripled(x):
    return x * 3.0


def test_a_pickled_program_keeps_the_rules_of_its_user():
    """They were dropped: the program that came back computed something else."""
    a = np.arange(4, dtype="f4")
    rules = uopc.PatternMatcher([(uopc.UPat.var("x") * 2.0, tripled)])
    program = uopc.compile(uopc.param("x", (4,)) * 2.0, rules=rules, optimize=False)
    np.testing.assert_array_equal(program(a), a * 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(program))(a), a * 3)


def test_a_graph_without_a_value_is_named():
    with pytest.raises(TypeError, match="noop has no value"):
        uopc.compile(intern(Ops.NOOP, dtypes.void))


def test_a_variable_is_an_output_like_any_other():
    """It was stored twice."""
    n = uopc.variable("n", 1, 9)
    program = uopc.compile(n)
    assert program(n=7) == 7
    assert program.stats["launches"] == 1


# ---------------------------------------------------------------- found by random graphs
@BOTH
def test_arithmetic_on_8_bit_floats_saturates_as_a_cast_does(optimize):
    """Interpreted gave infinity, compiled the greatest value; infinity stays where none rounds."""
    t = dtypes.fp8e5m2
    x = uopc.param("x", (4,), t)
    a = np.array([0.0, -0.0, 57344.0, np.inf], t.numpy)
    check((x.reciprocal(), x + x, -x, x.maximum(x)), {"x": a}, optimize=optimize)
    assert np.isinf(uopc.compile(-x, optimize=optimize)(a)[3].astype("f4"))


@BOTH
@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dims", [(3, 1), (2, 0), (1 << 16,)])
@pytest.mark.few(5)
def test_narrow_reduces_over_axes_of_every_length(op, dims, optimize):
    """Beside an axis of size 1, or cut in two, a narrow reduce was left narrow, or failed."""
    for t in (dtypes.fp8e4m3, dtypes.fp8e4m3fnuz, dtypes.bfloat16, dtypes.float16):
        x = uopc.param("x", dims, t)
        a = np.random.default_rng(1).integers(0, 2, dims).astype(t.numpy)
        check((x.reduce(op, tuple(range(len(dims)))),), {"x": a}, optimize=optimize)


@BOTH
def test_a_part_without_elements_is_joined(optimize):
    """Its argument was accessed, under a guard that is never true."""
    x, nothing = uopc.param("x", (1, 2)), uopc.param("nothing", (1, 0))
    arrays = {"x": np.ones((1, 2), "f4"), "nothing": np.ones((1, 0), "f4")}
    check((x.cat(nothing, x, axis=1),), arrays, optimize=optimize)


@BOTH
@pytest.mark.parametrize("n", [1, 5, 16, 21])
def test_a_store_with_a_gate_leaves_the_rest(n, optimize):
    """In single elements, and in vectors whose lanes are stored alone."""
    a, b = [creation.kernel_param(slot, (64,), dtypes.float32) for slot in (0, 1)]
    i = kernel.range(n, 0)
    for place, odd in ((i, i % 2), (i * 3, i % 3)):
        gated = kernel.store(a.index(place), b.index(i) + 1.0, odd.eq(0))
        program = uopc.compile(kernel.sink(gated.end(i), name="gated"), optimize=optimize)
        got, source = np.full(64, -1, "f4"), np.arange(64, dtype="f4")
        program(got, source)
        wanted, step = np.full(64, -1, "f4"), 1 if place is i else 3
        for k in range(n):
            if k % (2 if place is i else 3) == 0:
                wanted[k * step] = k + 1
        np.testing.assert_array_equal(got, wanted)


# ---------------------------------------------------------------- whose array an output is
@BOTH
def test_an_output_that_only_shows_an_argument_is_a_copy(optimize):
    x = uopc.param("x", (2, 3))
    a = np.arange(6, dtype="f4").reshape(2, 3)
    for graph in (x, x.reshape(6), x[:, :], x.detach()):
        got = uopc.compile(graph, optimize=optimize)(a)
        assert not np.shares_memory(got, a)
        np.testing.assert_array_equal(got.reshape(-1), a.reshape(-1))


@BOTH
def test_what_the_last_of_several_assignments_returns_is_the_callers_array(optimize):
    """It was copied out again: the effects before the last one were not seen."""
    x = uopc.param("x", (3,))
    graph = x.assign(x + 1.0).assign(x.assign(x + 1.0) * 2.0)
    a = np.array([0.0, 1.0, 2.0], "f4")
    got = uopc.compile(graph, optimize=optimize)(a)
    assert np.shares_memory(got, a)
    np.testing.assert_array_equal(a, [2, 4, 6])
    assert len(lower_only(graph, optimize=optimize).calls) == 2


# ---------------------------------------------------------------- written again with arrays
@pytest.mark.slow
@BOTH
def test_parts_at_places_that_variables_say_are_not_one_part(optimize):
    """A STACK of parts of one array, each at another variable, read the first one's place."""
    x = uopc.param("x", (10, 3))
    places = [uopc.variable(f"v{i}", 0, 9) for i in range(16)]
    parts = [x.shrink(((v, v + 1), (0, 3))).reshape(3) * 2.0 for v in places]
    a = np.arange(30, dtype="f4").reshape(10, 3)
    chosen = [(7 * i + 3) % 10 for i in range(16)]
    program = uopc.compile(parts[0].stack(*parts[1:]), optimize=optimize)
    got = program(a, **{f"v{i}": c for i, c in enumerate(chosen)})
    np.testing.assert_array_equal(got, a[chosen] * 2)


def test_zero_around_a_choice_of_another_number_stays():
    """A window of a pad by 3, padded by 0: only the choice of the inner pad is the load's gate."""
    m = uopc.variable("m", 3, 16)
    inner = uopc.param("y", (m,), dtypes.int8).pad([(17, 0)], value=3)
    outer = inner.pad([(1, 1)])
    f = uopc.compile(outer[:-2] + outer[1:-1] + outer[2:], threads=1)
    for size in (3, 4, 16):
        a = np.arange(size, dtype="i1")
        b = np.pad(np.pad(a, (17, 0), constant_values=3), 1)
        np.testing.assert_array_equal(f(a), b[:-2] + b[1:-1] + b[2:])


def test_an_empty_window_of_a_stack_is_empty():
    """It was asked for its truth value."""
    a, b = (uopc.param(name, (3, 2)) for name in "ab")
    for stacked in (a.stack(b), a.stack(b, axis=2)):
        empty = stacked.shrink([(0, 1), (1, 1), (0, 1)])
        f = uopc.compile(empty + 1, inputs=(a, b))
        assert f(*np.zeros((2, 3, 2), "f4")).shape == (1, 0, 1)
