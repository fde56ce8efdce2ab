"""Whole Functions as optimal control writes them: loops, maps, folds, choices, interpolants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ca = pytest.importorskip("casadi")

import numpy as np

import uopc.casadi
from tests.casadi.oracle import check_jacobians, check_values
from uopc.errors import Unsupported, UserError, UserTypeError

SX, MX, Function = ca.SX, ca.MX, ca.Function


def oscillator() -> Any:
    x, u = SX.sym("x", 2), SX.sym("u")
    return Function("ode", [x, u], [ca.vertcat((1 - x[1] ** 2) * x[0] - x[1] + u, x[0])])


def runge_kutta(h: float = 0.1, kind: Any = SX) -> Any:
    ode, x, u = oscillator(), kind.sym("x", 2), kind.sym("u")
    k1 = ode(x, u)
    k2 = ode(x + h / 2 * k1, u)
    k3 = ode(x + h / 2 * k2, u)
    k4 = ode(x + h * k3, u)
    return Function("step", [x, u], [x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), u**2 + x[0] ** 2])


def multiple_shooting(n: int, kind: Any = MX) -> tuple[Any, Any, Any]:
    """Variables in the order state, control, state, ..., the cost and the gaps."""
    step, z = runge_kutta(), kind.sym("z", 3 * n + 2)
    cost, gaps = 0, [z[:2] - ca.DM([0, 1])]
    for k in range(n):
        after, stage = step(z[3 * k : 3 * k + 2], z[3 * k + 2])
        gaps.append(after - z[3 * k + 3 : 3 * k + 5])
        cost += stage
    return z, cost, ca.vertcat(*gaps)


def shooting(kind: Any) -> Any:
    z, f, g = multiple_shooting(8, kind)
    return Function("shooting", [z], [f, g])


def hessian_by_casadi() -> Any:
    z, f, g = multiple_shooting(4)
    lam = MX.sym("lam", g.shape[0])
    return Function("hessian", [z, lam], [ca.tril(ca.hessian(f + ca.dot(lam, g), z)[0])])


def single_shooting() -> Any:
    step, x, u = runge_kutta(), MX.sym("x", 2), MX.sym("u", 12)
    state, cost = x, 0
    for k in range(12):
        state, stage = step(state, u[k])
        cost += stage
    return Function("single", [x, u], [state, cost])


def two_rows() -> Any:
    """The second row reads the states of the first one."""
    step, x, u = runge_kutta(), MX.sym("x", 2), MX.sym("u", 6)
    a, b = SX.sym("a"), SX.sym("b", 2)
    follow = Function("follow", [a, b], [ca.sin(a) + b[0] * b[1]])
    state, other = x, x[0]
    for k in range(6):
        state = step(state, u[k])[0]
        other = follow(other, state)
    return Function("rows", [x, u], [state, other])


def folded(way: str) -> Any:
    step, x, u = runge_kutta(), MX.sym("x", 2), MX.sym("u", 1, 21)
    one = step.slice("one", [0, 1], [0])
    return Function(way, [x, u], [getattr(one, way)(21)(x, u)])


def mapped(kind: str) -> Any:
    step, x, u = runge_kutta(), MX.sym("x", 2, 9), MX.sym("u", 1, 9)
    states, costs = step.map(9, kind)(x, u)
    return Function("mapped", [x, u], [states, ca.sum2(costs)])


def chosen() -> Any:
    a, x, i = SX.sym("a", 2), MX.sym("x", 2), MX.sym("i")
    cases = [Function(f"case{k}", [a], [ca.sin((k + 1) * a)]) for k in range(3)]
    choice = Function.conditional("choice", cases, Function("other", [a], [a**2]))
    return Function("chosen", [x, i], [
        choice(i, x), ca.if_else(x[0] > 0, x * 2, -x), ca.if_else(i > 1, x[0] ** 2, x[1], True),
    ])  # fmt: skip


def interpolated(kind: str) -> Any:
    grid = [[0.0, 1, 2, 4], [0.0, 1, 2, 3, 5], [-1.0, 0, 1, 2]]
    x = MX.sym("x", 3)
    outputs = []
    for n in (1, 2, 3):
        size = int(np.prod([len(t) for t in grid[:n]]))
        table = np.sin(np.arange(2.0 * size) ** 1.5)
        outputs.append(ca.interpolant(f"table{n}", kind, grid[:n], table)(x[:n]))
    return Function("tables", [x], outputs)


def collocation() -> Any:
    c, d, _ = ca.collocation_coeff(ca.collocation_points(3, "legendre"))
    ode, n = oscillator(), 6
    x, inner, u = MX.sym("x", 2, n + 1), MX.sym("inner", 2, 3 * n), MX.sym("u", 1, n)
    gaps = []
    for k in range(n):
        z = ca.horzcat(x[:, k], inner[:, 3 * k : 3 * k + 3])
        slope = ode.map(3)(inner[:, 3 * k : 3 * k + 3], ca.repmat(u[k], 1, 3))
        gaps += [ca.vec(z @ MX(c) - 0.1 * slope), x[:, k + 1] - z @ MX(d)]
    return Function("collocation", [x, inner, u], [ca.vertcat(*gaps)])


def integrated() -> Any:
    x, u = MX.sym("x", 2), MX.sym("u")
    options = {"simplify": True, "number_of_finite_elements": 5}
    problem = {"x": x, "u": u, "ode": oscillator()(x, u)}
    f = ca.integrator("integrated", "rk", problem, 0, 1, options)
    return Function("last", [x, u], [f(x0=x, u=u)["xf"]])


def structured_products() -> Any:
    """Its Jacobian reads storage in iterations of which a table says that nothing is read."""
    x, y = MX.sym("x", 3, 3), MX.sym("y", 3, 3)
    numbers = ca.DM(np.arange(9.0).reshape(3, 3) / 9)
    inner = ca.tanh(x) @ ca.project(y, ca.Sparsity.lower(3)) + numbers
    return Function("products", [x, y], [ca.tanh(inner) @ x])


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "multiple shooting, SX": lambda: shooting(SX), "multiple shooting, MX": lambda: shooting(MX),
    "CasADi's Hessian": hessian_by_casadi, "single shooting": single_shooting,
    "two rows": two_rows, "mapaccum": lambda: folded("mapaccum"), "fold": lambda: folded("fold"),
    "map": lambda: mapped("serial"), "map, openmp": lambda: mapped("openmp"),
    "map, unroll": lambda: mapped("unroll"), "map, thread": lambda: mapped("thread"),
    "steps of MX": lambda: runge_kutta(kind=MX), "a choice": chosen,
    "linear interpolants": lambda: interpolated("linear"),
    "B-spline interpolants": lambda: interpolated("bspline"), "collocation": collocation,
    "an integrator": integrated, "products": structured_products,
}  # fmt: skip
POINTS = {  # arguments that say more than random ones
    "a choice": ([0.5, -0.7], 1.0), "linear interpolants": ([1.3, 2.2, 0.4],),
    "B-spline interpolants": ([1.3, 2.2, 0.4],),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    f = FUNCTIONS[name]()
    check_values(f, *POINTS.get(name, ()))
    check_jacobians(f, *POINTS.get(name, ()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_casadis_derivatives_are_functions_like_others(name: str) -> None:
    f = FUNCTIONS[name]()
    x = MX.sym("x", f.sparsity_in(0))
    others = [MX.sym(f"y{i}", f.sparsity_in(i)) for i in range(1, f.n_in())]
    y = f.call([x, *others])[0]
    jacobian = Function("jac_0", [x, *others], [ca.jacobian(y, x)])
    check_values(jacobian, *POINTS.get(name, ()))


@pytest.mark.parametrize("which", [-1.0, 0.0, 0.9, 2.0, 3.0, 7.5])
def test_every_case_of_a_choice(which: float) -> None:
    check_values(chosen(), [0.5, -0.7], which)


@pytest.mark.parametrize("x", [-1.0, 0.0, 1.0, 4.0, 6.0])
def test_interpolants_at_and_beyond_their_knots(x: float) -> None:
    for kind in ("linear", "bspline"):
        check_values(interpolated(kind), [x, x, x], tolerance=1e-11)


def test_many_calls_are_few_kernels() -> None:
    """The code for 200 steps is that for 20."""
    kernels = []
    for n in (20, 200):
        f = runge_kutta().slice("one", [0, 1], [0]).mapaccum(n)
        kernels.append(len(uopc.casadi.compile(f, threads=1).program.kernels))
    assert kernels[0] == kernels[1] <= 3


def test_matrices_are_given_as_to_casadi() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    f = runge_kutta()
    g = uopc.casadi.compile(f)
    wanted = f([0.5, 0.25], 2)
    for x in ([0.5, 0.25], np.array([0.5, 0.25]), ca.DM([0.5, 0.25]), np.array([[0.5], [0.25]]),
              sparse.csc_array([[0.5], [0.25]])):  # fmt: skip
        for got, other in zip(g(x, 2), wanted):
            assert float(ca.norm_inf(got - other)) < 1e-15
    assert set(g(i0=[0.5, 0.25], i1=2)) == {"o0", "o1"}
    named = g(i0=1, i1=2)
    assert float(ca.norm_inf(named["o0"] - f(1, 2)[0])) < 1e-15
    flat = uopc.casadi.compile(f, nonzeros=True)([0.5, 0.25], 2)
    assert [type(v) for v in flat] == [np.ndarray] * 2 and [v.shape for v in flat] == [(2,), (1,)]
    assert list(g.program(np.array([0.5, 0.25]), np.array([2.0]))) == ["o0", "o1"]


def test_mistakes_are_told() -> None:
    f = uopc.casadi.compile(runge_kutta())
    with pytest.raises(UserTypeError, match=r"step: .*expected step:\(i0\[2\],i1\)"):
        f([1, 2])
    with pytest.raises(UserTypeError, match="all inputs in order, or all by name"):
        f([1, 2], i1=3)
    with pytest.raises(UserError, match="i0 has several arguments side by side: use map"):
        f(np.ones((2, 3)), 1)
    with pytest.raises(UserTypeError, match=r"expected a casadi.Function, got MX"):
        uopc.casadi.lower(MX.sym("x"))
    with pytest.raises(UserError, match="f has no outputs"):
        uopc.casadi.lower(Function("f", [MX.sym("x")], []))


def test_a_function_without_a_graph_is_named() -> None:
    x = SX.sym("x", 2)
    problem = {"x": x, "ode": -x}
    f = ca.integrator("exact", "cvodes", problem, 0, 1)
    y = MX.sym("y", 2)
    outer = Function("outer", [y], [f(x0=y)["xf"]])
    with pytest.raises(Unsupported, match=r"exact is a CvodesInterface: .*; leave it outside"):
        uopc.casadi.lower(outer)
