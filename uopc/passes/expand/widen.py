"""A node on sources that have lanes: as many lanes as the widest of them.

    (a + b) on <8 x float> and float → <8 x float>
"""

from __future__ import annotations

from uopc.ir.builder.rebuild import remake
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def widened(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources of the same scalar dtypes."""
    if src == u.src:
        return u
    if u.op is Ops.INDEX:
        wide = max([s.dtype.lanes for s in src[1:]])
        return intern(Ops.INDEX, u.dtype.scalar.vec(wide) if wide > 1 else u.dtype, src)
    if u.op is Ops.LOAD:
        return intern(Ops.LOAD, src[0].dtype, src, u.arg, u.tag)
    if u.op is Ops.STORE and any([x.op is Ops.INVALID for x in src[0].src[1:]]):  # never written
        nothing = intern(Ops.INVALID, src[1].dtype.scalar)
        return intern(Ops.STORE, u.dtype, (src[0], nothing, *src[2:]), u.arg, u.tag)
    if u.op in (Ops.CAST, Ops.BITCAST):
        return remake(intern(u.op, u.dtype.scalar.vec(src[0].dtype.lanes), src), src)
    return remake(u, src)
