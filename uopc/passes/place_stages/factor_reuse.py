"""The cost of reading a contraction's factors again, if few results share each element.

(x @ w)[3] reads all of w for one row; x @ w reads it once for as many rows as a tile has
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import ranges, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.place_stages import fusion_cost
from uopc.passes.place_stages.demand import iterations
from uopc.passes.place_stages.fusion_cost import ValueCost


class FactorReuse:
    """Find the contractions in values, and the cost of reading their factors again."""

    def __init__(self, of: Mapping[UOp, ValueCost], axes: Iterator[int]) -> None:
        """`of`: the costs of the values. `axes`: numbers for the ranges of sums."""
        self._of, self._axes = of, axes

    def rereads(self, value: UOp, index: Index) -> float:
        """The cost of the factors that one element of a value, read at an index, needs and its
        neighbours have not read yet."""
        total, seen, stack = 0.0, {value}, [(value, index)]
        while stack:
            u, at = stack.pop()
            if u.op is Ops.REDUCE:
                if repeats_factors(u.src[0]):
                    total += self._of_sum(u, at)
                continue
            for s in u.src:
                source = self._of.get(s)
                if s in seen or source is None or not source.contracts or not _in_code(source):
                    continue
                seen.add(s)
                moved = index_maps.source_index(u, at)[0] if u.op.movement else at
                stack.append((s, index_maps.broadcast_index(moved, shapes.shape(s))))
        return total

    def _of_sum(self, u: UOp, index: Index) -> float:
        """The cost of rereading the factors of one sum of products."""
        outside = _loops(index)
        at, inside = index_maps.reduce_index(u, index, self._axes)
        terms, total = iterations(inside), 0.0
        for factor in u.src[0].src:
            used = _used(factor, index_maps.broadcast_index(at, shapes.shape(factor)))
            read = iterations(used & {*outside, *inside}) * factor.dtype.itemsize
            total += terms * fusion_cost.reread(read, iterations(outside - used))
        return total


def _in_code(source: ValueCost) -> bool:
    """True if a value is presumed not to be stored."""
    return not (source.loaded and source.has_reduce)


def _used(factor: UOp, index: Index) -> frozenset[UOp]:
    """The ranges that the index of a factor depends on, below the factor's views."""
    while factor.op.movement or factor.op in (Ops.CAST, Ops.AFTER):
        if factor.op.movement:
            index, _ = index_maps.source_index(factor, index)
        factor = factor.src[0]
    return _loops(index)


def _loops(index: Index) -> frozenset[UOp]:
    return frozenset[UOp]().union(*[ranges.ranges(x) for x in index])
