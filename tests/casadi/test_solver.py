"""`nlpsol`: CasADi's solvers find the same with our derivatives, in as many iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ca = pytest.importorskip("casadi")

import numpy as np

import uopc.casadi
from tests.casadi.test_functions import multiple_shooting
from uopc.casadi import solver as solvers
from uopc.errors import Unsupported, UserError, UserTypeError

SX, MX = ca.SX, ca.MX
QUIET = {"print_time": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "ipopt": {**QUIET, "ipopt.print_level": 0, "ipopt.sb": "yes"},
    "sqpmethod": {
        **QUIET, "qpsol": "qrqp", "print_header": False, "print_iteration": False,
        "print_status": False, "qpsol_options": {"print_iter": False, "print_header": False},
    },
    "feasiblesqpmethod": {
        **QUIET, "qpsol": "qrqp", "print_header": False, "print_iteration": False,
        "print_status": False, "qpsol_options": {"print_iter": False, "print_header": False},
    },
}  # fmt: skip


def shooting(kind: Any) -> dict[str, Any]:
    """The oscillator from a start that is a parameter."""
    z, f, g = multiple_shooting(6, kind)
    start = kind.sym("start", 2)
    return {"x": z, "p": start, "f": f, "g": ca.vertcat(z[:2] - start, g[2:])}


def rosenbrock(kind: Any) -> dict[str, Any]:
    """Inequalities and bounds."""
    x = kind.sym("x", 3)
    f = sum(100 * (x[k + 1] - x[k] ** 2) ** 2 + (1 - x[k]) ** 2 for k in range(2))
    return {"x": x, "f": f, "g": ca.vertcat(ca.sumsqr(x), x[0] * x[2])}


def free(kind: Any) -> dict[str, Any]:
    """No constraint and no parameter."""
    x = kind.sym("x", 2)
    return {"x": x, "f": ca.exp(x[0]) + (x[0] - 3) ** 2 + x[1] ** 4 + x[1]}


def only_constraints(kind: Any) -> dict[str, Any]:
    x = kind.sym("x", 2)
    return {"x": x, "g": ca.vertcat(x[0] ** 2 + x[1] - 2, x[0] - x[1])}


PROBLEMS = {
    "shooting": (shooting, {"x0": 0.1, "p": [0.0, 1.0], "lbg": 0, "ubg": 0}),
    "rosenbrock": (rosenbrock, {"x0": [0.5, 0.4, 0.3], "lbx": -1, "ubx": 2, "lbg": 0, "ubg": 2}),
    "free": (free, {"x0": [1.0, 1.0]}),
    "only constraints": (only_constraints, {"x0": [2.0, 0.5], "lbg": 0, "ubg": 0}),
}  # fmt: skip


def check_solution(plugin: str, problem: Any, given: Any, options: Any) -> None:
    """The same solution, multipliers and iterations as with CasADi's derivatives."""
    ours = uopc.casadi.nlpsol("ours", plugin, problem, options)
    theirs = ca.nlpsol("theirs", plugin, problem, options)
    got, wanted = ours(**given), theirs(**given)
    for name in ("x", "f", "g", "lam_x", "lam_g"):
        a, b = np.array(got[name]), np.array(wanted[name])
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8, err_msg=name)
    assert ours.stats()["iter_count"] == theirs.stats()["iter_count"]


@pytest.mark.parametrize("kind", [SX, MX], ids=["SX", "MX"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_ipopt(name: str, kind: Any) -> None:
    make, given = PROBLEMS[name]
    check_solution("ipopt", make(kind), given, OPTIONS["ipopt"])


@pytest.mark.parametrize("plugin", ["sqpmethod", "feasiblesqpmethod"])
def test_other_plugins(plugin: str) -> None:
    if not ca.has_nlpsol(plugin):
        pytest.skip(f"this CasADi has no {plugin}")
    make, given = PROBLEMS["rosenbrock"]
    check_solution(plugin, make(SX), given, OPTIONS[plugin])


def test_options_pass_through() -> None:
    make, given = PROBLEMS["rosenbrock"]
    problem, options = make(SX), OPTIONS["ipopt"]
    check_solution("ipopt", problem, given, {**options, "ipopt.max_iter": 2})
    check_solution("ipopt", problem, given, {**options, "expand": True})
    limited = {**options, "ipopt": {"hessian_approximation": "limited-memory"}}
    made: list[str] = []
    library = solvers.Problem.library

    def counted(self: Any, key: str, *rest: Any) -> Any:
        made.append(key)
        return library(self, key, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers.Problem, "library", counted)
        check_solution("ipopt", problem, given, limited)
    assert made == ["nlp_grad_f", "nlp_jac_g", "nlp"]


def test_a_problem_as_a_function(tmp_path: Path) -> None:
    make, given = PROBLEMS["shooting"]
    problem = make(MX)
    inputs, outputs = [problem["x"], problem["p"]], [problem["f"], problem["g"]]
    f = ca.Function("problem", inputs, outputs, ["x", "p"], ["f", "g"])
    solver = uopc.casadi.nlpsol("s", "ipopt", f, OPTIONS["ipopt"], folder=tmp_path)
    wanted = ca.nlpsol("t", "ipopt", problem, OPTIONS["ipopt"])(**given)
    assert abs(float(solver(**given)["f"] - wanted["f"])) < 1e-10
    assert {p.name for p in tmp_path.glob("*.so")} == {
        "nlp.so", "nlp_grad_f.so", "nlp_jac_g.so", "nlp_hess_lag.so",
    }  # fmt: skip
    solver.save(str(tmp_path / "solver.casadi"))
    again = ca.Function.load(str(tmp_path / "solver.casadi"))
    assert float(again(**given)["f"]) == float(solver(**given)["f"])


def test_mistakes_are_told() -> None:
    x = SX.sym("x", 2)
    with pytest.raises(Unsupported, match=r"for ipopt, .*, not for 'snopt': export"):
        uopc.casadi.nlpsol("s", "snopt", {"x": x, "f": x[0]})
    with pytest.raises(UserTypeError, match="a dict of x and maybe p, f, g"):
        uopc.casadi.nlpsol("s", "ipopt", {"x": x, "h": x})
    with pytest.raises(UserTypeError, match="SX or MX under x, p, f and g, not both"):
        uopc.casadi.nlpsol("s", "ipopt", {"x": x, "f": MX.sym("f")})
    with pytest.raises(UserError, match="f must be one number, got 2"):
        uopc.casadi.nlpsol("s", "ipopt", {"x": x, "f": x})
    with pytest.raises(UserError, match="needs a Function from x, p to f, g"):
        uopc.casadi.nlpsol("s", "ipopt", ca.Function("f", [x], [x]))
