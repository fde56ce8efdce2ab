"""PADTO: a loop grows to a multiple of n, and its accesses are guarded.

    for i < 10: f(i)   →   for i < 12: f(i) where i < 10
"""

from __future__ import annotations

from uopc.ir.builder import alu, index_maps, leaves, rebuild
from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare, values
from uopc.passes.analysis.contraction import PRODUCTS
from uopc.passes.analysis.loops import identity, make_range
from uopc.passes.optimize.opts.legality import Refused, check_amount, check_free, check_unordered
from uopc.passes.optimize.opts.strip_mining import quotient_up


def pad_to(kernel: UOp, r: UOp, n: int) -> UOp:
    """for r < m: f(r)  →  for r < ⌈m / n⌉·n: f(r), where every access has the guard r < m. Beyond m
    a reduce combines its identity."""
    check_amount(n, 2)
    length = r.src[0]
    padded = affine.scaled(quotient_up(length, n), n)
    if padded is length:
        raise Refused(f"{n} divides the range: there is nothing to pad")
    check_free(kernel, r)
    check_unordered(kernel, r)
    wide = make_range(padded, (*r.arg.axis, 0), r.arg.kind)
    known = values.length(length)  # where the loop runs
    guard = compare.less(wide, length if known is None else affine.const(known))

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is r:
            return wide
        if u.op is Ops.REDUCE and r in u.src[1:]:
            return intern(Ops.REDUCE, u.dtype, (_inside(u, src[0], wide, guard), *src[1:]), u.arg)
        if u.op is Ops.INDEX and r in ranges.ranges(u):
            return guarded(u, src, guard)
        return None

    return rebuild.rewritten(kernel, change)


def guarded(u: UOp, src: tuple[UOp, ...], guard: UOp) -> UOp:
    """The INDEX u on new sources, under a guard besides its own."""
    flat, own = index_maps.ungated(src[1])
    both = guard if own is None else index_maps.both(own, guard)
    return intern(Ops.INDEX, u.dtype, (src[0], *index_maps.gated((flat,), both)))


def _inside(reduce: UOp, body: UOp, r: UOp, guard: UOp) -> UOp:
    """The term of a reduce where the guard holds, its identity elsewhere. In a sum of products both
    factors become 0, so that it stays a sum of products."""
    if reduce.arg.op == "add" and body.op in PRODUCTS:
        return intern(body.op, body.dtype, tuple([_or_zero(f, r, guard) for f in body.src]))
    return alu.where(guard, body, identity(reduce))


def _or_zero(value: UOp, r: UOp, guard: UOp) -> UOp:
    """The value where the guard holds, 0 elsewhere. A guarded access is 0 there already."""
    if value.op is Ops.INDEX and r in ranges.ranges(value):
        return value
    if value.op is Ops.CAST:
        return intern(Ops.CAST, value.dtype, (_or_zero(value.src[0], r, guard),))
    return alu.where(guard, value, leaves.const(value.dtype, 0))
