"""Turn values written element by element into arrays, gathers and loops (rerolling).

Before (tensor)                                 After (tensor)
  %1 = param x : f32[8]                           %1 = param x : f32[8]
  %2 = shrink %1 begin=(0,) size=(1,) : f32[1]    %2 = iota : index[4]
  %3 = exp %2 : f32[1]                            %3 = mul %2, 2 : index[4]
  %4 = shrink %1 begin=(2,) size=(1,) : f32[1]    %4 = index %1, %3 : f32[4]
  %5 = exp %4 : f32[1]                            %5 = reshape %4 (4, 1) : f32[4, 1]
  %6 = shrink %1 begin=(4,) size=(1,) : f32[1]    %6 = exp %5 : f32[4, 1]
  %7 = exp %6 : f32[1]                            %7 = reshape %6 (4,) : f32[4]
  %8 = shrink %1 begin=(6,) size=(1,) : f32[1]    sink %7
  %9 = exp %8 : f32[1]
  %10 = cat %3, %5, %7, %9 axis=0 : f32[4]
  sink %10

A constant made of numbers becomes one array, and values computed from constants only are computed
here. A sum of PADs without overlap becomes a CAT. A STACK or CAT of parts that are built alike
becomes one expression with one more axis: parts that differ in a constant read an array, parts that
read different elements of one value gather. Nothing is assumed of floats: a product with a constant
0 stays, and so does the zero that a sum of PADs adds.
"""

from __future__ import annotations

import numpy as np

from uopc.ir.builder import alu, leaves, movement, rebuild
from uopc.ir.core import shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.contract import Context
from uopc.passes.reroll.constant_folding import FEWEST_PARTS, JOINED, Constants, array_node
from uopc.passes.reroll.constant_runs import with_runs
from uopc.passes.reroll.roll import Forms, Roller, gathered


class _Rewriting:
    """One walk, sources first. Constants and sums of PADs become final when they are read."""

    def __init__(self) -> None:
        self.constants = Constants()
        self.roller = Roller(self.constants)
        self.forms = Forms(self.constants)
        self.settled: dict[UOp, UOp] = {}

    def change(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        made = u if src == u.src else rebuild.remake(u, src)
        constants = self.constants
        constants.note(made)
        if made in constants.constant or not src:
            return made
        if made.op is Ops.ADD and made in constants.pads:
            return made
        noted, read = made, tuple([self.settle(s) for s in made.src])
        if read != made.src:
            made = rebuild.remake(made, read)
        made = self.joined(made)
        if made is not noted:
            constants.note(made)
        return made

    def settle(self, u: UOp) -> UOp:
        """The final form of a value, for its readers."""
        if u not in self.settled:
            self.settled[u] = self._settle(u)
        return self.settled[u]

    def _settle(self, u: UOp) -> UOp:
        constants = self.constants
        if u in constants.constant:
            if u not in constants.irregular or u.op is Ops.DATA:
                return u
            made = array_node(constants.array(u), u.dtype)
            for v in walk.toposort(made):  # a number that is repeated is more than one node
                constants.note(v)
            return made
        pads = constants.pads.get(u)
        if pads is None or pads.pads == 1:
            return u
        joined = self.joined(constants.concatenation(u))
        if not u.dtype.is_float:
            return joined
        return alu.alu(joined, Ops.ADD, leaves.const(u.dtype, 0.0))  # a sum turns -0.0 into 0.0

    def mixed(self, parts: tuple[UOp, ...]) -> UOp | None:
        """Parts of a few forms along a new leading axis: one stack per form, then put in order."""
        indices: dict[int, list[int]] = {}  # of the parts of each form
        for i, p in enumerate(parts):
            indices.setdefault(self.forms.of(p), []).append(i)
        if len(indices) == 1 or len(indices) > len(parts) // FEWEST_PARTS:
            return None
        dims = shapes.shape(parts[0])
        if any(shapes.shape(p) != dims or p.dtype is not parts[0].dtype for p in parts):
            return None
        groups = indices.values()
        whole = movement.cat(*[self.stacked(tuple([parts[i] for i in g])) for g in groups], axis=0)
        order = [i for g in groups for i in g]
        if order == sorted(order):
            return whole
        begins = np.zeros((len(parts), len(dims) + 1), np.int64)
        begins[order, 0] = np.arange(len(parts))
        return movement.reshape(gathered(whole, begins, (1, *dims)), (len(parts), *dims))

    def stacked(self, parts: tuple[UOp, ...]) -> UOp:
        """Parts of one form along a new leading axis."""
        got = self.roller.rolled(parts)
        return movement.stack(*[self.settle(p) for p in parts]) if got is None else got

    def joined(self, u: UOp) -> UOp:
        """A STACK or CAT of many parts that are alike, as one value."""
        if len(u.src) < FEWEST_PARTS or u.op not in JOINED:
            return u
        got = self.roller.rolled(u.src)
        got = self.mixed(u.src) if got is None else got
        if got is None:
            return rebuild.remake(u, tuple([self.settle(s) for s in u.src]))
        if u.op is Ops.STACK:
            return got
        axis, dims = u.arg, shapes.shape(u.src[0])
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(dims) + 1))
        return movement.reshape(movement.permute(got, order), shapes.shape(u))


def rolled(graph: UOp) -> UOp:
    """The graph with arrays, gathers and leading axes in place of many single elements."""
    parts = max([len(u.src) for u in walk.nodes(graph) if u.op in JOINED], default=0)
    if parts < FEWEST_PARTS and Ops.PAD not in walk.ops(graph):
        return graph  # no value is put together from many
    return rebuild.rewritten(graph, _Rewriting().change, outside_kernels=True)


def reroll(graph: UOp, context: Context) -> UOp:
    """`rolled`, as a pass; then constant arrays of few runs are these, where zeros are exact."""
    return with_runs(rolled(graph))
