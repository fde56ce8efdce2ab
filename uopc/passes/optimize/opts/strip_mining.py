"""VECTOR, UPCAST, UNROLL, TILE, OVERLAP: a loop becomes an outer loop and an inner one.

    VECTOR(0, 8), UPCAST(0, 4):   r → 8·q + lane, q → 4·p + copy   is   r → 32·p + 8·copy + lane
"""

from __future__ import annotations

from typing import NamedTuple

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.loops import (
    closers,
    make_range,
    parts,
    reduces_over,
)  # fmt: skip
from uopc.passes.optimize.opts.legality import (
    Refused,
    check_amount,
    check_free,
    check_not_read,
    check_unordered,
)  # fmt: skip


class Strip(NamedTuple):
    """A range, its value in terms of new ranges, and those ranges."""

    range: UOp
    value: UOp
    loops: tuple[UOp, ...]


def quotient_up(value: UOp, n: int) -> UOp:
    """⌈value / n⌉"""
    return affine.floordiv(affine.plus(value, n - 1), affine.const(n))


def strip(r: UOp, n: int, kind: AxisKind, count: UOp | None = None) -> Strip:
    """r  →  outer·n + inner, the inner range of the given kind; only the inner range if the outer
    one has one iteration. Refused if n does not divide r, unless `count` is the outer length."""
    if count is None:
        count, rest = affine.divmod_(r.src[0], affine.const(n))
        if not (rest.op is Ops.CONST and rest.arg == 0):
            raise Refused(f"{n} does not divide the range of {{}}", r.src[0])
    inner = make_range(n, (*r.arg.axis, 1), kind)
    if count.op is Ops.CONST and count.arg == 1:
        return Strip(r, inner, (inner,))
    outer = make_range(count, (*r.arg.axis, 0), r.arg.kind)
    return Strip(r, affine.add(affine.scaled(outer, n), inner), (outer, inner))


def stripped(kernel: UOp, *strips: Strip) -> UOp:
    """The kernel with the strips in place of their ranges."""
    values = {s.range: s.value for s in strips}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u in values:
            return values[u]
        closed = dict(zip(u.src[1:], src[1:]))
        for s in strips:
            if closed.pop(s.range, None) is not None:
                closed.update(zip(s.loops, s.loops))
        return intern(u.op, u.dtype, (src[0], *closed.values()), u.arg, u.tag)

    closing = [u for r in values for u in closers(kernel, r)]
    return rebuild.rewritten(kernel, change, only={*values, *closing})


def tile(kernel: UOp, r: UOp, n: int, kind: AxisKind | None = None) -> UOp:
    """r  →  outer·n + inner, the inner range of the given kind; of that of r for TILE."""
    check_free(kernel, r)
    check_amount(n, 2 if kind in (None, "lane") else 1)
    check_unordered(kernel, r)
    return stripped(kernel, strip(r, n, kind or r.arg.kind))


def vector(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + lane. Refused if something inside has lanes already."""
    _check_no_lanes(kernel, r)
    return tile(kernel, r, n, "lane")


def _check_no_lanes(kernel: UOp, r: UOp) -> None:
    """Refused if values inside of the range have lanes."""
    around = [nest for nest in parts(kernel).nests if r in nest]
    if any(q.arg.kind in ("lane", "warp") for nest in around for q in nest):
        raise Refused("values inside this range already have lanes")


def upcast(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + copy, of an output loop."""
    if reduces_over(kernel, r):
        raise Refused("UPCAST is for output loops; use UNROLL")
    return tile(kernel, r, n, "upcast")


def unroll(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + copy, of a reduce; n = 0 stands for the length of r."""
    if not reduces_over(kernel, r):
        raise Refused("UNROLL is for reduce loops; use UPCAST")
    if n == 0:
        if r.src[0].op is not Ops.CONST:
            raise Refused("the length of the range is not known")
        n = r.src[0].arg
    return tile(kernel, r, n, "unroll")


def overlap(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  min(outer·n, length - n) + lane: the last vector begins n before the end.

    Some elements are computed and written twice, with the same value. One body is then enough for
    every length of at least n.
    """
    _check_no_lanes(kernel, r)
    length = r.src[0]
    if length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the range is not known to have {n} iterations")
    if n < 2 or length.arg % n == 0:
        raise Refused(f"{n} is too small, or divides the range: no vector overlaps another")
    if r.arg.kind != "loop" or reduces_over(kernel, r):
        raise Refused("what a reduce would add twice: only output loops overlap themselves")
    check_free(kernel, r)
    check_unordered(kernel, r)
    check_not_read(kernel, parts(kernel).stores)
    outer = make_range(-(-length.arg // n), (*r.arg.axis, 0), "loop")
    lane = make_range(n, (*r.arg.axis, 1), "lane")
    last = affine.const(length.arg - n)
    first = intern(Ops.MIN, dtypes.index, (affine.scaled(outer, n), last))
    return stripped(kernel, Strip(r, affine.add(first, lane), (outer, lane)))
