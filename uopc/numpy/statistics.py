"""Statistics by NumPy's names: counts, histograms, quantiles, reductions without the NaNs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.errors import UserTypeError
from uopc.ir.builder import checks, fold
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.numpy import reductions
from uopc.numpy.array import Array, float_of, same_kind, uop_of
from uopc.tensor import examples, scatter, statistics

__all__ = [
    "bincount", "histogram", "histogram_bin_edges", "median", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "percentile", "quantile",
]  # fmt: skip

Function = Callable[..., Any]


def _unwrapped(value: Any, who: str) -> Any:
    return uop_of(value, who) if isinstance(value, Array) else value


# ---------------------------------------------------------------- counts
def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: Any = None) -> Any:
    """The number of times that each of 0 … length - 1 occurs, as int64; with weights, their sums as
    float64.

    UserTypeError without `length`: the length of the result must not depend on values.

    Examples:
        >>> np.asarray(unp.bincount(unp.asarray([2, 0, 2, 7]), length=3))
        array([1, 0, 2])
    """
    if length is None:
        instead = f"uopc.numpy.bincount(x, length={minlength or 'n'})"
        raise UserTypeError(f"bincount: the length depends on values; write {instead}")
    w = None if weights is None else fold.cast(uop_of(weights, "bincount"), dtypes.float64)
    made = scatter.bincount(uop_of(x, "bincount"), w, length=_unwrapped(length, "bincount"))
    return same_kind(made, (x, weights))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """The number of elements in each bin, and the edges of the bins: see `UOp.histogram`.

    Weights of integers and bool are summed in 64 bits; densities are float64.

    Examples:
        >>> counts, edges = unp.histogram(unp.asarray([0.0, 1.0, 2.0, 4.0, 5.0]), 2, (0, 4))
        >>> np.asarray(counts), np.asarray(edges)
        (array([2, 2]), array([0., 2., 4.]))
    """
    u, w = uop_of(a, "histogram"), None
    if weights is not None:
        w = uop_of(weights, "histogram")
        w = fold.cast(w, reductions.whole_dtype(w.dtype))
    edges_given = _unwrapped(bins, "histogram")
    counts, edges = statistics.histogram(u, edges_given, range, w)
    if checks.flag("histogram", "density", False if density is None else density):
        counts = statistics.densities(counts, edges, dtypes.float64)
    return tuple(same_kind([counts, edges], (a, bins, weights)))


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of `histogram`.

    A vector of one more than there are bins. UserError for wrong bins or a wrong range.

    Examples:
        >>> np.asarray(unp.histogram_bin_edges(unp.asarray([0.0, 1.0, 4.0]), 4))
        array([0., 1., 2., 3., 4.])
    """
    made: UOp = statistics.bin_edges(
        uop_of(a, "histogram_bin_edges"), _unwrapped(bins, "histogram"), range
    )
    return same_kind(made, (a, bins, weights))


# ---------------------------------------------------------------- quantiles
def _quantile(name: str, doc: str, most: int = 1) -> Function:
    def function(
        a: Any, q: Any, /, axis: Any = None, *, method: str = "linear", keepdims: bool = False
    ) -> Any:
        u, shares, skip = float_of(a, name), _unwrapped(q, name), name.startswith("nan")
        made = statistics.quantile_of(name, u, shares, axis, keepdims, method, skip, most)
        return same_kind(made, (a, q))

    return examples.documented(function, name, f"{doc} See `UOp.quantile`; integers give float64.")


_NUMBERS = "of the elements that are not NaN"
quantile = _quantile("quantile", "The value below which the share q of the elements lies.")
percentile = _quantile("percentile", "`quantile`, with q from 0 to 100.", 100)
nanquantile = _quantile("nanquantile", f"`quantile` {_NUMBERS}.")
nanpercentile = _quantile("nanpercentile", f"`percentile` {_NUMBERS}.", 100)


# ---------------------------------------------------------------- without NaN
def _of_floats(name: str, doc: str) -> Function:
    method = getattr(statistics, name)

    def function(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        return same_kind(method(float_of(x, name), axis, keepdims), (x,))

    return examples.documented(function, name, f"{doc}{reductions.OVER} Integers give float64.")


median = _of_floats("median", "The middle element, or the mean of the two in the middle.")
nanmedian = _of_floats("nanmedian", f"The median {_NUMBERS}; NaN where there is none.")
nanmean = _of_floats("nanmean", f"The mean {_NUMBERS}; NaN where there is none.")


def nanvar(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance of the elements that are not NaN; NaN where none is free.

    Over `axis` (an int, a tuple, or None for all); integers give float64. See `var`.

    Examples:
        >>> float(unp.nanvar(unp.asarray([1.0, np.nan, 3.0])))
        1.0
    """
    made = statistics.nanvar(float_of(x, "nanvar"), axis, keepdims, correction)
    return same_kind(made, (x,))


def nanstd(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The square root of `nanvar`: over `axis`, in floats.

    Examples:
        >>> float(unp.nanstd(unp.asarray([1.0, np.nan, 3.0])))
        1.0
    """
    made = statistics.nanstd(float_of(x, "nanstd"), axis, keepdims, correction)
    return same_kind(made, (x,))


def _filled(name: str, doc: str, total: Function, value: float) -> Function:
    def function(x: Any, /, axis: Any = None, dtype: Any = None, **options: Any) -> Any:
        given = same_kind(statistics.filled(uop_of(x, name), value), (x,))
        return total(given, axis, dtype, **options)

    return examples.documented(function, name, f"{doc} {_NUMBERS}: see `{total.__name__}`.")


nansum = _filled("nansum", "The sum", reductions.sum, 0.0)
nanprod = _filled("nanprod", "The product", reductions.prod, 1.0)
nancumsum = _filled("nancumsum", "Running sums", reductions.cumsum, 0.0)
nancumprod = _filled("nancumprod", "Running products", reductions.cumprod, 1.0)


def _extreme(name: str, doc: str, over: str) -> Function:
    method = getattr(statistics, name)

    def function(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        u = uop_of(x, name)
        reductions.check_some(u, axis, name)
        made = method(u, axis, keepdims)
        return same_kind(fold.cast(made, dtypes.int64) if "arg" in name else made, (x,))

    return examples.documented(function, name, f"{doc}{over} UserError over no elements.")


_FIRST = "; of the flattened array without an axis."
nanmax = _extreme("nanmax", f"The greatest {_NUMBERS}; NaN where there is none.", reductions.OVER)
nanmin = _extreme("nanmin", f"The least {_NUMBERS}; NaN where there is none.", reductions.OVER)
nanargmax = _extreme(
    "nanargmax", f"The first place of the greatest {_NUMBERS}, or 0, as int64", _FIRST
)
nanargmin = _extreme(
    "nanargmin", f"The first place of the least {_NUMBERS}, or 0, as int64", _FIRST
)
