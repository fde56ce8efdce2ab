"""Spell out the copies and lanes: no upcast, unroll or lane ranges remain.

Before (kernel)                              After (vector)
  %1 = param "" slot=0 : f32[64]               %1 = param "" slot=0 : f32[64]
  %2 = range 8 axis=0.0.0 kind=loop : index    %2 = range 8 axis=0.0.0 kind=loop : index
  %3 = mul %2, 8 : index                       %3 = mul %2, 8 : index
  %4 = range 8 axis=0.0.1 kind=lane : index    %4 = lanes count=8 : indexx8
  %5 = add %3, %4 : index                      %5 = add %3, %4 : indexx8
  %6 = param "" slot=1 : f32[64]               %6 = param "" slot=1 : f32[64]
  %7 = mul %6[%5], 2.0:f32 : f32               %7 = mul %6[%5]:f32x8, 2.0:f32 : f32x8
  %8 = store %1[%5], %7                        %8 = store %1[%5]:f32x8, %7
  %9 = end %8, %2, %4                          %9 = end %8, %2
  sink %9 name=E_64 opts=(VECTOR(0, 8),)       sink %9 name=E_64 opts=(VECTOR(0, 8),)

A node is expanded by memo on (node, the copy of each unrolled range it is inside of): what does not
depend on a range is not copied. A reduce gets one accumulator a copy, combined after the loop, and
its lanes are combined last. On a GPU the sums of SHAPED_WMMAs become WMMAs of what each lane of a
warp has of their tiles (`fragments.py`); elsewhere the product is computed in loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, build, dtypes, steps
from uopc.ir.levels import KERNEL, VECTOR
from uopc.ir.node import intern
from uopc.ir.ops import Op, Ops
from uopc.ir.remake import remake
from uopc.passes.contract import Context, Pass
from uopc.passes.fragments import Fragments, fragments, is_tensor_sum
from uopc.passes.shared_tiles import filled_together

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

_COPIED = ("upcast", "unroll")
Key = tuple["UOp", tuple[int, ...]]
Step = Generator[list[Key], list["UOp"], "UOp"]


class _Expansion:
    def __init__(self, kernel: UOp, tensor_cores: bool) -> None:
        self.memo: dict[Key, UOp] = {}
        self.copied: dict[UOp, tuple[UOp, ...]] = {}
        self.fragments: dict[UOp, Fragments] = {}
        self.places: dict[UOp, UOp] = {}  # row or column of a tile -> where a lane has it
        self.lane: dict[UOp, UOp] = {}  # row or column of a tile -> the lanes of its warp
        shared = filled_together(analysis.order(kernel)) if tensor_cores else {}
        for u in analysis.order(kernel) if tensor_cores else ():
            if u.op is Ops.SHAPED_WMMA:
                made = self.fragments[u] = fragments(u, shared)
                self.places |= made.places
                self.lane |= dict.fromkeys(made.places, made.lane)

    def copied_ranges(self, u: UOp) -> tuple[UOp, ...]:
        """The unrolled ranges around a node, in a fixed order."""
        found = self.copied.get(u)
        if found is None:
            wide = [r for r in analysis.ranges(u) if r.arg.kind in _COPIED]
            found = self.copied[u] = tuple(sorted(wide, key=lambda r: r.arg.axis))
        return found

    def key(self, u: UOp, where: dict[UOp, int]) -> Key:
        return u, tuple([where[r] for r in self.copied_ranges(u)])

    def expand(self, root: UOp) -> UOp:
        return steps.computed((root, ()), lambda key: self._step(*key), self.memo)

    def _step(self, u: UOp, copy: tuple[int, ...]) -> Step:
        where = dict(zip(self.copied_ranges(u), copy))
        if u.op is Ops.RANGE and u.arg.kind in _COPIED:
            return affine.const(where[u])
        if u.op is Ops.RANGE and u.arg.kind == "lane":
            n = u.src[0].arg
            return intern(Ops.LANES, dtypes.index.vec(n), (), n)
        if u in self.places:
            (place,) = yield [self.key(self.places[u], where)]
            return place
        if is_tensor_sum(u) and u.src[0] in self.fragments:
            return (yield from self._tensor_sum(u, where))
        if u.op in (Ops.REDUCE, Ops.END):
            return (yield from self._close(u, where))
        if not u.src:
            return u
        if u.op is Ops.SHAPED_WMMA:
            a, b = yield [self.key(s, where) for s in u.src[:2]]
            return build.alu(build.cast(a, u.dtype), Ops.MUL, build.cast(b, u.dtype))
        src = tuple((yield [self.key(s, where) for s in u.src]))
        return _remade(u, src)

    def _close(self, u: UOp, where: dict[UOp, int]) -> Step:
        """A REDUCE or END: one for each copy of the ranges that it closes."""
        closed = analysis.closed_ranges(u)
        lanes = [r for r in closed if r.arg.kind == "lane"]
        wide = _copies_in_order([r for r in closed if r.arg.kind in _COPIED], lanes)
        loops = [r for r in closed if r not in wide and r not in lanes]
        copies = [
            where | dict(zip(wide, at))
            for at in itertools.product(*[range(r.src[0].arg) for r in wide])
        ]
        keys = [self.key(u.src[0], at) for at in copies]
        loops = list(dict.fromkeys([self.lane.get(r, r) for r in loops]))
        got = yield keys + [self.key(r, where) for r in loops]
        bodies, ranges = got[: len(keys)], tuple(got[len(keys) :])
        if u.op is Ops.END:
            body = bodies[0] if len(bodies) == 1 else intern(Ops.GROUP, dtypes.void, tuple(bodies))
            return intern(Ops.END, dtypes.void, (body, *ranges)) if ranges else body
        return _combine(u, bodies, ranges, lanes)

    def _tensor_sum(self, u: UOp, where: dict[UOp, int]) -> Step:
        """The sum of SHAPED_WMMAs: all copies of a tile's depth go to one accumulator."""
        tile = self.fragments[u.src[0]]
        closed = [r for r in analysis.closed_ranges(u) if r is not u.src[0].src[4]]
        wide = _copies_in_order([r for r in closed if r.arg.kind in _COPIED], [])
        loops = [r for r in closed if r not in wide]
        copies = [
            where | dict(zip(wide, at))
            for at in itertools.product(*[range(r.src[0].arg) for r in wide])
        ]
        keys = [self.key(x, at) for at in copies for x in (tile.a, tile.b)]
        got = yield [*keys, self.key(tile.lane, {}), *[self.key(r, where) for r in loops]]
        lane, ranges = got[len(keys)], tuple(got[len(keys) + 1 :])
        of_a, of_b, count = tile.counts
        t = u.dtype.vec(count)
        bodies = [
            intern(Ops.WMMA, t, (_lanes_of(a, of_a), _lanes_of(b, of_b), lane), tile.shape)
            for a, b in zip(got[: len(keys) : 2], got[1 : len(keys) : 2])
        ]
        total = bodies[0]
        for body in bodies[1:]:
            total = intern(Ops.ADD, t, (total, body))
        return intern(Ops.REDUCE, t, (total, *ranges), u.arg) if ranges else total


def _copies_in_order(wide: list[UOp], lanes: list[UOp]) -> list[UOp]:
    """The ranges of copies, slowest first: copies of vectors side by side come one after another.

    In a tile of rows by vectors that keeps one row's elements and all vectors in registers at a
    time; the other way round, all rows' elements would be alive at once.
    """

    def shared(r: UOp) -> int:
        return max([_common(r.arg.axis, q.arg.axis) for q in lanes], default=0)

    return sorted(wide, key=lambda r: (shared(r), r.arg.axis))


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How long the common beginning of two axes is."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _lanes_of(b: UOp, n: int) -> UOp:
    """A value with n lanes: one that has none is the same in each."""
    return b if b.dtype.lanes == n else intern(Ops.STACK, b.dtype.vec(n), (b,) * n)


def _combine(u: UOp, bodies: list[UOp], ranges: tuple[UOp, ...], lanes: list[UOp]) -> UOp:
    """The accumulators of a reduce, combined pairwise, then their lanes."""
    op = u.arg.op
    if lanes:
        n = lanes[0].src[0].arg
        bodies = [_lanes_of(b, n) for b in bodies]
    parts = bodies
    if ranges:
        parts = [intern(Ops.REDUCE, b.dtype, (b, *ranges), u.arg) for b in bodies]
    while len(parts) > 1:
        pairs = [build.alu(a, Op.by_name(op), b) for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[len(parts) - len(parts) % 2 :]
    return intern(Ops.HREDUCE, u.dtype, (parts[0],), op) if lanes else parts[0]


def _remade(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """The node on its expanded sources, as wide as the widest of them."""
    if src == u.src:
        return u
    if u.op is Ops.INDEX:
        wide = max([s.dtype.lanes for s in src[1:]])
        return intern(Ops.INDEX, u.dtype.scalar.vec(wide), src)
    if u.op in (Ops.CAST, Ops.BITCAST):
        return remake(intern(u.op, u.dtype.scalar.vec(src[0].dtype.lanes), src), src)
    return remake(u, src)


def expand(kernel: UOp, context: Context) -> UOp:
    return _Expansion(kernel, context.target.gpu is not None).expand(kernel)


PASS = Pass("expand", KERNEL, VECTOR, expand, "kernel", reassociates=True)
