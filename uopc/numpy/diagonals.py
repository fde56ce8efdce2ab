"""Diagonals by two axes, as NumPy's main namespace has them; `linalg` has those of the last two."""

from __future__ import annotations

from typing import Any

from uopc.errors import UserError
from uopc.ir.builder.movement import normal_axis
from uopc.numpy import linalg
from uopc.numpy.array import applied, uop_of
from uopc.numpy.reductions import sum as _sum

__all__ = ["diagonal", "trace"]


def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements of the diagonal `offset` above the main one, of two axes.

    The axes go, the diagonal is the last one. UserError for fewer than two dimensions.

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
    """The sum of a diagonal of two axes; of integers in 64 bits.

    Examples:
        >>> int(unp.trace(unp.asarray([[1, 2], [3, 4]])))
        5
    """
    return _sum(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)
