"""A Function of CasADi as a graph: `lower`."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, TypeAlias

import casadi as ca

from uopc.casadi import structures
from uopc.casadi.functions import outputs_of
from uopc.errors import UserError, UserTypeError
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.sparse.sparsity import Sparse
from uopc.tensor import creation


@dataclass(frozen=True, eq=False)
class LoweredFunction:
    """The graph of a Function: for each input a param, for each output a node.

    Each is a float64 vector of the nonzeros of its matrix in the order of CSC, column by column, of
    shape (nnz,). Params have the names of the inputs.
    """

    function: ca.Function
    inputs: tuple[UOp, ...]
    outputs: tuple[UOp, ...]

    @cached_property
    def arguments(self) -> dict[str, Sparse]:
        """The inputs by name, with their structures."""
        f = self.function
        return {
            name: Sparse(u, structures.structure(f.sparsity_in(name)))
            for name, u in zip(f.name_in(), self.inputs)
        }

    @cached_property
    def results(self) -> dict[str, Sparse]:
        """The outputs by name, with their structures."""
        f = self.function
        return {
            name: Sparse(u, structures.structure(f.sparsity_out(name)))
            for name, u in zip(f.name_out(), self.outputs)
        }


def function(f: Any) -> ca.Function:
    """The Function, or the one in a file. UserTypeError or UserError for something else."""
    if isinstance(f, (str, os.PathLike)):
        try:
            return ca.Function.load(os.fspath(f))
        except RuntimeError as error:
            raise UserError(f"{os.fspath(f)}: {str(error).strip().splitlines()[-1]}") from None
    if not isinstance(f, ca.Function):
        raise UserTypeError(f"casadi: expected a casadi.Function, got {type(f).__name__}")
    return f


AnyFunction: TypeAlias = ca.Function | str | os.PathLike[str]


def lower(f: AnyFunction) -> LoweredFunction:
    """The graph of a CasADi Function, of SX or MX, or of the file that `f.save` wrote.

    Its derivatives are those of its nodes, by `uopc.jacobian` and others. UserTypeError for another
    object; Unsupported for an operation without a graph: the error names it and its Function.

        >>> import casadi
        >>> x = casadi.SX.sym("x", 3)
        >>> f = uopc.casadi.lower(casadi.Function("f", [x], [casadi.sumsqr(x)], ["x"], ["y"]))
        >>> uopc.compile(uopc.grad(f.outputs[0].sum(), f.inputs[0]))(np.array([1.0, 2.0, 3.0]))
        array([2., 4., 6.])
    """
    f = function(f)
    if not f.n_out():
        raise UserError(f"casadi: {f.name()} has no outputs: nothing is to be computed")
    sizes = [(name, f.nnz_in(name)) for name in f.name_in()]
    inputs = [creation.param(name, (n,), structures.F8) for name, n in sizes]
    return LoweredFunction(f, tuple(inputs), tuple(outputs_of(f, inputs)))
