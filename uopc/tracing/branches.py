"""`cond`: a choice between two functions by a value that is not known yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.shapes import show
from uopc.numpy import elementwise
from uopc.numpy.array import uop_of
from uopc.tracing.pytrees import flatten, unflatten


def cond(
    condition: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any
) -> Any:
    """`if_true(*operands)` where the condition holds, else `if_false(*operands)`.

    The condition is one bool. Both functions are traced and computed, each value of the result is
    chosen; so both give arrays of the same shapes and dtypes, in the same containers. Of a bool of
    Python or NumPy, only one is called. UserError where results differ in more than values.

    Examples:
        >>> f = uopc.jit(lambda x: uopc.cond(x.sum() > 0, lambda x: x, lambda x: -x, x))
        >>> f(np.array([1.0, -3.0]))
        array([-1.,  3.])
    """
    if isinstance(condition, (bool, np.bool_)):
        return (if_true if condition else if_false)(*operands)
    chosen = uop_of(condition, "cond")
    if chosen.dtype is not dtypes.bool_ or chosen.shape != ():
        got = f"{chosen.dtype.name}{show(chosen.shape)}"
        raise UserTypeError(f"cond: the condition must be one bool, got {got}")
    ones, structure = flatten(if_true(*operands))
    others, other_structure = flatten(if_false(*operands))
    if structure != other_structure:
        raise UserError("cond: the two functions give different containers")
    return unflatten(
        structure, [_chosen(condition, path, a, b) for (path, a), (_, b) in zip(ones, others)]
    )


def _chosen(condition: Any, path: str, a: Any, b: Any) -> Any:
    one, other = uop_of(a, "cond"), uop_of(b, "cond")
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        kinds = [f"{u.dtype.name}{show(u.shape)}" for u in (one, other)]
        raise UserError(f"cond: the functions give {' and '.join(kinds)} at {path or 'the result'}")
    return elementwise.where(condition, a, b)
