"""List scheduling: straight code in the order of the critical path, where latency dominates.

A processor looks a few hundred operations ahead. A depth-first walk emits one dependency chain
after the other, so in long code the processor sees one or two chains at a time and waits for each
operation. Scheduling by the longest remaining path interleaves the chains.

A stretch is reordered only where its latency exceeds the time to issue its operations: then few
values are alive at once. Wider code, such as the tile of a product, keeps the depth-first order and
with it the registers; code that is a single chain keeps it too.
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.arithmetic import latency
from uopc.passes.analysis.op_costs import ISSUE_WIDTH, LONGEST_STRETCH, SHORTEST_STRETCH


def by_latency(items: list[UOp], block: UOp | None) -> list[UOp]:
    """The items of a block in their new order, sources first; inner blocks keep their positions."""
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
    after = dict.fromkeys(stretch, 0)  # cycles from the start of each to the end of the stretch
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
        if u.op is Ops.STORE:  # as soon as its value is known
            _no_later(u, after.get(u.src[1], length), after)
    return sorted(stretch, key=lambda u: -after[u])


def _no_later(u: UOp, cycles: int, after: dict[UOp, int]) -> None:
    """Move a statement, and its sources, to where at least `cycles` are left."""
    stack = [u]
    while stack:
        v = stack.pop()
        if after.get(v, cycles) < cycles:
            after[v] = cycles
            stack += v.src
