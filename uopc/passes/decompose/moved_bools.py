"""Bools that change lanes do so as bytes: machines have no shuffles of single bits.

    stack (load x[i]), (load x[j]) : boolx2   →   cast (stack (cast (load x[i]) : u8), …) : boolx2

Masks, the results of comparisons of vectors, stay bits.
"""

from __future__ import annotations

from uopc.ir.builder import fold
from uopc.ir.core import bounds, dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.lanes import splat

MOVES = frozenset((Ops.STACK, Ops.LANE, Ops.SHUFFLE))


def moved(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """A STACK, LANE or SHUFFLE of bools on bytes; None for one scalar in all lanes, and where an
    operand is a mask."""
    if src[0].dtype.lanes == 1 and len(set(src)) == 1:
        return None
    parts = [_as_byte(s) for s in src]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    made = intern(u.op, dtypes.uint8.vec(u.dtype.lanes), tuple(known), u.arg)
    return fold.convert(made, dtypes.bool_)


def _as_byte(s: UOp) -> UOp | None:
    """Bools as bytes of 0 and 1; None for a mask."""
    if s.op is Ops.CAST and s.src[0].dtype.scalar is dtypes.uint8 and bounds.within(s.src[0], 0, 1):
        return s.src[0]
    if s.dtype.lanes == 1 or s.op in (Ops.LOAD, Ops.CONST):
        return splat(fold.convert(s, dtypes.uint8), s.dtype.lanes)
    return None
