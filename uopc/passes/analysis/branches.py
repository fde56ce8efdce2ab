"""The order that BRANCHes of a vector-level kernel impose on each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.core import ranges
from uopc.ir.core.calls import operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


class BranchOrder(NamedTuple):
    """The order before a value: the longest chain of BRANCHes up to it, and the loops that
    are closed below it.

    BRANCHes with equal Waits are independent: neither is below the other, directly or through a
    loop that both use.
    """

    branches: int
    loops: frozenset[UOp]


def waits(order: Iterable[UOp]) -> dict[UOp, BranchOrder]:
    """The BranchOrder of each node; `order` lists sources first."""
    found: dict[UOp, BranchOrder] = {}
    nothing = BranchOrder(0, ranges.NO_RANGES)
    for u in order:
        below, closed = nothing, ranges.closed_ranges(u)
        for s in operands(u):
            w = found[s]
            if w is not below:
                below = _later_order(below, w)
        if closed:
            below = BranchOrder(below.branches, below.loops.union(closed))
        if u.op is Ops.BRANCH:
            below = BranchOrder(below.branches + 1, below.loops)
        found[u] = below
    return found


def _later_order(a: BranchOrder, b: BranchOrder) -> BranchOrder:
    """The order before a value of two operands; mostly that of one of them."""
    if a.branches < b.branches:
        a, b = b, a
    if a.loops is b.loops or b.loops <= a.loops:
        return a
    return BranchOrder(a.branches, b.loops if a.loops <= b.loops else a.loops | b.loops)
