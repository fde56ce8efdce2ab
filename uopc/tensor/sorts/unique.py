"""The different values of an array, in order: a sort, and the begins of its runs of equal values.

The number of values is a length, which the call finds. -0.0 and 0.0 are one value; each NaN is a
value of its own, or all are one.
"""

from __future__ import annotations

from typing import NamedTuple

from uopc.ir.builder import alu, leaves, movement
from uopc.ir.builder.fold import cast
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.tensor import indexing
from uopc.tensor.scatter import scatter
from uopc.tensor.sorts import compaction, sorting


class Unique(NamedTuple):
    """The values; the place of the first of each in the flattened array; for each element of the
    array, in its shape, the number of its value; and how often each value occurs."""

    values: UOp
    places: UOp
    inverse: UOp
    counts: UOp


def unique(a: UOp, equal_nan: bool = False) -> Unique:
    """The different values of an array in ascending order, and what `Unique` says of them; integers
    are int64."""
    dims = shapes.shape(a)
    n = shapes.size(dims)
    flat = movement.reshape(a, (n,))
    if n == 0:
        nothing = leaves.full(leaves.const(dtypes.int64, 0), (0,))
        return Unique(flat, nothing, movement.reshape(nothing, dims), nothing)
    order = cast(sorting.argsort(flat), dtypes.int64)
    ordered = indexing.gather(flat, 0, order)
    first = _begins(ordered, n, equal_nan)
    begins = cast(compaction.places(first, "unique"), dtypes.int64)
    (count,) = shapes.shape(begins)
    number = cast(leaves.iota(count), dtypes.int64)
    last = cast(dim_uop(count), dtypes.int64) - 1
    ends = indexing.gather(begins, 0, alu.alu(number + 1, Ops.MIN, last))
    counts = alu.where(number < last, ends, cast(dim_uop(n), dtypes.int64)) - begins
    ranks = cast(first, dtypes.int64).cumsum(0) - 1
    inverse = scatter(leaves.full(leaves.const(dtypes.int64, 0), (n,)), order, ranks, None)
    places = indexing.gather(order, 0, begins)
    values = indexing.gather(ordered, 0, begins)
    return Unique(values, places, movement.reshape(inverse, dims), counts)


def _begins(ordered: UOp, n: shapes.Dim, equal_nan: bool) -> UOp:
    """True at the begin of each run of equal values in a sorted vector."""
    i = leaves.iota(n)
    before = movement.index(ordered, alu.alu(i - 1, Ops.MAX, affine.const(0)))
    differs = ordered.ne(before)
    if equal_nan and ordered.dtype.is_float:
        differs = differs & ~(ordered.ne(ordered) & before.ne(before))
    return alu.alu(i.eq(0), Ops.OR, differs)
