"""Values that are put together from parts: which are stored part by part, and in how many loops."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.op_costs import LONG_VALUE

# A STACK or CAT of more parts than this is stored part by part: in one loop each element would
# choose among all of them.
MOST_PARTS = 16
# At most this many parts of a STACK that share their work are stored in one loop; each further loop
# computes it again. 64 take 1.2 of the time of a Jacobian of 140 parts, and 1.15 to compile it.
MOST_TOGETHER = 256


def is_stored_by_part(u: UOp) -> bool:
    """True if each part of a value has a loop of its own, because there are many parts."""
    return u.op in (Ops.STACK, Ops.CAT) and len(u.src) > MOST_PARTS


def share_work(parts: Sequence[UOp], stored: Container[UOp]) -> bool:
    """True if one loop for these same-shaped elementwise values costs at most half of separate
    loops, and the values are long: the rows of a Jacobian, or the states of a rollout, for example.
    """
    return shared_work(parts, stored) > 0.0


def shared_work(parts: Sequence[UOp], stored: Container[UOp], most: float = math.inf) -> float:
    """The cost of one element of each part in one loop, if the parts `share_work`; else 0, and if
    it is more than `most`. In a loop each they cost at least twice as much."""
    together = _cost_of_rows(parts, stored, most)
    if together > most:
        return 0.0
    enough = max(LONG_VALUE, 2 * together)
    alone = 0.0
    for p in parts:  # each is walked no further than `enough`
        alone += _cost_of_rows([p], stored, enough)
        if alone > enough:
            return together
    return 0.0


def _cost_of_rows(values: Sequence[UOp], stored: Container[UOp], most: float) -> float:
    """The cost of one element of each value, with each operation counted once; more than `most` if
    the cost exceeds it, or if a reduce is below. If only one row of a STACK is read, only that row
    counts."""
    cost, stack = 0.0, [(v, -1) for v in values]
    seen = set(stack)
    while stack and cost <= most:
        v, row = stack.pop()
        if v.op is Ops.REDUCE:
            return math.inf
        cost += v.op.cost
        new = [s for s in _rows_below(v, row) if s not in seen and s[0] not in stored]
        seen.update(new)
        stack += new
    return cost


def _rows_below(u: UOp, row: int) -> list[tuple[UOp, int]]:
    """The sources of a value, each with the row that is read, or -1 for any."""
    if u.op is Ops.SHRINK:
        begins, sizes = shapes.window(u)
        first = begins[0] if begins and sizes[0] == 1 else None
        return [(u.src[0], first if isinstance(first, int) else -1)]
    if row >= 0 and u.op is Ops.STACK:
        return [(u.src[row], -1)]
    if row >= 0 and (u.op.is_alu or u.op is Ops.CAST):
        dims = shapes.shape(u)
        return [(s, row if shapes.shape(s) == dims else -1) for s in u.src]
    return [(s, -1) for s in u.src]
