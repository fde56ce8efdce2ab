"""Simplify a kernel's loops: neighbours become one where no index gets harder.

Before (kernel)                            After (kernel)
  %1 = param "" slot=0 : f32[32]             %1 = param "" slot=0 : f32[32]
  %2 = range 4 axis=0.0 kind=loop : index    %2 = range 32 axis=0.0 kind=loop : index
  %3 = mul %2, 8 : index                     %3 = param "" slot=1 : f32[32]
  %4 = range 8 axis=0.1 kind=loop : index    %4 = exp %3[%2] : f32
  %5 = add %3, %4 : index                    %5 = store %1[%2], %4
  %6 = param "" slot=1 : f32[32]             %6 = end %5, %2
  %7 = exp %6[%5] : f32                      sink %6 name=""
  %8 = store %1[%5], %7
  %9 = end %8, %2, %4
  sink %9 name=""

Fewer, longer loops vectorise better and equal kernels meet more often. Two neighbours i, j merge
into k = i·n + j when the quotients and remainders of k vanish from every index again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import COMPARISONS, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.passes.analysis import counted
from uopc.passes.analysis.loops import make_range
from uopc.passes.contract import Context
from uopc.passes.simplify_ranges.end_at_guards import end_at_guards
from uopc.passes.simplify_ranges.fuse_reduces import with_shared_loops


def simplify_ranges(kernel: UOp, context: Context) -> UOp:
    """Compare counted integers as indices; end loops at guards; put reduces of the same places into
    common loops; merge neighbours, inner pairs first, until none merges."""
    merged: UOp | None = with_shared_loops(end_at_guards(_with_counted_comparisons(kernel)))
    while merged is not None:
        kernel = merged
        pairs = (_merge(kernel, outer, inner) for outer, inner in _neighbours(kernel))
        merged = next((made for made in pairs if made is not None), None)
    return kernel


def _with_counted_comparisons(kernel: UOp) -> UOp:
    """p = cmplt (cast i : i32) 700:i32   →   p = cmplt i 700

    A mask compares in its own dtype: `arange(n) < 700`. A comparison of indices folds in the parts
    of a loop that is split at its breakpoint, and equal ones become one node.
    """
    candidates = {
        u for u in walk.order(kernel)
        if u.op in COMPARISONS and u.src[0].dtype.is_int and ranges.ranges(u)
    }  # fmt: skip
    memo: dict[UOp, UOp | None] = {}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return counted.comparison(u, src, memo)

    return rebuild.rewritten(kernel, change, only=candidates) if candidates else kernel


def _is_closer(u: UOp) -> bool:
    return u.op in (Ops.END, Ops.REDUCE)


def _neighbours(kernel: UOp) -> list[tuple[UOp, UOp]]:
    """Pairs of ranges that the same nodes close, the inner one of each right inside the outer."""
    pairs: dict[tuple[UOp, UOp], None] = {}
    for u in filter(_is_closer, walk.order(kernel)):
        closed = sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis)
        for outer, inner in reversed(list(itertools.pairwise(closed))):
            if outer.arg.kind == inner.arg.kind and not ranges.ranges(inner.src[0]):
                pairs[(outer, inner)] = None
    return list(pairs)


def _merge(kernel: UOp, outer: UOp, inner: UOp) -> UOp | None:
    """Merge two ranges into one. None if an index would get harder, or if no iteration runs: the
    quotients would fold to 0, which would move accesses out of the loop."""
    closers = {u for u in walk.order(kernel) if _is_closer(u) and inner in u.src}
    if any(_is_closer(u) and (outer in u.src) != (u in closers) for u in walk.order(kernel)):
        return None
    n = inner.src[0]
    whole = make_range(affine.mul(outer.src[0], n), outer.arg.axis, outer.arg.kind)
    if bounds.bounds(whole.src[0])[1] <= 0:
        return None
    quotient, remainder = affine.divmod_(whole, n)
    before = _index_divisions(walk.order(kernel))
    fresh = not before and quotient.op is Ops.FLOORDIV and remainder.op is Ops.FLOORMOD
    accesses = [Access(u) for u in walk.order(kernel) if fresh and u.op is Ops.INDEX]
    if any([_stays_divided(a, outer, inner) for a in accesses]):
        return None

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u is outer:
            return quotient
        if u is inner:
            return remainder
        if u in closers:
            kept = [s for s, old in zip(src, u.src) if old is not outer and old is not inner]
            return intern(u.op, u.dtype, (*kept, whole), u.arg, u.tag)
        return None

    merged = rebuild.rewritten(kernel, change, only={outer, inner, *closers})
    return merged if _index_divisions(walk.toposort(merged)) <= before else None


def _stays_divided(a: Access, outer: UOp, inner: UOp) -> bool:
    """True if an access certainly needs the quotient or the remainder of the range that replaces
    two: it does not move by one step of the outer range in all steps of the inner one."""
    step, whole = a.stride(inner), a.stride(outer)
    if step is None or whole is None:
        return False
    return affine.scaled(inner.src[0], step) is not affine.const(whole)


def _index_divisions(nodes: Iterable[UOp]) -> int:
    divisions = (Ops.FLOORDIV, Ops.FLOORMOD)
    return sum(u.op in divisions and u.dtype.scalar is dtypes.index for u in nodes)
