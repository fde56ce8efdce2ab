"""COALESCE: two output loops, one right inside of the other, as one loop over both.

    for h < 4: for w < 4: y[4·h + w] = f(h, w)   →   for i < 16: y[i] = f(⌊i / 4⌋, i mod 4)

What is stored in rows that are shorter than a vector can then fill vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import rebuild as remake
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.passes.analysis.loops import closers, make_range
from uopc.passes.optimize.opts.interchange import other_loop
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def coalesce(kernel: UOp, r: UOp, n: int) -> UOp:
    """Make one loop of r and of output loop number n, the next one inside of it."""
    inner = other_loop(kernel, r, n, "are joined")
    around = {q for u in closers(kernel, r) for q in u.src[1:]}
    if not r.arg.axis < inner.arg.axis or any(
        [r.arg.axis < q.arg.axis < inner.arg.axis for q in around]
    ):
        raise Refused(f"range {n} is not the next one inside")
    if any(q.src[0].op is not Ops.CONST for q in (r, inner)):
        raise Refused("the length of a range is not known")
    for q in (r, inner):
        check_free(kernel, q)
        check_unordered(kernel, q)
    length = inner.src[0]
    both = make_range(affine.mul(r.src[0], length), (*r.arg.axis, 0), "loop")
    values = dict(zip((r, inner), affine.divmod_(both, length)))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u in values:
            return values[u]
        closed = [s for s, old in zip(src, u.src) if old not in values]
        return intern(u.op, u.dtype, (*closed, both), u.arg, u.tag)

    return remake.rewritten(kernel, change, only={*values, *closers(kernel, r)})
