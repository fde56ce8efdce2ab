"""Transposed reads: blocks that are read along their rows and transposed in registers.

An array that exceeds the second-level cache is transposed into a tile, block by block; then all
loops run along memory. Reading several rows of each operand at a time would make each row a stream,
and a processor prefetches few streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.ir.core import bounds, shapes
from uopc.ir.core.uop import UOp
from uopc.ir.index import closed
from uopc.ir.index.dims import dim_uop, typical
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.loops import length_of, likely_of, most_of
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.lanes import chunk, fitting
from uopc.passes.optimize.opts import compute_at
from uopc.passes.optimize.schedule.scheduler import Scheduler


def crossed(
    k: Nest, output: UOp | None, length: Callable[[UOp], int | None] = length_of
) -> UOp | None:
    """The output loop along which a read, or a word of reads, has neighbours, while it has none
    along `output`. None if either loop is too short."""
    if output is None:
        return None
    for a in k.read:
        step = a.stride(output)
        if step is None or -1 <= step <= 1:
            continue
        each = k.neighbours_of(a)
        least = max(1, chunk(a.node.dtype) // each)
        for q in k.outputs:
            if q is not output and q.arg.kind == "loop" and a.stride(q) == each:
                return q if (length(q) or 0) >= least <= (length(output) or 0) else None
    return None


def tile_crossed(s: Scheduler, output: UOp | None, lanes: int) -> UOp | None:
    """Block the loops of transposed reads of a large array, and transpose each block into a tile
    first; copies alone are an alternative. Return the loop inside of a block that replaces
    `output`; None, with nothing applied, if there is no such read."""
    k, before = s.nest, s.state
    other = crossed(k, output, most_of)
    if output is None or other is None or k.reduces or len(k.written) != 1:
        return None
    strided = [a for a in k.read if a.stride(other) == 1 and (a.stride(output) or 0) > 1]
    size = max([_likely_bytes(a) for a in strided], default=0)
    itemsize = max([a.itemsize for a in strided], default=1)
    n = 1 << int(math.log2(s.target.l2_bytes / thresholds.CROSSED_SHARE / itemsize) / 2)
    if size <= s.target.l2_bytes or n < 2 * lanes:
        return None
    if output.arg.axis < other.arg.axis:
        other, output = s.swapped(other, output)
    blocked = [r for r in (other, output) if most_of(r) > n and s.attempt("BLOCK", r, n)]
    at = s.outer(other)
    if output in blocked:
        at = s.swapped(s.inner(other), s.outer(output))[1]
    tiles = 0
    while blocked and (number := _next(s, at)) is not None:
        fill = s.added("COMPUTE_AT", at, number)
        if len(fill) != 2:
            break
        tiles += 1
        s.vectorise(fill[0], lanes)
        for q in s.family(fill[1]):
            s.widen(q, "UPCAST", fitting(lanes, length_of(q)))
    if tiles == 0 or not (_shares_sets(s, k, lanes) or s.pick("transposed tile", True, False)):
        s.state = before
        return None
    return s.inner(output)


def _likely_bytes(a: Access) -> int:
    """The bytes of an access's storage, for typical sizes where a call brings them."""
    size = shapes.size(shapes.shape(a.storage))
    return (typical(size) if closed.is_closed(dim_uop(size)) else bounds.max_dim(size)) * a.itemsize


def _shares_sets(s: Scheduler, k: Nest, lanes: int) -> bool:
    """True if rows side by side, of all arrays and twice as many as are read at once, lack room in
    the sets of the nearest cache: copies then wait for lines again, which no cost sees."""
    steps = [abs(a.stride(r) or 0) * a.itemsize for a in k.accesses for r in a.loops]
    near, rows = s.machine.caches[0], 2 * lanes * len(k.accesses)
    return any([step >= near.line and near.is_crowded(rows, step) for step in steps])


def _next(s: Scheduler, at: UOp) -> int | None:
    """The number of the next element that COMPUTE_AT would read with a stride in a loop."""
    found = compute_at.crossed(s.kernel, at)
    return len(compute_at.stencils(s.kernel, at)) if found else None


def copy_crossed(s: Scheduler, output: UOp | None, lanes: int) -> UOp | None:
    """Block and copy the loops of a transposed read; return the loop that replaces `output`."""
    k = s.nest
    is_small = k.expanded_size() * lanes <= thresholds.MOST_COPIES
    other = crossed(k, output, likely_of) if is_small else None
    if output is None or other is None:
        return None
    if output.arg.axis < other.arg.axis:
        other, output = s.swapped(other, output)
    n = thresholds.CROSSED_BLOCK
    blocks = all((length_of(r) or 1) % n == 0 and length_of(r) != n for r in (other, output))
    if blocks and s.attempt("TILE", other, n) and s.attempt("TILE", output, n):
        other, output = s.swapped(s.inner(other), s.outer(output))[0], s.inner(output)
    for q in s.family(other):
        copy_all(s, q, lanes)
    return output


def copy_all(s: Scheduler, r: UOp, n: int) -> None:
    """Copy the body for n iterations at a time; the rest in half as many copies, and so on."""
    rest: UOp | None = r
    while rest is not None and rest.arg.kind == "loop" and n > 1:
        n = fitting(n, length_of(rest))
        s.widen(rest, "UPCAST", n)
        rest = s.part(rest, 1)
