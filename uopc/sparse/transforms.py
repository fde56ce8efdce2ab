"""Sparse Jacobians and Hessians of nodes, and their structure. This module checks arguments."""

from __future__ import annotations

from typing import Literal

from uopc.derivatives.transforms import Nodes, check_floats, check_loss, grad, inputs_of, listed
from uopc.ir.builder import rebuild
from uopc.ir.core.uop import UOp
from uopc.sparse import matrices, propagate
from uopc.sparse.matrices import Mode, Part
from uopc.sparse.sparsity import Format, Sparse, Sparsity


def jacobian(
    outputs: Nodes, wrt: Nodes, format: Format, mode: Mode = "auto",
    constants: Literal["split"] | None = None,
) -> Sparse:  # fmt: skip
    """The Jacobian: its rows are the elements of all outputs, its columns those of all of `wrt`."""
    nodes, _ = listed("jacobian", outputs, "the outputs")
    inputs, _ = inputs_of("jacobian", wrt)
    matrices.check("jacobian", format, mode, "full", constants)
    check_floats("jacobian", nodes)
    return matrices.sparse_jacobian(nodes, inputs, format, mode, constants=constants)


def hessian(
    loss: UOp, wrt: Nodes, format: Format, mode: Mode = "auto", part: Part = "full",
    constants: Literal["split"] | None = None,
) -> Sparse:  # fmt: skip
    """The second derivatives of a scalar by all elements of `wrt`, or the "lower" or "upper" part
    of the matrix with its diagonal. What is written element by element becomes arrays first, so
    that its slopes are alike, too."""
    check_loss("hessian", loss)
    inputs, _ = inputs_of("hessian", wrt)
    matrices.check("hessian", format, mode, part, constants)
    (loss,), given = propagate.prepared([loss], inputs)
    seeds = list(given)
    slopes = grad(loss, seeds)
    made = matrices.sparse_jacobian(slopes, seeds, format, mode, part, constants, symmetric=True)
    return Sparse(rebuild.rebuild(made.data, given), made.layout)


def sparsity(outputs: Nodes, wrt: Nodes, format: Format = "csc") -> Sparsity:
    """The entries of the Jacobian of the outputs by `wrt` that may not be zero, without computing
    values."""
    nodes, _ = listed("sparsity", outputs, "the outputs")
    inputs, _ = inputs_of("sparsity", wrt)
    matrices.check("sparsity", format)
    return matrices.sparsity(nodes, inputs, format)
