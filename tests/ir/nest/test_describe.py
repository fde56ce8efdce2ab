"""The outlines of kernels: loops, operations and references, against what their sources say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.machines import only_lowered
from uopc import param
from uopc.driver import lower_only
from uopc.ir.core.args import Opt
from uopc.ir.nest.describe import outline_of
from uopc.ir.nest.outline import Accumulator, Dim, Spread, Unit


def outline(graph, *opts):
    """The outline of a graph's only kernel, after the Opts in a text such as `VECTOR 0 8`."""
    found = [Opt(o.split()[0], *map(int, o.split()[1:])) for o in opts]
    with only_lowered("workstation"):
        runs = lower_only(graph, threads=1, opts=tuple(found)).runs
    (kernel,) = next(r for r in runs if r.name == "optimize").after
    return outline_of(kernel)


PRODUCT = param("a", (12, 20)) @ param("b", (20, 64))


def test_a_product_before_its_opts():
    o = outline(PRODUCT)
    i, j, k = o.bodies
    assert [(b.length, b.around) for b in o.bodies] == [(12, ()), (64, (0,)), (20, (0, 1))]
    assert k.units[Unit("alu", 1, 32)] == 1 and k.units[Unit("fmul", 1, 32)] == 1
    assert k.accumulators == [Accumulator(1, 32, 1, 1, True)] and k.carried == 4
    assert +i.units == {} and +j.units == {}
    a, b, y = sorted(o.references, key=lambda r: (r.written, r.size))
    assert (a.body, a.strides) == (2, {0: 20, 2: 1}) and (b.body, b.strides) == (2, {2: 64, 1: 1})
    assert y.written and (y.body, y.strides) == (1, {0: 64, 1: 1})
    assert sorted(o.storages) == [12 * 20 * 4, 12 * 64 * 4, 20 * 64 * 4]


def test_lanes_and_copies_are_no_loops():
    o = outline(PRODUCT, "VECTOR 1 16", "UPCAST 0 4")
    assert [b.length for b in o.bodies] == [3, 4, 20]
    k = o.bodies[2]
    assert k.units[Unit("alu", 16, 32)] == 4  # multiply-adds
    assert k.accumulators == [Accumulator(16, 32, 4, 1, True)]
    a, b, y = sorted(o.references, key=lambda r: (r.written, r.size))
    assert (a.lanes, a.copies) == ((), (Dim(4, 20),)) and a.strides == {0: 80, 2: 1}
    assert (b.lanes, b.copies) == ((Dim(16, 1),), ()) and b.strides == {1: 16, 2: 64}
    assert (y.lanes, y.copies) == ((Dim(16, 1),), (Dim(4, 64),))


def test_a_stencil_is_one_reference():
    x = param("x", (100, 50))
    o = outline(x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    (read,) = [r for r in o.references if not r.written]
    first = min(read.offsets)
    assert sorted([n - first for n in read.offsets]) == [0, 49, 51, 100]
    assert read.strides == {0: 50, 1: 1}


def test_a_range_of_two_sums_is_two_loops():
    x = param("x", (30, 40))
    o = outline(x.softmax(axis=1))
    lengths = sorted([b.length for b in o.bodies])
    assert lengths.count(40) >= 2 and lengths.count(30) >= 1
    assert all(b.around == (0,) for b in o.bodies if b.length == 40)


def test_the_mean_length_of_a_loop_that_another_bounds():
    o = outline(param("x", (100,)) * 2.0, "BLOCK 0 16")
    lengths = [b.length for b in o.bodies]
    assert np.prod(lengths) == pytest.approx(100)
    assert lengths == [7, pytest.approx(100 / 7)]


def test_lanes_of_computed_places():
    x = param("x", (8, 4))
    o = outline(x.reshape(8, 4, 1).expand(8, 4, 4).reshape(128) * 2.0, "VECTOR 0 16")
    (read,) = [r for r in o.references if not r.written]
    assert read.spread == Spread(4, 1, 4) or read.lanes == (Dim(4, 0), Dim(4, 1))


def test_a_guard_of_iterations_and_one_of_lanes():
    x = param("x", (30,)).pad(((1, 1),)) * 2.0
    (read,) = [r for r in outline(x).references if not r.written]
    assert read.skipped and not read.masked
    (read,) = [r for r in outline(x, "VECTOR 0 16").references if not r.written]
    assert read.masked and not read.skipped


def test_values_that_a_loop_keeps():
    x, w = param("x", (16, 40)), param("w", (16,))
    o = outline((x * w.exp().reshape(16, 1)).sum(axis=1))
    inner = o.bodies[-1]
    assert inner.around and inner.held and inner.held[0].bits == 32
