"""PADTO: a loop grows to a multiple of n, and its accesses are guarded.

for i < 10: f(i)   →   for i < 12: f(i) where i < 10
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import alu as build
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, semantics
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def pad_to(kernel: UOp, r: UOp, n: int) -> UOp:
    """for r < m: f(r)  →  for r < ⌈m / n⌉·n: f(r), with every access under the guard r < m; what a
    reduce adds beyond m is 0, or what its operation has in place of it."""
    length = r.src[0]
    if n < 2:
        raise Refused(f"the amount {n} is too small")
    blocks = affine.floordiv(affine.plus(length, n - 1), affine.const(n))
    padded = affine.scaled(blocks, n)
    if padded is length:
        raise Refused(f"{n} divides the range: there is nothing to pad")
    check_free(kernel, r)
    check_unordered(kernel, r)
    wide = make_range(padded, (*r.arg.axis, 0), r.arg.kind)
    guard = affine.less(wide, length)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is r:
            return wide
        if u.op is Ops.REDUCE and r in u.src[1:]:
            return intern(Ops.REDUCE, u.dtype, (_inside(u, src[0], wide, guard), *src[1:]), u.arg)
        if u.op is not Ops.INDEX or r not in analysis.ranges(u):
            return None
        flat, own = indexing.ungated(src[1])
        both = guard if own is None else indexing.both(own, guard)
        return intern(Ops.INDEX, u.dtype, (src[0], *indexing.gated((flat,), both)))

    return remake.rewritten(kernel, change)


def _inside(reduce: UOp, body: UOp, r: UOp, guard: UOp) -> UOp:
    """What a reduce combines, where the guard holds; beyond, what changes nothing. In a sum of
    products that is 0 for both factors, so that it is one still."""
    if reduce.arg.op == "add" and body.op is Ops.MUL:
        return intern(Ops.MUL, body.dtype, tuple([_or_zero(f, r, guard) for f in body.src]))
    other = build.const(body.dtype, semantics.reduce_identity(reduce.arg.op, reduce.dtype))
    return build.where(guard, body, other)


def _or_zero(value: UOp, r: UOp, guard: UOp) -> UOp:
    """A value, 0 where the guard does not hold: an access in the loop is that already."""
    if value.op is Ops.INDEX and r in analysis.ranges(value):
        return value
    if value.op is Ops.CAST:
        return intern(Ops.CAST, value.dtype, (_or_zero(value.src[0], r, guard),))
    return build.where(guard, value, build.const(value.dtype, 0))
