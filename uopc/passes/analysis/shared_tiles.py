"""Tiles that the threads of a block fill together: local storage that becomes shared memory."""

from __future__ import annotations

from collections.abc import Iterable

from uopc.errors import Unsupported
from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# Kinds of ranges whose iterations are threads of one block.
THREADS = ("local", "group", "grouptop", "warp")
# Bytes of the pieces in which a swizzled tile is rearranged, and of a line of all 32 banks.
PIECE, LINE = 16, 128


def filled_together(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """The tiles whose fill closes ranges of threads -> the END of the fill."""
    found: dict[UOp, UOp] = {}
    for u in order:
        if u.op is not Ops.AFTER or u.src[0].op is not Ops.BUFFER or u.src[0].arg.space != "local":
            continue
        for end in u.src[1:]:
            if any(r.arg.kind in THREADS for r in ranges.closed_ranges(end)):
                found[u.src[0]] = end
                if any(r.arg.kind in THREADS for r in ranges.ranges(end)):
                    raise Unsupported("threads must fill their own tile, not that of other threads")
    return found


def loops_around(end: UOp) -> tuple[UOp, ...]:
    """The loops around a fill, outer first. Blocks of the grid are no loops."""
    loops = [r for r in ranges.ranges(end) if r.arg.kind in ("loop", "reduce")]
    return tuple(sorted(loops, key=lambda r: r.arg.axis))


def can_be_swizzled(row: int) -> bool:
    """True if rows of this many bytes are 2 or 4 pieces, or whole lines."""
    return row in (2 * PIECE, 4 * PIECE) or (row > 0 and row % LINE == 0)
