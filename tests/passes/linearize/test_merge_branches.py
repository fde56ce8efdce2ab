"""Branches that are tested at once: the same numbers, and none that waits for another."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import uopc
from uopc.driver import lower_only
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops

NAMES = ("sin", "cos", "tan", "log")
HUGE = [1e22, -5e200, 1.7e308, np.inf, -np.inf, np.nan, -0.0, 3e6]


def numbers(*shape, every=5):
    """Small numbers, with a huge or special one in every so many."""
    rng = np.random.default_rng(shape[0])
    a = rng.uniform(-100, 100, shape)
    a.reshape(-1)[::every] = rng.choice(HUGE, a.reshape(-1)[::every].size)
    return a


def branches(graph, **options):
    """The branches in what a graph is lowered to: how deep each stands."""
    found, depth = [], 0
    for kernel in lower_only(graph, **options).kernels:
        for u in kernel.src:
            depth -= u.op is Ops.ENDIF
            if u.op is Ops.IF:
                found.append(depth)
                depth += 1
    return found


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.few(2)
def test_together_as_alone(dtype, optimize):
    a = numbers(5, 13).astype(dtype)
    x = uopc.param("x", a.shape, getattr(dtypes, dtype))
    parts = [getattr(x * (1.0 + i / 8), name)() for i in range(3) for name in NAMES]
    together = uopc.stack(*parts)
    got = uopc.compile(together, optimize=optimize, verify=True)(a)
    for part, one in zip(parts, got, strict=True):
        np.testing.assert_array_equal(one, uopc.compile(part, optimize=optimize)(a))


def test_sixteen_have_one_test():
    x = uopc.param("x", (64,), dtypes.float64)
    total = sum([(x * float(i)).sin() for i in range(2, 17)], x.sin())
    assert branches(total) == [0] + [1] * 16
    two = sum([(x * float(i)).sin() for i in range(2, 18)], x.sin())
    assert branches(two) == [0] + [1] * 9 + [0] + [1] * 8


def test_one_stays_as_it_is():
    x = uopc.param("x", (16,), dtypes.float64)  # too few vectors for copies
    assert branches(x.sin() + 1.0) == [0]


def test_what_waits_is_tested_later():
    """A sine of a sine; one of a sum over sines, and one beside it that the sum needs."""
    x = uopc.param("x", (64,), dtypes.float64)
    assert branches(x.sin().cos().sin()) == [0, 0, 0]
    rows = uopc.param("x", (8, 6), dtypes.float64)
    total = (rows * rows.sin()).sum(axis=1)
    graph = total.sin() + rows[:, 0].cos() * total
    assert sorted(branches(graph, optimize=False)) == [0, 0, 0]
    a = numbers(8, 6, every=9)
    a[~np.isfinite(a)] = 1e30
    sums = (a * np.sin(a)).sum(axis=1)
    got = uopc.compile(graph, verify=True)(a)
    np.testing.assert_allclose(got, np.sin(sums) + np.cos(a[:, 0]) * sums, rtol=1e-6)


@st.composite
def programs(draw):
    """Values of a few rows, each a function, a product or a sum over a row of earlier ones."""
    steps = []
    for i in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(["sin", "cos", "tan", "log", "mul", "add", "sum", "mod"]))
        steps.append((kind, draw(st.integers(0, i)), draw(st.integers(0, i))))
    return steps


def run(steps, x, lib):
    values = [x]
    for kind, i, j in steps:
        a, b = values[i], values[j]
        if kind == "mul":
            made = a * b
        elif kind == "add":
            made = a + b * 0.5
        elif kind == "sum":
            made = b + (a * 0.125).sum(axis=1, keepdims=True)
        elif kind == "mod":
            made = a % 7.25
        else:
            argument = abs(a) + 1.0 if kind == "log" else a
            made = getattr(argument, kind)() if lib is uopc else getattr(lib, kind)(argument)
        values.append(made)
    return values[-1] + values[len(values) // 2]


@settings(max_examples=60, deadline=None)
@given(programs(), st.booleans())
def test_random_programs(steps, optimize):
    a = np.random.default_rng(3).uniform(-3, 3, (3, 9))
    a[1, ::4] = 3e15
    x = uopc.param("x", a.shape, dtypes.float64)
    got = uopc.compile(run(steps, x, uopc), optimize=optimize, verify=True)(a)
    # Results of huge numbers hang on the last bits of all before: only the others are compared.
    wanted = run(steps, a[[0, 2]], np)
    scale = np.maximum(1.0, abs(wanted).max())
    exact = run(steps, a[[0, 2]].astype(np.longdouble), np)
    lost = 1e-9 * scale + 1e6 * abs(exact - wanted).astype(float)
    assert (abs(got[[0, 2]] - wanted) <= lost).all()
