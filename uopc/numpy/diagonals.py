"""Diagonals of any two axes, as in NumPy's main namespace, and matrices made from diagonals.
(`linalg` has diagonals of the last two axes.)"""

from __future__ import annotations

from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, leaves
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core.uop import UOp
from uopc.numpy import linalg
from uopc.numpy.array import applied, same_kind, uop_of
from uopc.numpy.memory.viewing import frozen_view
from uopc.numpy.reductions import sum as _sum

__all__ = ["diag", "diagflat", "diagonal", "trace"]


def diag(v: Any, k: int = 0) -> Any:
    """A matrix with the vector v on the diagonal `k` above the main diagonal, and 0 elsewhere; for
    a matrix v, its diagonal `k` as a vector.

    The result has the dtype of v. UserError for another number of dimensions.

    Examples:
        >>> np.asarray(unp.diag(unp.asarray([1, 2])))
        array([[1, 0],
               [0, 2]])
        >>> np.asarray(unp.diag(unp.asarray([[1, 2], [3, 4]]), k=1))
        array([2])
    """
    u, k = uop_of(v, "diag"), checks.integer("diag", "k", k)
    if u.ndim == 2:
        return diagonal(v, k)
    if u.ndim != 1:
        raise UserError(f"diag: needs 1 or 2 dimensions, got {u.ndim}")
    return same_kind(_with_diagonal(u, k), (v,))


def _with_diagonal(u: UOp, k: int) -> UOp:
    i = leaves.iota(u.shape[0])
    square = alu.where(i.reshape(-1, 1).eq(i), u, leaves.const(u.dtype, 0))
    before, after = max(k, 0), max(-k, 0)
    return square.pad([(after, before), (before, after)])


def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with the elements of v, in row-major order, as its diagonal `k` above the main one.

    The other elements are 0. The result has the dtype of v.

    Examples:
        >>> np.asarray(unp.diagflat(unp.asarray([[1], [2]])))
        array([[1, 0],
               [0, 2]])
    """
    k = checks.integer("diagflat", "k", k)
    return applied(lambda u: _with_diagonal(u.reshape(-1), k), v)


@frozen_view
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements of the diagonal `offset` above the main diagonal of two axes.

    The result lacks both axes and has the diagonal last. UserError for fewer than two dimensions.

    Examples:
        >>> np.asarray(unp.diagonal(unp.asarray([[1, 2], [3, 4]])))
        array([1, 4])
    """
    rank = uop_of(x, "diagonal").ndim
    if rank < 2:
        raise UserError(f"diagonal: needs 2 dimensions, got {rank}")
    pair = [normal_axis(axis, rank, "diagonal") for axis in (axis1, axis2)]
    if pair[0] == pair[1]:
        raise UserError(f"diagonal: axis1 and axis2 are both {pair[0]}")
    order = [i for i in range(rank) if i not in pair] + pair
    return linalg.diagonal(applied(lambda u: u.permute(order), x), offset)


def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of a diagonal of two axes; integers are summed in 64 bits.

    Examples:
        >>> int(unp.trace(unp.asarray([[1, 2], [3, 4]])))
        5
    """
    return _sum(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)
