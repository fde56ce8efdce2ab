"""Local storage that the threads of a block fill together: shared memory, and where they wait.

    for k: (for f: t[f] = x[k, f]); … t[g] …      f, g: threads of the block
    →  for k: wait; (t[f] = x[k, f]); wait; … t[g] …

They wait before it is read, so that all of it is there, and in a loop before it is filled again,
until all have read it. Tiles that are filled at the same place of the nest share these waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.errors import Unsupported
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis import pipelined_tiles as staged_tiles

# Kinds of ranges whose iterations are threads of one block.
THREADS = ("local", "group", "grouptop", "warp")


def filled_together(order: Iterable[UOp]) -> dict[UOp, UOp]:
    """Local storage whose fill closes ranges of threads -> the END of the fill."""
    found: dict[UOp, UOp] = {}
    for u in order:
        if u.op is not Ops.AFTER or u.src[0].op is not Ops.BUFFER or u.src[0].arg.space != "local":
            continue
        for end in u.src[1:]:
            if any(r.arg.kind in THREADS for r in ranges.closed_ranges(end)):
                found[u.src[0]] = end
                if any(r.arg.kind in THREADS for r in ranges.ranges(end)):
                    raise Unsupported("a tile of some threads, filled by others")
    return found


def with_barriers(kernel: UOp, tiles: dict[UOp, UOp]) -> UOp:
    """The kernel in which threads wait where they fill and read tiles together; tiles with several
    stages are filled ahead (`staged_tiles.py`)."""
    groups: dict[tuple[UOp, ...], list[UOp]] = {}
    alone: list[UOp] = []
    for tile, end in tiles.items():
        reads = any(u.op is Ops.AFTER and u.src[0] in tiles for u in walk.toposort(end))
        if reads:  # of another tile: its fill waits for that one
            alone.append(tile)
        else:
            groups.setdefault(loops_around(end), []).append(tile)
    ready: dict[UOp, UOp] = {}
    staged: dict[UOp, staged_tiles.Staged] = {}
    for loops, group in groups.items():
        if loops and staged_tiles.can_be_staged(group, tiles):
            staged |= staged_tiles.staged(group, tiles, loops)
            continue
        ends = tuple([_waiting(tiles[t]) for t in group])
        ready |= dict.fromkeys(group, intern(Ops.BARRIER, dtypes.void, ends))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.INDEX and u.src[0].op is Ops.AFTER and u.src[0].src[0] in staged:
            return staged_tiles.place(staged[u.src[0].src[0]], u, src)
        if u.op is Ops.AFTER and u.src[0] in staged:
            return staged[u.src[0]].filled
        if u.op is not Ops.AFTER or u.src[0] not in tiles or tiles[u.src[0]] not in u.src[1:]:
            return None
        barrier = ready.get(u.src[0])
        if barrier is None:
            barrier = intern(Ops.BARRIER, dtypes.void, tuple([_waiting(s) for s in src[1:]]))
        return intern(Ops.AFTER, u.dtype, (u.src[0], barrier))

    return remake.rewritten(kernel, change)


def loops_around(end: UOp) -> tuple[UOp, ...]:
    """The loops around a fill, outer first: places in the grid are none."""
    loops = [r for r in ranges.ranges(end) if r.arg.kind in ("loop", "reduce")]
    return tuple(sorted(loops, key=lambda r: r.arg.axis))


def _waiting(end: UOp) -> UOp:
    """A fill that waits until what was there in the iteration before has been read."""
    loops = loops_around(end)
    if not loops:
        return end
    again = intern(Ops.BARRIER, dtypes.void, loops)
    places: dict[UOp, UOp] = {}
    for u in walk.toposort(end):
        if u.op is Ops.STORE and u.src[0].src[0].op is Ops.BUFFER:
            base, *index = u.src[0].src
            free = intern(Ops.AFTER, base.dtype, (base, again))
            places[u.src[0]] = intern(Ops.INDEX, u.src[0].dtype, (free, *index))
    return remake.rebuild(end, places)
