"""What a reduce adds up, kept for whoever computes the same again in another loop.

    for i: s = sum(exp(x[i, r]) for r); for j: y[i, j] = exp(x[i, j]) / s
    →  for i: for r: t[r] = exp(x[i, r]), s += t[r]; for j: y[i, j] = t[j] / s

The loop of the reduce stores what it adds up: one loop, closed by the END of the store too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import BufferArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.passes.analysis.loops import is_reduce, kernel_axes
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.packing import checked_value

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

# A tile larger than this leaves the nearest caches between its loops.
MOST_BYTES = 128 << 10


def again(kernel: UOp, r: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """What the reduce over r adds up, and the same value in other loops: by value, its loop."""
    closers = [u for u in analysis.order(kernel) if u.op is Ops.REDUCE and r in u.src[1:]]
    if len(closers) != 1 or len(closers[0].src) != 2:
        raise Refused("the range is not that of one reduce alone")
    value = closers[0].src[0]
    alike: dict[frozenset[UOp], list[UOp]] = {}  # by the loops they are in
    for u in analysis.order(kernel):
        if u.op is value.op and u.dtype is value.dtype:
            alike.setdefault(analysis.ranges(u), []).append(u)
    others = analysis.ranges(value) - {r}
    found: dict[UOp, UOp] = {}
    for q in kernel_axes(kernel):
        if q is not r and q.src[0] is r.src[0] and q.arg.kind in ("loop", "reduce"):
            same = [u for u in alike.get(others | {q}, ()) if _becomes(value, u, r, q)]
            found |= dict.fromkeys(same, q)
    return value, found


def _becomes(value: UOp, other: UOp, r: UOp, q: UOp) -> bool:
    """Whether `other` is the value with q in place of r. Mostly it is seen at once that not: what
    does not depend on r is the same node in both."""
    stack, seen = [(value, other)], {(value, other)}
    while stack:
        u, v = stack.pop()
        inside = r in analysis.ranges(u)
        if not inside or u.dtype.scalar is dtypes.index:
            if (remake.rebuild(u, {r: q}) if inside else u) is not v:
                return False
            continue
        if (u.op, u.dtype, u.arg, len(u.src)) != (v.op, v.dtype, v.arg, len(v.src)):
            return False
        pairs = set(zip(u.src, v.src)) - seen
        seen |= pairs
        stack += pairs
    return True


def reuse(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store what the reduce over r adds up into a local tile, read where it was computed again."""
    if not is_reduce(kernel, r):
        raise Refused("REUSE is for reduce loops")
    if n != 0:
        raise Refused(f"the amount is {n}, expected 0")
    value, found = again(kernel, r)
    if not found:
        raise Refused("no other loop computes what the reduce adds up")
    if any(q.arg.kind in ("upcast", "unroll", "lane") for q in analysis.ranges(value)):
        raise Refused("copies of the loop would share the tile")
    if r.src[0].op is not Ops.CONST:
        raise Refused("the length of the loop is not known")
    checked_value(kernel, value, [r])
    size = r.src[0].arg
    if size * value.dtype.itemsize > MOST_BYTES:
        raise Refused(f"a tile of {size} elements is too large")
    number = sum(u.op is Ops.BUFFER for u in analysis.order(kernel))
    tile = intern(Ops.BUFFER, value.dtype, (), BufferArg(number, (size,), space="local"))
    target = intern(Ops.INDEX, value.dtype, (tile, r))
    filling = intern(Ops.END, dtypes.void, (intern(Ops.STORE, dtypes.void, (target, value)), r))
    ready = intern(Ops.AFTER, tile.dtype, (tile, filling))
    read = {v: intern(Ops.INDEX, value.dtype, (ready, q)) for v, q in found.items()}
    return remake.rebuild(kernel, read)
