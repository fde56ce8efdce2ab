"""Reductions and searches of the Array API: along an axis, several (a tuple) or all (None)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, fold, movement
from uopc.ir.builder.movement import normal_axis
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.numpy import creation, elementwise
from uopc.numpy.array import float_of, promoted, same_kind, uop_of
from uopc.numpy.dtype_functions import as_dtype
from uopc.tensor import examples, nn, reductions

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum", "cumulative_prod",
    "cumulative_sum", "diff", "logsumexp", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Function = Callable[..., Any]
OVER = (
    "\n\nOver `axis` (an int, a tuple, or None for all), which the result lacks, or has with size 1"
    " (`keepdims`). UserIndexError for an axis that x lacks."
)


def whole_dtype(t: DType) -> DType:
    """Sums of bool and integers have 64 bits."""
    if t.is_float:
        return t
    return dtypes.uint64 if t.kind == "uint" else dtypes.int64


def _total(name: str, doc: str) -> Function:
    method = reductions.METHODS[name]

    def function(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        u = uop_of(x, name)
        t = as_dtype(dtype, whole_dtype(u.dtype))
        return same_kind(fold.cast(method(fold.cast(u, t), axis, keepdims), t), (x,))

    return examples.documented(function, name, doc + OVER)


def _choice(name: str, doc: str) -> Function:
    method = reductions.METHODS[name]

    def function(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        u = uop_of(x, name)
        if name in ("max", "min"):
            check_some(u, axis, name)
        return same_kind(method(u, axis, keepdims), (x,))

    return examples.documented(function, name, doc + OVER)


def check_no_out(name: str, out: Any) -> None:
    """UserTypeError for an array to write into."""
    if out is not None:
        raise UserTypeError(
            f"numpy.{name} of a UOp or Array takes no out=: write x = numpy.{name}(...)"
        )


def chosen(a: Any, where: Any, fill: Any) -> Any:
    """The elements where a mask holds, and `fill` elsewhere, in their dtype."""
    return a if where is True else elementwise.where(where, a, creation.full_like(a, fill))


def with_initial(name: str, combined: str, found: Any, initial: Any) -> Any:
    """A result of a reduction, combined with the number that it begins with."""
    if initial is None:
        return found
    if uop_of(initial, name).ndim:
        raise UserError(f"numpy.{name}: initial must be one number, got {initial!r}")
    return elementwise.FUNCTIONS[combined](found, creation.full_like(found, initial))


def check_some(u: UOp, axis: Any, who: str) -> None:
    """UserError for axes without elements."""
    dims = shapes.shape(u)
    if 0 in [dims[i] for i in movement.normal_axes(axis, len(dims), who)]:
        raise UserError(f"{who} over no elements of {shapes.show(dims)}")


sum = _total("sum", "The sum, in the dtype of x; of bool and integers in 64 bits.")
prod = _total("prod", "The product, in the dtype of x; of bool and integers in 64 bits.")
max = _choice("max", "The greatest element; NaN if there is one. UserError over no elements.")
min = _choice("min", "The least element; NaN if there is one. UserError over no elements.")
any = _choice("any", "A bool: True if an element is not 0.")
all = _choice("all", "A bool: True if no element is 0.")


def mean(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
    """The arithmetic mean; of integers as float64.

    Over `axis` (an int, a tuple, or None for all), which the result lacks, or has with size 1
    (`keepdims`). NaN over no elements.

    Examples:
        >>> np.asarray(unp.mean(unp.asarray([[1, 2], [3, 6]]), axis=0))
        array([2., 4.])
    """
    return same_kind(reductions.mean(float_of(x, "mean"), axis, keepdims), (x,))


def var(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The variance: the sum of squared distances from the mean over (count - correction).

    In the dtype of x; of integers as float64. `axis` and `keepdims` are those of `mean`. NaN where
    the count is not greater than the correction.

    Examples:
        >>> x = unp.asarray([1.0, 2.0, 3.0, 6.0])
        >>> float(unp.var(x)), round(float(unp.var(x, correction=1)), 6)
        (3.5, 4.666667)
    """
    return same_kind(reductions.var(float_of(x, "var"), axis, keepdims, correction), (x,))


def std(x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The square root of the variance.

    In the dtype of x; of integers as float64. See `var`.

    Examples:
        >>> float(unp.std(unp.asarray([2, 4, 4, 4, 5, 5, 7, 9])))
        2.0
    """
    return same_kind(reductions.std(float_of(x, "std"), axis, keepdims, correction), (x,))


def count_nonzero(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of elements that are not 0.

    int64, over `axis` (an int, a tuple, or None for all).

    Examples:
        >>> int(unp.count_nonzero(unp.asarray([0, 3, 0, -1])))
        2
    """
    u = fold.cast(uop_of(x, "count_nonzero"), dtypes.bool_)
    return same_kind(fold.cast(u, dtypes.int64).sum(axis, keepdims), (x,))


def _place(name: str, which: str) -> Function:
    method = getattr(reductions, name)

    def function(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Any:
        return same_kind(fold.cast(method(uop_of(x, name), axis, keepdims), dtypes.int64), (x,))

    doc = f"The place of the first {which} element (of the first NaN), as int64; of the flattened"
    doc += " array without an axis. UserError over no elements."
    return examples.documented(function, name, doc)


argmax, argmin = _place("argmax", "greatest"), _place("argmin", "least")


def _cumulative(name: str, doc: str, method: Callable[..., UOp], first: int) -> Function:
    def function(
        x: Any, /, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        u = uop_of(x, name)
        dims = shapes.shape(u)
        if axis is None:
            if len(dims) != 1:
                raise UserError(f"{name}: axis is needed for {len(dims)} dimensions")
            axis = 0
        axis = normal_axis(axis, len(dims), name)
        t = as_dtype(dtype, whole_dtype(u.dtype))
        made = fold.cast(method(fold.cast(u, t), axis), t)
        if include_initial:
            made = made.pad([(int(i == axis), 0) for i in range(len(dims))], first)
        return same_kind(made, (x,))

    within = "up to each one; of integers in 64 bits"
    doc = f"{doc} {within}. `include_initial`: a {first} first, one element more.\n\n"
    doc += "UserError without an axis for several dimensions."
    return examples.documented(function, name, doc)


def _of_flattened(name: str, standard: Function) -> Function:
    def function(x: Any, /, axis: int | None = None, dtype: Any = None) -> Any:
        u = uop_of(x, name)
        whole = u.reshape(-1) if axis is None else u
        return same_kind(standard(whole, 0 if axis is None else axis, dtype), (x,))

    doc = f"NumPy's {standard.__name__}: of the flattened array without an axis."
    doc += " In the dtype of x; of bool and integers in 64 bits."
    return examples.documented(function, name, doc)


cumulative_sum = _cumulative("cumulative_sum", "Sums of the elements", reductions.cumsum, 0)
cumulative_prod = _cumulative(
    "cumulative_prod", "Products of the elements", reductions.cumprod, 1
)
cumsum = _of_flattened("cumsum", cumulative_sum)
cumprod = _of_flattened("cumprod", cumulative_prod)


def logsumexp(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
    """log of the sum of e^x, without overflow in between.

    Integers are made float64 first; -inf over no elements.

    Examples:
        >>> np.asarray(unp.logsumexp(unp.asarray([1000.0, 1000.0])))
        array(1000.69314718)
    """
    return same_kind(nn.logsumexp(float_of(x, "logsumexp"), axis, keepdims), (x,))


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Any:
    """The n-th differences of neighbours along an axis.

    `prepend` and `append` are set before and behind x first. UserError for a negative n.

    Examples:
        >>> np.asarray(unp.diff(unp.asarray([1, 4, 9, 16])))
        array([3, 5, 7])
    """
    if type(n) is not int or n < 0:
        raise UserError(f"diff: n must be 0 or more, got {n!r}")
    given = [v for v in (prepend, x, append) if v is not None] if n else [x]
    dims = shapes.shape(uop_of(x, "diff"))
    axis = normal_axis(axis, len(dims), "diff")
    edge = tuple([1 if i == axis else d for i, d in enumerate(dims)])
    uops = [u if shapes.shape(u) else u.expand(edge) for u in promoted("diff", *given)[0]]
    u = uops[0].cat(*uops[1:], axis=axis)
    before = (slice(None),) * axis
    for _ in range(n):
        later = u[(*before, slice(1, None))]
        left = [(0, d) for d in shapes.shape(later)]
        earlier = u.shrink(left)
        differ = u.dtype.kind == "bool"
        u = alu.alu(later, Ops.CMPNE if differ else Ops.SUB, earlier)
    return same_kind(u, given)


def data_dependent(name: str) -> Function:
    """A function of the standard whose result has a shape that depends on values."""

    why = f"{name}: the shape of the result depends on values; use where(), or a count and top_k"

    def function(*args: Any, **named: Any) -> Any:
        raise UserTypeError(why)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "uopc.numpy"
    function.__doc__ = "Refused: the shape of the result depends on values." + examples.section(
        f">>> unp.{name}(unp.asarray([0, 3]))",
        "Traceback (most recent call last):",
        f"uopc.errors.UserTypeError: {why}",
    )
    return function
