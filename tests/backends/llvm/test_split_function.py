"""Kernels of very many statements become several functions, and compute what one would."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import uopc
from tests.graphs import graphs
from uopc import dtypes
from uopc.backends.llvm import split_function
from uopc.backends.llvm.split_function import cheapest_cuts
from uopc.driver import lower_only
from uopc.ir.core.ops import Ops
from uopc.ir.interpret import interpreter


def scalars(n, dtype=dtypes.int32):
    """n statements that depend on each other, without a loop."""
    x = uopc.param("x", (16,), dtype)
    values = [x[i : i + 1] for i in range(16)]
    draw = random.Random(n)
    for i in range(n):
        values.append(values[-1 - draw.randrange(12)] * values[-1 - draw.randrange(12)] + i)
    total = values[-1]
    for v in values[-12:-1]:
        total = total ^ v
    return total


def compiled(outputs, monkeypatch, most, part):
    monkeypatch.setattr(split_function, "MOST_STATEMENTS", most)
    monkeypatch.setattr(split_function, "PART", part)
    cut = cheapest_cuts
    monkeypatch.setattr(split_function, "cheapest_cuts", lambda statements: cut(statements, part))
    with uopc.options(cache_dir="", programs=0):
        return uopc.compile(outputs, verify=True)


@pytest.mark.slow
def test_a_long_kernel_is_one_kernel_and_several_functions(monkeypatch):
    graph = scalars(2_000)
    x = np.arange(16, dtype="i4")
    with uopc.options(cache_dir="", programs=0):
        whole = uopc.compile(graph)
    cut = compiled(graph, monkeypatch, 1_000, 500)
    assert len(whole.kernels) == len(cut.kernels) == 1 and ".part" not in whole.kernels[0].source
    assert len(re.findall(r"define internal", cut.kernels[0].source)) >= 6
    np.testing.assert_array_equal(whole(x), cut(x))


def test_the_limit_is_what_is_measured():
    short, long = [lower_only(scalars(n), verify=False).kernels[0] for n in (1_000, 3_500)]
    assert ".part" not in split_function.render("k", short)[0]
    assert ".part" in split_function.render("k", long)[0]


def test_it_is_cut_where_the_fewest_values_cross():
    (kernel,) = lower_only(scalars(1_500), verify=False).kernels
    cuts = cheapest_cuts(kernel.src, 256)
    crossing, whole = split_function._crossing(kernel.src)
    assert len(cuts) > 5 and all(192 <= b - a <= 320 for a, b in zip([0, *cuts], cuts))
    for a, b in zip([0, *cuts], cuts):
        assert crossing[b] == min(crossing[i] for i in range(a + 192, a + 320) if whole[i])
    assert max(crossing[c] for c in cuts) <= 14


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: (x @ y).softmax(axis=-1),
        lambda x, y: (x.sum(axis=1, keepdims=True) + y).cumsum(axis=0),
        lambda x, y: x.maximum(0).pad(((1, 2), (0, 3))).exp() @ y.pad(((0, 3), (0, 0))),
        lambda x, y: uopc.where(x > y, x, y).sum() + (x < 0).any(axis=0).cast(dtypes.float32),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_loops_threads_and_tiles_are_not_cut(make, threads, monkeypatch):
    x, y = uopc.param("x", (24, 24)), uopc.param("y", (24, 24))
    a, b = np.random.default_rng(1).standard_normal((2, 24, 24)).astype("f4")
    with uopc.options(cache_dir="", programs=0, threads=threads):
        wanted = uopc.compile(make(x, y))(a, b)
    cut = compiled(make(x, y), monkeypatch, 8, 8)
    assert any(".part" in k.source for k in cut.kernels)
    np.testing.assert_array_equal(cut(a, b), wanted)


@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(case=graphs())
def test_parts_of_any_kernel_are_interpreted(case):
    outputs, arrays = case
    with pytest.MonkeyPatch.context() as patch:
        program = compiled(outputs, patch, 4, 4)
        got = program(**{name: a.copy() for name, a in arrays.items()})
    for a, b in zip(got, interpreter.evaluate(outputs, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_branch_stays_whole(monkeypatch):
    """No cut separates an IF, its ENDIF and the values that join behind it."""
    x = uopc.param("x", (1,), dtypes.float64)
    total = x
    for i in range(6):
        total = (total * (i + 2)).sin() + x
    (kernel,) = lower_only(total, verify=False).kernels
    _, whole = split_function._crossing(kernel.src)
    joined = [i for i, u in enumerate(kernel.src) if u.op is Ops.BRANCH]
    assert joined and not any(
        whole[k] for i in joined for k in range(kernel.src.index(kernel.src[i].src[1]) + 1, i + 1)
    )
    with uopc.options(cache_dir="", programs=0):
        wanted = uopc.compile(total)(np.array([1e5]))
    cut = compiled(total, monkeypatch, 8, 8)
    assert ".part" in cut.kernels[0].source
    np.testing.assert_array_equal(cut(np.array([1e5])), wanted)


def test_too_much_that_crosses_is_not_cut(monkeypatch):
    (kernel,) = lower_only(scalars(3_500), verify=False).kernels
    monkeypatch.setattr(split_function, "MOST_BYTES", 16)
    assert ".part" not in split_function.render("k", kernel)[0]


def test_values_without_an_axis_are_not_stored_for_their_depth():
    kinds = [u.op for u in lower_only(scalars(2_000), verify=False).calls[0][0].src]
    assert kinds.count(Ops.STORE) == 1
