"""Which BRANCHes of a kernel of level vector wait for each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


class Waits(NamedTuple):
    """What a value waits for: the length of the longest chain of BRANCHes at and below it, and the
    loops that are closed below it.

    BRANCHes with equal Waits do not wait for each other: neither is below the other, also not by
    way of a loop that both use.
    """

    branches: int
    loops: frozenset[UOp]


def waits(order: Iterable[UOp]) -> dict[UOp, Waits]:
    """The Waits of nodes, which come sources first."""
    found: dict[UOp, Waits] = {}
    for u in order:
        below = [found[s] for s in u.src]
        loops = frozenset(ranges.closed_ranges(u))
        for w in below:
            if w.loops is not loops and not w.loops <= loops:  # equal sets are mostly one object
                loops = w.loops if loops <= w.loops else loops | w.loops
        chain = max([w.branches for w in below], default=0)
        found[u] = Waits(chain + (u.op is Ops.BRANCH), loops)
    return found
