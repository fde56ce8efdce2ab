"""Functions that hypothesis draws: values, structures and Jacobians as CasADi's."""

from __future__ import annotations

from typing import Any

import pytest

ca = pytest.importorskip("casadi")

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


@given(loops())
@CALM
def test_loops(f: Any) -> None:
    check_values(f)
    check_jacobians(f)
