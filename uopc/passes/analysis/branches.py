"""The order that BRANCHes of a vector-level kernel impose on each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


class Waits(NamedTuple):
    """The order before a value: the longest chain of BRANCHes up to it, and the loops that
    are closed below it.

    BRANCHes with equal Waits are independent: neither is below the other, directly or through a
    loop that both use.
    """

    branches: int
    loops: frozenset[UOp]


def waits(order: Iterable[UOp]) -> dict[UOp, Waits]:
    """The Waits of each node; `order` lists sources first."""
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
