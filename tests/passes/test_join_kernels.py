"""Kernels that read the same array in the same loops are one, and give the same numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from uopc.driver import lower_only
from uopc.ir.core.args import Opt
from uopc.ir.core.ops import Ops

RNG = np.random.default_rng(5)

# A value of a matrix, by NumPy and by the compiler.
VALUES = {
    "sum1": (lambda a: a.sum(1), lambda x: x.sum(1)),
    "squares1": (lambda a: (a * a).sum(1), lambda x: (x * x).sum(1)),
    "max1": (lambda a: a.max(1), lambda x: x.max(1)),
    "argmax1": (lambda a: a.argmax(1), lambda x: x.argmax(1)),
    "var1": (lambda a: a.var(1), lambda x: x.var(1)),
    "sum0": (lambda a: a.sum(0), lambda x: x.sum(0)),
    "min0": (lambda a: a.min(0), lambda x: x.min(0)),
    "total": (lambda a: a.sum(), lambda x: x.sum()),
    "least": (lambda a: a.min(), lambda x: x.min()),
    "double": (lambda a: a * 2, lambda x: x * 2),
    "exp": (lambda a: np.exp(a), lambda x: x.exp()),
    "positive": (lambda a: a > 0, lambda x: x > 0),
    "turned": (lambda a: a.T + 1, lambda x: x.permute(1, 0) + 1),
    "about": (lambda a: a - a.mean(1, keepdims=True), lambda x: x - x.mean(1, keepdims=True)),
}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=7),
    st.integers(1, 99), st.integers(1, 199), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_outputs_of_one_array(names, rows, columns, threads, square):
    a = RNG.standard_normal((rows, rows if square else columns)).astype("f4")
    x = uopc.param("x", a.shape)
    graph = tuple(VALUES[n][1](x) for n in names)
    joined = uopc.compile(graph, threads=threads, verify=True)
    apart = uopc.compile(graph, optimize=False)
    assert len(joined.kernels) <= len(apart.kernels)
    for name, got, plain in zip(names, joined(a), apart(a)):
        want = VALUES[name][0](a.astype("f8"))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(got, plain, rtol=2e-5, atol=2e-5)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.integers(1, 3))
def test_assignments_keep_their_order(steps, threads):
    """Values and in-place updates of one array, in any order."""
    a = RNG.standard_normal((9, 633)).astype("f4")
    x = uopc.param("x", a.shape)
    current, want, graph, expected = x, a.copy(), [], []
    for step in steps:
        if step < 2:
            current = current.assign(current * 0.5 + step)
            want = want * np.float32(0.5) + np.float32(step)
        else:
            graph.append(current.sum(1) if step % 2 else current * step)
            expected.append(want.sum(1) if step % 2 else want * step)
    graph.append(current)
    given_array = a.copy()
    found = uopc.compile(tuple(graph), threads=threads, verify=True)(given_array)
    for got, right in zip(found, [*expected, want]):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given_array, want, rtol=1e-5, atol=1e-5)


def loops_of(kernel):
    return sum(u.op is Ops.RANGE for u in kernel.src)


def test_three_reduces_of_the_rows_are_one_loop():
    x = uopc.param("x", (64, 512))
    lowered = lower_only((x.sum(1), (x * x).sum(1), x.max(1)), threads=1)
    (kernel,) = lowered.kernels
    assert loops_of(kernel) == 2
    (kernel,) = lower_only(x.mean(1) * (x * x).sum(1), threads=1).kernels
    assert loops_of(kernel) == 2


def test_what_waits_is_not_joined():
    x = uopc.param("x", (64, 512))
    (kernel,) = lower_only(x.var(1), threads=1).kernels
    assert loops_of(kernel) == 3  # a mean, and then the squares about it
    y = uopc.param("y", (64, 512))
    assert len(lower_only((x.sum(1), y.sum(1)), threads=1).kernels) == 1  # one kernel, two calls
    assert len(lower_only((x.sum(1), y.max(1)), threads=1).kernels) == 2


def test_opts_of_the_user_keep_a_kernel_alone():
    x = uopc.param("x", (64, 512))
    graph = ((x * 2).contiguous((Opt("VECTOR", 0, 4),)), x + 1)
    a = RNG.standard_normal((64, 512)).astype("f4")
    program = uopc.compile(graph, verify=True)
    assert len(program.kernels) == 2
    found = program(a)
    np.testing.assert_array_equal(found[0], a * 2)
    np.testing.assert_array_equal(found[1], a + 1)


def test_a_kernel_that_is_full_leaves_the_rest_to_the_next():
    x = uopc.param("x", (64, 512))
    graph = tuple([((x + i) * (x - i)).sum(1) for i in range(8)])
    assert len(lower_only(graph, threads=1).runs[-1].after) == 2


def test_groups_of_reduces_wait_for_each_other_as_a_whole():
    """a and d read x, b and c read y; b needs a and d needs c: only one of the pairs is a loop."""
    x, y = uopc.param("x", (8, 9)), uopc.param("y", (8, 9))
    a, c = x.sum(1, keepdims=True), y.sum(1, keepdims=True)
    b, d = (y * a).max(1), (x * c).max(1)
    values = RNG.standard_normal((2, 8, 9)).astype("f4")
    program = uopc.compile(b + d, threads=1, verify=True)
    (run,) = [r for r in lower_only(b + d, threads=1).runs if r.name == "simplify-ranges"]
    assert [sum(u.op is Ops.RANGE for u in k.toposort()) for k in run.after] == [4]
    p, q = values
    want = (q * p.sum(1, keepdims=True)).max(1) + (p * q.sum(1, keepdims=True)).max(1)
    np.testing.assert_allclose(program(*values), want, rtol=1e-5, atol=1e-5)
