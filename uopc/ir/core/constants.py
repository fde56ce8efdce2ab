"""A Python number as a constant of a dtype: converted, wrapped, rounded.

A NaN is quiet, with a sign and no payload; without a sign if the dtype has a single NaN.
"""

from __future__ import annotations

import math
import reprlib
import struct
from typing import Any

import numpy as np

from uopc.errors import InvalidIR, UserError
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType


def const_value(dtype: DType, value: Any) -> Any:
    """`value` converted to the dtype as a Python bool, int or float (a tuple: one per lane)."""
    if isinstance(value, tuple):
        return tuple([const_value(dtype.scalar, v) for v in value])
    try:
        return _converted(dtype, value)
    except (TypeError, ValueError, OverflowError):
        wanted = f"a constant of {dtype.name} must be a number that fits"
        raise UserError(f"{wanted}, got {reprlib.repr(value)}") from None


def _converted(dtype: DType, value: Any) -> Any:
    kind = dtype.kind
    if kind == "index":
        return int(value)
    if kind == "bool":
        return bool(value)
    if kind == "float":
        return round_float(dtype, float(value))
    if kind == "void":
        raise InvalidIR("a constant cannot be void")
    if isinstance(value, (float, np.floating)):
        if math.isnan(value):
            return 0
        low, high = dtype.bounds
        return low if value <= low else high if value >= high else int(value)
    return wrap(dtype, int(value))


def wrap(dtype: DType, value: int) -> int:
    """`value` modulo 2^bits, in the dtype's range."""
    low, high = dtype.bounds
    if low <= value <= high:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > high else value


def round_float(dtype: DType, value: float) -> float:
    """`value` rounded to the precision of the dtype."""
    if value != value:
        return math.nan if dtype.name.endswith("fnuz") else math.copysign(math.nan, value)
    if dtype.bits == 64 or value == 0.0:
        return value
    if value in (math.inf, -math.inf) and dtype.bits > 8:  # a type of 8 bits may have no infinity
        return value
    if dtype.bits == 32:
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    from uopc.ir.core import semantics

    with np.errstate(over="ignore"):
        array = semantics.cast(np.asarray(value), dtypes.float64, dtype)
    return float(array)


def const_key(arg: Any) -> Any:
    """A key that tells constants of one dtype apart: zeros and NaNs by their sign."""
    if type(arg) is float and (arg == 0.0 or arg != arg):
        return float_text(arg)
    if type(arg) is tuple:
        return tuple([const_key(a) for a in arg])
    return arg


def float_text(value: float) -> str:
    """The shortest text for which `float` returns the same constant."""
    return "-nan" if value != value and math.copysign(1.0, value) < 0 else repr(value)


def arg_text(arg: Any) -> str:
    """The `repr` of an arg, in which NaNs have their sign."""
    text = repr(arg)
    return repr(const_key(arg)) if "nan" in text else text
