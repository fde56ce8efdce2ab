"""Statistics by NumPy's names: counts of integers, histograms."""

from __future__ import annotations

from typing import Any

from uopc.errors import UserTypeError
from uopc.ir.builder import checks, fold
from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, same_kind, uop_of
from uopc.numpy.reductions import whole_dtype
from uopc.tensor import scatter, statistics

__all__ = ["bincount", "histogram", "histogram_bin_edges"]


def _unwrapped(value: Any, who: str) -> Any:
    return uop_of(value, who) if isinstance(value, Array) else value


# ---------------------------------------------------------------- counts
def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: Any = None) -> Any:
    """How often each of 0 … length - 1 occurs, as int64; with weights, their sums as float64.

    UserTypeError without `length`: the length of the result must not depend on values.
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
    """How many elements are in each bin, and the edges of the bins: see `UOp.histogram`.

    Weights of integers and bool are summed in 64 bits; densities are float64.
    """
    u, w = uop_of(a, "histogram"), None
    if weights is not None:
        w = uop_of(weights, "histogram")
        w = fold.cast(w, whole_dtype(w.dtype))
    edges_given = _unwrapped(bins, "histogram")
    counts, edges = statistics.histogram(u, edges_given, range, w)
    if checks.flag("histogram", "density", False if density is None else density):
        counts = statistics.densities(counts, edges, dtypes.float64)
    return tuple(same_kind([counts, edges], (a, bins, weights)))


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of `histogram`."""
    made: UOp = statistics.bin_edges(
        uop_of(a, "histogram_bin_edges"), _unwrapped(bins, "histogram"), range
    )
    return same_kind(made, (a, bins, weights))
