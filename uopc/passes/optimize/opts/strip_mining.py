"""VECTOR, UPCAST, UNROLL, TILE, OVERLAP: a loop becomes an outer loop and an inner one.

    VECTOR(0, 8), UPCAST(0, 4):   r → 8·q + lane, q → 4·p + copy   is   r → 32·p + 8·copy + lane

A Tiled notes such strips; reading its kernel makes the graph in one walk. A strip is legal if it is
legal for the whole loop of its range, in the kernel before the noted strips. If the answer may
differ for the range, the graph is made first.
"""

from __future__ import annotations

from typing import NamedTuple

from uopc.forks import cached_property
from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import bounds, dtypes, ranges
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis import loops
from uopc.passes.analysis.iterations import is_ordered
from uopc.passes.analysis.loops import kernel_nodes, make_range, reduces_over
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.steps import unroll_steps

_LANES = ("lane", "warp")


class Strip(NamedTuple):
    """A range, its value in terms of new ranges, and those ranges."""

    range: UOp
    value: UOp
    loops: tuple[UOp, ...]


def quotient_up(value: UOp, n: int) -> UOp:
    """⌈value / n⌉"""
    return affine.floordiv(affine.plus(value, n - 1), affine.const(n))


def smaller(a: UOp, b: UOp) -> UOp:
    """min(a, b)"""
    return a if affine.at_most(a, b) else intern(Ops.MIN, dtypes.index, (a, b))


def clamped(a: UOp, b: UOp) -> UOp:
    """max(min(a, b), 0)"""
    low = smaller(a, b)
    if bounds.bounds(low)[0] >= 0:
        return low
    return intern(Ops.MAX, dtypes.index, (low, affine.const(0)))


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


class Tiled:
    """A kernel, and the noted strips of its ranges."""

    def __init__(self, base: UOp, strips: tuple[Strip, ...] = ()) -> None:
        self.base, self.strips = base, strips

    @cached_property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name: `kernel_axes` of the kernel."""
        found = dict.fromkeys(loops.kernel_axes(self.base))
        for s in self.strips:
            del found[s.range]
            found.update(dict.fromkeys(s.loops))
        return sorted(found, key=loops.by_axis)

    @cached_property
    def kernel(self) -> UOp:
        """The graph with all strips."""
        if not self.strips:
            return self.base
        values: dict[UOp, UOp] = {}
        for s in self.strips:
            loop = self.loop(s.range)
            values[loop] = rebuild.rebuild(values.get(loop, loop), {s.range: s.value})

        def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
            if u in values:
                return values[u]
            closed = dict(zip(u.src[1:], src[1:]))
            for s in self.strips:
                if closed.pop(s.range, None) is not None:
                    closed.update(zip(s.loops, s.loops))
            return intern(u.op, u.dtype, (src[0], *closed.values()), u.arg, u.tag)

        closing = [u for loop in values for u in loops.closers(self.base, loop)]
        return rebuild.rewritten(self.base, change, only={*values, *closing})

    def loop(self, r: UOp) -> UOp:
        """The range of the base that a range is a part of."""
        return self._loops.get(r, r)

    @cached_property
    def _loops(self) -> dict[UOp, UOp]:
        found: dict[UOp, UOp] = {}
        for s in self.strips:
            found.update(dict.fromkeys(s.loops, found.get(s.range, s.range)))
        return found

    def is_compared(self, r: UOp) -> bool:
        """True if a comparison of indices may depend on a range."""
        loop = self.loop(r)
        return any([loop in ranges.ranges(u) for u in kernel_nodes(self.base).comparisons])

    def moves(self, r: UOp) -> bool:
        """True if each store that moves with the loop of r certainly moves with r too: the loop is
        a term of its own in the address."""
        loop = self.loop(r)

        def is_term(index: UOp) -> bool:
            terms = affine.form(index_maps.ungated(index)[0])[1]
            return loop in terms and sum([loop in ranges.ranges(m) for m in terms]) == 1

        stores = [u for u in kernel_nodes(self.base).stores if loop in ranges.ranges(u)]
        indices = [before_effects(u.src[0]).src[1:] for u in stores]
        return r is loop or all(any(map(is_term, index)) for index in indices)


def stripped(kernel: UOp, *strips: Strip) -> UOp:
    """The kernel with the strips in place of their ranges."""
    return Tiled(kernel, strips).kernel


def tile(kernel: Tiled, r: UOp, n: int, kind: AxisKind | None = None) -> Tiled:
    """r  →  outer·n + inner, the inner range of the given kind: None for the kind of r, upcast only
    for output loops, unroll only for reduces and loops that keep their order (n = 0: all)."""
    if kind == "lane":
        kernel = _without_lanes(kernel, r)
    reduced = bool(reduces_over(kernel.base, kernel.loop(r)))
    if kind == "upcast" and reduced:
        raise Refused("UPCAST is for output loops; use UNROLL")
    if kind == "unroll" and not reduced:
        if not is_ordered(kernel.kernel, r):
            raise Refused("UNROLL is for reduce loops; use UPCAST")
        return Tiled(unroll_steps(kernel.kernel, r, n))
    if kind == "unroll" and n == 0:
        n = legality.known_length(r)
    if not kernel.moves(r):
        kernel = Tiled(kernel.kernel)
    loop = kernel.loop(r)
    legality.check_free(kernel.base, loop)
    legality.check_amount(n, 2 if kind in (None, "lane") else 1)
    if kind is not None:  # else the order stays
        legality.check_unordered(kernel.base, loop)
    return Tiled(kernel.base, (*kernel.strips, strip(r, n, kind or r.arg.kind)))


def _without_lanes(kernel: Tiled, r: UOp) -> Tiled:
    """The kernel. Refused if values inside of the range have lanes."""
    loop = kernel.loop(r)
    if loop in kernel_nodes(kernel.base).around_vectors:
        raise Refused("values inside this range are vectors")
    wide = {kernel.loop(q) for s in kernel.strips for q in s.loops if q.arg.kind in _LANES}
    around = [nest for nest in kernel_nodes(kernel.base).nests if loop in nest]
    if any(q in wide or q.arg.kind in _LANES for nest in around for q in nest):
        if kernel.strips:  # a part may have moved out of the loop
            return _without_lanes(Tiled(kernel.kernel), r)
        raise Refused("values inside this range already have lanes")
    return kernel


def overlap(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  min(outer·n, length - n) + lane: the last vector begins n before the end.

    Some elements are computed and written twice, with the same value. One body is then enough for
    every length of at least n.
    """
    _without_lanes(Tiled(kernel), r)
    length = r.src[0]
    if n < 2 or bounds.bounds(length)[0] < n or affine.is_multiple(length, n):
        raise Refused(f"{n} is below 2, exceeds the range or divides it: no vectors overlap")
    if r.arg.kind != "loop" or reduces_over(kernel, r):
        raise Refused("a reduce would add terms twice: OVERLAP is for output loops")
    legality.check_free(kernel, r)
    legality.check_unordered(kernel, r)
    legality.check_not_read(kernel, kernel_nodes(kernel).stores)
    outer = make_range(quotient_up(length, n), (*r.arg.axis, 0), "loop")
    lane = make_range(n, (*r.arg.axis, 1), "lane")
    last = affine.plus(length, -n)
    first = intern(Ops.MIN, dtypes.index, (affine.scaled(outer, n), last))
    return stripped(kernel, Strip(r, affine.add(first, lane), (outer, lane)))
