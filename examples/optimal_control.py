"""Change lanes: optimal control with exact sparse derivatives, solved by Newton's method.

    python examples/optimal_control.py [STAGES]

A car goes to the next lane, in little time and with small controls. A stage is
written once, for one time; `vmap` puts it at all times, and `uopc.nlp` gives the matrices of the
whole problem. Where CasADi is installed, the same method runs with its functions, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import uopc

STATES, CONTROLS, WHEELBASE = 4, 2, 2.7
STAGES, START, GOAL = 50, np.array([0.0, 0.0, 0.0, 5.0]), np.array([30.0, 3.5, 0.0, 5.0])
WEIGHT, TOLERANCE, MOST_STEPS = 1.0, 1e-9, 100


# ---------------------------------------------------------------- the problem
def derivative(lib: Any, x: Any, u: Any) -> list[Any]:
    """d/dt of (place, place, heading, speed) for a steering angle and an acceleration."""
    speed = x[3]
    return [speed * lib.cos(x[2]), speed * lib.sin(x[2]), speed * lib.tan(u[0]) / WHEELBASE, u[1]]


def runge_kutta(lib: Any, x: list[Any], u: list[Any], h: Any) -> list[Any]:
    """The state after a time h, by the classical method of fourth order."""

    def ahead(k: Any, f: Any) -> Any:
        return derivative(lib, [a + f * h * d for a, d in zip(x, k)], u)

    k1 = derivative(lib, x, u)
    k2 = ahead(k1, 0.5)
    k3 = ahead(k2, 0.5)
    k4 = ahead(k3, 1.0)
    return [a + h / 6 * (p + 2 * q + 2 * r + s) for a, p, q, r, s in zip(x, k1, k2, k3, k4)]


class Library:
    """The functions that a stage needs, of nodes."""

    sin, cos, tan = uopc.UOp.sin, uopc.UOp.cos, uopc.UOp.tan


def problem(stages: int) -> Any:
    """The nonlinear program, over states (stages + 1, 4), controls (stages, 2) and the time."""
    z = uopc.param("z", (STATES * (stages + 1) + CONTROLS * stages + 1,), uopc.dtypes.float64)
    x = z[: STATES * (stages + 1)].reshape(stages + 1, STATES)
    u = z[STATES * (stages + 1) : -1].reshape(stages, CONTROLS)
    total = z[-1]

    now, control = (
        uopc.param("now", (STATES,), z.dtype),
        uopc.param("control", (CONTROLS,), z.dtype),
    )
    then = runge_kutta(Library, list(now), list(control), total / stages)
    gaps = x[1:] - uopc.vmap(uopc.stack(*then), {now: x[:-1], control: u})
    ends = [x[0] - uopc.constant(START), x[stages] - uopc.constant(GOAL)]
    g = uopc.cat(*ends, gaps.reshape(STATES * stages), axis=0)
    return uopc.nlp({"x": z, "f": total + WEIGHT * (u * u).mean() * total, "g": g})


def first_guess(stages: int) -> Any:
    """A straight line to the goal, in six seconds."""
    x = START + np.linspace(0, 1, stages + 1)[:, None] * (GOAL - START)
    return np.concatenate([x.reshape(-1), np.zeros(CONTROLS * stages), [6.0]])


# ---------------------------------------------------------------- the method
class Found(NamedTuple):
    """A solution, its multipliers, how many steps it took, and seconds inside of the functions."""

    z: Any
    multipliers: Any
    steps: int
    seconds: float


class Functions(NamedTuple):
    """All that the method asks for: values, and matrices of SciPy; the Hessian is a triangle."""

    objective: Callable[[Any], float]
    gradient: Callable[[Any], Any]
    constraints: Callable[[Any], Any]
    jacobian: Callable[[Any], Any]
    hessian: Callable[[Any, Any], Any]


def of_nlp(nlp: Any) -> Functions:
    """The functions of an Nlp of uopc."""
    return Functions(
        nlp.objective, nlp.gradient, nlp.constraints, lambda z: nlp.jac_g.scipy(nlp.jacobian(z)),
        lambda z, lam: nlp.hess_lag.scipy(nlp.hessian(z, lam)),
    )  # fmt: skip


class Clock:
    """Seconds that functions took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def called(*args: Any) -> Any:
            begin = time.perf_counter()
            value = f(*args)
            self.seconds += time.perf_counter() - begin
            return value

        return called


def direction(hessian: Any, jacobian: Any, slope: Any, g: Any) -> tuple[Any, Any]:
    """Newton's step and the multipliers after it. A multiple of 1 is added to the Hessian until
    the step goes upwards nowhere."""
    extra = 0.0
    while True:
        damped = hessian + extra * scipy.sparse.eye_array(slope.size)
        matrix = scipy.sparse.block_array([[damped, jacobian.T], [jacobian, None]], format="csc")
        found = scipy.sparse.linalg.spsolve(matrix, np.concatenate([-slope, -g]))
        step = found[: slope.size]
        if np.isfinite(step).all() and step @ (damped @ step) > 0:
            return step, found[slope.size :]
        extra = max(10 * extra, 1e-4)


def solve(of: Functions, z: Any) -> Found:
    """Sequential quadratic programming: each step goes so far along Newton's direction that the sum
    of the objective and of the violations falls (Nocedal and Wright, "Numerical Optimization", 18).
    """
    clock = Clock()
    f, slope_of, g_of, jacobian_of, hessian_of = [clock.timed(function) for function in of]
    lam = np.zeros_like(g_of(z))
    for count in range(MOST_STEPS):
        slope, g, jacobian = slope_of(z), g_of(z), jacobian_of(z)
        if max(np.abs(slope + jacobian.T @ lam).max(), np.abs(g).max()) < TOLERANCE:
            return Found(z, lam, count, clock.seconds)
        lower = hessian_of(z, lam)
        hessian = lower + lower.T - scipy.sparse.diags_array(lower.diagonal())
        step, new = direction(hessian, jacobian, slope, g)
        penalty = 2 * np.abs(new).max()
        falls = slope @ step - penalty * np.abs(g).sum()
        now, length = f(z) + penalty * np.abs(g).sum(), 1.0
        while length > 1e-10:
            there = z + length * step
            if f(there) + penalty * np.abs(g_of(there)).sum() <= now + 1e-4 * length * falls:
                break
            length /= 2
        z, lam = z + length * step, new
    raise ArithmeticError(f"not solved in {MOST_STEPS} steps")


# ---------------------------------------------------------------- beside CasADi
def of_casadi(stages: int) -> Functions | None:
    """The same functions by CasADi; None where it is not installed."""
    try:
        import casadi as ca
    except ImportError:
        return None
    x, u, total = (
        ca.SX.sym("x", STATES, stages + 1),
        ca.SX.sym("u", CONTROLS, stages),
        ca.SX.sym("t"),
    )
    z = ca.vertcat(ca.vec(x), ca.vec(u), total)
    gaps = []
    for k in range(stages):
        then = runge_kutta(ca, ca.vertsplit(x[:, k]), ca.vertsplit(u[:, k]), total / stages)
        gaps.append(x[:, k + 1] - ca.vertcat(*then))
    g = ca.vertcat(x[:, 0] - START, x[:, stages] - GOAL, *gaps)
    f = total + WEIGHT * ca.sumsqr(u) / u.numel() * total
    lam = ca.SX.sym("lam", g.numel())
    hessian = ca.tril(ca.hessian(f + ca.dot(lam, g), z)[0])
    functions = [
        ca.Function("f", args, [value]) for args, value in (
            ([z], f), ([z], ca.gradient(f, z)), ([z], g), ([z], ca.jacobian(g, z)),
            ([z, lam], hessian),
        )
    ]  # fmt: skip
    value, slope, constraints, jacobian, second = functions
    return Functions(
        lambda v: float(value(v)), lambda v: np.asarray(slope(v)).reshape(-1),
        lambda v: np.asarray(constraints(v)).reshape(-1),
        lambda v: jacobian(v).sparse(), lambda v, m: second(v, m).sparse(),
    )  # fmt: skip


# ---------------------------------------------------------------- in NumPy, to compare with
def constraints(z: Any, stages: int) -> Any:
    """The constraints of a z of any number type."""
    x = z[: STATES * (stages + 1)].reshape(stages + 1, STATES)
    u = z[STATES * (stages + 1) : -1].reshape(stages, CONTROLS)
    then = runge_kutta(np, list(x[:-1].T), list(u.T), z[-1] / stages)
    return np.concatenate([x[0] - START, x[-1] - GOAL, (x[1:] - np.stack(then, -1)).reshape(-1)])


def jacobian_by_complex_steps(z: Any, stages: int) -> Any:
    """Its Jacobian, exact but for rounding: the imaginary part after a tiny imaginary step."""
    steps = 1e-30j * np.eye(z.size)
    return np.stack([constraints(z + d, stages).imag / 1e-30 for d in steps], -1)


def differences(nlp: Any, found: Found, stages: int) -> dict[str, float]:
    """The distance of a solution from a minimum, and of its Jacobian from that by complex steps."""
    exact = jacobian_by_complex_steps(found.z, stages)
    made = nlp.jac_g.todense(nlp.jacobian(found.z))
    return {
        "constraints": float(np.abs(constraints(found.z, stages)).max()),
        "slope": float(np.abs(nlp.gradient(found.z) + found.multipliers @ exact).max()),
        "Jacobian": float(np.abs(made - exact).max()),
    }


def graph() -> uopc.UOp:
    """The graph that `uopc dump` shows: the entries of the Jacobian of the constraints."""
    entries: uopc.UOp = problem(STAGES).jac_g.data
    return entries


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when the solution is a minimum."""
    from timing import line, seconds, side_by_side, verdict

    stages = int(arguments[0]) if arguments else STAGES
    nlp, start = problem(stages), first_guess(stages)
    functions = of_nlp(nlp)
    took = seconds(lambda: [f(start) for f in functions[:-1]])
    took += seconds(lambda: functions.hessian(start, np.zeros(nlp.g.size)))
    print(f"{start.size} variables, {nlp.jac_g}, {nlp.hess_lag}: compiled in {took:.2f} s")
    found = solve(functions, start)
    print(f"there in {found.z[-1]:.3f} s: {found.steps} steps, {found.seconds:.4f} s in functions")
    errors = differences(nlp, found, stages)
    print(f"differences: {', '.join(f'{name} {e:.1e}' for name, e in errors.items())}")
    others = of_casadi(stages)
    if others is None:
        ours, theirs = side_by_side(
            lambda: nlp.constraints(start), lambda: constraints(start, stages)
        )
        print(line(ours, "NumPy, constraints", theirs))
    else:
        peer = solve(others, start)
        print(f"by CasADi: {peer.steps} steps, {peer.seconds:.4f} s in functions")
        ours, theirs = side_by_side(
            lambda: solve(functions, start), lambda: solve(others, start), 3
        )
        print(line(ours, "CasADi, all", theirs))
    return verdict("optimal_control", max(errors.values()) <= 1e-8)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
