"""Whole graphs through the whole pipeline, against the interpreter; every stage verified.

`graphs.py` draws graphs whose results are exact in any order, so equality is asked for.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uopc
from tests.graphs import SIZES, graphs
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter

QUICK = settings(
    max_examples=150, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def run(outputs, arrays, **options):
    """The results of the compiled program, called with copies of the arrays."""
    program = uopc.compile(outputs, verify=True, **options)
    return program(**{name: a.copy() for name, a in arrays.items()})


def check_equal(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- random graphs
@QUICK
@given(case=graphs())
def test_compiled_is_interpreted(case):
    outputs, arrays = case
    check_equal(run(outputs, arrays), interpreter.evaluate(outputs, arrays))


@QUICK
@given(case=graphs())
def test_unoptimised_is_interpreted(case):
    outputs, arrays = case
    check_equal(run(outputs, arrays, optimize=False), interpreter.evaluate(outputs, arrays))


@settings(QUICK, max_examples=25)
@given(case=graphs(least_steps=8, most_steps=14))
def test_larger_graphs(case):
    outputs, arrays = case
    wanted = interpreter.evaluate(outputs, arrays)
    check_equal(run(outputs, arrays), wanted)
    check_equal(run(outputs, arrays, optimize=False), wanted)


@settings(QUICK, max_examples=30)
@given(case=graphs(most_steps=5))
def test_every_stage_round_trips_as_text(case):
    """Each graph that a pass gives prints, and parses back to the same object."""
    outputs, _ = case
    for stage in lower_only(outputs).runs:
        for graph in stage.after:
            assert uopc.parse(uopc.print_graph(graph)) is graph, stage.name


@settings(QUICK, max_examples=30)
@given(case=graphs(most_steps=5))
def test_lowering_twice_gives_the_same_objects(case):
    outputs, _ = case
    first, second = lower_only(outputs), lower_only(outputs)
    assert [(r.name, r.after) for r in first.runs] == [(r.name, r.after) for r in second.runs]


# ---------------------------------------------------------------- sizes
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.few(3)
def test_matmul_of_every_size(n):
    rng = np.random.default_rng(n)
    for m, k in ((1, 5), (3, 17), (8, 16), (7, 0), (0, 3), (16, 8)):
        a = rng.integers(-4, 5, (m, k)).astype("f4")
        b = rng.integers(-4, 5, (k, n)).astype("f4")
        x, y = uopc.param("a", a.shape), uopc.param("b", b.shape)
        (out,) = run((x @ y,), {"a": a, "b": b})
        np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (0, 1, 2)])
def test_reduces_over_every_axis(op, axis):
    a = np.random.default_rng(1).integers(-9, 9, (3, 17, 8)).astype("f8")
    graph = getattr(uopc.param("a", a.shape, uopc.dtypes.float64), op)(axis=axis)
    (out,) = run((graph,), {"a": a})
    np.testing.assert_array_equal(out, getattr(a, op)(axis=axis))


@settings(QUICK, max_examples=40)
@given(n=st.integers(0, 70), k=st.integers(1, 20), optimize=st.booleans())
def test_one_program_for_every_size(n, k, optimize):
    """Symbolic rows: compiled once, called with whatever size is in the bounds."""
    x = uopc.param("x", (uopc.variable("n", 0, 80), 20))
    program = PROGRAMS.setdefault(
        optimize, uopc.compile(((x * 2.0).sum(axis=0), x.flip(0) + 1.0, x.sum()), optimize=optimize)
    )
    a = np.random.default_rng(k).integers(-5, 6, (n, 20)).astype("f4")
    check_equal(program(a), [(a * 2).sum(axis=0), a[::-1] + 1, np.asarray(a.sum())])


PROGRAMS = {}


# ---------------------------------------------------------------- assignment
@settings(QUICK, max_examples=40)
@given(
    to=st.tuples(st.integers(0, 8), st.integers(0, 9)), start=st.integers(0, 8),
    flipped=st.booleans(), read_before=st.booleans(), optimize=st.booleans(),
)  # fmt: skip
def test_assignment_to_a_view(to, start, flipped, read_before, optimize):
    """a[i:j] = f(a[k:k+j-i]), forward or backward, with a reader of the old contents."""
    begin, end = sorted(to)
    start = min(start, 9 - (end - begin))
    param = uopc.param("a", (9,))
    source = param[start : start + end - begin]
    source = source.flip(0) if flipped else source
    changed = param[begin:end].assign(source * 2.0 + 1.0)
    a = np.random.default_rng(begin).integers(-5, 6, 9).astype("f4")
    old, wanted = a.copy(), a.copy()
    part = old[start : start + end - begin]
    wanted[begin:end] = (part[::-1] if flipped else part) * 2 + 1
    outputs = (changed, param.sum()) if read_before else (changed,)
    got = uopc.compile(outputs, verify=True, optimize=optimize)(a)
    np.testing.assert_array_equal(a, wanted)
    np.testing.assert_array_equal(got[0], wanted[begin:end])
    if read_before:
        assert got[1] == old.sum()


@pytest.mark.parametrize("optimize", [True, False])
def test_assignments_one_after_another(optimize):
    """A write that follows a write sees it; the copy taken between them does not change."""
    param = uopc.param("a", (6,))
    once = param.assign(param + 1.0)
    between = once * 10.0
    twice = once.assign(once * 2.0)
    a = np.arange(6, dtype="f4")
    got = uopc.compile((twice, between), verify=True, optimize=optimize)(a)
    np.testing.assert_array_equal(a, (np.arange(6) + 1) * 2)
    np.testing.assert_array_equal(got[1], (np.arange(6) + 1) * 10)


# ---------------------------------------------------------------- threads, rules
@settings(QUICK, max_examples=25)
@given(n=st.integers(260_000, 300_000), threads=st.integers(1, 9))
def test_shared_work_is_the_same_work(n, threads):
    x = uopc.param("x", (n,))
    a = (np.arange(n) % 13).astype("f4")
    (out,) = uopc.compile((x * 2.0 + 1.0,), threads=threads, verify=True)(a)
    np.testing.assert_array_equal(out, a * 2 + 1)


def test_the_rules_of_the_user_reach_every_kernel():
    """Also one that leaves a single value where there was a vector."""
    x = uopc.UPat.var("x")
    rules = uopc.PatternMatcher([(x * 2.0, lambda x: uopc.constant(3.0, x.dtype.scalar))])
    a = np.arange(37, dtype="f4")
    for optimize in (True, False):
        graph = uopc.param("x", (37,)) * 2.0
        out = uopc.compile(graph, rules=rules, optimize=optimize)(a)
        np.testing.assert_array_equal(out, np.full(37, 3, "f4"))


def test_no_kernel_reads_a_shape():
    """After rangeify no op of the tensor level is left."""
    x = uopc.param("x", (4, 6))
    left = x.pad(((1, 1), (0, 2))).permute(1, 0).reshape(6, 8)
    right = x[:, :3].cat(x[:, 3:]).reshape(8, 3)
    lowered = lower_only((left @ right).softmax(axis=0))
    for k in lowered.kernels:
        assert not [u for u in k.toposort() if u.op.movement or u.op in (Ops.CAT, Ops.STAGE)]
