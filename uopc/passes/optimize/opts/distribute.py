"""What a tile of reduces gives, through local storage: the rest is a loop, not a copy for each.

    for k: s0 += …; s1 += …
    y[0] = f(s0); y[1] = f(s1)      →      t[0] = s0; t[1] = s1; for i: y[i] = f(t[i])

The accumulators stand side by side in registers; what is computed from each of them need not, and
where it is a function of many instructions, copies of it cost compile time and gain nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import AxisKind, BufferArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.passes.analysis.loops import is_reduce, kernel_axes, make_range
from uopc.passes.optimize.opts.legality import Refused

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

_COPIED = ("upcast", "lane")


def distribute(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the tile of sums that the reduce over r gives, and loop over it for the rest: in at
    most n copies."""
    if not is_reduce(kernel, r):
        raise Refused("DISTRIBUTE is for reduce loops")
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    closers = [u for u in analysis.order(kernel) if u.op is Ops.REDUCE and r in u.src[1:]]
    if len(closers) != 1:
        raise Refused("the range is not that of one reduce alone")
    (u,) = closers
    around = analysis.ranges(u)
    if any(q.arg.kind not in ("loop", "thread", *_COPIED) for q in around):
        raise Refused("the reduce is inside of another")
    copied = sorted((q for q in around if q.arg.kind in _COPIED), key=_lanes_last)
    if not any(q.arg.kind == "upcast" for q in copied):
        raise Refused("the reduce has no copies side by side")
    nest = 1 + max(q.arg.axis[0] for q in kernel_axes(kernel))  # after all loops there are
    kinds = _kinds(copied, n)
    loops = {q: make_range(q.src[0], (nest, i), kinds[q]) for i, q in enumerate(copied)}
    number = sum(v.op is Ops.BUFFER for v in analysis.order(kernel))
    dims = tuple([int(q.src[0].arg) for q in copied])
    arg = BufferArg(number, (analysis.size(dims),), space="local")
    tile = intern(Ops.BUFFER, u.dtype, (), arg)
    target = intern(Ops.INDEX, u.dtype, (tile, indexing.flat_index(dims, copied)))
    store = intern(Ops.STORE, dtypes.void, (target, u))
    filled = intern(Ops.END, dtypes.void, (store, *copied))
    ready = intern(Ops.AFTER, tile.dtype, (tile, filled))
    place = indexing.flat_index(dims, list(loops.values()))
    return remake.rebuild(kernel, {u: intern(Ops.INDEX, u.dtype, (ready, place)), **loops})


def _lanes_last(q: UOp) -> tuple[bool, tuple[int, ...]]:
    return q.arg.kind == "lane", q.arg.axis


def _kinds(copied: list[UOp], n: int) -> dict[UOp, AxisKind]:
    """What each range of a tile is for the rest: copies, the inner ones first, up to n."""
    kinds: dict[UOp, AxisKind] = {}
    for q in reversed(copied):
        if q.arg.kind == "upcast":
            n //= int(q.src[0].arg)
        kinds[q] = q.arg.kind if q.arg.kind == "lane" or n else "loop"
    return kinds
