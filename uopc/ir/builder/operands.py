"""Convert a user's value to a UOp: numbers, arrays, dimensions; promotion of two operands."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, leaves
from uopc.ir.builder.checks import element_dtype
from uopc.ir.builder.fold import cast
from uopc.ir.builder.leaves import Scalar, const, located
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.args import VariableArg
from uopc.ir.core.data import arrays
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import uop_dim


def as_dim(d: Any) -> shapes.Dim:
    """A dimension given by the user: an int, or a UOp of dtype index (constants become ints)."""
    if isinstance(d, UOp):
        if d.dtype is not dtypes.index:
            raise UserTypeError(f"a dimension must be an int or of dtype index, got {d.dtype}")
        return uop_dim(d)
    try:
        return operator.index(d)
    except UserTypeError:  # a traced number: it says so
        raise
    except TypeError:
        raise UserTypeError(f"a dimension must be an int or a variable, got {d!r}") from None


def variable(name: str, low: int, high: int) -> UOp:
    """A named integer with inclusive bounds, for a symbolic size or a scalar argument.

    A call passes the value by name, which is any printable text. UserError for a value out of the
    bounds.

    Examples:
        >>> n = uopc.variable("n", 1, 100)
        >>> total = uopc.compile(uopc.param("x", (n,)).sum())
        >>> float(total(np.ones(5, "f4"))), float(total(np.ones(7, "f4")))
        (5.0, 7.0)
    """
    checks.argument_name("variable", name)
    if not (isinstance(low, int) and isinstance(high, int)) or low > high:
        raise UserError(f"variable {name}: needs integer bounds low ≤ high, got {low!r}, {high!r}")
    least, most = dtypes.index.bounds
    if low < least or high > most:
        raise UserError(f"variable {name}: the bounds {low}, {high} do not fit 64 bits")
    return located(intern(Ops.VARIABLE, dtypes.index, (), VariableArg(name, low, high)))


# ---------------------------------------------------------------- operands
def answers(value: Any) -> bool:
    """True for an array of another library than uopc and NumPy whose operators know UOps."""
    if isinstance(value, (UOp, int, float, np.ndarray, np.generic)):
        return False
    return hasattr(value, "__array_namespace__")


def as_uop(value: Operand, like: DType | None = None, who: str = "") -> UOp:
    """An operand of `who` as a UOp. Python scalars are weak: they take the dtype `like`."""
    if isinstance(value, UOp):
        return value
    if isinstance(value, (bool, int, float)) and type(value) in (bool, int, float):
        return const(_weak_dtype(value, like, who), value)
    if isinstance(value, (np.ndarray, np.generic)):
        return constant(value)
    wanted = "expected a UOp, a number or a NumPy array"
    got = type(value).__name__
    if answers(value):
        got += ": uopc.numpy has the functions of arrays"
    elif isinstance(value, (list, tuple)):
        got += ": write np.array(...) of numbers, uopc.stack(...) of UOps"
    elif isinstance(value, complex):
        got += ": there are no complex numbers, compute with two arrays"
    raise UserTypeError(f"{who and who + ': '}{wanted}, got {got}")


def _weak_dtype(value: Scalar, like: DType | None, who: str) -> DType:
    if type(value) is bool:
        if like is not None and like.kind != "bool":
            raise UserTypeError(f"{who and who + ': '}a Python bool beside a UOp {COMPARED}")
        return dtypes.bool_
    if type(value) is int:
        if like is None:
            return dtypes.int32 if -(1 << 31) <= value < 1 << 31 else dtypes.int64
        if like is dtypes.bool_:
            return dtypes.int64
        if like.is_int and not like.bounds[0] <= value <= like.bounds[1]:
            raise UserError(f"the integer {value} does not fit {like.name}")
        return like
    if like is None:
        return dtypes.float32
    return like if like.is_float else dtypes.float64


def paired(a: Operand, b: Operand, who: str = "") -> tuple[UOp, UOp]:
    """Two operands of `who` in their common dtype."""
    if isinstance(a, UOp) and isinstance(b, UOp) and a.dtype.scalar is b.dtype.scalar:
        return a, b
    if who in ("&", "|", "^"):
        check_truth(who, a, b)
    x = as_uop(a, b.dtype.scalar if isinstance(b, UOp) else None, who)
    y = as_uop(b, x.dtype.scalar, who)
    if x.dtype.scalar is not y.dtype.scalar:
        if x.op is Ops.INVALID or y.op is Ops.INVALID:
            return x, y
        common = dtypes.promote(x.dtype.scalar, y.dtype.scalar)
        x, y = cast(x, common), cast(y, common)
    return x, y


def check_truth(who: str, *values: Operand) -> None:
    """UserTypeError for a Python bool next to a UOp: a comparison by `==` may have produced it."""
    if bool in map(type, values) and any(isinstance(v, UOp) for v in values):
        raise UserTypeError(f"{who}: a Python bool beside a UOp {COMPARED}")


COMPARED = "is refused: `==` and `!=` compare UOps as objects; values are compared by `a.eq(b)`"


def constant(value: Any, dtype: DTypeLike | None = None) -> UOp:
    """A number or an array as part of the graph. The array is copied, unless the array and its
    bases are read-only. An array in a file that it cannot write to (`uopc.file`, `np.memmap`) is
    not even read: its place identifies it.

    The dtype is `dtype`, else the array's (lists become NumPy arrays), or int32 or float32 for one
    Python number. UserTypeError for complex numbers, strings and objects.

    Examples:
        >>> x = uopc.constant([1.5, 2.5])
        >>> x.dtype, uopc.compile(x * 2)()
        (dtypes.float64, array([3., 5.]))
    """
    if type(value) in (bool, int, float):
        return as_uop(value) if dtype is None else leaves.const(element_dtype(dtype), value)
    array = checks.array("constant", value)
    try:
        found = dtypes.from_numpy(array.dtype)
    except UserTypeError as error:
        raise UserTypeError(f"constant: {error}") from None
    wanted = found if dtype is None else element_dtype(dtype)
    if found is not wanted:
        array, found = array.astype(wanted.numpy, order="C"), wanted
    if array.size == 1 and array.ndim == 0:
        return leaves.const(found, array.item())
    return located(intern(Ops.DATA, found, (), arrays.register(array)))
