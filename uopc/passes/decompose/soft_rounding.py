"""Floats rounded to integers on machines that have no instruction for it (x86 before SSE4.1)."""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.float_bits import sign_of, with_sign


def rounded_by_sums(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """FLOOR, CEIL, TRUNC or ROUND by sums. From 2^52 on (2^23 in float32) all floats are integers,
    so adding that rounds, ties to even. A zero has the sign of what was rounded."""
    if u.op not in (Ops.FLOOR, Ops.CEIL, Ops.TRUNC, Ops.ROUND):
        return None
    a = src[0]
    whole, size = 2.0 ** (52 if a.dtype.bits == 64 else 23), abs(a)
    near = (size + whole) - whole
    down = (near > size).where(near - 1.0, near)
    up = (near < size).where(near + 1.0, near)
    if u.op is Ops.TRUNC:
        near = down
    elif u.op is not Ops.ROUND:
        near = (a < 0.0).where(*((up, down) if u.op is Ops.FLOOR else (down, up)))
    return (size < whole).where(with_sign(near, sign_of(a)), a)
