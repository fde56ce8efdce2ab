"""Index arithmetic on vectors in 32 bits, where bounds prove that no value needs more.

    a = 3*lanes + i : indexx16      →      a = 3*cast(lanes) + cast(i) : i32x16

A register holds twice as many 32-bit integers, and vectors have a multiplication for them. A value
that is taken from such a vector, as a lane for an address, is cast back.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.ops import COMPARISONS, Ops
from uopc.ir.core.uop import UOp, intern

_SAME = frozenset((
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.MAX, Ops.MIN, Ops.AND, Ops.SHL, Ops.SHR, Ops.WHERE,
))  # fmt: skip


def narrowed(kernel: UOp) -> UOp:
    """The kernel with its vectors of indices in int32."""
    if not any(u.op in _SAME and _is_wide(u) for u in walk.order(kernel)):
        return kernel
    return rebuild.rewritten(kernel, _change, renew=rebuild.as_written)


def _is_wide(u: UOp) -> bool:
    return u.dtype.lanes > 1 and u.dtype.scalar is dtypes.index


def _fits(u: UOp) -> bool:
    return bounds.holds(dtypes.int32, u)


def _change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if u.op is Ops.LANE and _is_cast(src[0]):
        return _back(intern(Ops.LANE, dtypes.int32, src[0].src, u.arg))
    if u.op is Ops.CAST and _is_cast(src[0]):
        return intern(Ops.CAST, u.dtype, src[0].src)
    if u.op in _SAME and _is_wide(u):
        chosen = u.op is Ops.WHERE
        if not all([_fits(s) for s in (u, *u.src[chosen:])]):
            return None
        narrow = (*src[:chosen], *map(_in_int32, src[chosen:]))
        return _back(intern(u.op, dtypes.int32.vec(u.dtype.lanes), narrow))
    if u.op in COMPARISONS and any([_is_wide(s) for s in u.src]) and all(map(_fits, u.src)):
        return intern(u.op, u.dtype, tuple(map(_in_int32, src)))
    return None


def _is_cast(u: UOp) -> bool:
    """True if a vector of indices is one of int32."""
    return u.op is Ops.CAST and _is_wide(u) and u.src[0].dtype.scalar is dtypes.int32


def _back(u: UOp) -> UOp:
    return intern(Ops.CAST, dtypes.index.vec(u.dtype.lanes), (u,))


def _in_int32(u: UOp) -> UOp:
    t = dtypes.int32.vec(u.dtype.lanes)
    if _is_cast(u):
        return u.src[0]
    return intern(Ops.CONST, t, (), u.arg) if u.op is Ops.CONST else intern(Ops.CAST, t, (u,))
