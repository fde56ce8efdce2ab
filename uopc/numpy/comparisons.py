"""Tests whether arrays are close or equal, and whether elements are in a set."""

from __future__ import annotations

from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, fold, leaves
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop
from uopc.numpy.array import promoted, same_kind, uop_of
from uopc.numpy.reductions import all as _all
from uopc.tensor import float_functions
from uopc.tensor.sorts import sorting

__all__ = ["allclose", "array_equal", "array_equiv", "isclose", "isin"]

_FEW = 64  # elements that are compared one by one; of more, the sorted ones are searched


def _same(x: UOp, y: UOp, equal_nan: bool) -> UOp:
    same: UOp = alu.alu(x, Ops.CMPEQ, y)
    if not (equal_nan and x.dtype.is_float):
        return same
    return same | (float_functions.isnan(x) & float_functions.isnan(y))


def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Any:
    """A bool for each pair of elements: abs(a - b) <= atol + rtol * abs(b), or equal infinities.

    Integers are compared as float64, and the tolerances broadcast; NaNs are close with `equal_nan`.

    Examples:
        >>> np.asarray(unp.isclose(unp.asarray([1.0, 2.0]), unp.asarray([1.0 + 1e-9, 2.1])))
        array([ True, False])
    """
    given = (a, b, rtol, atol)
    (x, y, relative, absolute), _ = promoted("isclose", *given, floats=True)
    near = abs(x - y) <= absolute + relative * abs(y)
    found = (near & float_functions.isfinite(y)) | _same(x, y, _flag("isclose", equal_nan))
    return same_kind(found, given)


def _flag(who: str, equal_nan: Any) -> bool:
    return checks.flag(who, "equal_nan", equal_nan)


def allclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Any:
    """A single bool: True if all elements are close, as in `isclose`.

    Examples:
        >>> bool(unp.allclose(unp.asarray([1.0, 2.0]), unp.asarray([1.0, 2.0 + 1e-9])))
        True
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """A single bool: True if the shapes and all elements are equal, NaNs too with `equal_nan`.

    UserError for variable sizes that may be equal or not.

    Examples:
        >>> bool(unp.array_equal(unp.asarray([1, 2]), unp.asarray([1.0, 2.0])))
        True
    """
    (x, y), _ = promoted("array_equal", a1, a2)
    nan = _flag("array_equal", equal_nan)
    alike = _same_shape(x, y)
    made = _same(x, y, nan).all() if alike else leaves.const(dtypes.bool_, False)
    return same_kind(made, (a1, a2))


def _same_shape(x: UOp, y: UOp) -> bool:
    pairs = list(zip(x.shape, y.shape))
    if x.ndim != y.ndim or any(isinstance(d, int) and isinstance(e, int) and d != e
                               for d, e in pairs):  # fmt: skip
        return False
    if any(d is not e for d, e in pairs if not (isinstance(d, int) and isinstance(e, int))):
        both = f"{shapes.show(x.shape)} and {shapes.show(y.shape)}"
        raise UserError(f"array_equal: the sizes of the shapes {both} must be known")
    return True


def array_equiv(a1: Any, a2: Any) -> Any:
    """A single bool: True if the shapes broadcast, and all elements are equal then.

    Examples:
        >>> bool(unp.array_equiv(unp.asarray([1, 1]), unp.asarray(1)))
        True
    """
    (x, y), _ = promoted("array_equiv", a1, a2)
    try:
        shapes.broadcast([x.shape, y.shape])
    except UserError:
        return same_kind(leaves.const(dtypes.bool_, False), (a1, a2))
    return same_kind(_same(x, y, False).all(), (a1, a2))


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: str | None = None,
) -> Any:  # fmt: skip
    """A bool for each element: True if `test_elements` has it; with `invert`, if not.

    The result has the shape of `element`. `assume_unique` and `kind` ("sort", "table" or None) only
    choose NumPy's method. UserError for another kind.

    Examples:
        >>> np.asarray(unp.isin(unp.asarray([[1, 2], [3, 4]]), [2, 4, 8]))
        array([[False,  True],
               [False,  True]])
    """
    if kind not in (None, "sort", "table"):
        raise UserError(f"isin: kind must be 'sort', 'table' or None, got {kind!r}")
    checks.flag("isin", "assume_unique", assume_unique)
    (x, tests), _ = promoted("isin", element, uop_of(test_elements, "isin"))
    n = shapes.size(tests.shape)
    if isinstance(n, int) and n <= _FEW:
        found = x.unsqueeze(-1).eq(tests.reshape(n)).any(-1)
    else:
        found = _searched(x, sorting.sort(tests.reshape(-1)))
    found = ~found if checks.flag("isin", "invert", invert) else found
    return same_kind(found, (element, test_elements))


def _searched(x: UOp, tests: UOp) -> UOp:
    """True for elements that are in the sorted vector."""
    place = fold.cast(sorting.searchsorted(tests, x), dtypes.int64)
    n = fold.cast(dim_uop(tests.shape[0]), dtypes.int64)
    found: UOp = (place < n) & tests[place].eq(x)
    return found
