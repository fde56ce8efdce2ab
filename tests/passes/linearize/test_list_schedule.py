"""Statements in the order of how long the way to the end is: sources first, where it pays."""

from __future__ import annotations

import random

import numpy as np
import pytest

import uopc
from uopc.driver import lower_only
from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.args import RangeArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import intern
from uopc.passes.analysis.op_costs import SHORTEST_STRETCH
from uopc.passes.linearize.list_schedule import by_latency

ARITHMETIC = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.FDIV)


def leaf_nodes(n):
    range_ = intern(Ops.RANGE, dtypes.index, (leaves.const(dtypes.index, 9),), RangeArg((0,)))
    first = range_.cast(dtypes.float64)
    return [intern(Ops.AFTER, first.dtype, (first, range_), None, i) for i in range(n)]


def some(seed, n, reach):
    """n nodes, each of two that were made a little before it."""
    rng = random.Random(seed)
    made = leaf_nodes(4)
    for i in range(n):
        pair = tuple(rng.choice(made[-reach:]) for _ in range(2))
        made.append(intern(rng.choice(ARITHMETIC), dtypes.float64, pair, None, i))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_sources_come_first_and_nothing_is_lost(seed):
    items = some(seed, 40 * (seed + 1), 4 + seed)
    got = by_latency(items, None)
    assert sorted(map(id, got)) == sorted(map(id, items))
    place = {u: i for i, u in enumerate(got)}
    assert all([place[s] < i for i, u in enumerate(got) for s in u.src if s in place])
    assert by_latency(items, None) == got


def chains(count, length):
    """Chains that stand one after the other."""
    out = leaf_nodes(count)
    for first in list(out):
        u = first
        for i in range(length):
            u = intern(Ops.ADD, u.dtype, (u, first), None, i)
            out.append(u)
    return out


def test_chains_are_put_side_by_side():
    items = chains(8, 30)
    got = by_latency(items, None)
    assert got != items
    numbers = [u.tag for u in got if u.op is Ops.ADD]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("count, length", [(1, 200), (60, 5), (4, SHORTEST_STRETCH // 4 - 2)])
def test_one_chain_wide_code_and_short_code_stay(count, length):
    items = chains(count, length)
    assert by_latency(items, None) == items


def test_a_store_stands_where_its_value_is_there():
    """It does not wait for other results of the value."""
    place = intern(Ops.INDEX, dtypes.float64, tuple(leaf_nodes(1)))
    items = [place]
    for first in leaf_nodes(8):
        u = first
        items.append(u)
        for k in range(30):
            u = intern(Ops.ADD, u.dtype, (u, first), None, k)
            items.append(u)
            if k == 9:
                items.append(intern(Ops.STORE, dtypes.void, (place, u)))
    got = by_latency(items, None)
    ops = [u.op for u in got]
    last = len(ops) - ops[::-1].index(Ops.STORE)
    assert got != items and ops.count(Ops.STORE) == 8 and ops[last:].count(Ops.ADD) >= 8 * 19
    assert all([got.index(u.src[1]) < got.index(u) for u in got if u.op is Ops.STORE])


def test_numbers_are_the_same():
    """Long bodies of loops, ordered or not."""
    x = uopc.param("x", (40,), dtypes.float64)
    parts = [x * (i + 1.0) for i in range(6)]
    for i in range(20):
        parts = [p * 0.5 + q * float(i) for p, q in zip(parts, parts[1:] + parts[:1])]
    graph = sum(parts)
    (kernel,) = lower_only(graph, threads=1).kernels
    assert len(kernel.src) > 2 * SHORTEST_STRETCH
    a = np.linspace(-1, 1, 40)
    got = uopc.compile(graph)(a)
    wanted = [a * (i + 1.0) for i in range(6)]
    for i in range(20):
        wanted = [p * 0.5 + q * float(i) for p, q in zip(wanted, wanted[1:] + wanted[:1])]
    np.testing.assert_allclose(got, sum(wanted), rtol=1e-13)
