"""The ops that a random graph may use, and their dtypes: all that the op table allows."""

from __future__ import annotations

from typing import Final

from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops

COMPARISONS: Final = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
_ANY: Final = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.NEG, Ops.WHERE, *COMPARISONS)
_NUMBERS: Final = (
    Ops.SUB, Ops.ABS, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.POW, Ops.MULACC,
)  # fmt: skip
_BITS: Final = (Ops.AND, Ops.OR, Ops.XOR)
_SHIFTS: Final = (Ops.SHL, Ops.SHR)
FUNCTIONS: Final = (
    Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.SIN, Ops.COS, Ops.TAN, Ops.TANH, Ops.ERF, Ops.POW,
)  # fmt: skip
_FLOATS: Final = (
    *FUNCTIONS[:-1], Ops.SQRT, Ops.RECIPROCAL, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.FDIV,
)  # fmt: skip
# A result that jumps: an operand that is off by a rounding may change it wholly.
JUMPS: Final = frozenset((
    *COMPARISONS, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV,
    Ops.CMOD,
))  # fmt: skip
# Correctly rounded on exact operands. A product is not: a sum may take it up before it is rounded.
EXACT: Final = frozenset((
    Ops.ADD, Ops.SUB, Ops.FDIV, Ops.SQRT, Ops.RECIPROCAL, Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN,
    Ops.WHERE, *JUMPS,
))  # fmt: skip


def elementwise(t: DType) -> tuple[Op, ...]:
    """The elementwise ops whose operands may be of this dtype."""
    if t.kind == "bool":
        return (*_ANY, *_BITS)
    if t.is_float:
        return (*_ANY, *_NUMBERS, *_FLOATS)
    threefry = (Ops.THREEFRY,) if t is dtypes.uint64 else ()
    return (*_ANY, *_NUMBERS, *_BITS, *_SHIFTS, *threefry)


def pairs() -> list[tuple[Op, DType]]:
    """Every elementwise op on every dtype that it takes, casts and bitcasts from it included."""
    casts = (Ops.CAST, Ops.BITCAST)
    return [
        (op, t) for t in dtypes.ARRAY_TYPES for op in (*elementwise(t), *casts)
        if op is not Ops.BITCAST or t.kind != "bool"
    ]  # fmt: skip
