"""Values that are put together from parts: which are stored part by part, and in how many loops."""

from __future__ import annotations

from collections.abc import Container, Sequence

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.op_costs import LONG_VALUE, whole_cost

# A STACK or CAT of more parts than this is stored part by part: in one loop each element would
# choose among all of them.
MOST_PARTS = 16
# At most this many parts of a STACK that share their work are stored in one loop.
MOST_TOGETHER = 64


def is_stored_by_part(u: UOp) -> bool:
    """True if each part of a value has a loop of its own, because there are many parts."""
    return u.op in (Ops.STACK, Ops.CAT) and len(u.src) > MOST_PARTS


def share_work(parts: Sequence[UOp], stored: Container[UOp]) -> bool:
    """True if values of one shape, none with a reduce, are long and at least twice as cheap to
    compute in one loop as in a loop each: the rows of a Jacobian, say, or the states of a rollout,
    each of which depends on all before it."""
    together, seen, stack = 0.0, set(parts), list(parts)
    while stack:
        v = stack.pop()
        if v.op is Ops.REDUCE:
            return False
        together += v.op.cost
        new = [s for s in v.src if s not in seen and s not in stored]
        seen.update(new)
        stack += new
    enough = max(LONG_VALUE, 2 * together)
    alone = 0.0
    for p in parts:  # each is walked no further than `enough`
        alone += whole_cost(p, stored, (), enough)
        if alone > enough:
            return True
    return False
