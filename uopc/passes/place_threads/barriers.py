"""Barriers around the fills of shared tiles.

    for k: (for f: t[f] = x[k, f]); … t[g] …      f, g: threads of the block
    →  for k: wait; (t[f] = x[k, f]); wait; … t[g] …

Threads wait before they read a tile, until all of it is filled; and in a loop before they fill it
again, until all have read it. Tiles that are filled in the same loops share these barriers.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.shared_tiles import loops_around
from uopc.passes.place_threads.pipelined_tiles import Pipelined, can_be_pipelined, filled_ahead


def with_barriers(kernel: UOp, tiles: dict[UOp, UOp]) -> UOp:
    """Put a barrier after the fill of each tile, and one before the next fill. Tiles with several
    stages are filled ahead (`pipelined_tiles.py`)."""
    groups: dict[tuple[UOp, ...], list[UOp]] = {}
    for tile, end in tiles.items():
        # A fill that reads another tile waits for that one's fill.
        if not any(u.op is Ops.AFTER and u.src[0] in tiles for u in walk.toposort(end)):
            groups.setdefault(loops_around(end), []).append(tile)
    ready: dict[UOp, UOp] = {}
    pipelined: dict[UOp, Pipelined] = {}
    for loops, group in groups.items():
        if loops and can_be_pipelined(group, tiles):
            pipelined |= filled_ahead(group, tiles, loops)
            continue
        ends = tuple([_waiting(tiles[t]) for t in group])
        ready |= dict.fromkeys(group, intern(Ops.BARRIER, dtypes.void, ends))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.INDEX and u.src[0].op is Ops.AFTER and u.src[0].src[0] in pipelined:
            begin = pipelined[u.src[0].src[0]].begin
            return intern(Ops.INDEX, u.dtype, (src[0], affine.add(src[1], begin)))
        if u.op is not Ops.AFTER:
            return None
        tile = u.src[0]
        if tile in pipelined:
            return pipelined[tile].filled
        if tile not in tiles or tiles[tile] not in u.src[1:]:
            return None
        barrier = ready.get(tile)
        if barrier is None:
            barrier = intern(Ops.BARRIER, dtypes.void, tuple([_waiting(s) for s in src[1:]]))
        return intern(Ops.AFTER, u.dtype, (tile, barrier))

    return rebuild.rewritten(kernel, change)


def _waiting(end: UOp) -> UOp:
    """The fill, after a barrier that follows the reads of the iteration before."""
    loops = loops_around(end)
    if not loops:
        return end
    again = intern(Ops.BARRIER, dtypes.void, loops)
    addresses: dict[UOp, UOp] = {}
    for u in walk.toposort(end):
        if u.op is Ops.STORE and u.src[0].src[0].op is Ops.BUFFER:
            base, *index = u.src[0].src
            free = intern(Ops.AFTER, base.dtype, (base, again))
            addresses[u.src[0]] = intern(Ops.INDEX, u.src[0].dtype, (free, *index))
    return rebuild.rebuild(end, addresses)
