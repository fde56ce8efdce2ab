"""Dtypes and constants in C."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from uopc.errors import Unsupported
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType

_INT_BITS = 32  # C computes narrower integers in int


@cache
def c_type(t: DType) -> str:
    """The type of a value. Floats of less than 32 bits are their bits."""
    if t.kind == "bool":
        return "bool"
    return "int64_t" if t.kind == "index" else memory_type(t)


@cache
def memory_type(t: DType) -> str:
    """The type of an element of an array: a bool takes a byte."""
    if t in (dtypes.float32, dtypes.float64):
        return "float" if t is dtypes.float32 else "double"
    if t.kind == "bool" or t.is_float:
        return f"uint{8 * t.itemsize}_t"
    return f"{t.name}_t"


@cache
def held(t: DType) -> int:
    """The lanes of the vector that holds a value: vectors have a power of two of them."""
    return 1 << (t.lanes - 1).bit_length()


def mask_of(t: DType) -> DType:
    """The type of a comparison of vectors of a type: lanes of 0 or -1."""
    return _SIGNED[t.scalar.bits].vec(t.lanes)


def words_of(t: DType) -> DType:
    """The unsigned integers as wide as a type."""
    return _UNSIGNED[t.scalar.bits].vec(t.lanes)


_SIGNED = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def unsigned(t: DType) -> str:
    """The type in which arithmetic of an integer type wraps: none that C would widen to int."""
    return f"uint{max(_INT_BITS, t.bits)}_t"


def computed(t: DType) -> DType:
    """The type in which C computes values of a type: float32 for float16, which is its bits.
    Unsupported for other floats of less than 32 bits, which no CPU converts."""
    if not t.is_float or t.bits >= 32:
        return t
    if t.scalar is not dtypes.float16:
        raise Unsupported(f"c: no code for floats of type {t.scalar.name}: decompose replaces them")
    return dtypes.float32.vec(t.lanes)


def rounded(t: DType, value: Any) -> Any:
    """A constant of floats, one or a tuple, as numbers that its type has."""
    array = np.asarray(value, t.scalar.numpy).astype(np.float64)
    return tuple(array.tolist()) if array.ndim else float(array)


def is_narrow(t: DType) -> bool:
    """True for integers, and bits of floats, that C widens to int."""
    return t.kind != "bool" and t.bits < _INT_BITS


def literal(t: DType, value: Any) -> str:
    """A constant of a scalar type, exactly; negative ones in parentheses."""
    if t.kind == "bool":
        return "true" if value else "false"
    if t.is_float and t.bits < 32:
        return f"{int(np.asarray(value, t.numpy).view(f'u{t.itemsize}')):#x}u"
    text = _float(t, float(value)) if t.is_float else _integer(t, int(value))
    return f"({text})" if text.startswith("-") else text


def _float(t: DType, value: float) -> str:
    single = t is dtypes.float32
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not math.isfinite(value):
        name = "UOPC_NAN" if value != value else "UOPC_INF"
        return f"{sign}{name}{'F' if single else ''}"
    text = str(np.float32(value)) if single else repr(value)  # the shortest that is exact
    return f"{text}f" if single else text


def _integer(t: DType, value: int) -> str:
    if t.kind == "uint":
        return f"UINT64_C({value})" if t.bits == 64 else f"{value}{'u' * (t.bits == _INT_BITS)}"
    if value == -(1 << t.bits - 1) and t.bits >= _INT_BITS:
        return f"-{_integer(t, -value - 1)} - 1"
    if -(1 << 31) < value < 1 << 31:
        return str(value)
    return f"-INT64_C({-value})" if value < 0 else f"INT64_C({value})"
