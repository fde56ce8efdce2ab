"""Parts in a form that libraries combine without loss.

MPI, Gloo and others lose NaN in a maximum, or the maximum itself, depending on the rank. So maxima
and minima of floats travel as integers in the same order, with NaN at the end of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.ir.builder import fold, leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

_INTEGER = {16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
Decode = Callable[[UOp], UOp]


def ordered(x: UOp, op: str) -> tuple[UOp, str, Decode]:
    """The parts to send, the op that combines them, and the way back to the dtype of x."""
    if x.dtype.kind == "bool":
        both = "max" if op in ("max", "add") else "min"
        return fold.cast(x, dtypes.uint8), both, lambda got: fold.cast(got, dtypes.bool_)
    if not x.dtype.is_float:
        return x, op, lambda got: got
    if x.dtype.bits == 8 or (x.dtype.bits == 16 and op in ("add", "mul")):  # libraries lack these
        wide, op, back = ordered(fold.cast(x, dtypes.float32), op)
        return wide, op, lambda got: fold.cast(back(got), x.dtype)
    if op not in ("max", "min"):
        return x, op, lambda got: got
    whole = _INTEGER[x.dtype.bits]
    return _key(x, op, whole), op, lambda got: _float(got, op, x.dtype)


def _key(x: UOp, op: str, whole: DType) -> UOp:
    """Bits are in the order of the integers once those of negative floats are flipped. NaN is the
    greatest integer for a maximum, the least for a minimum."""
    low, high = whole.bounds
    bits = fold.bitcast(x, whole)
    flipped = fold.make(Ops.XOR, bits, high)
    key = fold.select(fold.make(Ops.CMPLT, bits, 0), flipped, bits)
    nan = leaves.const_like(key, high if op == "max" else low)
    return fold.select(fold.make(Ops.CMPNE, x, x), nan, key)


def _float(key: UOp, op: str, t: DType) -> UOp:
    low, high = key.dtype.bounds
    flipped = fold.make(Ops.XOR, key, high)
    bits = fold.select(fold.make(Ops.CMPLT, key, 0), flipped, key)
    value = fold.bitcast(bits, t)
    is_nan = fold.make(Ops.CMPEQ, key, high if op == "max" else low)
    return fold.select(is_nan, leaves.const_like(value, math.nan), value)
