"""Loops of long bodies: ordered, split, copied, so that each value is computed once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import uopc
from uopc.ir.core.ops import Ops

RNG = np.random.default_rng(12)


def defects(z, seeds, n, lib):
    """Seed times derivative of what a car does in one step: rows of a state of 4, n stages."""
    x = z[: 4 * n].reshape(4, n)
    psi, v = x[2], x[3]
    delta = z[4 * n : 5 * n]
    sine, cosine = lib.sin(psi + 0.1 * delta), lib.cos(psi + 0.1 * delta)
    tangent = lib.sin(delta) / lib.cos(delta)
    t = seeds.reshape(-1, 5, n)
    turn, speed = t[:, 2] + 0.1 * t[:, 4], t[:, 3]
    rows = (
        t[:, 0] + cosine * speed - v * sine * turn,
        t[:, 1] + sine * speed + v * cosine * turn,
        t[:, 2] + tangent * speed + v * (1.0 + tangent * tangent) * t[:, 4],
        speed * lib.exp(v) + lib.sin(v) * t[:, 0],
    )  # fmt: skip
    return lib.stack(rows, 1).reshape(-1, 4 * n)


class Graph:
    sin, cos, exp = (staticmethod(lambda u, f=f: getattr(u, f)()) for f in ("sin", "cos", "exp"))

    @staticmethod
    def stack(rows, axis):
        return uopc.stack(*rows, axis=axis)


def jacobian(n, seeds, dtype, first=True):
    """All rows for all seeds, and before them the seeds' own first entries."""
    z, t = uopc.param("z", (5 * n,), dtype), uopc.param("t", (seeds, 5 * n), dtype)
    made = defects(z, t, n, Graph)
    return uopc.cat(t[:, :4], made, axis=1) if first else made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 13, 50])
@pytest.mark.few(3)
def test_numbers(n, dtype):
    kind = getattr(uopc.dtypes, dtype)
    z, t = RNG.uniform(-1, 1, 5 * n).astype(dtype), RNG.uniform(-1, 1, (6, 5 * n)).astype(dtype)
    wanted = np.concatenate([t[:, :4], defects(z, t, n, np)], 1)
    got = uopc.compile(jacobian(n, 6, kind), verify=True)(z=z, t=t)
    tolerance = 16 * np.finfo(dtype).eps  # of terms of size 1, which may cancel
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.machine("desktop")
def test_each_function_is_computed_once_a_stage():
    """13 stages, 6 seeds and 4 rows: the functions of a stage stand in one loop, in one copy."""
    f = uopc.compile(jacobian(13, 6, uopc.dtypes.float64), threads=1)
    (kernel,) = f.kernels
    names = [o.op for o in kernel.opts]
    assert {"SWAP", "PEEL", "TILE", "UPCAST", "OVERLAP"} <= set(names), names
    ends = [u for u in kernel.uops.src if u.op in (Ops.IF, Ops.ENDIF)]
    # The innermost: into the code for huge angles.
    branches = [i for i, end in itertools.pairwise(ends) if end.op is Ops.ENDIF and i is end.src[0]]
    assert len(branches) == 3, "one for each argument of a sine or cosine"


def test_cheap_bodies_keep_their_loops():
    x, y = uopc.param("x", (6, 32)), uopc.param("y", (32,))
    (kernel,) = uopc.compile(x * y + 1.0, threads=1).kernels
    assert "SWAP" not in [o.op for o in kernel.opts]


def test_gathered_at_run_time():
    """A long value read at places that arrays give: stored, then gathered."""
    z, t = RNG.uniform(-1, 1, 65), RNG.uniform(-1, 1, (6, 65))
    places = RNG.integers(-312, 312, 700).astype("int32")
    made = jacobian(13, 6, uopc.dtypes.float64, first=False).reshape(6 * 52)
    program = uopc.compile(made.take(uopc.param("places", (700,), uopc.dtypes.int32)))
    wanted = defects(z, t, 13, np).reshape(-1)[places]
    np.testing.assert_allclose(program(z=z, t=t, places=places), wanted, rtol=0, atol=1e-14)


def rows_of_one(x, count, lib):
    """Rows that stand on the same long value, each of another form."""
    value = x
    for _ in range(25):
        value = lib.sin(value) + x
    rows = [value]
    while len(rows) < count:
        rows.append(rows[-1] * x + value)
    return rows


@pytest.mark.parametrize(("count", "kernels"), [(3, 1), (40, 1), (140, 1), (260, 2)])
def test_rows_that_share_work_are_one_nest(count, kernels):
    x = RNG.uniform(-1, 1, 21)
    made = uopc.stack(*rows_of_one(uopc.param("x", (21,), uopc.dtypes.float64), count, Graph))
    program = uopc.compile(made, verify=True, threads=1)
    assert len(program.kernels) == kernels
    np.testing.assert_allclose(program(x), np.stack(rows_of_one(x, count, np)), rtol=1e-12)


@pytest.mark.parametrize("n, kernels", [(1000, 1), (1 << 17, 2)])
def test_what_loops_share_is_stored_only_where_they_stay(n, kernels):
    """Little is written: the loop over rows goes inside, and what it repeats is computed once."""
    x, w = uopc.param("x", (n,)), uopc.param("w", (8, 1))
    value = x.sin().exp().tanh().erf().log().tan()
    program = uopc.compile(value * w)
    assert len(program.kernels) == kernels
    assert len(uopc.compile(uopc.param("y", (8, n)).assign(value * w)).kernels) == kernels
    a, b = RNG.uniform(0.5, 1.5, n).astype("f4"), RNG.standard_normal((8, 1)).astype("f4")
    expected = uopc.compile(value.contiguous() * w)(a, b)
    np.testing.assert_allclose(program(a, b), expected, rtol=1e-6)
