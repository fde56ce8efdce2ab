"""How deep the divisions of an index are nested: what movement that does not fit leaves behind.

A reshape whose dimensions do not divide each other becomes a division of the index, and the next
one a division of that. Each takes all those below it along, into every later index and its bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

# Deeper than this a value is stored as it is, and its reader starts from a plain index.
MOST_NESTED = 4


class Nesting:
    """The depth of every index expression that was asked for, by memo."""

    def __init__(self) -> None:
        self.depth: dict[UOp, int] = {}

    def of(self, index: UOp) -> int:
        """How many divisions stand one inside the other."""
        depth = self.depth
        stack = [] if index in depth else [index]
        while stack:
            u = stack[-1]
            missing = [s for s in u.src if s not in depth]
            if u not in depth and missing:
                stack += missing
                continue
            stack.pop()
            below = max([depth[s] for s in u.src], default=0)
            depth[u] = below + (u.op is Ops.FLOORDIV or u.op is Ops.FLOORMOD)
        return depth[index]
