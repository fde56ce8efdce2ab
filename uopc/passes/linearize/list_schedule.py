"""Straight code whose results are waited for, in the order of how long the way to its end is.

A processor looks a few hundred operations ahead. A depth-first walk puts one chain after the
other, so of a long body it sees one or two chains at a time, and each operation waits for the one
before it. The longest way first puts chains side by side: a Jacobian's 115 operations, 101 cycles
one after the other, take 45 cycles and not 58.

Only where the latency of a stretch is longer than the time that its operations take: then few
values are alive at once. Wider code, the tile of a product, keeps the depth-first order and its
registers; and so does code that is one chain, where nothing stands beside it.
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.op_costs import (
    ISSUE_WIDTH,
    LONGEST_STRETCH,
    SHORTEST_STRETCH,
    latency,
)  # fmt: skip


def by_latency(items: list[UOp], block: UOp | None) -> list[UOp]:
    """The items of a block, sources first as before; inner blocks stay where they are."""
    if block is not None and block.op is Ops.IF:
        return items
    out: list[UOp] = []
    stretch: list[UOp] = []
    for u in items:
        if u.op.opens or len(stretch) == LONGEST_STRETCH:
            out += _ordered(stretch)
            stretch = []
        (out if u.op.opens else stretch).append(u)
    return out + _ordered(stretch)


def _ordered(stretch: list[UOp]) -> list[UOp]:
    if len(stretch) < SHORTEST_STRETCH:
        return stretch
    after = dict.fromkeys(stretch, 0)  # cycles from the beginning of each to the end
    work = 0
    for u in reversed(stretch):
        own = latency(u)
        work += own > 0
        after[u] += own
        begin = after[u]
        for s in u.src:
            if after.get(s, begin) < begin:
                after[s] = begin
    length = max(after.values())
    if not length < work <= ISSUE_WIDTH * length:
        return stretch
    for u in stretch:
        if u.op is Ops.STORE:  # at once when its value is there
            _no_later(u, after.get(u.src[1], length), after)
    return sorted(stretch, key=lambda u: -after[u])


def _no_later(u: UOp, cycles: int, after: dict[UOp, int]) -> None:
    """Move a statement, and what it needs, to where so many cycles are left."""
    stack = [u]
    while stack:
        v = stack.pop()
        if after.get(v, cycles) < cycles:
            after[v] = cycles
            stack += v.src
