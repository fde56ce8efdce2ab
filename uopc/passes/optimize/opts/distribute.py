"""DISTRIBUTE: loop distribution after a register tile.

    for k: s0 += …; s1 += …
    y[0] = f(s0); y[1] = f(s1)      →      t[0] = s0; t[1] = s1; for i: y[i] = f(t[i])

The accumulators stay side by side in registers. The code after them becomes a loop over a local
tile: copies of a function of many instructions cost compile time and gain nothing.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.loops import make_range, reduces_over
from uopc.passes.optimize.opts.legality import Refused, check_amount, only_reduce
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest

_COPIED = ("upcast", "lane")


def distribute(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the sums of the reduce over r in a tile; the rest becomes loops of up to n copies."""
    if not reduces_over(kernel, r):
        raise Refused("DISTRIBUTE is for reduce loops")
    check_amount(n)
    u = only_reduce(kernel, r)
    around = ranges.ranges(u)
    if any(q.arg.kind not in ("loop", "thread", *_COPIED) for q in around):
        raise Refused("the reduce is inside of another")
    copied = [q for q in around if q.arg.kind in _COPIED]
    copied.sort(key=lambda q: (q.arg.kind == "lane", q.arg.axis))
    if not any(q.arg.kind == "upcast" for q in copied):
        raise Refused("the reduce has no copies side by side")
    nest, loops = next_nest(kernel), {}
    for i, q in reversed(list(enumerate(copied))):  # up to n inner copies stay copies
        if q.arg.kind == "upcast":
            n //= int(q.src[0].arg)
        kind: AxisKind = q.arg.kind if q.arg.kind == "lane" or n else "loop"
        loops[q] = make_range(q.src[0], (nest, i), kind)
    tile = local_tile(kernel, u.dtype, [int(q.src[0].arg) for q in copied]).fill(copied, u)
    return rebuild.rebuild(kernel, {u: tile.at([loops[q] for q in copied]), **loops})
