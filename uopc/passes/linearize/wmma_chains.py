"""Sums of WMMAs as chains: each WMMA adds to the accumulator of the one before.

carry c: p = wmma(a, b); q = wmma(d, e); c + (p + q)
→  carry c: p = wmma(a, b, c); q = wmma(d, e, p)
"""

from __future__ import annotations

from collections import Counter

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def accumulating(order: list[UOp]) -> dict[UOp, UOp]:
    """Each WMMA, or sum of WMMAs, that only one REDUCE adds up -> that REDUCE."""
    if not any([u.op is Ops.WMMA for u in order]):
        return {}
    users = Counter([s for u in order for s in u.src])
    found: dict[UOp, UOp] = {}
    for u in order:
        if u.op is Ops.REDUCE and u.arg.op == "add":
            found |= dict.fromkeys(_chain(u.src[0], users), u)
    return found


def _chain(root: UOp, users: Counter[UOp]) -> list[UOp]:
    """The nodes of a sum of WMMAs that nothing else uses; none where it is no such sum."""
    chain: list[UOp] = []
    stack = [root]
    while stack:
        u = stack.pop()
        if users[u] > 1 or not (u.op is Ops.ADD or (u.op is Ops.WMMA and len(u.src) == 3)):
            return []
        chain.append(u)
        stack += u.src if u.op is Ops.ADD else ()
    return chain
