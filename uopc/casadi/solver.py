"""CasADi's solvers of nonlinear programs on functions and derivatives of ours: `nlpsol`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import casadi as ca

from uopc.casadi import structures
from uopc.casadi.functions import outputs_of
from uopc.casadi.libraries import write
from uopc.derivatives import transforms
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.sparse import transforms as sparse_transforms
from uopc.sparse.sparsity import Sparse
from uopc.tensor import creation

Functions: TypeAlias = dict[str, tuple[str, ...]]
# The options of each plugin that take a function, and the results of that function.
_POINTWISE: Functions = {
    "grad_f": ("grad_f_x",),
    "jac_g": ("jac_g_x",),
    "hess_lag": ("hess_gamma_x_x",),
}
_IPOPT: Functions = {
    "grad_f": ("f", "grad_f_x"), "jac_g": ("g", "jac_g_x"), "hess_lag": ("triu_hess_gamma_x_x",),
}  # fmt: skip
PLUGINS: dict[str, Functions] = {
    "ipopt": _IPOPT,
    "bonmin": _IPOPT,
    "sqpmethod": {
        "jac_fg": ("f", "grad_f_x", "g", "jac_g_x"), "hess_lag": ("hess_gamma_x_x",),
    },
    "feasiblesqpmethod": _POINTWISE,
}  # fmt: skip
_KEYS = ("x", "p", "f", "g")


@dataclass(frozen=True, eq=False)
class Problem:
    """The graphs of a problem: minimise f(x, p) over x, with bounds on g(x, p)."""

    function: ca.Function  # (x, p) -> (f, g), all dense

    @cached_property
    def inputs(self) -> dict[str, UOp]:
        """x and p, the factor of f and the multipliers of g in the Lagrangian."""
        f = self.function
        sizes = {"x": f.nnz_in(0), "p": f.nnz_in(1), "lam_f": 1, "lam_g": f.nnz_out(1)}
        return {name: creation.param(name, (n,), structures.F8) for name, n in sizes.items()}

    @cached_property
    def values(self) -> tuple[UOp, UOp]:
        """f, one number, and g."""
        f, g = outputs_of(self.function, [self.inputs["x"], self.inputs["p"]])
        return f.reshape(), g

    def hessian(self, part: Any) -> Sparse:
        """The second derivatives of the Lagrangian, or a part of them."""
        f, g = self.values
        lagrangian = f * self.inputs["lam_f"].reshape() + (g * self.inputs["lam_g"]).sum()
        return sparse_transforms.hessian(lagrangian, [self.inputs["x"]], "csc", part=part)

    def result(self, name: str) -> Sparse:
        """A result of a function that a solver calls, by CasADi's name."""
        f, g = self.values
        x = self.inputs["x"]
        if name == "jac_g_x":
            return sparse_transforms.jacobian([g], [x], "csc")
        if name == "hess_gamma_x_x":
            return self.hessian("full")
        if name == "triu_hess_gamma_x_x":
            return self.hessian("upper")
        if name == "grad_f_x":
            slope = transforms.grad(f, x)
            assert isinstance(slope, UOp)
            return _column(slope)
        return _column(f.reshape(1) if name == "f" else g)

    def library(self, key: str, names: tuple[str, ...], folder: Path) -> ca.Function:
        """Export results under the name of a function, and load it."""
        second = ("lam_f", "lam_g") if any("gamma" in name for name in names) else ()
        inputs = {name: _column(self.inputs[name]) for name in ("x", "p", *second)}
        results = {name: self.result(name) for name in names}
        write(results, inputs.values(), folder / key, kind="shared", name=key)
        return ca.external(key, str(folder / f"{key}.so"))


def _column(u: UOp) -> Sparse:
    """A dense column."""
    return Sparse(u, structures.structure(ca.Sparsity.dense(structures.length(u), 1)))


def nlpsol(
    name: str, plugin: str, problem: Mapping[str, Any] | ca.Function,
    options: Mapping[str, Any] | None = None, *, folder: str | os.PathLike[str] | None = None,
) -> ca.Function:  # fmt: skip
    """CasADi's `nlpsol`, with exact first and second derivatives that uopc compiled.

    `problem` has SX or MX under "x", "f" and maybe "p", "g", or is a Function from x, p to f, g.
    The result is the Function that CasADi's nlpsol gives: called with x0, p, lbx, ubx, lbg, ubg,
    lam_x0, lam_g0, it gives x, f, g, lam_x, lam_g, and has CasADi's statistics. `options` are
    CasADi's; a derivative that they give, or that they approximate, is not made. lam_p is not
    computed. The plugins are the keys of `PLUGINS`. The libraries are written to `folder`, or to a
    folder that is removed as soon as they are loaded: such a solver cannot be saved.

    UserTypeError or UserError for a bad problem, Unsupported for another plugin, and for an
    operation without a graph.

        >>> import casadi
        >>> x = casadi.SX.sym("x", 2)
        >>> problem = {"x": x, "f": casadi.sumsqr(x), "g": x[0] * x[1]}
        >>> options = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes"}
        >>> solver = uopc.casadi.nlpsol("s", "ipopt", problem, options)
        >>> solver(x0=[2, 1], lbg=4, ubg=4)["x"]
        DM([2, 2])
    """
    if plugin not in PLUGINS:
        raise Unsupported(
            f"casadi: nlpsol has derivatives for {', '.join(PLUGINS)}, not for {plugin!r}: export"
            " the functions, and give them to casadi.nlpsol"
        )
    made = Problem(_function(problem))
    given = dict(options or {})
    given.pop("expand", None)  # of scalars or of matrices: it is compiled
    wanted = {k: v for k, v in PLUGINS[plugin].items() if k not in given}
    if _is_approximated(plugin, given):
        wanted.pop("hess_lag", None)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary if folder is None else folder).resolve()
        loaded = {key: made.library(f"nlp_{key}", names, place) for key, names in wanted.items()}
        oracle = made.library("nlp", ("f", "g"), place)
        own = {"no_nlp_grad": True, "calc_lam_p": False}  # CasADi would differentiate for them
        return ca.nlpsol(name, plugin, oracle, {**own, **loaded, **given})


def _is_approximated(plugin: str, options: Mapping[str, Any]) -> bool:
    """True if the solver makes its own second derivatives."""
    nested = options.get(plugin, {})
    inner = nested.get("hessian_approximation") if isinstance(nested, Mapping) else None
    chosen = options.get(f"{plugin}.hessian_approximation", inner)
    return "limited-memory" in (chosen, options.get("hessian_approximation"))


def _function(problem: Any) -> ca.Function:
    """The Function from x and p to f and g, which are dense."""
    if isinstance(problem, ca.Function):
        wrong = {*problem.name_in()} - {"x", "p"} | {*problem.name_out()} - {"f", "g"}
        if wrong or "x" not in problem.name_in():
            raise UserError(f"casadi: nlpsol needs a Function from x, p to f, g, got {problem}")
        inputs = {n: ca.MX.sym(n, problem.sparsity_in(n)) for n in problem.name_in()}
        return _function({**inputs, **problem(**inputs)})
    if not isinstance(problem, Mapping) or not {"x"} <= {*problem} <= {*_KEYS}:
        raise UserTypeError(f"casadi: nlpsol needs a dict of x and maybe p, f, g, got {problem!r}")
    kinds = {type(v) for v in problem.values() if isinstance(v, (ca.SX, ca.MX))}
    if len(kinds) != 1:
        raise UserTypeError("casadi: nlpsol needs SX or MX under x, p, f and g, not both")
    (kind,) = kinds
    sizes = {"p": (0, 1), "f": (1, 1), "g": (0, 1)}
    parts: dict[str, Any] = {
        key: kind(problem.get(key, kind(*sizes.get(key, ())))) for key in _KEYS
    }
    for key, v in parts.items():
        if not v.is_column() or (key == "f" and not v.is_scalar()):
            what = "one number" if key == "f" else "a column"
            raise UserError(f"casadi: nlpsol: {key} must be {what}, got {v.dim()}")
    x, p, f, g = [ca.densify(parts[key]) if key in "fg" else parts[key] for key in _KEYS]
    return ca.Function("nlp", [x, p], [f, g], ["x", "p"], ["f", "g"])
