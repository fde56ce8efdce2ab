"""Statistics by NumPy's names: counts, histograms, quantiles, reductions that skip NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, fold, leaves
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy import elementwise, reductions
from uopc.numpy.array import (
    Array,
    common_dtype,
    float_of,
    is_weak,
    promoted,
    same_kind,
    uop_of,
)
from uopc.numpy.dtype_functions import as_dtype
from uopc.numpy.manipulation import own_axes
from uopc.tensor import examples, scatter, statistics, table
from uopc.tensor.examples import with_name
from uopc.tensor.matrices import products
from uopc.tensor.table import Reduction

__all__ = [
    "average", "bincount", "corrcoef", "cov", "histogram", "histogram_bin_edges", "nanpercentile",
    "nanquantile", "percentile", "quantile",
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
        a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False,
        out: None = None, overwrite_input: bool = False, weights: Any = None,
    ) -> Any:  # fmt: skip
        _check_unwritten(name, out, overwrite_input)
        if weights is not None:
            raise UserTypeError(f"{name}: weights are not supported")
        u, shares, skip = uop_of(a, name), _unwrapped(q, name), name.startswith("nan")
        t = _quantile_dtype(u.dtype, q, method, most)
        chosen = "lower" if not t.is_float and method == "linear" else method
        made = statistics.quantile_of(name, u, shares, axis, keepdims, chosen, skip, most, t)
        return same_kind(made, (a, q))

    made = (
        "in the dtype that x and q promote to, or that of x where the method chooses an element."
        " UserTypeError for weights, `out` and `overwrite_input`"
    )
    example = examples.of_function(name, examples.ROWS[name])
    return with_name(function, "uopc.numpy", name, f"{doc} See `UOp.quantile`; {made}.{example}")


def _quantile_dtype(t: DType, q: Any, method: str, most: int) -> DType:
    """NumPy's dtype of a quantile: that of an element if one is chosen (also by a share of 0 or 1);
    else that of x and q promoted, where a Python number q does not widen x."""
    given = uop_of(q).dtype.scalar
    chooses = given.is_int and most == 1 and method == "linear"
    if chooses or method in ("lower", "higher", "nearest"):
        return t
    if is_weak(q):
        return t if t.is_float else dtypes.float64
    share = given if given.is_float else dtypes.float64
    return common_dtype([Array(leaves.const(v, 0)) for v in (t, share)])


_NUMBERS = "of the elements that are not NaN"
quantile = _quantile("quantile", "The value below which the share q of the elements lies.")
percentile = _quantile("percentile", "`quantile`, with q from 0 to 100.", 100)
nanquantile = _quantile("nanquantile", f"`quantile` {_NUMBERS}.")
nanpercentile = _quantile("nanpercentile", f"`percentile` {_NUMBERS}.", 100)


# ---------------------------------------------------------------- without NaN
def _check_unwritten(name: str, out: Any, overwrite_input: Any) -> None:
    reductions.check_no_out(name, out)
    if checks.flag(name, "overwrite_input", overwrite_input):
        raise UserTypeError(f"{name}: an array never changes: leave overwrite_input out")


def _median(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(
        a: Any, axis: Any = None, keepdims: bool = False, *, out: None = None,
        overwrite_input: bool = False,
    ) -> Any:  # fmt: skip
        _check_unwritten(name, out, overwrite_input)
        return same_kind(method(float_of(a, name), axis, keepdims), (a,))

    return reductions.of_row(function, row)


_MASKED = " Only elements where the mask `where` holds count."
_OPTIONS = f"{_MASKED} `initial` is a number to begin with."


def _floats(a: Any, dtype: Any, where: Any, name: str) -> UOp:
    """Cast elements to a float dtype; NaN where a mask does not hold."""
    u = uop_of(a, name)
    u = float_of(fold.cast(u, as_dtype(dtype, u.dtype)), name)
    if where is True:
        return u
    return uop_of(elementwise.where(where, u, leaves.const_like(u, math.nan)))


def _mean(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(
        a: Any, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, out: None = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        reductions.check_no_out(name, out)
        return same_kind(method(_floats(a, dtype, where, name), axis, keepdims), (a, where))

    return reductions.of_row(function, row, _MASKED)


def _deviation(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(
        a: Any, axis: Any = None, correction: float = 0.0, keepdims: bool = False, *,
        ddof: float | None = None, dtype: Any = None, out: None = None, where: Any = True,
    ) -> Any:  # fmt: skip
        reductions.check_no_out(name, out)
        free = correction if ddof is None else ddof
        made = method(_floats(a, dtype, where, name), axis, keepdims, free)
        return same_kind(made, (a, where))

    options = f"{_MASKED} `ddof` is NumPy's name of `correction`."
    return reductions.of_row(function, row, options)


def with_options(
    name: str, total: Function, combined: str, identity: int, skips_nan: bool
) -> Function:
    """Make a sum or product with NumPy's options; `combined`: the name of the binary function."""

    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
        initial: Any = None, where: Any = True,
    ) -> Any:  # fmt: skip
        reductions.check_no_out(name, out)
        given = a
        if skips_nan:
            given = same_kind(statistics.filled(uop_of(a, name), identity), (a,))
        found = total(reductions.chosen(given, where, identity), axis, dtype, keepdims)
        return reductions.with_initial(name, combined, found, initial)

    return function


def _filled(row: Reduction) -> Function:
    function = with_options(row.name, *_TOTALS[row.name], skips_nan=True)
    return reductions.of_row(function, row, _OPTIONS)


def _running(row: Reduction) -> Function:
    name = row.name
    total, value = _RUNNING[name]

    def function(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        reductions.check_no_out(name, out)
        return total(same_kind(statistics.filled(uop_of(a, name), value), (a,)), axis, dtype)

    return reductions.of_row(function, row)


def extreme(name: str, method: Callable[..., UOp], combined: str) -> Function:
    """Make the greatest or least element with NumPy's options."""

    def function(
        a: Any, axis: Any = None, keepdims: bool = False, *, out: None = None, initial: Any = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        reductions.check_no_out(name, out)
        if where is not True and initial is None:
            raise UserError(
                f"numpy.{name}: where= needs initial=, the result if no element is chosen"
            )
        u = uop_of(reductions.chosen(a, where, initial), name)
        if initial is None:
            reductions.check_some(u, axis, name)
        found = same_kind(method(u, axis, keepdims), (a, where))
        return reductions.with_initial(name, combined, found, initial)

    return function


def _extreme(row: Reduction) -> Function:
    function = extreme(row.name, row.function, row.name.replace("nan", "f"))
    return reductions.of_row(function, row, _OPTIONS)


def _extreme_place(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(a: Any, axis: Any = None, keepdims: bool = False, *, out: None = None) -> Any:
        reductions.check_no_out(name, out)
        u = uop_of(a, name)
        reductions.check_some(u, axis, name)
        return same_kind(fold.cast(method(u, axis, keepdims), dtypes.int64), (a,))

    return reductions.of_row(function, row)


_TOTALS = {"nansum": (reductions.sum, "add", 0), "nanprod": (reductions.prod, "multiply", 1)}
_RUNNING = {"nancumsum": (reductions.cumsum, 0.0), "nancumprod": (reductions.cumprod, 1.0)}
_KINDS = {
    "total": _filled, "greatest": _extreme, "mean": _mean, "spread": _deviation, "middle": _median,
    "place": _extreme_place, "running": _running,
}  # fmt: skip
FUNCTIONS: dict[str, Function] = {
    row.name: _KINDS[row.gives](row)
    for row in table.REDUCTIONS if row.skips_nan or row.gives == "middle"
}  # fmt: skip


# ---------------------------------------------------------------- weights, and pairs of variables
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The weighted mean over `axis` (an int, a tuple, or None for all); with `returned` also the
    sum of the weights, in the same shape.

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
    """Broadcast weights to the axes of x; weights have all axes of x, or only the averaged axes."""
    if w.shape == x.shape:
        return w
    if axis is None:
        shown = f"{shapes.show(w.shape)} for {shapes.show(x.shape)}"
        raise UserTypeError(f"average: weights of another shape need axis=, got {shown}")
    axes = own_axes(axis, x.ndim, "average")
    if w.shape != tuple([x.shape[i] for i in axes]):
        both = f"{shapes.show(w.shape)} for {shapes.show(x.shape)}"
        raise UserError(f"average: weights must have the sizes of axes {axes}, got {both}")
    w = w.permute([axes.index(i) for i in sorted(axes)])
    return w.reshape([d if i in axes else 1 for i, d in enumerate(x.shape)])


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """The covariances of variables, each a row of m and y (a column without `rowvar`).

    A matrix; a number for one variable. The divisor is the number of observations minus 1, minus
    `ddof`, or with `bias` minus 0. `fweights`: how often each observation counts (integers);
    `aweights`: its weight. At least float64, or `dtype`; NaN or infinities for too few
    observations. UserError for more than 2 dimensions, and for weights that do not fit;
    UserTypeError for frequencies that are no integers, and for a dtype that is no float.

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
    made = products.matmul(weighted, centred.transpose()) / factor.maximum(0)
    return same_kind(made.squeeze() if made.shape == (1, 1) else made, given)


def _observed(uops: list[UOp], rowvar: bool) -> UOp:
    """Stack the variables as rows of one matrix."""
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
    """Multiply both weights of n observations."""
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
    """The correlations of variables, from -1 to 1: `cov` divided by both standard deviations.

    Returns a matrix; a number for a single variable. NaN for a constant variable.

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
