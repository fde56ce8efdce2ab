"""Opts that cut loops, noted until somebody looks at the kernel: then they go into it in one walk.

    VECTOR(0, 8), UPCAST(0, 4):   r → 8·q + lane, q → 4·p + copy   is   r → 32·p + 8·copy + lane

What such an Opt asks (what closes a loop, what depends on it) is asked of the kernel as it was
before, about the loop that a range is a part of. Where that is not certain to be the answer for the
part, the kernel is looked at.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import AxisKind
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.index import affine
from uopc.passes.analysis.loops import by_axis, closers, is_reduce, kernel_axes, make_range, parts
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered, replaced

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


_LANES = ("lane", "warp")


class _Step(NamedTuple):
    """A range, its value by the ranges in its place, and these."""

    range: UOp
    value: UOp
    parts: tuple[UOp, ...]


class Tiled:
    """A kernel, and what is to become of its ranges."""

    def __init__(self, base: UOp, steps: tuple[_Step, ...] = ()) -> None:
        self.base, self.steps = base, steps

    @functools.cached_property
    def axes(self) -> list[UOp]:
        """The ranges an Opt can name, as `kernel_axes` of the kernel."""
        found = dict.fromkeys(kernel_axes(self.base))
        for step in self.steps:
            del found[step.range]
            found.update(dict.fromkeys(step.parts))
        return sorted(found, key=by_axis)

    @functools.cached_property
    def kernel(self) -> UOp:
        """The graph with all of it."""
        if not self.steps:
            return self.base
        values: dict[UOp, UOp] = {}
        for step in self.steps:
            loop = self.loop(step.range)
            values[loop] = remake.rebuild(values.get(loop, loop), {step.range: step.value})

        def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
            if u in values:
                return values[u]
            closed = list(u.src[1:])
            for step in self.steps:
                if step.range in closed:
                    closed.remove(step.range)
                    closed += step.parts
            return intern(u.op, u.dtype, (src[0], *closed), u.arg, u.tag)

        closing = [u for loop in values for u in closers(self.base, loop)]
        return remake.rewritten(self.base, change, only={*values, *closing})

    def loop(self, r: UOp) -> UOp:
        """The range of the base that a range is a part of."""
        return self._loops.get(r, r)

    @functools.cached_property
    def _loops(self) -> dict[UOp, UOp]:
        found: dict[UOp, UOp] = {}
        for step in self.steps:
            found.update(dict.fromkeys(step.parts, found.get(step.range, step.range)))
        return found

    def is_compared(self, r: UOp) -> bool:
        """Whether a comparison of indices may depend on a range."""
        loop = self.loop(r)
        return any([loop in analysis.ranges(u) for u in parts(self.base).comparisons])

    def moves(self, r: UOp) -> bool:
        """Whether it is certain that a store moves with a part of a loop if it does with the loop:
        in its place the loop is a term of its own."""
        loop = self.loop(r)
        stores = [u for u in parts(self.base).stores if loop in analysis.ranges(u)]
        return r is loop or all(any(_is_term(i, loop) for i in _indices(u)) for u in stores)


def _indices(store: UOp) -> list[UOp]:
    place = before_effects(store.src[0])
    return [indexing.ungated(i)[0] for i in place.src[1:]]


def _is_term(index: UOp, r: UOp) -> bool:
    terms = affine.form(index)[1]
    return r in terms and not any(r in analysis.ranges(m) for m in terms if m is not r)


def tile(kernel: Tiled, r: UOp, n: int, inner_kind: AxisKind) -> Tiled:
    """r  →  outer·n + inner, the inner one of the given kind. n must divide the range."""
    if not kernel.moves(r):
        kernel = Tiled(kernel.kernel)
    loop = kernel.loop(r)
    check_free(kernel.base, loop)
    if n < (2 if inner_kind == "lane" else 1):
        raise Refused(f"the amount {n} is too small")
    check_unordered(kernel.base, loop)
    return Tiled(kernel.base, (*kernel.steps, _Step(r, *tiles_of(r, n, inner_kind))))


def tile_loop(kernel: Tiled, r: UOp, n: int) -> Tiled:
    """r  →  outer·n + inner, both loops of the kind of r."""
    if n < 2:
        raise Refused(f"the amount {n} is too small")
    return tile(kernel, r, n, r.arg.kind)


def vector(kernel: Tiled, r: UOp, n: int) -> Tiled:
    """r  →  outer·n + lane, where nothing inside has lanes yet."""
    return tile(without_lanes(kernel, r), r, n, "lane")


def without_lanes(kernel: Tiled, r: UOp) -> Tiled:
    """The kernel; Refused where what is computed inside of the range has lanes."""
    loop = kernel.loop(r)
    wide = {kernel.loop(q) for s in kernel.steps for q in s.parts if q.arg.kind in _LANES}
    around = [nest for nest in parts(kernel.base).nests if loop in nest]
    if any(q in wide or q.arg.kind in _LANES for nest in around for q in nest):
        if kernel.steps:  # a part need not be where the loop is
            return without_lanes(Tiled(kernel.kernel), r)
        raise Refused("values inside this range already have lanes")
    return kernel


def upcast(kernel: Tiled, r: UOp, n: int) -> Tiled:
    """r  →  outer·n + copy, of an output loop."""
    if is_reduce(kernel.base, kernel.loop(r)):
        raise Refused("UPCAST is for output loops; use UNROLL")
    return tile(kernel, r, n, "upcast")


def unroll(kernel: Tiled, r: UOp, n: int) -> Tiled:
    """r  →  outer·n + copy, of a reduce; 0: all of it."""
    if not is_reduce(kernel.base, kernel.loop(r)):
        raise Refused("UNROLL is for reduce loops; use UPCAST")
    end = r.src[0]
    if n == 0:
        if end.op is not Ops.CONST:
            raise Refused("the length of the range is not known")
        n = end.arg
    return tile(kernel, r, n, "unroll")


def tiles_of(r: UOp, n: int, inner_kind: AxisKind) -> tuple[UOp, tuple[UOp, ...]]:
    """outer·n + inner, and these: the inner one of the given kind, all of it where n iterations are
    all there are."""
    outer_end, rest = affine.divmod_(r.src[0], affine.const(n))
    if not (rest.op is Ops.CONST and rest.arg == 0):
        raise Refused(f"{n} does not divide the range of {{}}", r.src[0])
    axis, kind = r.arg.axis, r.arg.kind
    inner = make_range(affine.const(n), (*axis, 1), inner_kind)
    if outer_end.op is Ops.CONST and outer_end.arg == 1:
        return inner, (inner,)
    outer = make_range(outer_end, (*axis, 0), kind)
    return affine.add(affine.mul(outer, affine.const(n)), inner), (outer, inner)


def overlap(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  min(outer·n, length - n) + lane: the last vector begins n before the end.

    Some elements are computed and written twice, the same both times: so one body is enough for
    every length from n on.
    """
    without_lanes(Tiled(kernel), r)
    length = r.src[0]
    if length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the range is not known to have {n} iterations")
    if n < 2 or length.arg % n == 0:
        raise Refused(f"{n} is too small, or divides the range: no vector overlaps another")
    if r.arg.kind != "loop" or is_reduce(kernel, r):
        raise Refused("what a reduce would add twice: only output loops overlap themselves")
    check_free(kernel, r)
    check_unordered(kernel, r)
    order = analysis.order(kernel)
    written = {storage_root(u.src[0]) for u in order if u.op is Ops.STORE}
    read = {s for u in order for s in (u.src[1:] if u.op is Ops.STORE else u.src)}
    if any(u.op is Ops.INDEX and storage_root(u) in written for u in read):
        raise Refused("the kernel reads what it writes")
    axis = r.arg.axis
    outer = make_range(affine.const(-(-length.arg // n)), (*axis, 0), "loop")
    lane = make_range(affine.const(n), (*axis, 1), "lane")
    first = affine.scaled(outer, n)
    first = intern(Ops.MIN, dtypes.index, (first, affine.const(length.arg - n)))
    return replaced(kernel, r, affine.add(first, lane), (outer, lane))
