"""Reductions, searches and sorts of complex numbers. Their order is NumPy's: by real parts, then by
imaginary parts, NaN last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks
from uopc.ir.builder.movement import normal_axes, normal_axis
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.numpy import comparisons, namespace, reductions
from uopc.numpy.array import Array, same_kind
from uopc.numpy.complexes import elementwise, formulas, moved
from uopc.numpy.complexes.arrays import ComplexArray, ComplexParts, dtype_of, made
from uopc.numpy.dtype_functions import FORMS
from uopc.numpy.reductions import check_some
from uopc.numpy.samples.statistics import average as average_of
from uopc.tensor import elementwise as uops

Function = Callable[..., Any]


# ---------------------------------------------------------------- sums, and what is true
def _of_truth(name: str) -> Function:
    function = getattr(namespace, name)

    def form(x: Any, /, *args: Any, **named: Any) -> Any:
        return function(same_kind(elementwise.truth(x), (x,)), *args, **named)

    return form


def _sum(name: str) -> Function:
    function = getattr(namespace, name)

    def form(x: Any, /, axis: Any = None, dtype: Any = None, *args: Any, **named: Any) -> Any:
        given = moved.asarray(x) if dtype is None else moved.astype(x, dtype)
        if not given.is_complex:
            return function(given, axis, None, *args, **named)
        return ComplexArray(*[function(p, axis, None, *args, **named)
                              for p in (given.re, given.im)])  # fmt: skip

    return form


def _without_nan(x: Any, fill: float) -> Any:
    return elementwise.where(FORMS["isnan"](x), fill, x)


def mean(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
    z = moved.asarray(x)
    return ComplexArray(*[reductions.mean(p, axis=axis, keepdims=keepdims) for p in (z.re, z.im)])


def variance(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The mean square of distances from the mean, which is real."""
    z = moved.asarray(x)
    var = reductions.FUNCTIONS["var"]
    first, second = (var(p, axis=axis, correction=correction, keepdims=keepdims)
                     for p in (z.re, z.im))  # fmt: skip
    return first + second


def deviation(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    return namespace.sqrt(variance(x, axis, correction, keepdims))


def average(a: Any, axis: Any = None, weights: Any = None, **named: Any) -> Any:
    """The mean with real weights."""
    z = moved.asarray(a)
    if weights is None or not getattr(moved.asarray(weights), "is_complex", False):
        parts = [average_of(p, axis, weights, **named) for p in (z.re, z.im)]
        return ComplexArray(*parts)
    raise UserTypeError("average: complex weights are not supported")


# ---------------------------------------------------------------- products
def _last(z: Any, axis: Any, who: str) -> tuple[ComplexArray, tuple[int, ...]]:
    """The array with the reduced axes as one last axis of known length, and these axes."""
    rank = len(z.shape)
    axes = tuple(normal_axes(axis, rank, who))
    kept = [i for i in range(rank) if i not in axes]
    length = shapes.size(tuple([z.shape[i] for i in axes]))
    if not isinstance(length, int):
        raise UserError(f"{who}: complex numbers along an axis of symbolic size")
    turned = namespace.transpose(z, (*kept, *axes))
    return namespace.reshape(turned, (*[z.shape[i] for i in kept], length)), axes


def _with_kept(found: Any, z: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if not keepdims:
        return found
    return namespace.reshape(found, tuple([1 if i in axes else d for i, d in enumerate(z.shape)]))


def prod(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product, by halves: log n rows of products."""
    z = moved.asarray(x) if dtype is None else moved.astype(x, dtype)
    line, axes = _last(z, axis, "prod")
    rest = [line.re.uop, line.im.uop]
    n = shapes.shape(rest[0])[-1]
    while isinstance(n, int) and n > 1:
        half = n // 2
        first, second = (ComplexParts(*[p[..., a : a + half] for p in rest]) for a in (0, half))
        odd = [p[..., 2 * half :] for p in rest]
        rest = _both(formulas.multiply(first, second))
        rest = [p.cat(o, axis=-1) if n % 2 else p for p, o in zip(rest, odd)]
        n = half + n % 2
    if n == 0:
        return FORMS["ones"](tuple([d for i, d in enumerate(z.shape) if i not in axes]),
                             dtype=line.dtype)  # fmt: skip
    found = made(ComplexParts(*[p[..., 0] for p in rest]), (x,))
    return _with_kept(found, z, axes, keepdims)


def _both(parts: ComplexParts) -> list[UOp]:
    return [p for p in parts if p is not None]


def _running_product(z: ComplexArray, axis: int) -> ComplexArray:
    """Products of the elements up to each one, by doubling.

    W. D. Hillis and G. L. Steele, 1986.
    """
    rest = [z.re.uop, z.im.uop]
    n = z.shape[axis]
    if not isinstance(n, int):
        raise UserError("cumulative_prod: complex numbers along an axis of symbolic size")
    step = 1
    before = (slice(None),) * axis
    while step < n:
        late, early = ((*before, slice(step, None)), (*before, slice(0, n - step)))
        first = (*before, slice(0, step))
        both = [ComplexParts(*[p[part] for p in rest]) for part in (early, late)]
        found = formulas.multiply(*both)
        rest = [uops.contiguous(p[first].cat(q, axis=axis)) for p, q in zip(rest, _both(found))]
        step *= 2
    return made(ComplexParts(*rest), (z,))


def cumulative_prod(
    x: Any, /, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Products of the elements up to each one."""
    z = moved.asarray(x) if dtype is None else moved.astype(x, dtype)
    if axis is None and len(z.shape) != 1:
        raise UserError(f"cumulative_prod: axis is needed for {len(z.shape)} dimensions")
    axis = normal_axis(0 if axis is None else axis, len(z.shape), "cumulative_prod")
    found = _running_product(z, axis)
    if not checks.flag("cumulative_prod", "include_initial", include_initial):
        return found
    first = [1 if i == axis else d for i, d in enumerate(z.shape)]
    return FORMS["concat"]([FORMS["ones"](tuple(first), dtype=z.dtype), found], axis=axis)


def cumprod(x: Any, /, axis: int | None = None, dtype: Any = None) -> Any:
    z = namespace.reshape(moved.asarray(x), (-1,)) if axis is None else x
    return cumulative_prod(z, 0 if axis is None else axis, dtype)


# ---------------------------------------------------------------- order
def argsort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Order by imaginary parts, by real parts, and by which parts are NaN: each sort is stable."""
    z = moved.asarray(x)
    rank = namespace.isnan(z.re) * 2 + namespace.isnan(z.im)
    order = None
    for key in (z.im, z.re, rank):
        by = key if order is None else namespace.take_along_axis(key, order, axis=axis)
        found = namespace.argsort(by, axis=axis, descending=descending)
        order = found if order is None else namespace.take_along_axis(order, found, axis=axis)
    return order


def sort(x: Any, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> Any:
    order = argsort(x, axis, descending=descending)
    return FORMS["take_along_axis"](moved.asarray(x), order, axis=axis)


def _place(line: ComplexArray, greatest: bool) -> Array:
    """The place in the last axis of the first NaN, or of the first greatest or least number."""
    extreme = namespace.max if greatest else namespace.min
    lost = namespace.isnan(line.re) | namespace.isnan(line.im)
    best = line.re == extreme(line.re, axis=-1, keepdims=True)
    worst = float("-inf") if greatest else float("inf")
    im = namespace.where(best, line.im, worst)
    best = best & (im == extreme(im, axis=-1, keepdims=True))
    found: Array = namespace.where(
        namespace.any(lost, axis=-1), namespace.argmax(lost, axis=-1),
        namespace.argmax(best, axis=-1),
    )  # fmt: skip
    return found


def _extreme(name: str, greatest: bool) -> Function:
    def form(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        z = moved.asarray(x)
        check_some(z.re.uop, axis, name)
        line, axes = _last(z, axis, name)
        at = _place(line, greatest)
        found = FORMS["take_along_axis"](line, namespace.expand_dims(at, axis=-1), axis=-1)
        return _with_kept(FORMS["squeeze"](found, -1), z, axes, keepdims)

    return form


def _argument(name: str, greatest: bool) -> Function:
    def form(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Any:
        z = moved.asarray(x)
        check_some(z.re.uop, axis, name)
        line, axes = _last(z, axis, name)
        return _with_kept(_place(line, greatest), z, axes, keepdims)

    return form


# ---------------------------------------------------------------- comparisons
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """A bool for each pair of elements whose distance is small."""
    x, y = (moved.asarray(v) for v in (a, b))
    near = namespace.abs(x - y) <= atol + rtol * namespace.abs(y)
    found = (near & namespace.isfinite(y)) | (x == y)
    if checks.flag("isclose", "equal_nan", equal_nan):
        found = found | (namespace.isnan(x) & namespace.isnan(y))
    return found


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    return namespace.all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """A single bool: True if shapes and elements are equal."""
    x, y = (moved.asarray(v) for v in (a1, a2))
    if x.shape != y.shape:
        return comparisons.array_equal(x.real, y.real)
    same = x == y
    if checks.flag("array_equal", "equal_nan", equal_nan):
        same = same | (namespace.isnan(x) & namespace.isnan(y))
    return namespace.all(same)


def polyval(p: Any, x: Any) -> Any:
    """By W. G. Horner's rule."""
    coefficients = moved.asarray(p)
    z = moved.asarray(x)
    found = FORMS["zeros_like"](z, dtype_of([coefficients, z]))
    for i in range(coefficients.shape[0]):
        found = found * z + coefficients[i]
    return found


FORMS.update({n: _of_truth(n) for n in (
    "any", "all", "count_nonzero", "nonzero", "flatnonzero", "argwhere",
)})  # fmt: skip
FORMS.update({n: _sum(n) for n in ("sum", "cumsum", "cumulative_sum")})
FORMS.update({
    "nansum": lambda x, /, *a, **k: FORMS["sum"](_without_nan(x, 0.0), *a, **k),
    "nanprod": lambda x, /, *a, **k: prod(_without_nan(x, 1.0), *a, **k),
    "mean": mean, "var": variance, "std": deviation, "average": average,
    "prod": prod, "cumprod": cumprod, "cumulative_prod": cumulative_prod,
    "sort": sort, "argsort": argsort,
    "max": _extreme("max", True), "min": _extreme("min", False),
    "argmax": _argument("argmax", True), "argmin": _argument("argmin", False),
    "isclose": isclose, "allclose": allclose, "array_equal": array_equal, "polyval": polyval,
})  # fmt: skip
