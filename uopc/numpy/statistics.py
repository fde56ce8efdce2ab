"""Statistics by NumPy's names: counts, histograms, quantiles, reductions without the NaNs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, fold, leaves
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy import reductions
from uopc.numpy.array import Array, float_of, promoted, same_kind, uop_of
from uopc.numpy.dtype_functions import as_dtype
from uopc.numpy.manipulation import own_axes
from uopc.tensor import examples, nn, scatter, statistics

__all__ = [
    "average", "bincount", "corrcoef", "cov", "histogram", "histogram_bin_edges", "median",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian",
    "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "percentile", "quantile",
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


# ---------------------------------------------------------------- weights, and pairs of variables
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean of elements that count as often as their weights say, over `axis` (an int, a tuple,
    or None for all); with `returned` also the sum of the weights, in the same shape.

    Weights have the shape of `a`, or that of its axes `axis`. Integers give float64. Weights whose
    sum is 0 give infinities or NaN. UserTypeError and UserError for weights that do not fit.

    Examples:
        >>> float(unp.average(unp.asarray([1.0, 2.0, 4.0]), weights=[1, 1, 2]))
        2.75
    """
    u = float_of(a, "average")
    if weights is None:
        made = uop_of(reductions.mean(u, axis, keepdims), "average")
        total = fold.cast(reductions.sum(leaves.const_like(u, 1), axis, keepdims=keepdims), u.dtype)
    else:
        x, w = promoted("average", uop_of(a), uop_of(weights, "average"), floats=True)[0]
        if not uop_of(a).dtype.is_float:
            x, w = (fold.cast(v, dtypes.promote(v.dtype, dtypes.float64)) for v in (x, w))
        w = _spread(w, x, axis).expand(x.shape)
        total = uop_of(reductions.sum(w, axis, keepdims=keepdims))
        made = uop_of(reductions.sum(x * w, axis, keepdims=keepdims)) / total
    if not checks.flag("average", "returned", returned):
        return same_kind(made, (a, weights))
    return tuple(same_kind([made, total], (a, weights)))


def _spread(w: UOp, x: UOp, axis: Any) -> UOp:
    """Weights with the axes of x: theirs are those of x, or the ones that are averaged over."""
    if w.shape == x.shape:
        return w
    if axis is None:
        raise UserTypeError(f"average: weights {shapes.show(w.shape)} of other axes need an axis")
    axes = own_axes(axis, x.ndim, "average")
    if w.shape != tuple([x.shape[i] for i in axes]):
        both = f"{shapes.show(w.shape)}, x has {shapes.show(x.shape)}"
        raise UserError(f"average: weights of axes {axes} have the shape {both}")
    w = w.permute([axes.index(i) for i in sorted(axes)])
    return w.reshape([d if i in axes else 1 for i, d in enumerate(x.shape)])


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariances of variables, each a row of m and y (a column without `rowvar`).

    A matrix; a number for one variable. Over the number of observations - 1, or - `ddof`, or with
    `bias` over the number. `fweights` says how often each one counts (integers), `aweights` how
    much. At least float64, or `dtype`; NaN or infinities where too few are observed. UserError for
    more than 2 dimensions, and for weights that do not fit; UserTypeError for frequencies that are
    no integers, and for a dtype that is no float.

    Examples:
        >>> np.asarray(unp.cov(unp.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])))
        array([[ 1., -1.],
               [-1.,  1.]])
    """
    given = (m, y, fweights, aweights)
    uops = [uop_of(v, "cov") for v in (m, y) if v is not None]
    common = dtypes.float64
    for u in uops:
        common = dtypes.promote(common, u.dtype)
    t = as_dtype(dtype, common)
    if not t.is_float or (ddof is not None and ddof != int(ddof)):
        raise UserTypeError(f"cov: needs a float dtype and an integer ddof, got {t.name}, {ddof}")
    x = _observed([fold.cast(u, t) for u in uops], rowvar)
    w = _observation_weights(x.shape[1], fweights, aweights, t)
    free = (0 if bias else 1) if ddof is None else ddof
    n = fold.cast(dim_uop(x.shape[1]), t)
    if w is None:
        count, factor, centred = n, n - free, x - x.sum(1, True) / n
        weighted = centred
    else:
        count = w.sum()
        squares = count if aweights is None or free == 0 else (
            (w * fold.cast(uop_of(aweights), t)).sum() / count)  # fmt: skip
        factor = count - (free if aweights is None else free * squares)
        centred = x - (x * w).sum(1, True) / count
        weighted = centred * w
    made = nn.matmul(weighted, centred.transpose()) / factor.maximum(0)
    return same_kind(made.squeeze() if made.shape == (1, 1) else made, given)


def _observed(uops: list[UOp], rowvar: bool) -> UOp:
    """One matrix with a row for each variable."""
    rows = []
    for i, u in enumerate(uops):
        if u.ndim > 2:
            raise UserError(f"cov: {'my'[i]} has more than 2 dimensions: {shapes.show(u.shape)}")
        matrix = u if u.ndim == 2 else u.reshape(1, -1)
        as_rows = rowvar or u.ndim < 2 or (i == 1 and u.shape[0] == 1)
        rows.append(matrix if as_rows else matrix.transpose())
    first, *others = rows
    return first.cat(*others, axis=0) if others else first


def _observation_weights(n: Any, fweights: Any, aweights: Any, t: DType) -> UOp | None:
    """The product of both weights of n observations."""
    found: UOp | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        w = uop_of(given, "cov")
        if name == "fweights" and not w.dtype.is_int:
            raise UserTypeError(f"cov: fweights must be integers, got {w.dtype.name}")
        if w.shape != (n,):
            raise UserError(f"cov: {name} must have the shape ({n},), got {shapes.show(w.shape)}")
        w = fold.cast(w, t)
        found = w if found is None else found * w
    return found


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlations of variables, from -1 to 1: `cov` over both standard deviations.

    A matrix; a number for one variable. NaN for a variable that is constant.

    Examples:
        >>> np.asarray(unp.corrcoef(unp.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])))
        array([[ 1., -1.],
               [-1.,  1.]])
    """
    c = uop_of(cov(x, y, rowvar, dtype=dtype))
    if not c.ndim:
        return same_kind(c / c, (x, y))
    n = leaves.iota(c.shape[0])
    deviations = c[n, n].sqrt()
    made = c / deviations.reshape(-1, 1) / deviations
    return same_kind(made.maximum(-1).minimum(1), (x, y))
