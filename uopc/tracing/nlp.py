"""Nonlinear programs: the functions that solvers need, from graphs of objective and constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from uopc.derivatives import transforms
from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import leaves, movement, pytrees
from uopc.ir.core import shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import show
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.program.program import Program
from uopc.sparse import transforms as sparse_transforms
from uopc.sparse.sparsity import FORMATS, Format, Places, Sparse
from uopc.tensor import creation

_KEYS = ("x", "p", "f", "g")
Array = npt.NDArray[Any]


class Nlp:
    """minimize f(x, p) over x, with bounds on g(x, p): functions, derivatives and structures.

    The nodes are `f`, `grad_f`, `g`, the Sparse `jac_g` and the Sparse `hess_lag`: the lower
    triangle of the Hessian of the Lagrangian sigma f + lam . g. `program(x, p, sigma, lam)` gives
    all five values by name; arguments `p`, `sigma` and `lam` that nothing reads are left out.

    The methods have the names and arguments that cyipopt calls, so you can pass an Nlp as the
    problem: `cyipopt.Problem(n=..., m=..., problem_obj=nlp, ...)`. Each method is a program,
    compiled at its first call. Parameters are taken from `parameters`, unless a call gives them.

        >>> x = uopc.param("x", (2,), dtypes.float64)
        >>> nlp = uopc.nlp({"x": x, "f": (x * x).sum(), "g": x[0:1] * x[1:2]})
        >>> nlp.objective(np.array([1.0, 3.0])), nlp.jacobian(np.array([1.0, 3.0]))
        (10.0, array([3., 1.]))
        >>> nlp.hessianstructure()
        (array([0, 1, 1]), array([0, 0, 1]))
    """

    def __init__(self, problem: Mapping[str, Any], format: Format = "csc") -> None:
        self.x, self.p, self.f, self.g = _checked(problem)
        if format not in FORMATS:
            raise UserError(f"nlp: format must be one of {', '.join(FORMATS)}, got {format!r}")
        self._format: Format = format
        self.sigma = creation.param("sigma", (), self.x.dtype)
        self.lam = creation.param("lam", shapes.shape(self.g), self.x.dtype)
        self.parameters: Array | None = None
        self._programs: dict[str, Program] = {}

    # ------------------------------------------------------------ nodes
    @cached_property
    def grad_f(self) -> UOp:
        """The gradient of f by x, of the shape of x."""
        return cast(UOp, transforms.grad(self.f, self.x))

    @cached_property
    def jac_g(self) -> Sparse:
        """The Jacobian of g by x."""
        return sparse_transforms.jacobian([self.g], [self.x], self._format)

    @cached_property
    def hess_lag(self) -> Sparse:
        """The lower triangle of the Hessian of sigma f + lam . g by x."""
        lagrangian = self.f * self.sigma + (self.g * self.lam).sum()
        return sparse_transforms.hessian(lagrangian, [self.x], self._format, part="lower")

    # ------------------------------------------------------------ programs
    @cached_property
    def program(self) -> Program:
        """f, grad_f, g, jac_g and hess_lag in one program, by name."""
        nodes = {name: getattr(self, name) for name in _NODES}
        return self._compiled(nodes)

    def _compiled(self, nodes: Any) -> Program:
        from uopc.driver import compile

        values = list(nodes.values()) if isinstance(nodes, dict) else [nodes]
        read = _params_read([v.data if isinstance(v, Sparse) else v for v in values])
        wanted = [self.x, *([] if self.p is None else [self.p]), self.sigma, self.lam]
        return compile(nodes, inputs=[u for u in wanted if u in read or u in (self.x, self.p)])

    def _call(self, name: str, x: Any, p: Any, **more: Any) -> Any:
        if name not in self._programs:
            self._programs[name] = self._compiled(getattr(self, name))
        made = self._programs[name]
        given = {"x": x, "p": self.parameters if p is None else p, **more}
        if self.p is not None and given["p"] is None:
            raise UserError("nlp: the problem has parameters: pass p, or set nlp.parameters")
        nodes = {"x": self.x, "p": self.p, "sigma": self.sigma, "lam": self.lam}
        values = {
            u.arg.name: _as_given(_MULTIPLIERS.get(key, key), given[key], u)
            for key, u in nodes.items() if u is not None and given.get(key) is not None
        }  # fmt: skip
        return made(*[values[spec.name] for spec in made.inputs])

    # ------------------------------------------------------------ as cyipopt calls them
    def objective(self, x: Array, p: Array | None = None) -> float:
        """f, a number."""
        return float(self._call("f", x, p))

    def gradient(self, x: Array, p: Array | None = None) -> Array:
        """The gradient of f, of the shape of x."""
        return cast(Array, self._call("grad_f", x, p))

    def constraints(self, x: Array, p: Array | None = None) -> Array:
        """g, of shape (m,)."""
        return cast(Array, self._call("g", x, p))

    def jacobian(self, x: Array, p: Array | None = None) -> Array:
        """The entries of the Jacobian of g, in the order of `jacobianstructure`."""
        return cast(Array, self._call("jac_g", x, p))

    def hessian(
        self, x: Array, lagrange: Array, obj_factor: float = 1.0, p: Array | None = None
    ) -> Array:
        """The entries of the Hessian of the Lagrangian, in the order of `hessianstructure`."""
        found = self._call("hess_lag", x, p, sigma=obj_factor, lam=lagrange)
        return cast(Array, found)

    def jacobianstructure(self) -> tuple[Places, Places]:
        """The rows and the columns of the entries of `jacobian`."""
        return self.jac_g.row, self.jac_g.col

    def hessianstructure(self) -> tuple[Places, Places]:
        """The rows and the columns of the entries of `hessian`, none above the diagonal."""
        return self.hess_lag.row, self.hess_lag.col


def _as_given(name: str, value: Any, u: UOp) -> Array:
    """Convert a call's array to the dtype and shape of a param. UserError for another size."""
    try:
        array = np.asarray(value, u.dtype.numpy)
    except (TypeError, ValueError) as error:
        raise UserTypeError(f"nlp: {name} must be an array of {u.dtype.name}: {error}") from None
    wanted = shapes.shape(u)
    if array.size != shapes.size(wanted):
        raise UserError(f"nlp: {name} has shape {array.shape}, expected {wanted}")
    return array.reshape(wanted)


_MULTIPLIERS = {"sigma": "obj_factor", "lam": "lagrange"}  # as `hessian` names them
_NODES = ("f", "grad_f", "g", "jac_g", "hess_lag")


def _checked(problem: Mapping[str, Any]) -> tuple[UOp, UOp | None, UOp, UOp]:
    if not isinstance(problem, Mapping) or not set(problem) <= set(_KEYS) or "x" not in problem:
        raise UserTypeError(f"nlp: expected a dict of x and maybe p, f, g, got {problem!r}")
    for name, u in problem.items():
        if name != "g" and not isinstance(u, UOp):
            raise UserTypeError(f"nlp: {name} must be a node of a graph, got {u!r}")
    x, p = problem["x"], problem.get("p")
    for name, u in (("x", x), ("p", p)):
        if u is not None and u.op is not Ops.PARAM:
            raise UserTypeError(f"nlp: {name} must be a param")
    if not x.dtype.is_float or len(shapes.shape(x)) != 1:
        raise UserTypeError("nlp: x must be a vector of floats")
    f = problem.get("f", leaves.const(x.dtype, 0))
    transforms.check_loss("nlp: f", f)
    given = [u for u in (x, p) if u is not None]
    for u in given:
        if not all([isinstance(n, int) for n in shapes.shape(u)]):
            shape = show(shapes.shape(u))
            raise UserError(
                f"nlp: {u.arg.name} must have known sizes, got {shape}: bind the variables first"
            )
    g = _join_constraints(problem.get("g", ()), x)
    _check_names([f, g], given)
    return x, p, f, g


def _join_constraints(given: Any, x: UOp) -> UOp:
    """Concatenate the constraints into a vector."""
    found = []
    for path, u in pytrees.flatten(given)[0]:
        if not isinstance(u, UOp):
            raise UserTypeError(f"nlp: g{path} must be a node of a graph, got {u!r}")
        if u.dtype is not x.dtype:
            raise UserTypeError(f"nlp: g{path} is {u.dtype.name}, x is {x.dtype.name}")
        found.append(movement.reshape(u, (shapes.size(shapes.shape(u)),)))
    if not found:
        return creation.zeros((0,), x.dtype)
    return movement.cat(*found) if len(found) > 1 else found[0]


def _params_read(roots: Sequence[UOp]) -> set[UOp]:
    """The params that the graphs read."""
    return {u for root in roots for u in walk.inputs(root)}


def _check_names(roots: Sequence[UOp], given: Sequence[UOp]) -> None:
    for u in _params_read(roots):
        if u not in given:
            raise UserError(f"nlp: the problem reads param {u.arg.name}, which is neither x nor p")
    for u in given:
        if u.arg.name in ("sigma", "lam"):
            raise UserError(
                f"nlp: the name {u.arg.name} is taken by a multiplier: rename the param"
            )


def nlp(problem: Mapping[str, Any], format: Format = "csc") -> Nlp:
    """The functions and exact sparse derivatives of a nonlinear program, as solvers need them.

    `problem` has nodes under the names of CasADi's `nlpsol`: the variables "x", a param of shape
    (n,); optionally the parameters "p", a param of any shape; the objective "f", one float; and the
    constraints "g", a node of any shape or a container of nodes. `format` is the order of the
    entries of the matrices. UserTypeError for other keys and values, UserError if f or g reads
    other params.

        >>> x, p = uopc.param("x", (2,), dtypes.float64), uopc.param("p", (), dtypes.float64)
        >>> problem = uopc.nlp({"x": x, "p": p, "f": ((x - p) ** 2).sum(), "g": x.prod()})
        >>> problem.gradient(np.array([1.0, 3.0]), 2.0)
        array([-2.,  2.])
        >>> problem.jac_g
        <Sparse of <Sparsity 1x2, 2 entries, csc>>
    """
    return Nlp(problem, format)
