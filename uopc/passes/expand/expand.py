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

A node has one copy per iteration of the unrolled ranges around it; a node that does not depend on a
range is not copied. A reduce gets one accumulator per copy, combined after the loop; its lanes are
combined last. On a GPU the sums of SHAPED_WMMAs become WMMAs on the fragments of their tiles that
the lanes of a warp hold (`fragments.py`), on a CPU with a matrix unit WMMAs on whole tiles
(`analysis/matrix_tiles.py`); elsewhere loops compute the product.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from uopc.ir.builder import alu, fold
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.nest.arithmetic import SIDE_BY_SIDE, is_chained, is_shared
from uopc.passes.analysis.lanes import splat
from uopc.passes.analysis.loops import combined, ended
from uopc.passes.contract import Context
from uopc.passes.expand.stores_together import together
from uopc.passes.expand.widen import widened
from uopc.passes.expand.words import Sums, in_words

if TYPE_CHECKING:  # few kernels have any
    from uopc.passes.expand.fragments import Fragments

_COPIED = ("upcast", "unroll")
Ranges = tuple["UOp", ...]
Copy = TypeVar("Copy")


class _Expansion:
    """The copies of every node, made sources first: one per combination of iterations of the
    unrolled ranges around it, the last range fastest."""

    def __init__(self, kernel: UOp, context: Context) -> None:
        self.kernel, self.context = kernel, context
        on_gpu = context.target.gpu is not None
        self.register = 0 if on_gpu else context.target.vector_bits  # for stores of vectors
        self.made: dict[UOp, list[UOp]] = {}
        self.sums: dict[UOp, list[affine.Form]] = {}  # the copies of sums of indices, not yet made
        self._sorted: dict[frozenset[UOp], Ranges] = {}
        self._picked: dict[tuple[Ranges, Ranges], list[int]] = {}
        self.fragments: dict[UOp, Fragments] = {}
        self.targets: dict[UOp, dtypes.DType] = {}  # addresses of whole tiles
        if Ops.SHAPED_WMMA in walk.ops(kernel):
            from uopc.passes.expand import fragments  # few kernels have any

            self.fragments, self.targets = fragments.of_kernel(kernel, context.target)
        self.positions: dict[UOp, UOp] = {}  # range of a tile's rows or columns -> that of a lane
        self.lane: dict[UOp, UOp] = {}  # range of a tile's rows or columns -> lanes of its warp
        for made in self.fragments.values():
            self.positions |= made.positions
            self.lane |= dict.fromkeys(made.positions, made.lane)

    def expand(self) -> UOp:
        for u in self._sources_first():
            if u in self.fragments:  # its REDUCE is made of the fragments
                continue
            if self._is_sum(u):
                wide = self.copied_ranges(u)
                columns = [self._picked_of(s, wide, self._forms(s)) for s in u.src]
                self.sums[u] = [_form_of(u.op, forms) for forms in zip(*columns)]
            else:
                self.made[u] = self._copies(u)
        return self.made[self.kernel][0]

    # A sum of n terms is n - 1 nodes. Their normal form is made once, where something else reads
    # the last one.
    def _is_sum(self, u: UOp) -> bool:
        """True for a changing sum of indices whose terms all have a normal form."""
        if u.op not in affine.LINEAR_OPS or u.dtype.scalar is not dtypes.index:
            return False
        made = [self.made.get(s) for s in u.src]
        if all([m is not None and m[0] is s for s, m in zip(u.src, made)]):
            return False
        return not any([v.op in fold.UNUSUAL for m in made if m is not None for v in m])

    def _forms(self, u: UOp) -> list[affine.Form]:
        return self.sums[u] if u in self.sums else [affine.form(v) for v in self.made[u]]

    def _values(self, u: UOp) -> list[UOp]:
        if u not in self.made:
            self.made[u] = [affine.build(*form) for form in self.sums[u]]
        return self.made[u]

    def _sources_first(self) -> Mapping[UOp, None]:
        """Sources first; the values that replace parts of tiles come before the tiles' readers."""
        if not self.fragments:
            return walk.order(self.kernel)
        done: dict[UOp, None] = {}
        tiles = self.fragments.values()
        for u in [*self.lane.values(), *self.positions.values()]:
            walk.toposort(u, done=done)
        for u in [t for f in tiles for t in (f.lane, f.a, f.b)] + [self.kernel]:
            walk.toposort(u, lambda n: n not in self.fragments, done)
        return done

    def copied_ranges(self, u: UOp) -> Ranges:
        """The unrolled ranges around a node, in a fixed order."""
        around = ranges.ranges(u)
        if around not in self._sorted:
            wide = [r for r in around if r.arg.kind in _COPIED]
            self._sorted[around] = tuple(sorted(wide, key=lambda r: r.arg.axis))
        return self._sorted[around]

    def copy(self, u: UOp, where: dict[UOp, int]) -> UOp:
        """The copy of a node at an iteration of each range around it."""
        at = 0
        for r in self.copied_ranges(u):
            at = at * ranges.length(r) + where[r]
        return self._values(u)[at]

    def _column(self, u: UOp, wide: Ranges) -> list[UOp]:
        """For each copy of a user inside the ranges `wide`, the copy of the node that it reads."""
        return self._picked_of(u, wide, self._values(u))

    def _picked_of(self, u: UOp, wide: Ranges, made: list[Copy]) -> list[Copy]:
        """Of the copies of a node, that of each copy of a user inside the ranges `wide`."""
        own = self.copied_ranges(u)
        if own == wide:
            return made
        picked = self._picked.get((own, wide))
        if picked is None:
            picked = [0]
            for r in wide:
                faster = own[own.index(r) + 1 :] if r in own else ()
                step = math.prod(map(ranges.length, faster)) if r in own else 0
                picked = [i + step * k for i in picked for k in range(ranges.length(r))]
            self._picked[(own, wide)] = picked
        return [made[i] for i in picked]

    def _copies(self, u: UOp) -> list[UOp]:
        wide = self.copied_ranges(u)
        if u.op is Ops.RANGE and u.arg.kind in _COPIED:
            at = wide.index(u)
            return [affine.const(counts[at]) for counts in _iterations(wide)]
        if u.op is Ops.RANGE and u.arg.kind == "lane":
            n = ranges.length(u)
            return [intern(Ops.LANES, dtypes.index.vec(n), (), n)]
        if _runs_once(u):
            return [affine.const(0)]
        if u in self.positions:
            return self._column(self.positions[u], wide)
        if u.op in (Ops.REDUCE, Ops.END):
            close = self._tensor_sum if u.src[0] in self.fragments else self._close
            return [close(u, dict(zip(wide, at))) for at in _iterations(wide)]
        if not u.src:
            return [u]
        columns = [self._column(s, wide) for s in u.src]
        if u.op is Ops.SHAPED_WMMA:
            from uopc.passes.expand.fragments import product

            return [product(u, a, b) for a, b in zip(*columns[:2])]
        if u in self.targets:
            return [intern(Ops.INDEX, self.targets[u], src) for src in zip(*columns)]
        return [widened(u, src) for src in zip(*columns)]

    def _close(self, u: UOp, where: dict[UOp, int]) -> UOp:
        """The copy of a REDUCE or END at an iteration of the unrolled ranges around it. The copies
        of a reduce's body have accumulators, which are combined after the loop; then the lanes."""
        closed = ranges.closed_ranges(u)
        lanes = [r for r in closed if r.arg.kind == "lane"]
        wide = _copies_in_order([r for r in closed if r.arg.kind in _COPIED], lanes)
        loops = [r for r in closed if r not in wide and r not in lanes and not _runs_once(r)]
        bodies = [self.copy(u.src[0], where | dict(zip(wide, at))) for at in _iterations(wide)]
        loops = list(dict.fromkeys([self.lane.get(r, r) for r in loops]))
        loops = [r for r in loops if r.op is Ops.RANGE]
        closed_copies = tuple([self.copy(r, where) for r in loops])
        if u.op is Ops.END:
            bodies = together(bodies, self.register)
            body = bodies[0] if len(bodies) == 1 else intern(Ops.GROUP, dtypes.void, tuple(bodies))
            return ended(body, *closed_copies)
        if not lanes:
            return self._combined(u, bodies, closed_copies)
        n = ranges.length(lanes[0])
        pairs = self._in_words(u, bodies, n)
        if not all(pairs):
            total = self._combined(u, [splat(b, n) for b in bodies], closed_copies)
            return intern(Ops.HREDUCE, u.dtype, (total,), u.arg.op)
        total = self._combined(u, [p[0] for p in pairs if p], closed_copies)
        extra = [p[1] for p in pairs if p and p[1] is not None]
        if extra:
            total = alu.alu(total, Ops.SUB, self._combined(u, extra, closed_copies))
        return intern(Ops.HREDUCE, u.dtype, (total,), u.arg.op)

    def _combined(self, u: UOp, bodies: list[UOp], loops: Ranges) -> UOp:
        """The result of a REDUCE whose body has copies, each with its own accumulator, or with one
        for all.
        """
        if self._shares_accumulator(u, bodies, bool(loops)):
            bodies = [_added(bodies)]
        if loops:
            bodies = [intern(Ops.REDUCE, b.dtype, (b, *loops), u.arg) for b in bodies]
        return combined(Op.by_name(u.arg.op), bodies)

    def _shares_accumulator(self, u: UOp, bodies: list[UOp], loops: bool) -> bool:
        """True if the copies of a sum of products are added to one accumulator, or one after the
        other without `loops`: other sums already give a GPU's thread enough work, or leave a CPU
        too few registers."""
        if u.arg.op != "add" or any([b.op is not Ops.MUL for b in bodies]):
            return False
        target = self.context.target
        kinds = _COPIED if target.gpu is None else (*_COPIED, "lane")
        beside = math.prod([ranges.length(r) for r in ranges.ranges(u) if r.arg.kind in kinds])
        if target.gpu is not None:
            return loops and beside >= SIDE_BY_SIDE
        return is_shared(beside, len(bodies), target.registers) if loops else is_chained(beside)

    def _in_words(self, u: UOp, bodies: list[UOp], lanes: int) -> list[Sums | None]:
        """The bodies of a sum along lanes, with neighbours added up; None if they are no products
        of narrow integers. The shared factor is the one inside of fewer loops."""
        if u.arg.op != "add" or u.src[0].op is not Ops.MUL:
            return [None]
        around = [len(ranges.ranges(s)) for s in u.src[0].src]
        shared = around.index(min(around))
        return [in_words(b, lanes, shared, self.context) for b in bodies]

    def _tensor_sum(self, u: UOp, where: dict[UOp, int]) -> UOp:
        """A copy of a sum of SHAPED_WMMAs: all copies of a tile's depth share one accumulator."""
        tile = self.fragments[u.src[0]]
        closed = [r for r in ranges.closed_ranges(u) if r is not u.src[0].src[4]]
        wide = _copies_in_order([r for r in closed if r.arg.kind in _COPIED], [])
        closed_copies = tuple([self.copy(r, where) for r in closed if r not in wide])
        lane = self.copy(tile.lane, {})
        of_a, of_b, count = tile.counts
        t = u.dtype.vec(count)
        bodies: list[UOp] = []
        alone = not closed_copies and lane.op is Ops.CONST  # no instruction adds two tiles
        for at in _iterations(wide):
            here = where | dict(zip(wide, at))
            a, b = self.copy(tile.a, here), self.copy(tile.b, here)
            src = (splat(a, of_a), splat(b, of_b), lane)
            chained = bodies[-1:] if alone else []
            bodies.append(intern(Ops.WMMA, t, (*src, *chained), tile.shape))
        if alone:
            return bodies[-1]
        total = _added(bodies)
        return intern(Ops.REDUCE, t, (total, *closed_copies), u.arg) if closed_copies else total


def _added(values: list[UOp]) -> UOp:
    """The sum of values, one after the other, as it stands: `linearize` makes a chain of it. One
    that a guard makes the same in all lanes, a product with 0, gets as many as the others."""
    lanes = max([v.dtype.lanes for v in values])
    wide = [splat(v, lanes) for v in values]
    return functools.reduce(lambda a, b: intern(Ops.ADD, b.dtype, (a, b)), wide)


def _form_of(op: Op, operands: Sequence[affine.Form]) -> affine.Form:
    """The form of a sum, a difference, a product or -x of operands that have these."""
    (c, s), (d, t) = operands[0] if len(operands) == 2 else (0, {}), operands[-1]
    if op is Ops.MUL:
        return affine.multiply((c, s), (d, t))
    sign, terms = 1 if op is Ops.ADD else -1, dict(s)
    affine.accumulate(terms, t, sign)
    return c + sign * d, terms


def _runs_once(u: UOp) -> bool:
    """True if a node is a loop of one iteration: it needs no loop."""
    if u.op is not Ops.RANGE or u.arg.kind not in ("loop", "reduce"):
        return False
    return u.src[0].op is Ops.CONST and u.src[0].arg == 1


def _iterations(wide: Iterable[UOp]) -> Iterator[tuple[int, ...]]:
    """All iterations of some unrolled ranges, the last one fastest."""
    return itertools.product(*[range(ranges.length(r)) for r in wide])


def _copies_in_order(wide: list[UOp], lanes: list[UOp]) -> list[UOp]:
    """The ranges of copies, slowest first: copies of neighbouring vectors follow one another.

    In a tile of rows by vectors, registers then hold one row's element and all vectors at a time.
    In the other order the elements of all rows would be alive at once.
    """

    def shared(r: UOp) -> int:
        """The length of the longest common beginning of the axes of r and of a range of lanes."""
        begins = [r.arg.axis[: i + 1] for i in range(len(r.arg.axis))]
        return max([sum(b == q.arg.axis[: len(b)] for b in begins) for q in lanes], default=0)

    return sorted(wide, key=lambda r: (shared(r), r.arg.axis))


def expand(kernel: UOp, context: Context) -> UOp:
    """The kernel with a copy of each node per iteration of the unrolled ranges around it."""
    return _Expansion(kernel, context).expand()
