"""The costs of nodes. The op table holds the costs that depend on the op alone."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

LOAD, STORE = Ops.INDEX.cost, 4.0  # of one element, in the units of `Op.cost`

# A value is long if one element, computed alone, costs more than this. It is then stored rather
# than computed at each of the places where it is gathered, or again in the loop of a reduce.
LONG_VALUE = 256.0

# A processor begins this many operations per cycle. Code is scheduled by latency in stretches:
# of shorter code a processor sees several iterations, longer code is cut.
ISSUE_WIDTH: Final = 3
SHORTEST_STRETCH: Final = 64  # statements
LONGEST_STRETCH: Final = 512

# Loops change places only where what the kernel writes fits the second-level cache.
CROSSED_BYTES = 1 << 20
# A loop that chooses among values becomes copies if it is at most this long.
MOST_CHOICES = 16


def whole_cost(u: UOp, stored: Container[UOp], loops: Container[UOp]) -> float:
    """The cost of one element with everything below it, down to values in `stored`. The count stops
    beyond `LONG_VALUE`. Values in `loops` cost nothing: they have loops of their own."""
    total, seen, stack = 0.0, {u}, [u]
    while stack and total <= LONG_VALUE:
        v = stack.pop()
        total += v.op.cost
        new = [s for s in v.src if s not in seen and s not in stored and s not in loops]
        seen.update(new)
        stack += new
    return total
