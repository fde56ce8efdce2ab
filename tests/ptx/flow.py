"""The steps of a kernel in the order of control flow: after a place come those that it leads to.

The machine runs the lanes at the lowest place first, so that lanes that parted meet again. LLVM may
put the end of a loop before its beginning; lanes that jump there would then run ahead of others.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from tests.ptx.build import Action, Getter

Edges = list[list[int]]  # of each block, the blocks that may follow


@dataclass
class Step:
    action: Action | None
    guard: Getter | None
    kind: str  # "", branch, table, barrier, exit
    targets: tuple[int, ...]
    text: str


def in_order(steps: list[Step]) -> list[Step]:
    """The steps with no way up but to the beginning of a loop; as they were if they are so."""
    end = len(steps)
    ends = {i + 1 for i, s in enumerate(steps) if s.kind in ("branch", "table", "exit")}
    begins = sorted({0, end, *ends, *[t for s in steps for t in s.targets]})
    blocks = {begin: i for i, begin in enumerate(begins)}
    last = [steps[begin - 1] for begin in begins[1:]]
    edges: Edges = [[blocks[t] for t in s.targets] for s in last] + [[]]
    for i, s in enumerate(last):
        if s.kind not in ("branch", "table", "exit") or (s.guard is not None and s.kind != "table"):
            edges[i].append(i + 1)
    forward = _forward(edges)
    if all(t > i for i, follow in enumerate(forward) for t in follow):
        return steps
    made: list[Step] = []
    starts: dict[int, int] = {}
    order = _sorted(forward)
    for i, following in zip(order, [*order[1:], None]):
        starts[begins[i]] = len(made)
        made += steps[begins[i] : begins[i + 1]] if i < len(last) else []
        if i + 1 in edges[i] and following != i + 1:
            made.append(Step(None, None, "branch", (begins[i + 1],), "bra.uni"))
    return [replace(s, targets=tuple([starts[t] for t in s.targets])) for s in made]


def _forward(edges: Edges) -> Edges:
    """The edges that can be reached, without those back to the beginning of a loop."""
    forward: Edges = [[] for _ in edges]
    seen, open_ = {0}, {0}
    stack = [(0, iter(edges[0]))]
    while stack:
        i, left = stack[-1]
        for t in left:
            if t not in open_:
                forward[i].append(t)
            if t not in seen:
                seen.add(t)
                open_.add(t)
                stack.append((t, iter(edges[t])))
                break
        else:
            stack.pop()
            open_.discard(i)
    return forward


def _sorted(forward: Edges) -> list[int]:
    """The blocks that can be reached, each before those that follow, else as they were."""
    before = [0] * len(forward)
    for t in [t for follow in forward for t in follow]:
        before[t] += 1
    ready, order = [0], list[int]()
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for t in forward[i]:
            before[t] -= 1
            if not before[t]:
                heapq.heappush(ready, t)
    return order
