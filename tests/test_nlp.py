"""Nonlinear programs: values and derivatives against NumPy; a solver of SciPy takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import uopc
from uopc import dtypes

F8 = dtypes.float64
X, P = uopc.param("x", (5,), F8), uopc.param("p", (2,), F8)
F = ((X[1:] - X[:-1] ** 2) ** 2).sum() * P[0] + ((P[1] - X[:-1]) ** 2).sum()
G = uopc.cat((X * X).sum().reshape(1), X[:-1] * X[1:], axis=0)
AT, PARAMETERS = np.array([0.3, -0.5, 0.7, 0.2, 1.1]), np.array([10.0, 1.0])


def f(x: Any, p: Any) -> Any:
    return p[0] * ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((p[1] - x[:-1]) ** 2).sum()


def g(x: Any) -> Any:
    return np.concatenate([[(x * x).sum()], x[:-1] * x[1:]])


def difference(function: Any, x: Any) -> Any:
    step = 1e-6 * np.eye(x.size)
    return np.stack([(function(x + d) - function(x - d)) / 2e-6 for d in step], -1)


@pytest.fixture(scope="module")
def nlp() -> Any:
    return uopc.nlp({"x": X, "p": P, "f": F, "g": G})


def test_values_and_derivatives(nlp: Any) -> None:
    lam, sigma = np.array([0.3, -1.0, 0.5, 2.0, 0.1]), 0.7
    assert nlp.objective(AT, PARAMETERS) == pytest.approx(f(AT, PARAMETERS))
    np.testing.assert_allclose(nlp.constraints(AT, PARAMETERS), g(AT))
    slope = difference(lambda x: f(x, PARAMETERS), AT)
    np.testing.assert_allclose(nlp.gradient(AT, PARAMETERS), slope, rtol=1e-6)
    jacobian = nlp.jac_g.todense(nlp.jacobian(AT, PARAMETERS))
    np.testing.assert_allclose(jacobian, difference(g, AT), atol=1e-8)

    def lagrangian_slope(x: Any) -> Any:
        return sigma * nlp.gradient(x, PARAMETERS) + lam @ nlp.jac_g.todense(
            nlp.jacobian(x, PARAMETERS)
        )

    hessian = nlp.hess_lag.todense(nlp.hessian(AT, lam, sigma, PARAMETERS))
    np.testing.assert_allclose(hessian, np.tril(difference(lagrangian_slope, AT)), atol=1e-6)
    assert len(nlp.jacobianstructure()[0]) == 5 + 2 * 4
    assert (nlp.hessianstructure()[0] >= nlp.hessianstructure()[1]).all()


def test_one_program_gives_all(nlp: Any) -> None:
    lam = np.arange(5.0)
    found = nlp.program(AT, PARAMETERS, 0.5, lam)
    assert list(found) == ["f", "grad_f", "g", "jac_g", "hess_lag"]
    assert found["f"] == pytest.approx(f(AT, PARAMETERS))
    np.testing.assert_allclose(found["jac_g"], nlp.jacobian(AT, PARAMETERS), rtol=1e-14)
    hessian = nlp.hessian(AT, lam, 0.5, PARAMETERS)
    np.testing.assert_allclose(found["hess_lag"], hessian, rtol=1e-13)


def test_a_solver(nlp: Any) -> None:
    """The same minimum as with differences in place of the derivatives."""
    nlp.parameters = PARAMETERS

    def symmetric(v: Any) -> Any:
        return scipy.sparse.csc_array(v + v.T - np.diag(np.diag(v)))

    constraint = scipy.optimize.NonlinearConstraint(
        nlp.constraints, -1.0, 2.0, jac=lambda x: nlp.jac_g.scipy(nlp.jacobian(x)),
        hess=lambda x, lam: symmetric(nlp.hess_lag.todense(nlp.hessian(x, lam, 0.0))),
    )  # fmt: skip
    found = scipy.optimize.minimize(
        nlp.objective, np.zeros(5), jac=nlp.gradient, method="trust-constr",
        hess=lambda x: symmetric(nlp.hess_lag.todense(nlp.hessian(x, np.zeros(5), 1.0))),
        constraints=[constraint], options={"gtol": 1e-8, "xtol": 1e-10},
    )  # fmt: skip
    other = scipy.optimize.minimize(
        lambda x: f(x, PARAMETERS), np.zeros(5), method="SLSQP", tol=1e-12,
        constraints=[{"type": "ineq", "fun": lambda x: np.concatenate([g(x) + 1, 2 - g(x)])}],
    )  # fmt: skip
    np.testing.assert_allclose(found.x, other.x, atol=1e-4)


def test_parts_that_are_missing() -> None:
    alone = uopc.nlp({"x": X, "f": (X * X).sum()})
    assert alone.constraints(AT).shape == alone.jacobian(AT).shape == (0,)
    np.testing.assert_array_equal(alone.hessian(AT, np.zeros(0), 1.5), np.full(5, 3.0))
    feasible = uopc.nlp({"x": X, "g": X * 2.0}, format="triplet")
    assert feasible.objective(AT) == 0
    np.testing.assert_array_equal(feasible.gradient(AT), np.zeros(5))
    assert feasible.hess_lag.nnz == 0
    assert feasible.hessian(AT, np.ones(5)).shape == (0,)
    assert list(feasible.program(AT)) == ["f", "grad_f", "g", "jac_g", "hess_lag"]


BAD: list[tuple[Any, str]] = [
    ({"f": F}, "expected a dict of x"),
    ({"x": X, "y": F}, "expected a dict of x"),
    ({"x": X * 2}, "x must be a param"),
    ({"x": uopc.param("i", (3,), dtypes.int32)}, "a vector of floats"),
    ({"x": X, "f": X}, "needs one float"),
    ({"x": X, "f": F}, "p is read, and is neither x nor p"),
    ({"x": X, "g": X.cast(dtypes.float32)}, "g is float32, x is float64"),
    ({"x": uopc.param("lam", (3,), F8)}, "lam is a multiplier"),
    ({"x": X, "g": 3}, "g must be a node"),
]


@pytest.mark.parametrize(("problem", "message"), BAD)
def test_bad_problems(problem: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        uopc.nlp(problem)


def test_parameters_must_be_given() -> None:
    problem = uopc.nlp({"x": X, "p": P, "f": F})
    with pytest.raises(uopc.UserError, match="the problem has parameters"):
        problem.objective(AT)
    with pytest.raises(uopc.UserError, match="nlp: format must be one of"):
        uopc.nlp({"x": X}, format="csd")  # type: ignore[arg-type]  # it is refused, too
