"""Checks of the arguments of users: the error names the method and the value."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from uopc.errors import Error, UserError, UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp

T = TypeVar("T")


def element_dtype(dtype: Any) -> DType:
    """The dtype; UserTypeError unless arrays may have it."""
    found = _known(dtype)
    if found is None or found not in dtypes.ARRAY_TYPES:
        hint = ": a shape of several sizes is a tuple, (2, 3)" if isinstance(dtype, int) else ""
        raise UserTypeError(f"expected a dtype such as {_EXAMPLES}, got {dtype!r}{hint}")
    return found


def any_dtype(who: str, dtype: Any) -> DType:
    """The dtype; UserTypeError for anything else."""
    found = _known(dtype)
    if found is None:
        raise UserTypeError(f"{who}: expected a dtype such as {_EXAMPLES}, got {dtype!r}")
    return found


_EXAMPLES = "uopc.dtypes.float32 or np.float32"


def _known(dtype: Any) -> DType | None:
    """The DType of a DType, of a name in `dtypes` (`"float"` is C's `dtypes.float`), or of a NumPy
    spelling: `np.float64`, `"f8"`, the class `float`."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in dtypes.OF_C:
        return dtypes.OF_C[dtype]
    if dtype is None:  # NumPy's float64
        return None
    try:
        return dtypes.from_numpy(np.dtype(dtype))
    except (TypeError, ValueError):
        return None


def argument_name(who: str, name: Any) -> None:
    """UserError unless `name` can name an argument: a printable text."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UserError(f"{who}: the name must be a printable string, got {name!r}")


def flag(who: str, name: str, value: Any) -> bool:
    """The value as a bool; UserTypeError for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise UserTypeError(f"{who}: {name} must be True or False, got {value!r}")
    return bool(value)


def number(who: str, value: Any) -> float:
    """The value as a finite float; UserTypeError otherwise."""
    try:
        found = float(value) if not isinstance(value, str) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise UserTypeError(f"{who}: expected a finite number, got {value!r}")
    return found


def integer(who: str, name: str, value: Any) -> int:
    """The value as an int; UserTypeError otherwise."""
    return _converted(operator.index, who, f"{name} must be an integer", value)


def sequence(who: str, name: str, value: Any) -> tuple[Any, ...]:
    """The elements of the value; UserTypeError for an object without elements."""
    return _converted(tuple, who, f"{name} must be a sequence", value)


def _converted(convert: Callable[[Any], T], who: str, rule: str, value: Any) -> T:
    try:
        return convert(value)
    except TypeError as error:
        if isinstance(error, Error):  # of a traced array: says what to do
            raise
        raise UserTypeError(f"{who}: {rule}, got {value!r}") from None


def nodes(who: str, values: Sequence[Any]) -> None:
    """UserTypeError unless all values are nodes of a graph."""
    for v in values:
        if not isinstance(v, UOp):
            raise UserTypeError(f"{who}: expected a UOp, got {v!r}")


def path(who: str, value: Any) -> str:
    """The path as text; UserTypeError for another object."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if not isinstance(found, str):
        raise UserTypeError(f"{who}: the path must be a string or a Path, got {value!r}")
    return found


def usual_array(who: str, value: Any) -> None:
    """UserTypeError for arrays of NumPy whose operators mean something else."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return
    if isinstance(value, np.ma.MaskedArray):
        raise UserTypeError(f"{who}: a masked array is not accepted; pass its data")
    if isinstance(value, np.matrix):
        raise UserTypeError(
            f"{who}: a matrix is not accepted, since its * is a product of matrices: pass"
            " np.asarray(matrix), and write @ for products"
        )


def array(who: str, value: Any) -> npt.NDArray[Any]:
    """The value as a NumPy array; UserError for rows of unlike lengths, UserTypeError for masked
    arrays and matrices."""
    usual_array(who, value)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise UserError(f"{who}: {error}") from None


def pairs(who: str, given: Any, rank: int) -> Sequence[tuple[Any, Any]]:
    """The sequence, if it has a pair per dimension; UserError otherwise."""
    if not isinstance(given, (tuple, list)) or any(
        not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in given
    ):
        raise UserTypeError(f"{who}: expected a pair for each dimension, got {given!r}")
    if len(given) != rank:
        raise UserError(f"{who}: {len(given)} pairs for {rank} dimensions")
    return given
