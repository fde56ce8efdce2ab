"""The raw constructor behind `UOp(...)`: checks the fields, derives a dtype, folds nothing."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op, Ops

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def checked(op: Op, dtype: DType | None, src: tuple[UOp, ...], arg: Any, tag: Any) -> UOp:
    """Intern after checking operand count, arg type and dtype. InvalidIR on a misfit."""
    low, high = op.arity if isinstance(op.arity, tuple) else (op.arity, op.arity)
    if len(src) < low or (high is not None and len(src) > high):
        wanted = f"{low}" if low == high else f"{low} to {'any' if high is None else high}"
        raise InvalidIR(f"{op!r} takes {wanted} operands, got {len(src)}")
    if dtype is None:
        dtype = derived_dtype(op, src)
    arg = canonical_arg(op, dtype, arg)
    return intern(op, dtype, src, arg, tag)


def derived_dtype(op: Op, src: tuple[UOp, ...]) -> DType:
    """The dtype that the op's rule gives; InvalidIR where it must be given."""
    rule = op.dtype
    if rule == "void":
        return dtypes.void
    if rule == "index":
        return dtypes.index
    if not src:
        raise InvalidIR(f"{op!r} needs a dtype")
    if rule == "bool":
        return dtypes.bool_.vec(max(s.dtype.lanes for s in src))
    if rule == "given":
        raise InvalidIR(f"{op!r} needs a dtype")
    chosen = src[-1] if rule == "last" else src[0]
    if op.is_alu or op is Ops.WHERE:
        chosen_type = next(
            (s.dtype for s in (src[1:] if op is Ops.WHERE else src) if s.op is not Ops.INVALID),
            chosen.dtype,
        )
        return chosen_type.vec(max(s.dtype.lanes for s in src))
    return chosen.dtype


def canonical_arg(op: Op, dtype: DType, arg: Any) -> Any:
    """The arg in the one form that is interned; InvalidIR when its type is not the op's."""
    if op is Ops.CONST:
        return const_value(dtype, arg)
    if type(arg) is list:
        arg = tuple(arg)
    if not isinstance(arg, op.arg):
        names = " or ".join(t.__name__ for t in op.arg)
        raise InvalidIR(f"{op!r}: arg must be {names}, got {type(arg).__name__} {arg!r}")
    if type(arg) is tuple:
        return tuple([_canonical_item(a) for a in arg])
    if type(arg) is bool:
        raise InvalidIR(f"{op!r}: arg must not be a bool")
    return arg


def _canonical_item(item: Any) -> Any:
    if isinstance(item, (bool, np.bool_)):
        return int(item)
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, tuple):
        return tuple([_canonical_item(i) for i in item])
    return item


def const_value(dtype: DType, value: Any) -> Any:
    """`value` converted to the dtype as a Python bool, int or float (a tuple: one a lane)."""
    if isinstance(value, tuple):
        return tuple([const_value(dtype.scalar, v) for v in value])
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
    if dtype.bits == 64 or value != value or value in (0.0, math.inf, -math.inf):
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


def redtyped(u: UOp, src: tuple[UOp, ...]) -> DType:
    """The dtype of `u` once it stands on sources of other dtypes."""
    rule = u.op.dtype
    lanes = max([s.dtype.lanes for s in src])
    if u.op is Ops.CAST:
        return u.dtype.scalar.vec(lanes)
    return u.dtype if rule in ("given", "unchecked", "index", "void") else derived_dtype(u.op, src)
