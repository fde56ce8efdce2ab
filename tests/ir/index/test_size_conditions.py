"""A program checks the relations of symbolic sizes before it reads or writes anything."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uopc
from tests.fuzz.guards import guarded
from uopc import UOp
from uopc.errors import UserError
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.index import size_conditions
from uopc.ir.interpret.interpreter import evaluate

n, m, k = (uopc.variable(name, 0, 40) for name in "nmk")
s, t = uopc.param("s", (n,)), uopc.param("t", (m,))
bytes_ = uopc.param("b", (n,), dtypes.uint8)
x = uopc.param("x", (8,))
places = uopc.param("i", (n,), dtypes.int64)


def of_text(graph: UOp) -> UOp:
    """The graph, read from its text."""
    return uopc.parse(uopc.print_graph(graph))


# A graph, sizes that fulfil its condition, sizes that do not, and the message for these.
RELIES = [
    (s.reshape(5) + 1, {"n": 5}, {"n": 3}, r"reshape \(n\) to \(5\): n is 3, expected 5"),
    (s.reshape(m) + t, {"n": 4, "m": 4}, {"n": 4, "m": 9}, r"n is 4, expected m = 9"),
    (s.reshape(m, 2) + 0, {"n": 8, "m": 4}, {"n": 4, "m": 9}, r"n is 4, expected \(m\*2\) = 18"),
    (s.reshape(-1, 4) + 0, {"n": 8}, {"n": 7}, r"n is 7, expected \(\(n//4\)\*4\) = 4"),
    (s.reshape(2, -1) + 0, {"n": 8}, {"n": 7}, r"n is 7, expected"),
    (s.reshape(5).reshape(m) + 0, {"n": 5, "m": 5}, {"n": 4, "m": 4}, "n is 4, expected 5"),
    (uopc.full((n,), 2.0).reshape(5), {"n": 5}, {"n": 4}, "n is 4, expected 5"),
    (bytes_.bitcast(dtypes.float64) * 1, {"n": 16}, {"n": 9}, r"\(n%8\) is 1, expected 0"),
    (s.pad(((m - 3, 0),)) + 0, {"n": 2, "m": 3}, {"n": 2, "m": 2}, "is -1, expected at least 0"),
    (s.pad(((0, m - n),)) + 0, {"n": 2, "m": 3}, {"n": 4, "m": 2}, "n is 4, expected at most m"),
    (x.shrink(((0, n - 3),)) + 0, {"n": 3}, {"n": 2}, "is -1, expected at least 0"),
    (x.index(k) + 0, {"k": 7}, {"k": 8}, r"index k of axis 0 of \(8\): k is 8, expected below 8"),
    (x[k] + 0, {"k": 0}, {"k": 9}, "k is 9, expected below 8"),
    (x[-k - 1] + 0, {"k": 7}, {"k": 8}, "is -1, expected at least 0"),
    (s.index(k) + 0, {"n": 3, "k": 2}, {"n": 3, "k": 3}, "k is 3, expected below n = 3"),
    (x.index(places).reshape(5) + 0, {"n": 5}, {"n": 3}, "n is 3, expected 5"),
    (s[-1] + 0, {"n": 1}, {"n": 0}, "is -1, expected at least 0"),
    (s.reshape(6).assign(uopc.full((6,), 7.0)), {"n": 6}, {"n": 3}, "n is 3, expected 6"),
]  # fmt: skip


def arguments(graph: UOp, sizes: dict[str, int]) -> dict[str, object]:
    """Arrays of these sizes, and the sizes themselves."""
    params = [u for u in graph.toposort() if u.op is Ops.PARAM]
    dims = {
        p.arg.name: [d if type(d) is int else sizes[d.arg.name] for d in p.shape] for p in params
    }
    return {p.arg.name: np.ones(dims[p.arg.name], p.dtype.numpy) for p in params} | sizes


@pytest.mark.parametrize("read", [UOp.toposort, of_text], ids=["built", "parsed"])
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("graph, good, bad, message", RELIES)
@pytest.mark.few(10)
def test_a_condition_is_checked_at_the_call(graph, good, bad, message, optimize, read):
    if read is of_text:
        graph = of_text(UOp(Ops.SINK, dtypes.void, (graph,))).src[0]
    f = uopc.compile(graph, optimize=optimize, verify=True)
    f(**arguments(graph, good))
    arrays = arguments(graph, bad)
    before = {name: np.copy(a) for name, a in arrays.items()}
    with pytest.raises(UserError, match=message) as raised:
        f(**arrays)
    if read is not of_text:
        assert "made at" in str(raised.value) and "test_size_conditions.py" in str(raised.value)
    for name, a in arrays.items():
        np.testing.assert_array_equal(a, before[name])


@pytest.mark.parametrize("graph, good, bad, message", RELIES)
def test_the_interpreter_checks_the_same(graph, good, bad, message):
    arrays = arguments(graph, good)
    want = uopc.compile(graph)(**arrays)
    arrays = arguments(graph, good)
    given = {name: a for name, a in arrays.items() if isinstance(a, np.ndarray)}
    np.testing.assert_array_equal(evaluate(graph, given, good), want)
    given = {name: a for name, a in arguments(graph, bad).items() if isinstance(a, np.ndarray)}
    with pytest.raises(UserError, match=message):
        evaluate(graph, given, bad)


@pytest.mark.parametrize("make", [
    lambda: s.reshape(n + 1),
    lambda: s.reshape(41),
    lambda: uopc.param("e", (n * 2,)).reshape(5),
    lambda: uopc.param("z", (n, 3)).reshape(3, n + 1),
    lambda: s.index(40),
    lambda: s.index(-1),
    lambda: x.index(99),
    lambda: x[k + 8],
    lambda: s[12:].index(k + 40),
])  # fmt: skip
def test_what_no_sizes_fulfil_is_refused_where_it_is_built(make):
    with pytest.raises(UserError, match=r"must be .* but never is"):
        make()


@pytest.mark.parametrize("text", [
    '%1 = variable n low=1 high=9 : index\n%2 = param s : f32[%1]\n'
    '%3 = reshape %2 (12,) : f32[12]\nsink %3',
    '%1 = param x : f32[8]\n%2 = index %1, 99 : f32\nsink %2',
])  # fmt: skip
def test_what_no_sizes_fulfil_is_refused_from_text(text):
    with pytest.raises(UserError, match="never is"):
        uopc.compile(uopc.parse(text))


def test_what_bounds_prove_is_no_condition():
    def relies(*values):
        return size_conditions.of_graph(UOp(Ops.SINK, dtypes.void, values))

    z = uopc.param("z", (n, 6))
    assert not relies(z.reshape(-1), z.reshape(n * 2, 3), z.reshape(6, n), s.pad(((n, m),)))
    assert not relies(s.expand(m, n), s[:k], s[k:], x[k % 8], s.flip(0), uopc.arange(n))
    assert relies(z.reshape(-1, 4))


def test_conditions_survive_caches_pickles_and_bound_variables(tmp_path):
    def refused(program, **given):
        with pytest.raises(UserError, match=r"reshape \(p\) to \(5\): p is 4, expected 5"):
            program(np.ones(4, "f4"), **given)

    p = uopc.variable("p", 1, 9)
    graph = uopc.param("a", (p,)).reshape(5) * 3
    refused(uopc.compile(graph))
    assert uopc.compile(graph).stats["cache"] == "memory"
    refused(uopc.compile(graph))
    refused(pickle.loads(pickle.dumps(uopc.compile(graph))))
    with uopc.options(cache_dir=str(tmp_path), programs=0):
        refused(uopc.compile(graph))
        found = uopc.compile(graph)
        assert found.stats["cache"] == "disk"
        refused(found)
    bound = uopc.full((p.bind(4),), 1.0).reshape(5)
    with pytest.raises(UserError, match=r"p is 4, expected 5 .p = 4 from the graph"):
        uopc.compile(bound)()


def test_conditions_of_functions_hold_in_their_callers():
    for precompile in (False, True):
        p = UOp(Ops.PARAM, dtypes.float32, (n,), uopc.ir.core.args.ParamArg("p", (None,), 0))
        body = UOp(
            Ops.FUNCTION, dtypes.void, (p.reshape(5) + 1,),
            uopc.ir.core.args.FunctionArg("f", precompile),
        )  # fmt: skip
        call = UOp(Ops.CALL, dtypes.void, (body, s))
        f = uopc.compile(UOp(Ops.GETTUPLE, dtypes.float32, (call,), 0))
        assert f(np.ones(5, "f4")).tolist() == [2] * 5
        with pytest.raises(UserError, match="n is 4, expected 5"):
            f(np.ones(4, "f4"))
        call = UOp(Ops.CALL, dtypes.void, (body, t))
        f = uopc.compile(UOp(Ops.GETTUPLE, dtypes.float32, (call,), 0))
        assert f(np.ones(5, "f4"), n=5).tolist() == [2] * 5
        with pytest.raises(UserError, match=r"function 'f': argument 0 .* m is 4, expected n = 5"):
            f(np.ones(4, "f4"), n=5)


def test_a_product_of_variables_that_does_not_fit_is_refused():
    v, w = uopc.variable("v", 0, 2**62), uopc.variable("w", 0, 2**62)
    f = uopc.compile(((v * w) % 7).cast(dtypes.int64))
    assert int(f(v=2**31, w=2**31)) == 2**62 % 7
    with pytest.raises(
        UserError, match=r"index of 64 bits: .* expected at most 9223372036854775807"
    ):
        f(v=2**62, w=5)
    with pytest.raises(UserError, match="do not fit 64 bits"):
        uopc.variable("v", 0, 2**63)


def test_a_symbolic_axis_is_not_iterated():
    assert [row.shape for row in uopc.param("y", (3, n))] == [(n,)] * 3
    with pytest.raises(TypeError, match=r"the first size of .* must be known"):
        list(s)
    with pytest.raises(TypeError, match="a scalar cannot be iterated over"):
        list(uopc.param("c"))


ZERO = uopc.variable("zero", 0, 0)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("make, want", [
    (lambda p: p.cat(p), []),
    (lambda p: p.cat(p).sum(), 0),
    (lambda p: p.stack(p).max(), -np.inf),
    (lambda p: p.pad(((1, 2),)), [0, 0, 0]),
    (lambda p: p.cat(p, x[:2]), [1, 1]),
])  # fmt: skip
def test_a_size_that_is_always_0(make, want, optimize):
    graph = make(uopc.param("p", (ZERO,)))
    given = {"p": np.zeros(0, "f4"), "x": np.ones(8, "f4")}
    given = {u.arg.name: given[u.arg.name] for u in graph.toposort() if u.op is Ops.PARAM}
    got = uopc.compile(graph, optimize=optimize, verify=True)(**given)
    np.testing.assert_array_equal(got, np.array(want, "f4").reshape(np.shape(got)))


INTS = uopc.param("i", (n,), dtypes.int32)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("graph, want", [
    (uopc.full((n,), 5).max(), -(2**31)),
    (uopc.full((n,), 5).min(), 2**31 - 1),
    (uopc.full((3, n), 5).max(1), [-(2**31)] * 3),
    (uopc.full((n, 16), 5).max(), -(2**31)),
    (INTS.clip(1, 5).any(), False),
    (INTS.clip(1, 5).max(), -(2**31)),
    ((INTS * 0).max(), -(2**31)),
    ((INTS | 1).all(), True),
    (uopc.full((n,), 5).prod(), 1),
    (INTS.sign().min() > 3, True),
])  # fmt: skip
def test_a_reduce_over_no_elements_is_the_identity(graph, want, optimize):
    given = {u.arg.name for u in graph.toposort() if u.op is Ops.PARAM}
    sizes = {} if given else {"n": 0}
    f = uopc.compile(graph, optimize=optimize, verify=True)
    np.testing.assert_array_equal(f(**{p: np.zeros(0, "i4") for p in given}, **sizes), want)


def test_a_window_of_a_constant_reads_zeros_outside():
    f = uopc.compile(uopc.full((n,), 5).shrink(((0, m),)))
    assert f(n=2, m=4).tolist() == [5, 5, 0, 0]
    with pytest.raises(UserError, match="shrink"):
        s.shrink(((n, n - 1),))


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("most", [0, 1])
def test_loops_without_iterations_store_nothing(most, optimize):
    """A loop of at most one iteration is not known to have one."""
    few, y = uopc.variable("few", 0, most), uopc.param("y", (4, 4))
    store = y.shrink(((0, few), (0, few))).assign(5.0)
    a = np.zeros((4, 4), "f4")
    uopc.compile(store, optimize=optimize)(a, few=0)
    assert not a.any()


@pytest.mark.parametrize("optimize", [True, False])
def test_an_array_without_elements_is_not_read(optimize):
    at = uopc.param("at", (4,), dtypes.int32)
    f = uopc.compile(s.take(at, 0), optimize=optimize)
    empty = guarded(np.zeros(0, "f4"))  # the first byte after it must not be read
    assert f(empty, np.arange(-2, 2, dtype="i4")).tolist() == [0] * 4


def test_parts_without_elements_have_no_share():
    stacked = uopc.param("p", (ZERO,)).stack(uopc.param("q", (ZERO,)))
    padded = stacked.pad(((ZERO, 2), (0, ZERO))).reshape(ZERO * 2, ZERO + 2)
    assert uopc.compile(padded)(np.zeros(0, "f4"), np.zeros(0, "f4")).shape == (0, 2)


@pytest.mark.machine("this")
def test_masked_lanes_of_a_converted_load_are_not_read():
    """LLVM folds a mask, a conversion and a choice into an instruction that faults on any lane."""
    few, rows = uopc.variable("few", 0, 1), uopc.variable("rows", 0, 33)
    y = uopc.param("y", (few, rows, few), dtypes.int64)
    window = ((0, few), (0, rows), (rows - 2, rows))
    f = uopc.compile(y.cast(dtypes.int32).shrink(window), threads=1)
    for end in (True, False):
        a = guarded(np.ones((1, 33, 1), np.int64), at_end=end)
        assert not f(a).any()


def test_messages_show_symbolic_sizes_as_expressions():
    n = uopc.variable("n", 0, 5)
    f = uopc.compile(uopc.ones((n + 3, n // 2)))
    for _ in range(2):  # a plan from a cache has no graph
        with pytest.raises(uopc.UserError, match=r"expected float32\[n\+3, n//2\], got"):
            f(n=2, out=np.ones((4, 1), "f4"))
        f = pickle.loads(pickle.dumps(f))


def test_counted_values_of_a_negative_size_name_the_line():
    n = uopc.variable("n", 0, 5)
    summed = uopc.param("x", (4,)).shrink([(0, n - 2)]).cumsum(0)
    for graph, arrays in ((uopc.arange(n - 2), ()), (summed, (np.ones(4, "f4"),))):
        with pytest.raises(uopc.UserError, match=r"at least 0 .*\n  made at .*test_size_cond"):
            uopc.compile(graph)(*arrays, n=1)
