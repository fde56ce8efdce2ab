"""COALESCE: two output loops, one right inside of the other, become one loop.

    for h < 4: for w < 4: y[4·h + w] = f(h, w)   →   for i < 16: y[i] = f(⌊i / 4⌋, i mod 4)

Rows that are shorter than a vector then fill vectors.
"""

from __future__ import annotations

from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts.interchange import other_loop
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered, known_length
from uopc.passes.optimize.opts.substitution import Part, substituted


def coalesce(kernel: UOp, r: UOp, n: int) -> UOp:
    """Merge r with output loop number n, which is right inside of r, into one loop."""
    inner = other_loop(kernel, r, n, "are joined")
    between = [q for u in nest_of(kernel).closers(r) for q in u.src[1:]
               if r.arg.axis < q.arg.axis < inner.arg.axis]  # fmt: skip
    if not r.arg.axis < inner.arg.axis or between:
        raise Refused(f"range {n} is not the next range inside")
    length = known_length(r) * known_length(inner)
    for q in (r, inner):
        check_free(kernel, q)
        check_unordered(kernel, q)
    both = make_range(length, (*r.arg.axis, 0), "loop")
    row, column = affine.divmod_(both, inner.src[0])
    return substituted(kernel, {r: Part(row, (both,)), inner: Part(column, ())})
