"""Statistics of elements: histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import Operand
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise, scatter, sorting


# ---------------------------------------------------------------- histogram
def histogram(
    a: UOp, bins: Any = 10, range: Any = None, weights: Operand | None = None,
    density: bool = False,
) -> tuple[UOp, UOp]:  # fmt: skip
    """How many elements are in each bin, and the edges of the bins.

    Bin i holds edges[i] <= v < edges[i + 1], the last one its upper edge too; other elements and
    NaN are in none. `bins` is the number of equal bins in `range`, a pair of numbers (by default
    from the least to the greatest element; of an array with NaN or infinities no edge is a number
    then), or a vector of edges that do not fall. Edges of equal bins are float32, for float64 and
    integers float64. The counts are int64; with weights of the array's shape, their sums, in the
    dtype of `sum`. With `density` they are divided by the width of the bin and their total.

    UserError for wrong bins, a wrong range, and weights of another shape.

        >>> x = uopc.param("x", (5,))
        >>> counts, edges = uopc.compile(x.histogram(2, (0, 4)))(np.array([0, 1, 2, 4, 5], "f4"))
        >>> counts, edges
        (array([2, 2]), array([0., 2., 4.], dtype=float32))
    """
    density = checks.flag("histogram", "density", density)
    edges = bin_edges(a, bins, range)
    counts = _counted(a, edges, weights)
    if density:
        t = edges.dtype if edges.dtype.is_float else dtypes.float64
        counts = densities(counts, edges, dtypes.accumulator(t))
    return counts, edges


def densities(counts: UOp, edges: UOp, t: DType) -> UOp:
    """Counts per width of the bin, as parts of the total: their integral is 1."""
    (n,) = shapes.shape(counts)
    e = cast(edges, t)
    widths = movement.shrink(e, [(1, n + 1)]) - movement.shrink(e, [(0, n)])
    c = cast(counts, t)
    return c / widths / movement.reduce(c, "add", 0)


def bin_edges(a: UOp, bins: Any, range: Any = None) -> UOp:
    """The edges of the bins of `histogram`."""
    if isinstance(bins, (UOp, np.ndarray, list, tuple)):
        return _given_edges(bins)
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)):
        wanted = "a number of bins, or a vector of edges"
        raise UserTypeError(f"histogram: expected {wanted}, got {bins!r}")
    if bins < 1:
        raise UserError(f"histogram: needs a bin or more, got {bins}")
    t = a.dtype if a.dtype.is_float else dtypes.float64
    return _equal_bins(a, int(bins), range, dtypes.accumulator(t))


def _given_edges(given: Any) -> UOp:
    edges = given if isinstance(given, UOp) else operands.as_uop(np.asarray(given))
    dims = shapes.shape(edges)
    if len(dims) != 1 or bounds.bounds(leaves.dim_uop(dims[0]))[0] < 2:
        raise UserError(f"histogram: needs a vector of two edges or more, got {shapes.show(dims)}")
    if edges.op is Ops.DATA:
        known = edges.arg.array
        if not (known[:-1] <= known[1:]).all():
            raise UserError("histogram: each edge must be at least the one before it")
    return edges


def _equal_bins(a: UOp, bins: int, given: Any, t: DType) -> UOp:
    """The edges of equal bins, each the number that NumPy has."""
    if given is not None:
        first, last = _range(given)
        return operands.constant(np.linspace(first, last, bins + 1, dtype=t.numpy))
    low, high = (cast(movement.reduce(a, op, None), t) for op in ("min", "max"))
    empty, one = high < low, low.eq(high)
    low = alu.where(empty, 0.0, alu.where(one, low - 0.5, low))
    high = alu.where(empty, 1.0, alu.where(one, high + 0.5, high))
    i = cast(leaves.iota(bins + 1), t)
    steps = elementwise.contiguous(i * ((high - low) / bins))  # rounded before the sum is
    return elementwise.contiguous(alu.where(i.eq(bins), high, steps + low))


def _range(given: Any) -> tuple[float, float]:
    if not isinstance(given, (tuple, list, np.ndarray)) or len(given) != 2:
        raise UserTypeError(f"histogram: the range must be a pair of numbers, got {given!r}")
    first, last = (checks.number("histogram", v) for v in given)
    if first > last:
        raise UserError(f"histogram: the range ends before it begins: {given!r}")
    return (first - 0.5, last + 0.5) if first == last else (first, last)


def _counted(a: UOp, edges: UOp, weights: Operand | None) -> UOp:
    if weights is not None:
        given = operands.as_uop(weights, None, "histogram")
        if shapes.shape(given) != shapes.shape(a):
            shown = f"{shapes.show(shapes.shape(given))} for {shapes.show(shapes.shape(a))}"
            raise UserError(f"histogram: weights of the shape {shown}")
        weights = cast(given, dtypes.accumulator(given.dtype))
    x, e = operands.paired(a, edges, "histogram")
    (n,) = shapes.shape(e)
    inner = movement.shrink(e, [(1, n - 1)])
    first, last = movement.index(e, 0), movement.index(e, leaves.dim_uop(n) - 1)
    place = sorting.searchsorted(inner, x, "right")
    place = alu.where((first <= x) & (x <= last), place, -1)
    counts = scatter.bincount(place, weights, length=n - 1)
    if weights is None or not counts.dtype.is_float:
        return counts
    return cast(counts, given.dtype)
