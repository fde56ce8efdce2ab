"""The functions of the Array API that make arrays. Floats default to float64, integers to int64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import checks, fold, leaves, operands
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.uop import UOp
from uopc.numpy.array import (
    Array,
    applied,
    check_number,
    promoted,
    same_kind,
    trace_of,
    uop_of,
)
from uopc.numpy.dtype_functions import as_dtype
from uopc.numpy.joining import stack
from uopc.numpy.manipulation import moveaxis
from uopc.tensor import creation, elementwise, examples, indexing, table
from uopc.tensor.examples import with_name

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "identity", "indices", "linspace", "logspace", "meshgrid", "ones", "ones_like", "tri", "tril",
    "triu", "zeros", "zeros_like",
]  # fmt: skip


def _on_cpu(device: Any) -> None:
    if device not in (None, "cpu"):
        raise UserError(f"device must be 'cpu', got {device!r}; compile(device=) chooses another")


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of a number, a list (also nested), a NumPy array (copied) or another array.

    The dtype is that of the values, or `dtype`: a DType, or one of NumPy's. UserTypeError for
    complex numbers, strings and objects. An Array of that dtype is returned itself unless `copy`
    is True. UserError for `copy=False` where that needs a copy.

    Examples:
        >>> unp.asarray([1.5, 2.5], dtype="f4").dtype
        dtypes.float32
        >>> np.asarray(unp.asarray([[1, 2], [3, 4]]) * 2)
        array([[2, 4],
               [6, 8]])
    """
    _on_cpu(device)
    if copy is False and not isinstance(obj, (Array, UOp)):
        raise UserError("asarray(copy=False): uopc always copies a NumPy array: leave copy out")
    if isinstance(obj, (Array, UOp)):
        u = uop_of(obj)
        t = as_dtype(dtype, u.dtype)
        if t is u.dtype and not copy:
            return obj
        if copy is False:
            raise UserError(f"asarray(copy=False): {u.dtype.name} as {t.name} is a copy")
        return _held(same_kind(fold.cast(u, t), (obj,)))
    if holds_arrays(obj):
        return asarray(stack([asarray(v) for v in obj]), dtype=dtype)
    found = checks.array("asarray", obj)
    if found.dtype.kind not in "biuf" and "float" not in found.dtype.name:
        raise UserTypeError(f"asarray: no dtype for {found.dtype} ({type(obj).__name__})")
    made = operands.constant(found)
    return _held(Array(fold.cast(made, as_dtype(dtype, made.dtype))))


def _held(made: Any) -> Any:
    """Mark a value without dimensions as an array, which names may share, not as a number."""
    if isinstance(made, Array):
        made.held = True
    return made


def holds_arrays(obj: Any) -> bool:
    """True for lists that hold Arrays or UOps."""
    nested = isinstance(obj, (list, tuple))
    return nested and any(isinstance(v, (Array, UOp)) or holds_arrays(v) for v in obj)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array from an object with `__dlpack__`.

    The values are copied, unless the object is an Array. UserError for another device than cpu.

    Examples:
        >>> np.asarray(unp.from_dlpack(np.array([1, 2])) + 1)
        array([2, 3])
    """
    return x if isinstance(x, Array) else asarray(np.from_dlpack(x), device=device, copy=copy)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Every element is `fill_value`.

    The dtype is that of the value, int64 or float64 for Python's numbers, or `dtype`.

    Examples:
        >>> np.asarray(unp.full((2, 2), 7))
        array([[7, 7],
               [7, 7]])
    """
    _on_cpu(device)
    value = uop_of(fill_value, "full")
    made = creation.full(shape, fold.cast(value, as_dtype(dtype, value.dtype)))
    return same_kind(made, (fill_value,))


def _numbers(name: str, value: int) -> Any:
    def function(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        _on_cpu(device)
        return Array(creation.full(shape, value, as_dtype(dtype, dtypes.float64)))

    def like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> Any:
        _on_cpu(device)
        u = uop_of(x, f"{name}_like")
        dims = shapes.shape(u) if shape is None else shape
        return same_kind(creation.full(dims, value, as_dtype(dtype, u.dtype)), (x,))

    doc, result = f"Every element is {value}", f"array([{value}., {value}.])"
    example = examples.section(f">>> np.asarray(unp.{name}((2,)))", result)
    of_like = examples.section(f">>> np.asarray(unp.{name}_like(np.array([7.0, 8.0])))", result)
    of_shape = f"{doc}, in the shape; float64 by default.{example}"
    of_array = f"{doc}, in the shape and dtype of x unless given.{of_like}"
    return (
        with_name(function, "uopc.numpy", name, of_shape),
        with_name(like, "uopc.numpy", f"{name}_like", of_array),
    )


zeros, zeros_like = _numbers("zeros", 0)
ones, ones_like = _numbers("ones", 1)
empty, empty_like = _numbers("empty", 0)


def full_like(
    x: Any, /, fill_value: Any, dtype: Any = None, *, shape: Any = None, device: Any = None
) -> Any:
    """Every element is `fill_value`; the shape and dtype are those of x, unless given.

    Examples:
        >>> np.asarray(unp.full_like(unp.asarray([1, 2]), 7))
        array([7, 7])
    """
    _on_cpu(device)
    u = uop_of(x, "full_like")
    t = as_dtype(dtype, u.dtype)
    check_number(fill_value, t, "full_like")
    value = leaves.const(t, operands.as_uop(fill_value, t).arg) if type(fill_value) in (
        bool, int, float) else fold.cast(uop_of(fill_value), t)  # fmt: skip
    dims = shapes.shape(u) if shape is None else shape
    return same_kind(creation.full(dims, value), (x, fill_value))


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Array:
    """start, start + step, ... below stop; int64 if all three are integers, else float64.

    UserError for a step of 0.

    Examples:
        >>> np.asarray(unp.arange(2, 10, 3)), unp.arange(0.5).dtype
        (array([2, 5, 8]), dtypes.float64)
    """
    _on_cpu(device)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (v.item() if isinstance(v, np.generic) else v for v in (start, stop, step))
    whole = all(isinstance(v, (int, UOp)) for v in (start, stop, step))
    t = as_dtype(dtype, dtypes.int64 if whole else dtypes.float64)
    return Array(_steps(start, stop, step, t))


def _steps(start: Any, stop: Any, step: Any, t: DType) -> UOp:
    if any(isinstance(v, UOp) for v in (start, stop, step)):
        return creation.arange(start, stop, step, t)
    for v in (start, stop, step):
        if not isinstance(v, Array):
            checks.number("arange", v)
    if step == 0:
        raise UserError("arange: step must not be 0")
    count = max(0, math.ceil((stop - start) / step))
    wide = t if t.is_float and t.bits >= 32 else dtypes.float32 if t.is_float else dtypes.int64
    if not t.is_float and not all(isinstance(v, int) for v in (start, stop, step)):
        wide = dtypes.float64
    ramp = fold.cast(leaves.iota(count), wide)
    return fold.cast(ramp * leaves.const(wide, step) + leaves.const(wide, start), t)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """`num` numbers from start to stop at equal distances; float64 for Python's numbers and
    integers.

    The result is a vector, or for array ends, has `num` arrays along a new axis. `endpoint=False`
    leaves `stop` out; `retstep` also returns the distance. For an integer `dtype`, numbers are
    rounded down. UserError for a negative `num`.

    Examples:
        >>> np.asarray(unp.linspace(0, 1, 5))
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    _on_cpu(device)
    num = checks.integer("linspace", "num", num)
    if num < 0:
        raise UserError(f"linspace: num must be 0 or more, got {num!r}")
    first, last = promoted("linspace", start, stop, floats=True)[0]
    t = as_dtype(dtype, first.dtype)
    dims = shapes.broadcast([first.shape, last.shape])
    first, last = first.expand(dims), last.expand(dims)
    gaps = num - 1 if endpoint else num
    step = (last - first) / gaps if gaps > 0 else leaves.const_like(first, math.nan)
    i = leaves.iota(num).reshape(num, *[1] * len(dims))
    values = fold.cast(i, first.dtype) * (step if gaps > 0 else 0) + first
    if endpoint and num > 1:
        values = i.eq(num - 1).where(last, values)
    made = moveaxis(fold.cast(values.floor() if t.is_int else values, t), 0, axis)
    found = same_kind([made, step], (start, stop))
    return tuple(found) if retstep else found[0]


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """`base` to the numbers of `linspace`: from base**start to base**stop, in equal ratios.

    Examples:
        >>> np.asarray(unp.logspace(0, 2, 3))
        array([  1.,  10., 100.])
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    (b, e), _ = promoted("logspace", base, exponents)
    made = elementwise.power(b, e)
    return same_kind(fold.cast(made, as_dtype(dtype, made.dtype)), (start, stop, base))


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Array:
    """Ones on the diagonal `k` above the main diagonal, else 0.

    A matrix of n_rows by n_cols (n_rows by default), of float64 by default.

    Examples:
        >>> np.asarray(unp.eye(2, 3, k=1))
        array([[0., 1., 0.],
               [0., 0., 1.]])
    """
    _on_cpu(device)
    columns = n_rows if n_cols is None else n_cols
    i = leaves.iota(n_rows).reshape(n_rows, 1)
    on = (i + k).eq(leaves.iota(columns))
    return Array(fold.cast(on.expand(n_rows, columns), as_dtype(dtype, dtypes.float64)))


def identity(n: int, dtype: Any = None) -> Array:
    """The square matrix with ones on its diagonal; float64 by default.

    Examples:
        >>> np.asarray(unp.identity(2))
        array([[1., 0.],
               [0., 1.]])
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """Ones up to the diagonal `k` above the main one, else 0: N rows of M (by default N) elements.

    float64 by default.

    Examples:
        >>> np.asarray(unp.tri(2, 3))
        array([[1., 0., 0.],
               [1., 1., 0.]])
    """
    rows, columns = leaves.iota(N).reshape(-1, 1), leaves.iota(N if M is None else M)
    return Array(fold.cast(columns <= rows + k, as_dtype(dtype, dtypes.float64)))


def indices(dimensions: Sequence[Any], dtype: Any = None, sparse: bool = False) -> Any:
    """For each axis of the dimensions, the index of each element along it: one array, or with
    `sparse` a tuple of arrays that broadcast to the dimensions.

    int64 by default.

    Examples:
        >>> np.asarray(unp.indices((2, 3))[1])
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    t, rank = as_dtype(dtype, dtypes.int64), len(dimensions)
    lines = [
        fold.cast(leaves.iota(d), t).reshape([-1 if i == axis else 1 for i in range(rank)])
        for axis, d in enumerate(dimensions)
    ]
    if sparse:
        return tuple([Array(line) for line in lines])
    if not lines:
        return Array(creation.full((0,), 0, t))
    return stack([Array(line.expand(tuple(dimensions))) for line in lines])


@table.routine
def tril(x: Any, /, k: int = 0) -> Any:
    return applied(lambda u: indexing.tril(u, k), x)


@table.routine
def triu(x: Any, /, k: int = 0) -> Any:
    return applied(lambda u: indexing.triu(u, k), x)


def meshgrid(
    *arrays: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Any]:
    """Coordinate matrices of vectors.

    Returns one array per vector, in the vector's dtype, with one axis per vector: with
    `indexing="ij"`, vector i varies along axis i; with "xy", the first two axes are exchanged.
    `sparse`: the other axes have size 1. UserError for another `indexing`.

    Examples:
        >>> x, y = unp.meshgrid(unp.arange(3), unp.arange(2))
        >>> np.asarray(x + 10 * y)
        array([[ 0,  1,  2],
               [10, 11, 12]])
    """
    if indexing not in ("xy", "ij"):
        raise UserError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    uops = [uop_of(a, "meshgrid").reshape(-1) for a in arrays]
    rank = len(uops)
    axes = list(range(rank))
    if indexing == "xy" and rank > 1:
        axes[:2] = 1, 0
    dims = [0] * rank
    for u, axis in zip(uops, axes):
        dims[axis] = u.shape[0]
    made = [
        u.reshape([-1 if i == axis else 1 for i in range(rank)]) for u, axis in zip(uops, axes)
    ]
    made = made if sparse else [u.expand(dims) for u in made]
    del copy  # an array is a value: nobody sees whether it is a copy
    trace_of(arrays)
    return [same_kind(m, arrays) for m in made]
