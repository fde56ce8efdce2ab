"""Variables bound to values of the graph: names, order, bounds, and texts."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc import Ops, dtypes
from uopc.errors import UserTypeError
from uopc.ir.builder.lengths import lengths_of, with_variables
from uopc.ir.interpret.interpreter import evaluate
from uopc.ir.text.parser import parse
from uopc.ir.text.printer import print_graph

N = uopc.variable("count", 0, 6)


def first(x: uopc.UOp, k: uopc.UOp) -> uopc.UOp:
    return x[: N.bind(k)]


def test_values_come_first_under_names_that_no_other_has() -> None:
    x, k, m = uopc.param("x", (6,)), uopc.param("k", (), "i8"), uopc.param("m", (), "i4")
    inner = first(x, k)
    nested = first(x, inner.sum().cast("i8"))
    sink = with_variables(uopc.UOp.sink(inner, first(x, m), nested, N + 1))
    bound = lengths_of(sink)
    assert [u.src[0].arg.name for u in bound] == ["count_1", "count_2", "count_3"]
    assert [v.shape[0].render() for v in sink.src[3:6]] == ["count_1", "count_2", "count_3"]
    assert with_variables(sink) is sink and parse(print_graph(sink)) is sink
    a = np.arange(6, dtype="f4")
    given = {"x": a, "k": np.array(3), "m": np.array(5, "i4")}
    found = evaluate(sink, given, {"count": 1})
    assert [v.tolist() for v in found] == [[0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 2], 2]


def test_a_program_checks_what_it_computes() -> None:
    x, k = uopc.param("x", (6,)), uopc.param("k", (), "i8")
    program = uopc.compile(first(x, k) * 2)
    a = np.arange(6, dtype="f4")
    assert program(a, np.int64(0)).shape == (0,)
    assert program(a, np.int64(6)).tolist() == (a * 2).tolist()
    for wrong in (-1, 7, 1 << 40):
        with pytest.raises(uopc.UserError, match=r"count.* expected 0\.\.6"):
            program(a, np.int64(wrong))
    with pytest.raises(uopc.UserError, match=r"count.* 0\.\.6"):
        evaluate(first(x, k), {"x": a, "k": np.array(7)})
    with pytest.raises(UserTypeError, match="no argument 'count'"):
        program(a, np.int64(1), count=3)


def test_a_program_without_optimization_and_its_launches() -> None:
    x, y = uopc.param("x", (6,)), uopc.param("y", (6,))
    found = first(x, (x > 0).sum())
    a = np.array([1, -1, 2, 3, -4, 5], "f4")
    for optimize in (False, True):
        program = uopc.compile([found + 1, found.sum(), y * 2], optimize=optimize)
        more, total, twice = program(a, a)
        assert more.tolist() == [2, 0, 3, 4] and total == 5 and twice.tolist() == (a * 2).tolist()
        (again, *_), times = program._runner.trace((a, a), {})
        assert again.tolist() == more.tolist() and len(times) == len(program.launches)


def test_a_bound_program_computes_its_sizes() -> None:
    x, n = uopc.param("x", (6,)), uopc.variable("n", 0, 9)
    found = first(x, (x > 0).sum()) * n.cast(dtypes.float32)
    program = uopc.compile(found)
    a = np.array([1, -1, 2, 3, -4, 5], "f4")
    assert program.bind(n=2)(a).tolist() == [2, -2, 4, 6]
    assert program.bind(x=a)(n=3).tolist() == program(a, n=3).tolist() == [3, -3, 6, 9]


def test_what_is_no_length() -> None:
    for wrong in (uopc.param("k", (2,), "i8"), uopc.param("k", ())):
        with pytest.raises(uopc.UserError, match="an integer without dimensions"):
            N.bind(wrong)
    assert N.bind(uopc.param("k", (), "i4")).op is Ops.BIND


def test_predictions_profiles_and_launches_know_lengths() -> None:
    from uopc.distributed import Link, Machine
    from uopc.program.profile import profile

    x = uopc.param("x", (6,))
    program = uopc.compile(first(x, (x > 0).sum()) * 2)
    a = np.array([1, -1, 2, 3, -4, 5], "f4")
    machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9))
    assert program.predict(machine, count=2).seconds < program.predict(machine).seconds
    found = profile(program, (a,), samples=2)
    assert len(found.launches) == len(program.launches) and found.values["count"] == 4
    last, out = program.launches[-1], np.zeros(3, "f4")
    last.run(out, a, count=3)
    assert out.tolist() == [2, -2, 4]
