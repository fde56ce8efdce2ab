"""Statements of hand-written loops: the values that many stores share are walked once."""

from __future__ import annotations

import numpy as np

from uopc import UOp, dtypes, kernel_param
from uopc.ir.builder import turns
from uopc.ir.core.ops import Ops
from uopc.ir.interpret.interpreter import run_kernel

F64 = dtypes.float64
X = np.random.default_rng(0).standard_normal(4)


def running_sums(steps):
    """A kernel that stores each value of a chain, and adds the last one to a sum in each turn."""
    out, total, x = (
        kernel_param(slot, dims, F64, name)
        for slot, (dims, name) in enumerate((((steps, 4), "out"), ((1,), "total"), ((4,), "x")))
    )
    i = UOp.range(4, 0)
    value, stores = x[i], []
    for k in range(steps):
        value = value * 0.5 + x[i]
        stores.append(out[k, i].store(value).end(i))
    stores.append(total[0].store(total[0] + value).end(i))
    return UOp(Ops.SINK, dtypes.void, tuple(stores))


def test_each_turn_adds_to_a_sum_of_shared_values():
    out, total = np.zeros((3, 4)), np.ones(1)
    run_kernel(turns.in_each_turn(running_sums(3)), [out, total, X])
    last = X * (0.5**3 + 0.5**2 + 0.5 + 1)
    np.testing.assert_allclose(out[2], last)
    np.testing.assert_allclose(total, 1 + last.sum())


def test_time_grows_with_the_nodes_not_with_the_stores_that_share_them(monkeypatch):
    read, looked = turns._read_after_loops, []

    def counted(*given):
        looked.append(given)
        return read(*given)

    def looks(steps):
        looked.clear()
        turns.in_each_turn(running_sums(steps))
        return len(looked)

    monkeypatch.setattr(turns, "_read_after_loops", counted)
    assert looks(32) < 2.5 * looks(16)  # 3.7 times if each store walks all that it reads
