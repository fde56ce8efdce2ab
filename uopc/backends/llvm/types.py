"""Dtypes and constants in LLVM's notation."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType

_SCALARS = {
    "bool": "i1", "index": "i64", "float16": "half", "float32": "float", "float64": "double",
}  # fmt: skip
TILE = "x86_amx"  # in a register of a matrix unit


@cache
def llvm_type(t: DType) -> str:
    """The type of a value in a register. Floats without arithmetic in LLVM are their bits."""
    scalar = _SCALARS.get(t.scalar.name) or f"i{t.bits}"
    return scalar if t.lanes == 1 else f"<{t.lanes} x {scalar}>"


@cache
def memory_type(t: DType) -> str:
    """The type of a value in memory: a bool takes a byte."""
    if t.kind != "bool":
        return llvm_type(t)
    return "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"


@cache
def suffix(t: DType) -> str:
    """A type in the names of intrinsics: v16f32, i64."""
    name = {"half": "f16", "float": "f32", "double": "f64"}
    scalar = llvm_type(t.scalar)
    return (f"v{t.lanes}" if t.lanes > 1 else "") + name.get(scalar, scalar)


def literal(t: DType, value: object) -> str:
    """A constant of a scalar type, exactly."""
    if t.kind == "bool":
        return "true" if value else "false"
    if not t.is_float:
        return str(value)
    assert isinstance(value, (int, float))
    if t is dtypes.float16:
        return f"0xH{struct.unpack('>H', struct.pack('>e', value))[0]:04X}"
    if t.bits < 32:
        return str(int(np.asarray(value, t.numpy).view(f"u{t.itemsize}")))
    return f"0x{struct.unpack('>Q', struct.pack('>d', float(value)))[0]:016X}"


def constant(t: DType, value: object) -> str:
    """A constant: `value` in each lane, or a tuple of one per lane."""
    scalar = llvm_type(t.scalar)
    if type(value) is tuple:
        items = [f"{scalar} {literal(t.scalar, v)}" for v in value]
        same = all([i == items[0] for i in items])
        return f"splat ({items[0]})" if same else "<" + ", ".join(items) + ">"
    one = literal(t.scalar, value)
    return one if t.lanes == 1 else f"splat ({scalar} {one})"
