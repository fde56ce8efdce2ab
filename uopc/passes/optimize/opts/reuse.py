"""REUSE: the terms of a reduce, stored in a tile for another loop that computes them again.

    for i: s = sum(exp(x[i, r]) for r); for j: y[i, j] = exp(x[i, j]) / s
    →  for i: for r: t[r] = exp(x[i, r]), s += t[r]; for j: y[i, j] = t[j] / s

The loop of the reduce also stores its terms: the REDUCE and the END of the store close one range.
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import is_free, most_of
from uopc.ir.nest.nest import nest_of
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.local_tile import local_tile

# The largest tile, in bytes. A larger one leaves the nearest caches between its loops.
MOST_BYTES = 128 << 10


def find_recomputed(kernel: UOp, r: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """The term of the reduce over r, and the equal terms in other loops, each with its loop."""
    reduce = legality.only_reduce(kernel, r)
    if len(reduce.src) != 2:
        raise Refused("a reduce must close the range alone")
    value, nodes = reduce.src[0], walk.order(kernel)
    around = [ranges.ranges(u) for u in nodes if u.op is value.op and u.dtype is value.dtype]
    others = ranges.ranges(value) - {r}
    found: dict[UOp, UOp] = {}
    below = walk.toposort(value, gate=lambda u: r in ranges.ranges(u))
    moving = [u for u in below if r in ranges.ranges(u)]  # all others are the same in any loop
    for q in nest_of(kernel).axes:
        alike = q is not r and q.src[0] is r.src[0] and q.arg.kind in ("loop", "reduce")
        if alike and others | {q} in around:
            term = rebuild.rebuild(value, {r: q}, moving)
            if term in nodes and q in ranges.ranges(term):
                found[term] = q
    return value, found


def reuse(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the terms of the reduce over r in a tile, for other loops that compute equal terms."""
    if not nest_of(kernel).reduces_over(r):
        raise Refused("REUSE is for reduce loops")
    legality.check_no_amount(n)
    value, found = find_recomputed(kernel, r)
    if not found:
        raise Refused("no other loop computes the terms of the reduce")
    if any(q.arg.kind in ("upcast", "unroll", "lane") for q in ranges.ranges(value)):
        raise Refused("copies of the loop would share the tile")
    length = most_of(r) if is_free(r) else legality.known_length(r)
    legality.check_ahead(kernel, value)
    tile = local_tile(kernel, value.dtype, [length], most=MOST_BYTES).fill([r], value)
    return rebuild.rebuild(kernel, {v: tile.at([q]) for v, q in found.items()})
