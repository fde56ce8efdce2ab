"""DISTRIBUTE: loop distribution after a register tile.

    for k: s0 += …; s1 += …
    y[0] = f(s0); y[1] = f(s1)      →      t[0] = s0; t[1] = s1; for i: y[i] = f(t[i])

The accumulators stay side by side in registers. The code after them becomes a loop over a local
tile: copies of a function of many instructions cost compile time and gain nothing. Other reduces
with some of the same copies (the columns at an edge, a product that is added) get tiles, too:
inside of the loop they would have one accumulator.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.loops import kernel_nodes, make_range, reduces_over
from uopc.passes.optimize.opts.legality import Refused, check_amount, only_reduce
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest

_COPIED = ("upcast", "lane")


def distribute(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the sums of the reduce over r in a tile; the rest becomes loops of up to n copies."""
    if not reduces_over(kernel, r):
        raise Refused("DISTRIBUTE is for reduce loops")
    check_amount(n)
    u = only_reduce(kernel, r)
    found = {v: _copied(v) for v in (u, *_beside(kernel, u))}
    stored = [s for s in kernel_nodes(kernel).stores if s.src[1] is u]
    if any(storage_root(s.src[0]).op is Ops.BUFFER for s in stored):
        raise Refused("the sums are in a tile")
    order = sorted(
        {q for copied in found.values() for q in copied},
        key=lambda q: (q.arg.kind == "lane", q.arg.axis),
    )
    nest = next_nest(kernel)
    loops: dict[UOp, UOp] = {}
    given: dict[UOp, UOp] = {}
    for v, copied in found.items():
        left = n
        for q in reversed(copied):  # up to n inner copies stay copies
            if q.arg.kind == "upcast":
                left //= int(q.src[0].arg)
            kind: AxisKind = q.arg.kind if q.arg.kind == "lane" or left else "loop"
            loops.setdefault(q, make_range(q.src[0], (nest, order.index(q)), kind))
        dims = [int(q.src[0].arg) for q in copied]
        tile = local_tile(kernel, v.dtype, dims, beside=len(given)).fill(copied, v)
        given[v] = tile.at([loops[q] for q in copied])
    return rebuild.rebuild(kernel, {**given, **loops})


def _copied(u: UOp) -> list[UOp]:
    """The copies and lanes around a reduce, outer ones first."""
    around = ranges.ranges(u)
    if any(q.arg.kind not in ("loop", "thread", *_COPIED) for q in around):
        raise Refused("the reduce is inside of another")
    copied = [q for q in around if q.arg.kind in _COPIED]
    copied.sort(key=lambda q: (q.arg.kind == "lane", q.arg.axis))
    if not any(q.arg.kind == "upcast" for q in copied):
        raise Refused("the reduce has no copies side by side")
    return copied


def _beside(kernel: UOp, u: UOp) -> list[UOp]:
    """The other reduces in copies of the same loops: neither is a part of the other."""
    copies = {q for q in ranges.ranges(u) if q.arg.kind == "upcast"}
    others = [v for v in kernel_nodes(kernel).reduces if not copies.isdisjoint(ranges.ranges(v))]
    below = walk.toposort(u)
    return [v for v in others if v not in below and u not in walk.toposort(v)]
