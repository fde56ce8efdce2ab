"""Sums of WMMAs as chains: each WMMA adds to the accumulator of the one before.

carry c: p = wmma(a, b); q = wmma(d, e); c + (p + q)
→  carry c: p = wmma(a, b, c); q = wmma(d, e, p)
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def accumulating(order: list[UOp]) -> dict[UOp, UOp]:
    """Each WMMA, or sum of WMMAs, that only one REDUCE adds up -> that REDUCE."""
    if not any([u.op is Ops.WMMA for u in order]):
        return {}
    users: dict[UOp, int] = {}
    for u in order:
        for s in u.src:
            users[s] = users.get(s, 0) + 1
    found: dict[UOp, UOp] = {}
    for u in order:
        if u.op is not Ops.REDUCE or u.arg.op != "add":
            continue
        parts = _parts(u.src[0], users)
        if parts is not None:
            found |= dict.fromkeys(parts, u)
    return found


def _parts(root: UOp, users: dict[UOp, int]) -> list[UOp] | None:
    """The nodes of a sum of WMMAs that nothing else uses; None where it is no such sum."""
    parts: list[UOp] = []
    stack = [root]
    while stack:
        u = stack.pop()
        if users[u] > 1 or not (u.op is Ops.ADD or (u.op is Ops.WMMA and len(u.src) == 3)):
            return None
        parts.append(u)
        stack += u.src if u.op is Ops.ADD else ()
    return parts
