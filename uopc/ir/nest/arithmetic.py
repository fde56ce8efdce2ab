"""Operations on elements: which nodes are operations, and how many nodes each becomes."""

from __future__ import annotations

from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp


def is_arithmetic(u: UOp) -> bool:
    """True if a node computes with elements, not with indices."""
    return u.op.is_alu and u.dtype.scalar is not dtypes.index


def expansion(u: UOp) -> int:
    """The number of nodes that `decompose` makes of a node."""
    bits = u.dtype.bits
    known = bits in (32, 64) or u.dtype.is_float  # narrow floats are computed in float32
    return u.op.expansion[bits == 64] if known else 1
