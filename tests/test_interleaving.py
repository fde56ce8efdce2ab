"""Loops whose bodies wait for their results have two iterations side by side."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.passes.optimize.schedule import thresholds

RNG = np.random.default_rng(3)
ROWS, COLUMNS = 8, 64


def chains(x, rows, count, length):
    """For each row: chains over a column's values, multiplied one after the other."""
    column = x.reshape(1, COLUMNS)
    made = []
    for i in range(count):
        u = rows * (1.0 + i / 16) + column
        for k in range(length):
            u = u * column + rows * (0.25 + k / 64)
        made.append(u)
    return sum(made[1:], made[0])


def compiled(rows, columns, count, length):
    x = uopc.param("x", (COLUMNS,), uopc.dtypes.float64)
    t = uopc.param("t", (ROWS, COLUMNS), uopc.dtypes.float64)
    return uopc.compile(chains(x, t, count, length), verify=True)


def is_interleaved(program):
    return any(
        o.op == "UPCAST" and o.arg == thresholds.INTERLEAVED
        for k in program.kernels
        for o in k.opts
    )


@pytest.mark.parametrize("count, length, waits", [
    (2, 24, True), (3, 16, True), (1, 40, True), (1, 4, False), (2, 200, False),
])  # fmt: skip
def test_where_a_body_waits(count, length, waits):
    f = compiled(ROWS, COLUMNS, count, length)
    assert is_interleaved(f) == waits, [k.opts for k in f.kernels]
    x, t = RNG.uniform(-1, 1, COLUMNS), RNG.uniform(-1, 1, (ROWS, COLUMNS))
    wanted = chains(x, t, count, length)
    np.testing.assert_allclose(f(x=x, t=t), wanted, rtol=1e-12)
