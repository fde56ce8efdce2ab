"""Sums of products as chains: each product is added to the accumulator of the one before.

carry c: p = wmma(a, b); q = wmma(d, e); c + (p + q)
→  carry c: p = wmma(a, b, c); q = wmma(d, e, p)

carry c: c + (a·b + d·e)  →  carry c: (c + a·b) + d·e

A chain has one rounding, and one instruction, for each product. A processor waits for each of
them, so only sums that stand beside each other are such chains.
"""

from __future__ import annotations

from collections import Counter

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import SIDE_BY_SIDE


def accumulating(order: list[UOp], gpu: bool) -> dict[UOp, UOp]:
    """Each product, or sum of products, that only one REDUCE adds up -> that REDUCE."""
    sums = [u for u in order if u.op is Ops.REDUCE and u.arg.op == "add"]
    if not any([u.src[0].op in (Ops.ADD, Ops.WMMA) for u in sums]):
        return {}
    users = Counter([s for u in order for s in u.src])
    beside: Counter[tuple[UOp, ...]] = Counter()
    for u in sums:
        beside[u.src[1:]] += u.dtype.lanes if gpu else 1
    found: dict[UOp, UOp] = {}
    for u in sums:
        if u.src[0].op is Ops.ADD or u.src[0].op is Ops.WMMA:
            is_tile = beside[u.src[1:]] >= SIDE_BY_SIDE
            chain = _chain(u.src[0], users, is_tile)
            if all([ranges.ranges(t).issuperset(u.src[1:]) for t in chain]):
                found |= dict.fromkeys(chain, u)
    return found


def _chain(root: UOp, users: Counter[UOp], is_tile: bool) -> list[UOp]:
    """The nodes of a sum of products that nothing else uses, each sum before its terms; none where
    it is no such sum."""
    chain: list[UOp] = []
    stack = [root]
    while stack:
        u = stack.pop()
        is_product = (u.op is Ops.WMMA and len(u.src) == 3) or (u.op is Ops.MUL and is_tile)
        if users[u] > 1 or not (u.op is Ops.ADD or is_product):
            return []
        chain.append(u)
        stack += u.src if u.op is Ops.ADD else ()
    return chain


def in_turns(order: list[UOp], adding: dict[UOp, UOp]) -> list[UOp]:
    """The nodes, sources first, with the first terms of all chains before the second ones, and so
    on: few operands are then alive at a time."""
    terms: dict[UOp, list[UOp]] = {}
    for u, total in adding.items():
        if u.op is Ops.MUL:
            terms.setdefault(total, []).append(u)
    if not terms:
        return order
    place = {u: i for i, u in enumerate(order)}
    done: dict[UOp, None] = {}
    longest = max([len(t) for t in terms.values()])
    for turn in range(longest):
        for total in sorted(terms, key=place.__getitem__):
            if turn < len(terms[total]):
                walk.toposort(terms[total][-1 - turn], lambda u: u in place, done)
    return [*[u for u in done if u in place], *[u for u in order if u not in done]]
