"""Registers that a branch sets: x + Σ (y - x) over a loop of at most one turn is x, or else y.

carry c = 0: c + (y - x); x + c   →   carry c = x: y

Integers only, whose sums are exact; `seldom` makes such sums, of the bits of a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from uopc.ir.core.ops import Ops
from uopc.passes.decompose.cold_branch import is_branch

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


class Replaced(NamedTuple):
    """What a register holds before the branch and after it, and the sums that go."""

    before: UOp
    after: UOp
    change: UOp
    total: UOp


def replaced_values(order: Iterable[UOp]) -> dict[UOp, Replaced]:
    """What the REDUCEs of a kernel replace, of those that replace a value."""
    reduces = [u for u in order if u.op is Ops.REDUCE and _in_branches(u)]
    if not reduces:
        return {}
    users: dict[UOp, list[UOp]] = {}
    for u in order:
        for s in u.src:
            users.setdefault(s, []).append(u)
    found: dict[UOp, Replaced] = {}
    for u in reduces:
        change = u.src[0]
        if change.op is Ops.SUB and len(users[change]) == len(users[u]) == 1:
            total, before = users[u][0], change.src[1]
            if total.op is Ops.ADD and total.src == (before, u):
                found[u] = Replaced(before, change.src[0], change, total)
    return found


def _in_branches(u: UOp) -> bool:
    return (
        u.arg.op == "add"
        and not u.dtype.is_float
        and all([is_branch(r) for r in u.src[1:]])
    )
