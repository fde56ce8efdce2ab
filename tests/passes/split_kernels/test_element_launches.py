"""Launches of few elements that depend on each other are one, and give the same numbers."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.driver import lower_only
from uopc.ir.core import dtypes

F64 = dtypes.float64


def car(stack, sin, cos):
    """A step of RK4 of a car: states in a vector, or as numbers where `stack` is a list."""

    def rates(x, u):
        return [x[3] * cos(x[2]), x[3] * sin(x[2]), x[3] * u[0], u[1] - x[3] * 0.1]

    def moved(x, k, h):
        return [a + b * h for a, b in zip(x, k)]

    def step(x, u, h=0.05):
        first = rates(x, u)
        second = rates(moved(x, first, h / 2), u)
        third = rates(moved(x, second, h / 2), u)
        fourth = rates(moved(x, third, h), u)
        rows = zip(first, second, third, fourth)
        mean = [(a + b * 2 + c * 2 + d) * (1 / 6) for a, b, c, d in rows]
        return stack(moved(x, mean, h))

    return step


def states(step, x, u, n):
    found = []
    for i in range(n):
        x = step(x, [u[i, 0], u[i, 1]])
        found.append(x)
    return found


def squares(rows, stack):
    return sum([(stack(x) * stack(x)).sum() for x in rows])


# Functions of the states: of UOps, of arrays, and the most launches that 6 steps may take.
RESULTS = {
    "numbers": (lambda rows, stack: [v for x in rows for v in x], 6),
    "rows": (lambda rows, stack: [stack(x) for x in rows], 6),
    "squares": (squares, 6),
    "rows and squares": (lambda rows, stack: [*map(stack, rows), squares(rows, stack)], 7),
}


@pytest.mark.parametrize("what", RESULTS)
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.few(2)
def test_states_of_a_rollout_take_a_launch_a_step_at_most(what, vectors):
    make, most = RESULTS[what]
    n = 6
    x, u = uopc.param("x", (4,), F64), uopc.param("u", (n, 2), F64)

    def pack(v):
        return uopc.stack(*v) if isinstance(v, list) else v

    step = car(pack if vectors else list, lambda v: v.sin(), lambda v: v.cos())
    rows = states(step, [x[i] for i in range(4)], u, n)
    if vectors:
        rows = [[r[i] for i in range(4)] if what == "numbers" else r for r in rows]
    graph = make(rows, pack)
    graph = tuple(graph) if isinstance(graph, list) else graph
    program = uopc.compile(graph, verify=True)
    assert program.stats["launches"] <= most
    assert len(program.kernels) <= 8
    rng = np.random.default_rng(0)
    given_x, given_u = rng.standard_normal(4), rng.standard_normal((n, 2))
    found = program(x=given_x, u=given_u)
    wanted = make(states(car(list, np.sin, np.cos), given_x, given_u, n), np.array)
    for got, want in zip(found if isinstance(found, tuple) else [found],
                         wanted if isinstance(wanted, list) else [wanted]):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_cheap_steps_are_one_launch():
    """Van der Pol's oscillator: a launch costs more than a step."""
    x, out = uopc.param("x", (2,), F64), []
    p, v = x[0], x[1]
    for _ in range(30):
        p, v = p + v * 0.01, v + ((1.0 - p * p) * v - p) * 0.01
        out.append(uopc.stack(p, v))
    program = uopc.compile(tuple(out), verify=True)
    assert program.stats["launches"] == 1
    state = np.array([0.5, -0.25])
    for got in program(state):
        a, b = state
        state = np.array([a + b * 0.01, b + ((1.0 - a * a) * b - a) * 0.01])
        np.testing.assert_allclose(got, state, rtol=1e-12)


def test_what_only_statements_read_is_not_stored():
    x = uopc.param("x", (2,))
    first = (x * 2.0).contiguous()
    (call,) = lower_only(uopc.stack(first[0] + first[1], first[0] * x[1])).calls
    assert len(call[1]) == 2  # the result and x


@pytest.mark.parametrize("how", ["a long sum", "an update in place"])
def test_a_launch_stays_behind_what_it_waits_for(how):
    """The first and the last output read one array, and the last one a launch between them, too."""
    x, far = uopc.param("x", (2,)), uopc.param("far", (999,))
    first = x[0] + x[1]
    if how == "a long sum":
        graph = (first, (far * far).sum().contiguous() * x[0])
    else:
        longer = far.assign(far * first)
        graph = (first, longer, longer[0] * x[0])
    program = uopc.compile(graph, verify=True)
    assert program.stats["launches"] == len(graph) + (how == "a long sum")
    given_x, given_far = np.array([3, 4], "f4"), np.full(999, 2, "f4")
    wanted = 999 * 4 * 3 if how == "a long sum" else 2 * 7 * 3
    found = program(x=given_x, far=given_far)
    assert float(found[0]) == 7.0 and float(found[-1]) == wanted


def test_the_opts_of_a_user_keep_their_kernel():
    x = uopc.param("x", (4,))
    first = (x * 2.0).contiguous(())
    assert len(lower_only(first[0] + first[1]).calls) == 2


def test_vectors_of_more_elements_keep_their_loops():
    x = uopc.param("x", (16,))
    first = x.exp()
    assert len(lower_only((first, first * 2.0)).calls) == 2


def test_a_kernel_takes_no_more_buffers_than_allowed():
    x = uopc.param("x", (2,))
    parts = [(x[0] * float(i)).contiguous() for i in range(6)]
    graph = (*parts, sum(parts))
    with uopc.options(max_kernel_buffers=4):
        program = uopc.compile(graph)
        calls = lower_only(graph).calls
    assert max([len(storage) for _, storage in calls]) == 4
    np.testing.assert_allclose(program(np.array([2, 0], "f4"))[-1], 30.0)


class InNumPy:
    """Steps on vectors of n integers, by NumPy: `a` and `b` are values, `k` is a number."""

    stack, maximum = staticmethod(np.stack), staticmethod(np.maximum)

    def __init__(self, n, x, far):
        self.n, self.x, self.far = n, x, far

    def add(self, a, b, k):
        return a + b * k

    def mul(self, a, b, k):
        return a * b

    def element(self, a, b, k):
        return self.maximum(a, b[k % self.n])

    def parts(self, a, b, k):
        n = self.n
        return self.stack([(a if i % 2 else b)[(i + k) % n] for i in range(n)])

    def total(self, a, b, k):
        return a - b.sum()

    def turned(self, a, b, k):
        return a[::-1] - b

    def shifted(self, a, b, k):
        return np.concatenate([np.zeros(1, a.dtype), a[: self.n - 1]]) + b

    def gathered(self, a, b, k):
        return a[b & min(1, self.n - 1)]

    def long(self, a, b, k):
        return (self.far * a[k % self.n]).sum() + b

    def stored(self, a, b, k):
        return a.copy()

    def assigned(self, a, b, k):
        self.x = a.copy()
        return self.x


class InUopc(InNumPy):
    """The same as a graph."""

    def __init__(self, n):
        x, far = [uopc.param(name, (m,), dtypes.int64) for name, m in (("x", n), ("far", 99))]
        super().__init__(n, x, far)

    def stack(self, parts):
        return uopc.stack(*parts)

    def maximum(self, a, b):
        return a.maximum(b)

    def turned(self, a, b, k):
        return a.flip(0) - b

    def shifted(self, a, b, k):
        return a[: self.n - 1].pad(((1, 0),)) + b

    def stored(self, a, b, k):
        return a.contiguous()

    def assigned(self, a, b, k):
        self.x = self.x.assign(a)
        return self.x


KINDS = [k for k in vars(InNumPy) if k[0] != "_" and k not in ("stack", "maximum")]
STEP = st.tuples(st.sampled_from([*KINDS, "keep"]), *[st.integers(0, 20)] * 3)


def values_of(steps, by):
    """The values that some steps keep, and the argument as they leave it."""
    values, kept = [by.x, by.x * 3 + 1], []
    for kind, i, j, k in steps:
        a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
        if kind == "keep":
            kept.append(a)
        else:
            values.append(getattr(by, kind)(a, b, k))
    return [*kept, values[-1], by.x]


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=2, max_size=14), st.sampled_from([1, 2, 3, 4, 5, 16, 17]))
def test_any_steps_give_the_numbers_of_numpy(steps, n):
    """Vectors of few or many elements, updates in place, computed indices, sums of long arrays."""
    rng = np.random.default_rng(1)
    x, far = rng.integers(-9, 9, n), rng.integers(-9, 9, 99)
    program = uopc.compile(tuple(values_of(steps, InUopc(n))), verify=True)
    names = inspect.signature(program).parameters
    found = program(**{k: v for k, v in (("x", x.copy()), ("far", far)) if k in names})
    with np.errstate(over="ignore"):
        wanted = values_of(steps, InNumPy(n, x, far))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=15, deadline=None)
@given(st.lists(STEP, min_size=2, max_size=10), st.integers(1, 5))
def test_any_steps_take_no_more_launches_and_give_the_same_numbers(steps, n):
    graph = tuple(values_of(steps, InUopc(n)))
    rng = np.random.default_rng(2)
    given_arrays = {"x": rng.integers(-9, 9, n), "far": rng.integers(-9, 9, 99)}
    joined = uopc.compile(graph)
    apart = uopc.compile(graph, optimize=False)
    names = inspect.signature(joined).parameters
    found = [
        p(**{k: v.copy() for k, v in given_arrays.items() if k in names}) for p in (joined, apart)
    ]
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)
    assert joined.stats["launches"] <= apart.stats["launches"]
