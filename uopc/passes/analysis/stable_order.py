"""Topological order that stays as near to a given order as the constraints allow."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from uopc.ir.core.uop import UOp


def stable_order(
    before: Mapping[UOp, Iterable[UOp]], rank: Callable[[UOp], int]
) -> list[UOp]:
    """The nodes, each after all of `before[node]`; among ready nodes, the least rank goes first.
    Nodes on a cycle, and nodes after a cycle, are missing."""
    nodes = sorted(before, key=rank)
    index = {u: i for i, u in enumerate(nodes)}
    users: dict[UOp, list[UOp]] = {u: [] for u in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for u, sources in before.items():
        for s in sources:
            users[s].append(u)
            waiting[u] += 1
    ready = [i for i, u in enumerate(nodes) if not waiting[u]]
    out: list[UOp] = []
    while ready:
        u = nodes[heapq.heappop(ready)]
        out.append(u)
        for v in users[u]:
            waiting[v] -= 1
            if not waiting[v]:
                heapq.heappush(ready, index[v])
    return out
