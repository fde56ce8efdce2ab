"""Nonlinear programs: values and derivatives against NumPy; a solver of SciPy takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import uopc
import uopc.numpy as unp
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
    ({"x": X, "f": F}, "reads param p, which is neither x nor p"),
    ({"x": X, "g": X.cast(dtypes.float32)}, "g is float32, x is float64"),
    ({"x": uopc.param("lam", (3,), F8)}, "lam is taken by a multiplier"),
    ({"x": X, "g": 3}, "g must be a node"),
    ({"x": X, "g": [X, 3]}, r"g\.1 must be a node"),
    ({"x": uopc.param("x", (uopc.variable("n", 1, 8),), F8)}, r"must have known sizes, got \(n\)"),
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


# ---------------------------------------------------------------- every kind of op
V = np.array([0.7, 1.3, -0.4])
TABLE = np.array([0, 0, 2])


def matrix(x: Any, stack: Any) -> Any:
    return stack([stack([x[0] + 3.0, x[1]]), stack([x[1], x[2] * x[2] + 4.0])])


def folded(x: Any, step: Any) -> Any:
    c = x[0]
    for v in x:
        c = step(c, v)
    return c


def cubed(x: Any) -> Any:
    f = uopc.custom_jvp(lambda u: u**3)
    f.defjvp(lambda primals, tangents: (primals[0] ** 3, 3 * primals[0] ** 2 * tangents[0]))
    return f(x)


def of_matrix(name: str, pick: Any = lambda found: found) -> tuple[Any, Any]:
    def on(module: Any) -> Any:
        return lambda x: pick(getattr(module.linalg, name)(matrix(x, module.stack)))

    return on(unp), on(np)


KINDS: dict[str, tuple[Any, Any]] = {
    "scan": (
        lambda x: uopc.scan(lambda c, v: (c * v + unp.sin(c), c * c), x[0], x)[1],
        lambda x: np.array([folded(x[:i], lambda c, v: c * v + np.sin(c)) ** 2 if i else x[0] ** 2
                            for i in range(3)]),
    ),
    "fold": (
        lambda x: uopc.fold(lambda c, v: unp.sin(c) * v + c, x[0], x),
        lambda x: folded(x, lambda c, v: np.sin(c) * v + c),
    ),
    "fori_loop": (
        lambda x: uopc.fori_loop(0, 3, lambda i, c: c * x + i, x),
        lambda x: ((x * x) * x + 1) * x + 2,
    ),
    "fori_loop of solve": (
        lambda x: uopc.fori_loop(
            0, 2, lambda i, c: unp.linalg.solve(matrix(x, unp.stack), c) * c, x[:2]
        ),
        lambda x: (lambda c: np.linalg.solve(matrix(x, np.stack), c) * c)(
            np.linalg.solve(matrix(x, np.stack), x[:2]) * x[:2]
        ),
    ),
    "cond": (
        lambda x: uopc.cond(x[0] > 5, lambda u: u**2, lambda u: -u * u * u, x),
        lambda x: -(x**3),
    ),
    "switch": (
        lambda x: uopc.switch((x[1] > 0).cast("int32"), [lambda u: u, lambda u: u**3], x),
        lambda x: x**3,
    ),
    "vmap of cond": (
        lambda x: uopc.vmap(lambda u: uopc.cond(u > 1, lambda w: w**2, lambda w: -w * w * w, u))(x),
        lambda x: np.where(x > 1, x**2, -(x**3)),
    ),
    "checkpoint": (uopc.checkpoint(lambda u: unp.sin(u) * u), lambda x: np.sin(x) * x),
    "jit": (uopc.jit(lambda u: unp.exp(u) * u), lambda x: np.exp(x) * x),
    "function": (
        lambda x: uopc.function(lambda u: u * u * u)(x * 2), lambda x: 8 * x**3,
    ),
    "custom_jvp": (cubed, lambda x: x**3),
    "at add": (
        lambda x: uopc.zeros(4, dtype=F8).at[TABLE].add(x) ** 2,
        lambda x: np.bincount(TABLE, x, 4) ** 2,
    ),
    "at set": (
        lambda x: x.at[1].set(x[0] * x[2]), lambda x: np.array([x[0], x[0] * x[2], x[2]]),
    ),
    "solve": (
        lambda x: unp.linalg.solve(matrix(x, unp.stack), x[:2]),
        lambda x: np.linalg.solve(matrix(x, np.stack), x[:2]),
    ),
    "inv": of_matrix("inv"),
    "det": of_matrix("det"),
    "slogdet": of_matrix("slogdet", lambda found: found[1]),
    "cholesky": of_matrix("cholesky"),
    "qr": of_matrix("qr", lambda found: abs(found[1])),
    "sort": (lambda x: x.sort() ** 2, lambda x: np.sort(x) ** 2),
    "cumsum": (lambda x: (x * x).cumsum(), lambda x: np.cumsum(x * x)),
}  # fmt: skip


def as_node(v: Any) -> uopc.UOp:
    return v if isinstance(v, uopc.UOp) else v.uop


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_with_bodies_and_factors(kind: str) -> None:
    """Values against NumPy; first derivatives against its differences, second ones against those
    of the first."""
    ours, theirs = KINDS[kind]
    x = uopc.param("x", (3,), F8)
    node = as_node(ours(x))
    nlp = uopc.nlp({"x": x, "f": (node * node).sum(), "g": [node, node.sum()]})

    def g(v: Any) -> Any:
        return np.append(theirs(v), np.sum(theirs(v)))

    np.testing.assert_allclose(nlp.objective(V), np.sum(theirs(V) ** 2), rtol=1e-12)
    np.testing.assert_allclose(nlp.constraints(V), g(V), rtol=1e-12)
    close = {"rtol": 1e-5, "atol": 1e-5}
    slope = difference(lambda v: np.sum(theirs(v) ** 2), V)
    np.testing.assert_allclose(nlp.gradient(V), slope, **close)
    np.testing.assert_allclose(nlp.jac_g.todense(nlp.jacobian(V)), difference(g, V), **close)
    lam = np.linspace(-1.0, 1.0, g(V).size)

    def lagrangian_slope(v: Any) -> Any:
        return 0.7 * nlp.gradient(v) + lam @ nlp.jac_g.todense(nlp.jacobian(v))

    hessian = nlp.hess_lag.todense(nlp.hessian(V, lam, 0.7))
    np.testing.assert_allclose(hessian, np.tril(difference(lagrangian_slope, V)), **close)


def test_constraints_in_containers() -> None:
    parts = {"ball": (X * X).sum(), "others": [X[1:] * X[:-1], ()]}
    nlp = uopc.nlp({"x": X, "g": parts})
    np.testing.assert_allclose(nlp.constraints(AT), g(AT))
    assert uopc.nlp({"x": X, "g": []}).constraints(AT).shape == (0,)
    with pytest.raises(uopc.UserError, match=r"g\.1 is float32, x is float64"):
        uopc.nlp({"x": X, "g": (X, X.cast(dtypes.float32))})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda nlp: nlp.objective(np.ones(4), PARAMETERS), r"x has shape \(4,\), expected \(5,\)"),
        (lambda nlp: nlp.gradient(AT, np.ones(3)), r"p has shape \(3,\), expected \(2,\)"),
        (lambda nlp: nlp.hessian(AT, np.ones(4), 1.0, PARAMETERS), r"lagrange has shape \(4,\)"),
        (lambda nlp: nlp.hessian(AT, np.ones(5), AT, PARAMETERS), r"obj_factor has shape \(5,\)"),
        (lambda nlp: nlp.objective(["a"] * 5, PARAMETERS), "x must be an array of float64"),
    ],
)  # fmt: skip
def test_arrays_of_another_size(nlp: Any, call: Any, message: str) -> None:
    with pytest.raises(uopc.UserError, match=message):
        call(nlp)
