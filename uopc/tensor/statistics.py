"""Statistics of elements: histograms, quantiles, reductions that skip NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, leaves, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.args import ReduceOp
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import elementwise, indexing, reductions, scatter
from uopc.tensor.primitive import primitive
from uopc.tensor.sorts import sorting

# Their edges are a constant of the graph.
_MOST_BINS = 1 << 30
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


# ---------------------------------------------------------------- histogram
def histogram(
    a: UOp, bins: Any = 10, range: Any = None, weights: Operand | None = None,
    density: bool = False,
) -> tuple[UOp, UOp]:  # fmt: skip
    """The number of elements in each bin, and the edges of the bins.

    Bin i holds edges[i] <= v < edges[i + 1], the last one its upper edge too; other elements and
    NaN are in none. `bins` is the number of equal bins in `range`, or a vector of edges that do not
    fall. `range` is a pair of numbers, by default the least and the greatest element; if these are
    NaN or infinite, no edge is a number. Edges of equal bins are float32, for float64 and integers
    float64. The counts are int64; with weights of the array's shape, their sums, in the dtype of
    `sum`. With `density` they are divided by the width of the bin and their total.

    UserError for wrong bins, a wrong range, and weights of another shape.

    Examples:
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
    """Counts divided by the bin width and the total, so that the integral is 1."""
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
    if not 1 <= bins <= _MOST_BINS:
        raise UserError(f"histogram: bins must be 1 to 2**30, got {bins}")
    t = a.dtype if a.dtype.is_float else dtypes.float64
    return _equal_bins(a, int(bins), range, dtypes.accumulator(t))


def _given_edges(given: Any) -> UOp:
    edges = given if isinstance(given, UOp) else operands.as_uop(checks.array("histogram", given))
    dims = shapes.shape(edges)
    if len(dims) != 1 or bounds.bounds(dim_uop(dims[0]))[0] < 2:
        raise UserError(f"histogram: needs a vector of two edges or more, got {shapes.show(dims)}")
    if edges.op is Ops.DATA:
        known = edges.arg.array
        if not (known[:-1] <= known[1:]).all():
            raise UserError("histogram: each edge must be at least the one before it")
    return edges


def _equal_bins(a: UOp, bins: int, given: Any, t: DType) -> UOp:
    """The edges of equal bins, each equal to NumPy's."""
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
            shown = f"{shapes.show(shapes.shape(a))}, got {shapes.show(shapes.shape(given))}"
            raise UserError(f"histogram: weights must have the shape {shown}")
        weights = cast(given, dtypes.accumulator(given.dtype))
    x, e = operands.paired(a, edges, "histogram")
    (n,) = shapes.shape(e)
    inner = movement.shrink(e, [(1, n - 1)])
    first, last = movement.index(e, 0), movement.index(e, dim_uop(n) - 1)
    place = sorting.searchsorted(inner, x, "right")
    place = alu.where((first <= x) & (x <= last), place, -1)
    counts = scatter.bincount(place, weights, length=n - 1)
    if weights is None or not counts.dtype.is_float:
        return counts
    return cast(counts, given.dtype)


# ---------------------------------------------------------------- quantiles
def quantile(
    a: UOp, q: Any, axis: Any = None, keepdims: bool = False, method: str = "linear"
) -> UOp:
    """The value below which the share q of the elements lies, over the axes; NaN if one is NaN.

    Its place among the sorted elements is q * (count - 1). Between two places `method` chooses:
    linear interpolation, the `lower` or `higher` element, the `midpoint` of both, or the `nearest`
    (of equally near ones the even place). The axes of an array q come first. Floats keep their
    dtype; integers and bool give float32. UserError for a number q outside [0, 1] (from data it
    gives NaN), another method, and over no elements.

    The linear one is definition 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical
    Packages", 1996.

    Examples:
        >>> x = uopc.constant([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
        >>> uopc.compile(x.quantile([0.25, 0.5], axis=0))()
        array([[ 1.5, 15. ],
               [ 2. , 20. ]])
    """
    return quantile_of("quantile", a, q, axis, keepdims, method, False)


def _median(who: str, skip: bool) -> Callable[..., UOp]:
    """Make the median: the middle of the sorted elements, or the mean of the two middle ones."""

    def function(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
        return quantile_of(who, a, 0.5, axis, keepdims, "midpoint", skip)

    return function


median, nanmedian = _median("median", skip=False), _median("nanmedian", skip=True)


def quantile_of(
    who: str, a: UOp, q: Any, axis: Any, keepdims: bool, method: str, skip: bool, most: int = 1,
    dtype: DType | None = None,
) -> UOp:  # fmt: skip
    """The quantile of the shares q / most. With `skip`, NaNs are skipped.

    `dtype`: the dtype of the result; integers only for methods that choose an element.
    """
    dims = shapes.shape(a)
    axes = movement.normal_axes(axis, len(dims), who)
    keepdims = checks.flag(who, "keepdims", keepdims)
    if method not in METHODS:
        raise UserError(f"{who}: the method must be one of {', '.join(METHODS)}, got {method!r}")
    share = _share(who, q, most)
    others = [i for i in range(len(dims)) if i not in axes]
    kept, n = tuple([dims[i] for i in others]), shapes.size(tuple([dims[i] for i in axes]))
    if n == 0:
        raise UserError(f"{who}: an axis of {shapes.show(dims)} has no elements")
    made = dtype or (a.dtype if a.dtype.is_float else dtypes.float32)
    given = a.dtype if a.dtype.is_float else made
    rows = movement.reshape(movement.permute(a, (*others, *axes)), (shapes.size(kept), n))
    found = _at_shares(cast(rows, given), share, method, skip, made)
    back = tuple([1 if i in axes else d for i, d in enumerate(dims)]) if keepdims else kept
    by_share = movement.permute(cast(found, made), (1, 0))
    return movement.reshape(by_share, (*shapes.shape(share), *back))


def _share(who: str, q: Any, most: int) -> UOp:
    """The shares q / most as float64."""
    plain = isinstance(q, (list, tuple, bool, int, float))
    share = operands.as_uop(checks.array(who, q) if plain else q, None, who)
    if share.dtype.kind == "bool":
        raise UserTypeError(f"{who}: q must be numbers from 0 to {most}, got {q!r}")
    if share.op in (Ops.DATA, Ops.CONST):
        known = np.asarray(share.arg.array if share.op is Ops.DATA else share.arg)
        if not ((known >= 0) & (known <= most)).all():
            raise UserError(f"{who}: q must be from 0 to {most}, got {q!r}")
        return operands.constant(known.astype(np.float64) / most)
    return cast(share, dtypes.float64) / most


def _at_shares(x: UOp, share: UOp, method: str, skip: bool, made: DType) -> UOp:
    """The quantile of each share for each row, in the dtype in which `made` is computed."""
    rows, n = shapes.shape(x)
    count = cast(dim_uop(n), dtypes.float64)
    ordered = sorting.sort(x, 1)
    if skip:
        numbers = cast(x.eq(x), place_dtype(n))
        count = cast(movement.reduce(numbers, "add", 1, keepdims=True), dtypes.float64)
    size = shapes.size(shapes.shape(share))
    wide = dtypes.accumulator(made) if made.is_float else made
    flat = movement.reshape(share, (1, size))
    place = movement.expand(flat * (count - 1.0).maximum(0.0), (rows, size))

    def element(at: UOp) -> UOp:
        known = (at >= 0) & (at < count)  # not of a share that is NaN, say
        whole = cast(alu.where(known, at, 0.0), place_dtype(n))
        return cast(indexing.gather(ordered, 1, whole), wide)

    value = _between(place, method, element, x.dtype)
    if not made.is_float:
        return value
    right = (flat >= 0.0) & (flat <= 1.0) & (count > 0.0)
    if not skip:
        last = element(movement.expand(movement.reshape(count - 1.0, (1, 1)), (rows, size)))
        right = right & last.eq(last)  # NaNs are last
    return alu.where(right, value, leaves.const(wide, math.nan))


def _between(place: UOp, method: str, element: Callable[[UOp], UOp], given: DType) -> UOp:
    """The value at a place, which may lie between two elements; `given`: the array's dtype."""
    low, high = place.floor(), place.ceil()
    single = {"lower": low, "higher": high, "nearest": place.round()}
    if method in single:
        return element(single[method])
    below, above = element(low), element(high)
    part = cast(place - low, below.dtype)
    part = leaves.const(part.dtype, 0.5) if method == "midpoint" else part
    return between(below, above, part, given)


def between(below: UOp, above: UOp, part: UOp, given: DType) -> UOp:
    """Interpolate from `below` to `above` by `part`. If both are equal, or the part is 0, the
    result is `below` exactly. Derivatives treat it as one function, also where both are equal.

    If the part is wider than the `given` dtype, the difference is rounded to `given`, as in NumPy.
    """
    if dtypes.accumulator(given) is below.dtype:
        value = below * (1.0 - part) + above * part
    else:
        gap = cast(cast(above, given) - cast(below, given), below.dtype)
        value = alu.where(part < 0.5, below + gap * part, above - gap * (1.0 - part))
    value = value.maximum(below).minimum(above)
    made = alu.where(part.eq(0) | below.eq(above), below, value)
    return primitive(made, "between", below, above, part)


# ---------------------------------------------------------------- without NaN
def filled(a: UOp, value: float) -> UOp:
    """Replace each NaN of `a` by a value."""
    return alu.where(a.eq(a), a, leaves.const(a.dtype, value)) if a.dtype.is_float else a


def _of_filled(function: Callable[..., UOp], value: float) -> Callable[..., UOp]:
    """Make a reduction that skips NaN; `value` replaces NaN and does not affect the result."""

    def of_numbers(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
        return function(filled(a, value), axis, keepdims)

    return of_numbers


nansum = _of_filled(reductions.METHODS["sum"], 0.0)
nanprod = _of_filled(reductions.METHODS["prod"], 1.0)
nanargmax = _of_filled(reductions.argmax, -math.inf)
nanargmin = _of_filled(reductions.argmin, math.inf)


def _extreme(op: ReduceOp, least: float) -> Callable[..., UOp]:
    """Make the reduction to the best element that is not NaN; NaN if all are NaN."""
    of_filled = _of_filled(reductions.METHODS[op], least)

    def function(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
        best = of_filled(a, axis, keepdims)
        if not a.dtype.is_float:
            return best
        known = reductions.METHODS["any"](a.eq(a), axis, keepdims)
        return alu.where(known, best, leaves.const(a.dtype, math.nan))

    return function


nanmax, nanmin = _extreme("max", -math.inf), _extreme("min", math.inf)


def nanmean(a: UOp, axis: Any = None, keepdims: bool = False) -> UOp:
    """The mean of the elements that are not NaN; NaN if all are NaN."""
    if not a.dtype.is_float:
        return reductions.mean(a, axis, keepdims)
    x = cast(a, dtypes.accumulator(a.dtype))
    return cast(nansum(x, axis, keepdims) / _numbers(x, axis, keepdims), a.dtype)


def _numbers(x: UOp, axis: Any, keepdims: bool) -> UOp:
    """The number of elements that are not NaN, as floats."""
    return reductions.METHODS["sum"](cast(x.eq(x), x.dtype), axis, keepdims)


def nanvar(a: UOp, axis: Any = None, keepdims: bool = False, correction: float = 0) -> UOp:
    """The variance of the elements that are not NaN: squared distances from their mean over (count
    - correction); NaN if the divisor is not positive."""
    if not a.dtype.is_float:
        return reductions.var(a, axis, keepdims, correction)
    return cast(_nanvar("nanvar", a, axis, keepdims, correction), a.dtype)


def nanstd(a: UOp, axis: Any = None, keepdims: bool = False, correction: float = 0) -> UOp:
    """The square root of `nanvar`."""
    if not a.dtype.is_float:
        return reductions.std(a, axis, keepdims, correction)
    return cast(_nanvar("nanstd", a, axis, keepdims, correction).sqrt(), a.dtype)


def _nanvar(who: str, a: UOp, axis: Any, keepdims: bool, correction: float) -> UOp:
    x, correction = cast(a, dtypes.accumulator(a.dtype)), checks.number(who, correction)
    away = alu.where(x.eq(x), x - nanmean(x, axis, keepdims=True), 0.0)
    total = reductions.METHODS["sum"](away * away, axis, keepdims)
    free = _numbers(x, axis, keepdims) - correction
    return alu.where(free > 0, total / free, leaves.const(x.dtype, math.nan))
