"""Functions that hypothesis draws, of SX and MX: values, structures and Jacobians as CasADi's."""

from __future__ import annotations

from typing import Any

import pytest

ca = pytest.importorskip("casadi")

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.casadi.oracle import check_jacobians, check_values

SX, MX = ca.SX, ca.MX
UNARY = (
    ca.sin, ca.cos, ca.tanh, ca.atan, ca.erf, ca.fabs, ca.floor, ca.sign, ca.asinh,
    lambda a: ca.sqrt(1 + a * a), lambda a: ca.exp(-a * a), lambda a: ca.log1p(a * a),
    lambda a: 1 / (2 + ca.cos(a)), lambda a: ca.asin(0.9 * ca.sin(a)), lambda a: 2 * a,
)  # fmt: skip
BINARY = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: ca.tanh(a) * b, ca.fmin, ca.fmax,
    ca.atan2, ca.hypot, lambda a, b: ca.if_else(a > b, a, 2 * b), lambda a, b: a / (1 + b * b),
    lambda a, b: ca.logic_and(a > 0, b > 0), ca.copysign, lambda a, b: (1 + a * a) ** ca.sin(b),
)  # fmt: skip


@st.composite
def scalar_functions(draw: Any, kind: Any) -> Any:
    """Scalars combined by elementwise operations, gathered in vectors."""
    x = kind.sym("x", 3)
    pool = [x[i] for i in range(3)] + [kind(draw(st.sampled_from([0.0, 1.0, -0.5])))]
    for _ in range(draw(st.integers(3, 25))):
        a, b = [pool[draw(st.integers(0, len(pool) - 1))] for _ in range(2)]
        if draw(st.booleans()):
            pool.append(draw(st.sampled_from(UNARY))(a))
        else:
            pool.append(draw(st.sampled_from(BINARY))(a, b))
    return ca.Function("drawn", [x], [ca.vertcat(*pool[4::2]), pool[-1]])


STRUCTURES = [
    ca.Sparsity.dense(3, 3), ca.Sparsity.lower(3), ca.Sparsity.banded(3, 1), ca.Sparsity.diag(3),
    ca.Sparsity(3, 3), ca.Sparsity.triplet(3, 3, [0, 2], [1, 0]),
]  # fmt: skip


def changed(draw: Any, a: Any) -> Any:
    """A matrix of 3 rows and columns from one other."""
    s = draw(st.sampled_from(STRUCTURES))
    rows = draw(st.permutations([0, 1, 2]))
    return draw(st.sampled_from([
        lambda: a.T, lambda: ca.project(a, s), lambda: ca.densify(a), lambda: a[list(rows), :],
        lambda: ca.horzcat(a[:, 1:], a[:, 0]), lambda: ca.vertcat(a[2, :], a[:2, :]),
        lambda: ca.sin(a), lambda: ca.repmat(ca.sum1(a), 3, 1), lambda: ca.diag(ca.sum2(a)),
        lambda: ca.reshape(ca.vec(a), 3, 3), lambda: ca.tril(a) - ca.triu(a).T,
        lambda: a * ca.tanh(ca.norm_fro(a)),
        lambda: ca.kron(a[:1, :2], ca.densify(a)[:, :1])[:, [0, 1, 0]],
        lambda: ca.solve(4 * MX.eye(3) + ca.tanh(a), ca.densify(a)), lambda: a * ca.mmax(a),
        lambda: ca.horzcat(*[2 * c for c in ca.horzsplit(a)]), lambda: a[0, 0] * a,
    ]))()  # fmt: skip


def combined(draw: Any, a: Any, b: Any) -> Any:
    """A matrix of 3 rows and columns from two others."""
    return draw(st.sampled_from([
        lambda: a + b, lambda: ca.tanh(a) @ b, lambda: a * ca.cos(b), lambda: a - 0.5 * b,
        lambda: ca.fmax(a, b), lambda: ca.horzcat(a[:, :2], b[:, 2]), lambda: a * ca.dot(b, b) / 9,
        lambda: ca.vertcat(a[:1, :], b[1:, :]), lambda: ca.if_else(a[0, 0] > 0, a, b),
        lambda: ca.rank1(ca.densify(a), b[0, 0], ca.densify(b)[:, 0], ca.densify(b)[:, 1]),
    ]))()  # fmt: skip


@st.composite
def matrix_functions(draw: Any) -> Any:
    """Matrices of many structures, combined by operations of MX."""
    inputs = [MX.sym(f"x{i}", draw(st.sampled_from(STRUCTURES))) for i in range(2)]
    pool = [*inputs, MX(ca.DM(np.arange(9.0).reshape(3, 3) / 9))]
    for _ in range(draw(st.integers(2, 10))):
        a, b = [pool[draw(st.integers(0, len(pool) - 1))] for _ in range(2)]
        pool.append(changed(draw, a) if draw(st.booleans()) else combined(draw, a, b))
    return ca.Function("drawn", inputs, [pool[-1], pool[-2], ca.sumsqr(pool[-3])])


@st.composite
def loops(draw: Any) -> Any:
    """Calls of one Function in a Python loop: in a row, apart, or some of each."""
    a, b = SX.sym("a", 2), SX.sym("b", 2)
    step = ca.Function("step", [a, b], [ca.sin(a) + 0.3 * b * a[0], ca.sumsqr(a) + b])
    n = draw(st.integers(1, 7))
    x, u = MX.sym("x", 2), MX.sym("u", 2, n)
    state, other, cost, found = x, x + 1, 0, []
    for k in range(n):
        left = state if draw(st.booleans()) else draw(st.sampled_from([x, other, u[:, 0]]))
        right = draw(st.sampled_from([u[:, k], x, other]))
        state, stage = step(left, right)
        cost, other = cost + stage, draw(st.sampled_from([other, state, stage, x]))
        found.append(state)
    return ca.Function("loop", [x, u], [ca.horzcat(*found), cost])


CALM = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@given(st.data(), st.sampled_from([SX, MX]))
@CALM
def test_scalars(data: Any, kind: Any) -> None:
    f = data.draw(scalar_functions(kind))
    check_values(f)
    check_jacobians(f)


@given(matrix_functions())
@CALM
def test_matrices(f: Any) -> None:
    check_values(f)
    check_jacobians(f)


@given(loops())
@CALM
def test_loops(f: Any) -> None:
    check_values(f)
    check_jacobians(f)
