"""Export a nonlinear program for IPOPT: for its own interface in C, and for CasADi's nlpsol.

    python solve.py OUT
    gcc ipopt.c OUT/pendulum_*.c -O2 -IOUT $(pkg-config --cflags --libs ipopt) -lm && ./a.out
    gcc -shared OUT/nlp*.o -o OUT/nlp.so     for casadi.nlpsol("solver", "ipopt", "OUT/nlp.so")

A pendulum comes to rest from an angle, the parameter, with the least effort.
"""

import sys

import uopc

STAGES, STEP = 30, 0.1
F8 = uopc.dtypes.float64


def problem() -> dict[str, uopc.UOp]:
    """Variables, the parameter, the objective and the constraints, by the names of CasADi."""
    x = uopc.param("x", (3 * STAGES,), F8)  # angles, speeds and torques
    start = uopc.param("p", (1,), F8)
    angle, speed, torque = (x[i * STAGES : (i + 1) * STAGES] for i in range(3))
    rows = [
        angle[1:] - angle[:-1] - STEP * speed[:-1],
        speed[1:] - speed[:-1] - STEP * (torque[:-1] - angle[:-1].sin()),
        angle[:1] - start, speed[:1], angle[-1:], speed[-1:],
    ]  # fmt: skip
    g = rows[0].cat(*rows[1:], axis=0)
    return {"x": x, "p": start, "f": (torque * torque).sum(), "g": g}


def export_for_ipopt(folder: str) -> None:
    """One function for each callback, and the places of the entries as arrays."""
    nlp = uopc.nlp(problem(), format="triplet")
    given = [nlp.x, nlp.p]
    functions = {
        "f": ({"f": nlp.f}, given), "grad": ({"grad": nlp.grad_f}, given),
        "g": ({"g": nlp.g}, given), "jac": ({"values": nlp.jac_g}, given),
        "hess": ({"values": nlp.hess_lag}, [*given, nlp.sigma, nlp.lam]),
    }  # fmt: skip
    for name, (graph, inputs) in functions.items():
        uopc.export(graph, f"{folder}/pendulum_{name}", kind="c", inputs=inputs)


def export_for_casadi(folder: str) -> None:
    """The functions that nlpsol looks for: their names, inputs and outputs are CasADi's."""
    made = problem()
    x, p, f, g = (made[name] for name in "xpfg")
    weight, lam = uopc.param("lam_f", (), F8), uopc.param("lam_g", g.shape, F8)
    lagrangian = f * weight + (g * lam).sum()
    values, given, more = {"f": f, "g": g}, [x, p], [x, p, weight, lam]
    by_x, by_p = uopc.grad(lagrangian, [x, p])
    functions = {
        "nlp": (values, given), "nlp_f": ({"f": f}, given), "nlp_g": ({"g": g}, given),
        "nlp_grad_f": ({"f": f, "grad_f_x": uopc.grad(f, x)}, given),
        "nlp_jac_g": ({"g": g, "jac_g_x": uopc.jacobian(g, x, format="csc")}, given),
        "nlp_grad": (values | {"grad_gamma_x": by_x, "grad_gamma_p": by_p}, more),
        "nlp_hess_l": ({"triu_hess_gamma_x_x": uopc.hessian(
            lagrangian, x, format="csc", part="upper")}, more),
    }  # fmt: skip
    for name, (graph, inputs) in functions.items():
        uopc.export(graph, f"{folder}/{name}", abi="casadi", inputs=inputs)


export_for_ipopt(sys.argv[1])
export_for_casadi(sys.argv[1])
print("exported", "pendulum")
