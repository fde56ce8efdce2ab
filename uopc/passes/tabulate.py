"""Constant tables for indices, masks and values that the loops alone determine.

Before (indexed)                           After (indexed)
  %1 = buffer slot=0 : f32[6]                %1 = buffer slot=0 : f32[6]
  %2 = range 6 axis=0.0 kind=loop : index    %2 = range 6 axis=0.0 kind=loop : index
  %3 = param x : f32[6]                      %3 = param x : f32[6]
  %4 = floordiv %2, 2 : index                %4 = store %1[%2], %3[%2]
  %5 = floormod %2, 2 : index                %5 = end %4, %2
  %6 = mul %5, 3 : index                     %6 = after %1, %5 : f32[6]
  %7 = add %4, %6 : index                    sink %6
  %8 = floordiv %7, 2 : index
  %9 = floormod %7, 2 : index
  %10 = mul %9, 3 : index
  %11 = add %8, %10 : index
  %12 = floordiv %11, 2 : index
  %13 = floormod %11, 2 : index
  %14 = mul %13, 3 : index
  %15 = add %12, %14 : index
  %16 = floordiv %15, 2 : index
  %17 = floormod %15, 2 : index
  %18 = mul %17, 3 : index
  %19 = add %16, %18 : index
  %20 = store %1[%2], %3[%19]
  %21 = end %20, %2
  %22 = after %1, %21 : f32[6]
  sink %22

A table of 2 by 3 that is transposed four times is unchanged. Values computed from divisions of
divisions, or from tables that `ir/builder/lookup_tables.py` made of them, are known per iteration
if there are few iterations. Each access gets one table of indices, with -1 in iterations that read
nothing; loops in which the index moves evenly need no table. In iterations without a read the
stored value is a table too, or one number; in the others, masks that hold are not computed. Only
exact arithmetic is done here, so every backend gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from uopc.ir.builder import alu, index_maps, leaves, lookup_tables, rebuild
from uopc.ir.core import dtypes, ranges, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.nest.accesses import Access
from uopc.passes.analysis.argument_limits import Limit
from uopc.passes.contract import Context

Array = npt.NDArray[Any]
Accessed = tuple[list[Array], Array]  # the index per dimension; the iterations that read

# Fewer operations than this on tables, or on divisions of divisions, do not change.
FEWEST_OPS = 6


class _StoreTable:
    """The value of one store, in all iterations of its loops."""

    def __init__(self, value: UOp) -> None:
        self.value = value
        self.order = list(walk.toposort(value, gate=_is_computed))
        # The values that a reduce counts may have a closed form.
        most = lookup_tables.MOST_DIVISIONS if any([u.op is Ops.REDUCE for u in self.order]) else 1
        self.deep = _above_divisions(self.order, most, loads=False)
        self.iterations = lookup_tables.Iterations([u for u in self.order if u.op is Ops.RANGE])
        self.known: dict[UOp, Array | None] = {}
        self.reached: dict[UOp, Array] = {}
        self.tables: list[tuple[UOp, Array]] = []  # indices, and the iterations that read there

    def rewritten(self) -> UOp | None:
        """The value, with tables for its known parts; None if too few deep values are known."""
        if len(self.deep) < FEWEST_OPS:
            return None
        self.known = {u: self.iterations.array(u) for u in self.order}
        done = [u for u in self.deep if self.known[u] is not None and u.op is not Ops.INDEX]
        if len(done) < FEWEST_OPS:
            return None
        self._reach(np.asarray(True))
        found = self._outside()
        if found is None:
            return self._made()
        reads, values = found
        if not reads.any():
            return self.iterations.element(values, self.value.dtype)
        self._reach(reads)
        inside, element = self._made(), self.iterations.element
        tables = [table for table, live in self.tables if np.array_equal(live, reads)]
        read = compare.less(affine.const(-1), tables[0]) if tables else element(reads, dtypes.bool_)
        return alu.where(read, inside, element(values, self.value.dtype))

    # ------------------------------------------------------------ which iterations matter
    def _reach(self, domain: Array) -> None:
        """Set the iterations, within `domain`, in which each unknown value is used."""
        self.reached = reached = {self.value: domain}
        for u in reversed(self.order):
            here = reached.get(u)
            if here is None or self.known[u] is not None or self._accessed(u) is not None:
                continue
            condition = self.known.get(u.src[0]) if u.op is Ops.WHERE else None
            masks = [here] * len(u.src)
            if condition is not None:
                masks[1:] = here & condition, here & ~condition
            for s, mask in zip(u.src, masks):
                if s in self.known and self.known[s] is None:
                    mask = self._around(s, mask)
                    reached[s] = reached[s] | mask if s in reached else mask

    def _around(self, u: UOp, mask: Array) -> Array:
        """The iterations of the loops around a value. Iterations of a reduce count together if the
        value is outside of the reduce, or does not change in it."""
        around = ranges.ranges(u)
        axes = [
            i for i, (r, n) in enumerate(zip(self.iterations.ranges, mask.shape))
            if n > 1 and r not in around
        ]  # fmt: skip
        return np.asarray(mask.any(axis=tuple(axes), keepdims=True)) if axes else mask

    def _outside(self) -> tuple[Array, Array] | None:
        """The iterations in which some access reads, and the value in the others."""
        worth: dict[UOp, Array] = {}
        reads: Array = np.asarray(False)
        for u in self.order:
            known = self.known[u]
            if known is None and u not in self.reached:
                continue
            if known is None and u.op is Ops.INDEX and u.src[0].op is not Ops.DATA:
                access = self._accessed(u)
                reads = reads | (self.reached[u] & access[1] if access else self.reached[u])
                known = np.zeros((), u.dtype.numpy)
            elif known is None:
                known = self.iterations.applied(u, [worth.get(s) for s in u.src])
            if known is None:
                return None
            worth[u] = known
        return None if reads.all() else (reads, worth[self.value])

    def _accessed(self, u: UOp) -> Accessed | None:
        """The indices of an access and the iterations that read, if known."""
        if u.op is not Ops.INDEX:
            return None
        a = Access(u)
        known = [x for x in map(self.known.get, a.index) if x is not None]
        inside = np.asarray(True) if a.gate is None else self.known.get(a.gate)
        fixed = all([type(d) is int for d in shapes.shape(u.src[0])])
        complete = fixed and len(known) == len(shapes.shape(u.src[0]))
        return (known, inside) if complete and inside is not None else None

    # ------------------------------------------------------------ the value on tables
    def _made(self) -> UOp:
        done: dict[UOp, UOp] = {}
        for u in self.order:
            if u in self.reached and self.known[u] is None:
                done[u] = self._remade(u, self.reached[u], done)
        return self._operand(self.value, done)

    def _remade(self, u: UOp, here: Array, done: dict[UOp, UOp]) -> UOp:
        if u.op is Ops.INVALID or not _is_computed(u):  # a part of a guard, and storage, stay
            return u
        if not here.any():
            return leaves.const(u.dtype, 0)
        if u.op is Ops.INDEX and not self.deep.isdisjoint(u.src[1:]):
            access = self._accessed(u)
            if access is not None:
                return self._read(u, here, access)
        condition = self.known.get(u.src[0]) if u.op is Ops.WHERE else None
        if condition is not None:
            # A read is made in every iteration, also where nothing needs it: its guard stays.
            unused = ~here if u.src[2].op is not Ops.INVALID else np.asarray(False)
            if (condition | unused).all():
                return self._operand(u.src[1], done)
            if not (condition & here).any():
                return self._operand(u.src[2], done)
        return rebuild.remake(u, tuple([self._operand(s, done) for s in u.src]))

    def _operand(self, u: UOp, done: dict[UOp, UOp]) -> UOp:
        known = self.known.get(u)
        if known is None:
            return done.get(u, u)
        return self.iterations.element(known, u.dtype) if u in self.deep else u

    def _read(self, u: UOp, here: Array, access: Accessed) -> UOp:
        """An access at an index from a table."""
        at, inside = access
        live = here & inside
        dims: tuple[int, ...] = shapes.shape(u.src[0])
        flat: Array = np.asarray(0)
        for x, d in zip(at, dims):
            flat = flat * d + x
        table, scattered = self.iterations.as_index(flat, live)
        if scattered:
            self.tables.append((table, live))
            guard = compare.less(affine.const(-1), table)
        else:
            guard = self.iterations.element(live, dtypes.bool_)
        index = index_maps.reshape_index((math.prod(dims),), dims, (table,))
        return intern(Ops.INDEX, u.dtype, (u.src[0], *index_maps.gated(index, guard)))


def _is_computed(u: UOp) -> bool:
    return not u.op.is_storage and u.op is not Ops.AFTER


def _above_divisions(order: list[UOp], most: int, loads: bool) -> set[UOp]:
    """Values computed from tables, or from more than `most` nested divisions; with `loads`, also
    by the indices of loads."""
    found: set[UOp] = set()
    for u in order:
        if not _is_computed(u) or u.dtype is dtypes.void:
            continue
        if u.op is Ops.INDEX and (u.src[0].op is Ops.DATA or not loads):
            deep = u.src[0].op is Ops.DATA
        else:
            deep = not found.isdisjoint(u.src) or lookup_tables.divisions(u) > most
        if deep:
            found.add(u)
    return found


def tabulate(graph: UOp, context: Context) -> UOp:
    """The graph with tables in the values of its stores."""
    above, limit = _above_divisions(walk.nodes(graph), 1, loads=True), Limit.of(context)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.STORE or u.src[1] not in above:
            return None
        value = _StoreTable(src[1]).rewritten()
        if value is None or not limit.allows(src[0].src[0], [value], ()):
            return None
        return intern(Ops.STORE, u.dtype, (src[0], value, *src[2:]), u.arg, u.tag)

    return rebuild.rewritten(graph, change, outside_kernels=True)
