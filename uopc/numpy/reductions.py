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
from uopc.tensor import table
from uopc.tensor.examples import with_name
from uopc.tensor.table import Reduction

__all__ = [
    "count_nonzero", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff",
]  # fmt: skip

Function = Callable[..., Any]


def of_row(function: Function, row: Reduction, more: str = "") -> Function:
    """Name a row's function and set its docstring; `more`: a sentence on its options."""
    return with_name(function, "uopc.numpy", row.name, table.reduction_doc(row, more))


def whole_dtype(t: DType) -> DType:
    """The dtype of a sum: 64 bits for bool and integers."""
    if t.is_float:
        return t
    return dtypes.uint64 if t.kind == "uint" else dtypes.int64


def _total(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(x: Any, /, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        u = uop_of(x, name)
        t = as_dtype(dtype, whole_dtype(u.dtype))
        return same_kind(fold.cast(method(fold.cast(u, t), axis, keepdims), t), (x,))

    return of_row(function, row)


def _choice(row: Reduction) -> Function:
    name, method, needs_some = row.name, row.function, row.gives == "greatest"

    def function(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        u = uop_of(x, name)
        if needs_some:
            check_some(u, axis, name)
        return same_kind(method(u, axis, keepdims), (x,))

    return of_row(function, row)


def check_no_out(name: str, out: Any) -> None:
    """UserTypeError for an array to write into."""
    if out is not None:
        raise UserTypeError(
            f"numpy.{name} of a UOp or Array takes no out=: write x = numpy.{name}(...)"
        )


def chosen(a: Any, where: Any, fill: Any) -> Any:
    """Replace the elements where a mask does not hold by `fill`; the dtype stays."""
    return a if where is True else elementwise.where(where, a, creation.full_like(a, fill))


def with_initial(name: str, combined: str, found: Any, initial: Any) -> Any:
    """Combine the result of a reduction with its initial value."""
    if initial is None:
        return found
    if uop_of(initial, name).ndim:
        raise UserError(f"numpy.{name}: initial must be one number, got {initial!r}")
    return elementwise.FUNCTIONS[combined](found, creation.full_like(found, initial))


def check_some(u: UOp, axis: Any, who: str) -> None:
    """UserError if the reduced axes have no elements."""
    dims = shapes.shape(u)
    if 0 in [dims[i] for i in movement.normal_axes(axis, len(dims), who)]:
        raise UserError(f"{who}: an axis of {shapes.show(dims)} has no elements")


def _of_floats(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
        return same_kind(method(float_of(x, name), axis, keepdims), (x,))

    return of_row(function, row)


def _spread(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(
        x: Any, /, axis: Any = None, correction: float = 0.0, keepdims: bool = False
    ) -> Any:
        return same_kind(method(float_of(x, name), axis, keepdims, correction), (x,))

    return of_row(function, row)


def count_nonzero(x: Any, /, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of elements that are not 0.

    int64, over `axis` (an int, a tuple, or None for all).

    Examples:
        >>> int(unp.count_nonzero(unp.asarray([0, 3, 0, -1])))
        2
    """
    u = fold.cast(uop_of(x, "count_nonzero"), dtypes.bool_)
    return same_kind(fold.cast(u, dtypes.int64).sum(axis, keepdims), (x,))


def _place(row: Reduction) -> Function:
    name, method = row.name, row.function

    def function(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Any:
        return same_kind(fold.cast(method(uop_of(x, name), axis, keepdims), dtypes.int64), (x,))

    return of_row(function, row)


def _cumulative(row: Reduction, first: int) -> Function:
    name, method = row.name, row.function

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

    return of_row(function, row)


def _of_flattened(row: Reduction, standard: Function) -> Function:
    name = row.name

    def function(x: Any, /, axis: int | None = None, dtype: Any = None) -> Any:
        u = uop_of(x, name)
        whole = u.reshape(-1) if axis is None else u
        return same_kind(standard(whole, 0 if axis is None else axis, dtype), (x,))

    return of_row(function, row)


_ROWS = {row.name: row for row in table.REDUCTIONS if row.numpy}
_KINDS = {
    "total": _total, "greatest": _choice, "truth": _choice, "mean": _of_floats, "spread": _spread,
    "float": _of_floats, "place": _place,
}  # fmt: skip
FUNCTIONS: dict[str, Function] = {
    name: _KINDS[row.gives](row)
    for name, row in _ROWS.items() if row.gives in _KINDS and not row.skips_nan
}  # fmt: skip
sum, prod, mean, all = (FUNCTIONS[name] for name in ("sum", "prod", "mean", "all"))
cumulative_sum = _cumulative(_ROWS["cumulative_sum"], 0)
cumulative_prod = _cumulative(_ROWS["cumulative_prod"], 1)
cumsum = _of_flattened(_ROWS["cumsum"], cumulative_sum)
cumprod = _of_flattened(_ROWS["cumprod"], cumulative_prod)


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Any:
    """The n-th differences of neighbours along an axis.

    `prepend` and `append` are joined to x first. UserError for a negative n.

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
