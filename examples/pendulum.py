"""A cart with a pole swings up: an optimal control problem that is written in CasADi, solved by
its IPOPT with derivatives of uopc.

    python examples/pendulum.py [STAGES]

The model and the problem are CasADi's; `uopc.casadi.nlpsol` takes the place of `casadi.nlpsol`.
The same problem with CasADi's own derivatives is the oracle.
"""

from __future__ import annotations

import sys
from typing import Any

import casadi as ca

import uopc
import uopc.casadi

STAGES, STEP = 40, 0.05
QUIET = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes"}


def model() -> ca.Function:
    """The state after a step: place, angle and their speeds, pushed by a force."""
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u")
    _, angle, speed, turn = ca.vertsplit(x)
    sin, cos = ca.sin(angle), ca.cos(angle)
    push = (u + 0.1 * sin * (turn**2 * 0.5 + 9.81 * cos)) / (1 + 0.1 * sin**2)
    slope = ca.vertcat(speed, turn, push, -(push * cos + 9.81 * sin) / 0.5)
    f = ca.Function("slope", [x, u], [slope])
    k1 = f(x, u)
    k2 = f(x + STEP / 2 * k1, u)
    k3 = f(x + STEP / 2 * k2, u)
    k4 = f(x + STEP * k3, u)
    return ca.Function("step", [x, u], [x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)])


def problem(stages: int) -> dict[str, Any]:
    """Multiple shooting: states and forces are variables, gaps between stages constraints."""
    step, x, u = model(), ca.MX.sym("x", 4, stages + 1), ca.MX.sym("u", 1, stages)
    start = ca.MX.sym("start", 4)
    gaps = [x[:, 0] - start, x[:, -1] - ca.DM([0, ca.pi, 0, 0])]
    gaps += [x[:, k + 1] - step(x[:, k], u[k]) for k in range(stages)]
    variables = ca.veccat(x, u)
    both = ca.Function("both", [x, u, start], [ca.sumsqr(u) * STEP, ca.vertcat(*gaps)])
    z = ca.MX.sym("z", variables.numel())
    n = 4 * (stages + 1)
    f, g = both(ca.reshape(z[:n], 4, stages + 1), z[n:].T, start)
    return {"x": z, "p": start, "f": f, "g": g}


def reference(stages: int) -> ca.Function:
    """The solver with derivatives of CasADi's own."""
    return ca.nlpsol("reference", "ipopt", problem(stages), QUIET)


def graph() -> uopc.UOp:
    """The graph that `uopc dump` shows: one step of the model."""
    return uopc.casadi.lower(model()).outputs[0]


def main(arguments: list[str]) -> int:
    """Prints PASS and gives 0 when both solvers find the same."""
    from timing import line, side_by_side, verdict

    stages = int(arguments[0]) if arguments else STAGES
    ours = uopc.casadi.nlpsol("ours", "ipopt", problem(stages), QUIET)
    theirs = reference(stages)
    given = {"x0": 0.1, "p": [0, 0, 0, 0], "lbg": 0, "ubg": 0}
    found, wanted = ours(**given), theirs(**given)
    steps = ours.stats()["iter_count"], theirs.stats()["iter_count"]
    error = abs(float(found["f"]) / float(wanted["f"]) - 1)
    print(f"{steps[0]} and {steps[1]} iterations, costs {float(found['f']):.6f}, {error:.1e} apart")
    times = side_by_side(lambda: ours(**given), lambda: theirs(**given), rounds=5)
    print(line(times[0], "CasADi", times[1]))
    return verdict("pendulum", error <= 1e-8 and steps[0] == steps[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
