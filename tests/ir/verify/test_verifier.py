"""The verifier: each invariant refuses a graph that breaks it, and accepts one that keeps it."""

from __future__ import annotations

import typing
from collections.abc import Callable

import numpy as np
import pytest

from uopc import config
from uopc.backends import detect
from uopc.errors import InvalidIR
from uopc.ir.builder import kernel, leaves, movement, operands
from uopc.ir.core import dtype_rules, dtypes, shapes
from uopc.ir.core.args import (
    BufferArg,
    FunctionArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    VariableArg,
)  # fmt: skip
from uopc.ir.core.levels import INDEXED, INVARIANTS, KERNEL, LINEAR, PROGRAM, TENSOR, VECTOR, Level
from uopc.ir.core.ops import ArgKind, DTypeRule, Op, Ops, ShapeRule
from uopc.ir.core.uop import UOp, intern
from uopc.ir.interpret.interpreter import evaluate
from uopc.ir.verify.verifier import verify, verify_node
from uopc.passes.pass_manager import Lowering
from uopc.program.request import make_context, prepare
from uopc.tensor import creation

F32, I32, INDEX, VOID = dtypes.float32, dtypes.int32, dtypes.index, dtypes.void


def param(slot: int, size: int = 8, dtype: dtypes.DType = F32) -> UOp:
    return creation.kernel_param(slot, (size,), dtype)


def raw_range(size: int, axis: int, kind: str = "loop") -> UOp:
    return intern(Ops.RANGE, INDEX, (index(size),), RangeArg((axis,), kind))  # type: ignore[arg-type]


def index(value: int) -> UOp:
    return intern(Ops.CONST, INDEX, (), value)


def number(value: float) -> UOp:
    return intern(Ops.CONST, F32, (), value)


def at(storage: UOp, *indices: UOp) -> UOp:
    return intern(Ops.INDEX, storage.dtype, (storage, *indices))


def load(address: UOp) -> UOp:
    return intern(Ops.LOAD, address.dtype, (address,))


def store(address: UOp, value: UOp) -> UOp:
    return intern(Ops.STORE, VOID, (address, value))


def total(value: UOp, *ranges: UOp) -> UOp:
    return intern(Ops.REDUCE, value.dtype, (value, *ranges), ReduceArg("add"))


def sink(*roots: UOp) -> UOp:
    return kernel.sink(*roots)


def copy_kernel(kind: str = "loop") -> UOp:
    """out[i] = in[i]"""
    i = raw_range(8, 0, kind)
    return sink(kernel.end(store(at(param(0), i), at(param(1), i)), i))


def listed(*nodes: UOp) -> UOp:
    return intern(Ops.LINEAR, VOID, nodes)


def sum_list() -> list[UOp]:
    """out[0] = Σ in[i], as a list with a carried register."""
    out, given, zero, start, end = param(0), param(1), number(0.0), index(0), index(8)
    i = raw_range(8, 0)
    carry = intern(Ops.CARRY, F32, (zero, i), 1)
    place = at(given, i)
    value = load(place)
    following = intern(Ops.ADD, F32, (carry, value))
    close = intern(Ops.END, VOID, (i, carry, following))
    target = at(out, start)
    last = store(target, carry)
    return [out, given, zero, start, end, i, carry, place, value, following, close, target, last]


def without(position: int) -> UOp:
    nodes = sum_list()
    del nodes[position]
    return listed(*nodes)


# ---------------------------------------------------------------- good
def tensor_graph() -> UOp:
    n = operands.variable("n", 1, 9)
    x, y = creation.param("x", (n, 4)), creation.param("y", (4,))
    value = movement.pad(movement.permute(x * y + 1, (1, 0)), ((1, 2), (0, 0)))
    return movement.reduce(value, "max", (1,)).cast(dtypes.int8)


def indexed_graph() -> UOp:
    x = creation.param("x", (4, 8))
    tmp, out = creation.buffer((4,), F32), creation.buffer((4,), F32)
    i, k, j = raw_range(4, 0), raw_range(8, 1, "reduce"), raw_range(4, 2)
    first = kernel.end(store(at(tmp, i), total(at(x, i, k), k)), i)
    read = at(kernel.after(tmp, first), j)
    return sink(kernel.end(store(at(out, j), read * 2.0), j))


def vector_kernel() -> UOp:
    i = raw_range(2, 0)
    four = F32.vec(4)
    to, place = (intern(Ops.INDEX, four, (param(slot), i * 4)) for slot in (0, 1))
    value = intern(Ops.LOAD, four, (place,))
    doubled = intern(Ops.MUL, four, (value, number(2.0)))
    return sink(kernel.end(store(to, doubled), i))


def program() -> UOp:
    call = intern(Ops.CALL, VOID, (copy_kernel(), creation.buffer((8,), F32), param(0)))
    return listed(call)


GOOD: dict[str, tuple[Level, Callable[[], UOp]]] = {
    "tensor": (TENSOR, tensor_graph),
    "indexed": (INDEXED, indexed_graph),
    "kernel": (KERNEL, copy_kernel),
    "kernel with lanes": (KERNEL, lambda: copy_kernel("lane")),
    "vector": (VECTOR, vector_kernel),
    "linear": (LINEAR, lambda: listed(*sum_list())),
    "program": (PROGRAM, program),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_graphs_pass(name: str) -> None:
    level, build = GOOD[name]
    verify(build(), level)


# ---------------------------------------------------------------- bad
def two_nests() -> UOp:
    """i is inside of k in one reduce, and around it in the store."""
    i, k = raw_range(8, 0), raw_range(8, 1)
    both = intern(Ops.MUL, F32, (at(param(1), i), at(param(2), k)))
    first = store(at(param(0), index(0)), total(total(both, i), k))
    second = kernel.end(store(at(param(3), i), total(both, k)), i)
    return sink(first, second)


def unclosed() -> UOp:
    i, j = kernel.range(8, 0), kernel.range(47, 1)  # no other test has this range
    return sink(kernel.end(store(at(param(0), i), at(param(1), i + j)), i))


def fancy_index() -> UOp:
    i = intern(Ops.CAST, I32, (raw_range(8, 0),))
    return sink(kernel.end(store(at(param(0), i), number(1.0)), raw_range(8, 0)))


def swapped(position: int) -> list[UOp]:
    """The list with two neighbours swapped: an operand stands behind its user."""
    nodes = sum_list()
    nodes[position], nodes[position + 1] = nodes[position + 1], nodes[position]
    return nodes


def in_ended_loop() -> UOp:
    nodes = sum_list()
    nodes[-1] = store(nodes[-2], nodes[8])  # the LOAD in the loop
    return listed(*nodes)


def twice() -> UOp:
    nodes = sum_list()
    return listed(*nodes[:-1], nodes[2], nodes[-1])  # the constant of the sum


def in_ended_branch() -> UOp:
    """A sum's register is read after the branch in which its loop stands."""
    *before, last = sum_list()
    opened = intern(Ops.IF, dtypes.bool_, (leaves.const(dtypes.bool_, True),), 2)
    condition = opened.src[0]
    closed = intern(Ops.ENDIF, VOID, (opened,))
    return listed(*before[:5], before[-1], condition, opened, *before[5:-1], closed, last)


def of_another_branch() -> UOp:
    """A BRANCH after the second of two joins a value from the first."""
    out, given, zero, start, *_ = sum_list()
    condition = leaves.const(dtypes.bool_, True)
    first, second = [intern(Ops.IF, dtypes.bool_, (condition,), i) for i in (1, 2)]
    ends = [intern(Ops.ENDIF, VOID, (u,)) for u in (first, second)]
    place, target = at(given, start), at(out, start)
    value = load(place)
    joined = intern(Ops.BRANCH, F32, (zero, second, value))
    inside = [condition, first, value, ends[0], second, ends[1], joined]
    return listed(out, given, zero, start, place, target, *inside, store(target, joined))


def x() -> UOp:
    return creation.param("x", (4, 8))


def exchanged(a: UOp, b: UOp) -> UOp:
    return sink(store(a, b), store(b, a))


BAD: list[tuple[str, Level, Callable[[], UOp]]] = [
    ("legal-op", INDEXED, lambda: sink(movement.permute(x(), (1, 0)))),
    ("legal-op", TENSOR, lambda: raw_range(8, 0)),
    ("legal-op", PROGRAM, lambda: listed(copy_kernel())),
    ("operand-count", TENSOR, lambda: intern(Ops.ADD, F32, (x(),))),
    ("operand-count", KERNEL, lambda: sink(intern(Ops.STORE, VOID, (at(param(0), index(0)),)))),
    ("operand-count", PROGRAM, lambda: listed(intern(Ops.CALL, VOID, (copy_kernel(), param(0))))),
    ("arg-type", TENSOR, lambda: intern(Ops.PERMUTE, F32, (x(),), 1)),
    ("arg-type", TENSOR, lambda: intern(Ops.CONST, F32, (), 77)),
    ("arg-type", TENSOR, lambda: intern(Ops.CONST, dtypes.bool_, (), 77)),
    ("arg-type", TENSOR, lambda: intern(Ops.RESHAPE, F32, (x(),), (None, 4))),
    ("arg-type", TENSOR, lambda: intern(Ops.REDUCE, F32, (x(),), ReduceArg("sub", (0,)))),  # type: ignore[arg-type]
    ("arg-type", TENSOR, lambda: intern(Ops.GETTUPLE, F32, (intern(Ops.TUPLE, VOID, (x(),)),), 1)),
    ("result-dtype", TENSOR, lambda: intern(Ops.ADD, I32, (x(), x()))),
    ("result-dtype", TENSOR, lambda: intern(Ops.ADD, F32, (x(), index(1)))),
    ("result-dtype", TENSOR, lambda: intern(Ops.CMPLT, F32, (x(), x()))),
    ("result-dtype", TENSOR, lambda: intern(Ops.WHERE, F32, (x(), x(), x()))),
    ("result-dtype", TENSOR, lambda: intern(Ops.CAST, VOID, (x(),))),
    ("result-dtype", KERNEL, lambda: sink(store(at(param(0), index(0)), index(1)))),
    ("result-dtype", VECTOR, lambda: sink(vector_lanes())),
    ("shape-rule", TENSOR, lambda: intern(Ops.ADD, F32, (x(), creation.param("y", (3,))))),
    ("shape-rule", TENSOR, lambda: intern(Ops.RESHAPE, F32, (x(),), (5, 5))),
    ("shape-rule", TENSOR, lambda: intern(Ops.EXPAND, F32, (x(),), (4, 9))),
    ("shape-rule", TENSOR, lambda: intern(Ops.PERMUTE, F32, (x(),), (0, 0))),
    ("shape-rule", TENSOR, lambda: intern(Ops.FLIP, F32, (x(),), (2,))),
    ("shape-rule", TENSOR, lambda: intern(Ops.PAD, F32, (x(),), (0, 1, 2))),
    ("shape-rule", TENSOR, lambda: intern(Ops.REDUCE, F32, (x(),), ReduceArg("add", (2,)))),
    ("shape-rule", TENSOR, lambda: intern(Ops.STACK, F32, (x(), creation.param("y", (4,))))),
    ("shape-rule", TENSOR, lambda: intern(Ops.CAT, F32, (x(), creation.param("y", (4,))), 1)),
    ("shape-rule", TENSOR, lambda: at(x(), index(0), index(0), index(0))),
    ("shape-rule", TENSOR, lambda: store(creation.param("y", (4,)), x())),
    ("shape-rule", TENSOR, lambda: intern(Ops.BITCAST, dtypes.uint8, (number(1.0),))),
    ("scalar-values", KERNEL, lambda: sink(store(at(param(0), index(0)), param(1)))),
    ("index-count", INDEXED, lambda: sink(store(at(param(0), index(0), index(0)), number(1.0)))),
    ("index-count", INDEXED, lambda: sink(store(at(number(1.0), index(0)), number(1.0)))),
    ("index-dtype", KERNEL, fancy_index),
    ("range-closed-once", KERNEL, unclosed),
    ("range-closed-once", KERNEL, lambda: closed_with(raw_range(8, 0), raw_range(8, 0))),
    ("range-closed-once", KERNEL, lambda: closed_with(raw_range(8, 0), index(1))),
    ("ranges-nest", KERNEL, two_nests),
    ("ranges-nest", KERNEL, lambda: closed_with(raw_range(8, 0), raw_range(4, 0))),
    ("reads-ordered", KERNEL, lambda: exchanged(at(param(0), index(0)), at(param(1), index(0)))),
    ("written-storage", KERNEL, lambda: stored_to_a_load()),
    ("flat-index", VECTOR, lambda: sink(store(at(x(), index(0), index(0)), number(1.0)))),
    ("flat-index", VECTOR, lambda: sink(store(at(at(x(), index(0)), index(0)), number(1.0)))),
    ("explicit-loads", LINEAR, lambda: implicit_load()),
    ("explicit-loads", LINEAR, lambda: address_as_value()),
    ("no-wide-ranges", VECTOR, lambda: copy_kernel("upcast")),
    ("no-wide-ranges", VECTOR, lambda: copy_kernel("lane")),
    ("defined-before-use", LINEAR, lambda: without(2)),
    ("defined-before-use", LINEAR, lambda: listed(*swapped(7))),
    ("defined-before-use", LINEAR, in_ended_loop),
    ("defined-before-use", LINEAR, twice),
    ("defined-before-use", LINEAR, in_ended_branch),
    ("defined-before-use", LINEAR, of_another_branch),
    ("legal-op", LINEAR, copy_kernel),
    ("balanced-loops", LINEAR, lambda: without(10)),
    ("balanced-loops", LINEAR, lambda: listed(*sum_list(), sum_list()[10])),
    ("balanced-loops", LINEAR, lambda: crossed()),
    ("storage-spaces", KERNEL, lambda: stored_to(Ops.PARAM, ParamArg("", (8,), 0, "", "local"))),
    ("storage-spaces", KERNEL, lambda: stored_to(Ops.BUFFER, BufferArg(0, (None,), "", "local"))),
    ("threads-meet", LINEAR, lambda: barrier_in_a_loop("lidx0")),
    ("result-dtype", KERNEL, lambda: stored_to_vector_of_a_variable()),
    ("outer-loops", PROGRAM, lambda: repeated_calls((0,), (1,), (0,))),
    ("outer-loops", PROGRAM, lambda: repeated_calls((0, 1), (1, 0))),
    ("outer-loops", PROGRAM, lambda: repeated_calls((0, 0))),
    ("outer-loops", PROGRAM, lambda: repeated_calls((0,), kind="loop")),
]


def stored_to_vector_of_a_variable() -> UOp:
    several = intern(Ops.VARIABLE, dtypes.index.vec(4), (), VariableArg("n", 0, 4))
    return sink(store(at(param(0), several), number(1.0)))


def repeated_calls(*loops: tuple[int, ...], kind: str = "outer") -> UOp:
    """A program of calls, each in the loops of these axes."""
    (call,) = program().src
    calls = [(*call.src, *[raw_range(3, axis, kind) for axis in axes]) for axes in loops]
    return intern(Ops.LINEAR, VOID, tuple([intern(Ops.CALL, VOID, src) for src in calls]))


def test_calls_in_loops_pass() -> None:
    verify(repeated_calls((), (0,), (0, 1), (0, 1), (0,), (0, 2), (), (3,), ()), PROGRAM)


def stored_to(op: Op, arg: object) -> UOp:
    sizes = (index(8),) if op is Ops.BUFFER else ()
    return sink(store(at(intern(op, F32, sizes, arg), index(0)), number(1.0)))


def stored_to_a_load() -> UOp:
    i = kernel.range(8, 0)
    return sink(kernel.end(store(load(at(param(0), i)), number(1.0)), i))


def barrier_in_a_loop(name: str) -> UOp:
    """The loop is as long as the place in the launch says."""
    eight = index(8)
    place = intern(Ops.SPECIAL, dtypes.index, (eight,), name)
    r = intern(Ops.RANGE, dtypes.index, (place,), RangeArg((0,)))
    return listed(eight, place, r, intern(Ops.BARRIER, VOID), intern(Ops.END, VOID, (r,)))


def test_blocks_may_differ() -> None:
    verify(barrier_in_a_loop("gidx0"), LINEAR)


def vector_lanes() -> UOp:
    two, four = F32.vec(2), F32.vec(4)
    a = intern(Ops.CONST, two, (), (1.0, 2.0))
    b = intern(Ops.CONST, four, (), (1.0, 2.0, 3.0, 4.0))
    return store(at(param(0), index(0)), intern(Ops.ADD, four, (a, b)))


def closed_with(*ranges: UOp) -> UOp:
    i = raw_range(8, 0)
    return sink(intern(Ops.END, VOID, (store(at(param(0), i), number(1.0)), *ranges)))


def implicit_load() -> UOp:
    out, given, start = param(0), param(1), index(0)
    target, value = at(out, start), at(given, start)
    return listed(out, given, start, target, value, store(target, value))


def address_as_value() -> UOp:
    out, given, start = param(0), param(1), index(0)
    target, place = at(out, start), at(given, start)
    later = intern(Ops.AFTER, F32, (place,))
    return listed(out, given, start, target, place, later, store(target, later))


def crossed() -> UOp:
    """Two loops, the outer one ended first."""
    end, i, j = index(8), raw_range(8, 0), raw_range(8, 1)
    return listed(end, i, j, intern(Ops.END, VOID, (i,)), intern(Ops.END, VOID, (j,)))


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_graphs_are_refused_by_the_right_invariant(case: int) -> None:
    name, level, build = BAD[case]
    with pytest.raises(InvalidIR, match=f"level {level.text}, invariant {name}: ") as caught:
        verify(build(), level, "input")
    text = str(caught.value)
    assert text.startswith("input: ")
    assert "\n  " in text  # the offending line


def test_reads_are_ordered_in_given_graphs() -> None:
    """Of loops that a pass has cut bounds no longer prove all that they proved of the whole loop:
    an update in place of an array of (n, 3), whose last column is a part of its own."""
    kernel = exchanged(at(param(0), index(0)), at(param(1), index(0)))
    verify(kernel, KERNEL, "optimize")
    with pytest.raises(InvalidIR, match="reads-ordered"):
        verify(kernel, KERNEL)


def test_every_invariant_has_a_bad_graph() -> None:
    assert {name for name, _, _ in BAD} == set(INVARIANTS)


def test_an_unclosed_range_is_named_with_the_line_that_made_it() -> None:
    with pytest.raises(InvalidIR) as caught:
        verify(unclosed(), KERNEL)
    text = str(caught.value)
    assert "range 1 is opened and never closed" in text
    assert "range 47 axis=1" in text
    line = unclosed.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in unclosed" in text


def test_the_kernels_that_a_program_calls_are_checked() -> None:
    call = intern(Ops.CALL, VOID, (unclosed(), param(0), param(1)))
    with pytest.raises(InvalidIR, match="range-closed-once"):
        verify(listed(call), PROGRAM)
    broken = without(2)
    call = intern(Ops.CALL, VOID, (broken, param(0), param(1)))
    with pytest.raises(InvalidIR, match="defined-before-use"):
        verify(listed(call), PROGRAM)


def test_the_body_of_a_function_is_checked() -> None:
    wrong = intern(Ops.ADD, I32, (x(), x()))
    body = intern(Ops.FUNCTION, VOID, (wrong,), FunctionArg("f"))
    with pytest.raises(InvalidIR, match="result-dtype"):
        verify(intern(Ops.CALL, VOID, (body, x())), TENSOR)


def test_one_node_alone() -> None:
    verify_node(x() + 1.0)
    for name, _, make in [b for b in BAD if b[0] in ("operand-count", "arg-type")]:
        u = make()
        if u.op in (Ops.SINK, Ops.LINEAR):
            continue
        with pytest.raises(InvalidIR, match=name):
            verify_node(u)


def test_operands_of_an_arithmetic_op_may_mix_scalars_and_vectors_but_not_lanes() -> None:
    four = F32.vec(4)
    v = intern(Ops.CONST, four, (), (1.0, 2.0, 3.0, 4.0))
    verify_node(intern(Ops.ADD, four, (v, number(1.0))))
    with pytest.raises(InvalidIR, match="result-dtype"):
        verify_node(intern(Ops.ADD, F32, (v, number(1.0))))


def test_every_row_names_rules_that_exist() -> None:
    for op in Op.all():
        assert op.dtype in dtype_rules.RULES, op
        assert op.shape in shapes.RULES, op
        assert op.kind in typing.get_args(ArgKind), op
    assert dtype_rules.RULES.keys() == set(typing.get_args(DTypeRule))
    assert shapes.RULES.keys() == set(typing.get_args(ShapeRule))


@pytest.mark.slow
def test_deep_graphs_are_checked_in_linear_time() -> None:
    i = raw_range(8, 0)
    value = read = at(param(1), i)
    for _ in range(50_000):
        value = intern(Ops.ADD, F32, (value, read))
    verify(sink(kernel.end(store(at(param(0), i), value), i)), KERNEL)


def test_recorded_forms_of_effects_are_accepted():
    """A write after another one may name its AFTER; a store of no value has any dtype."""
    x = creation.param("x", (4,))
    first = x.assign(x + 1.0)
    second = UOp(Ops.AFTER, x.dtype, (x, first))
    nothing = UOp(Ops.EXPAND, dtypes.bool_, (UOp.invalid(),), (4,))
    stored = UOp(Ops.AFTER, x.dtype, (x, UOp(Ops.STORE, dtypes.void, (x, nothing))))
    sums = [UOp(Ops.ADD, t, (nothing, x.cast(t))) for t in (dtypes.float32, dtypes.int32)]
    for graph in (second, stored, *sums):
        verify(UOp(Ops.SINK, dtypes.void, (graph,)), TENSOR, "input")
    found = np.asarray(evaluate(second, {"x": np.ones(4, np.float32)}))
    assert found.reshape(-1).tolist() == [2.0] * 4


def test_each_result_of_a_pass_is_verified_once_at_its_level() -> None:
    """But not again where the next pass of the level leaves it as it is."""
    verified: list[tuple[UOp, Level]] = []

    def note(graph: UOp, level: Level, stage: str) -> None:
        verify(graph, level, stage)
        verified.append((graph, level))

    x = creation.param("x", (3, 40))
    graph = ((x * 2).softmax(1) @ x.transpose(0, 1)).sink(x.max(axis=0))
    context = make_context(prepare(graph, None, True, 1, None, config.current()), detect.host())
    lowered = Lowering(context, note).lower(graph)
    results = [(g, r.level) for r in lowered.runs for g in r.after]
    renamed = {(k, LINEAR) for k in lowered.kernels}  # after the last check
    assert {*results} - renamed <= {*verified} and len({*verified}) == len(verified)
    assert len(verified) < len(results)
