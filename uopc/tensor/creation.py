"""Where graphs begin: parameters, constants, ranges of numbers, storage."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu as build
from uopc.ir.builder import checks as arguments
from uopc.ir.builder.alu import as_dim, located, split_dims
from uopc.ir.builder.checks import element_dtype
from uopc.ir.core import analysis, dtypes
from uopc.ir.core import arrays as data
from uopc.ir.core.args import BufferArg, ParamArg, Space
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

_RESERVED = ("out",)
_buffer_slots = itertools.count()


def _dims(shape: Any) -> analysis.Shape:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    dims = tuple([as_dim(d) for d in given])
    for d in dims:
        if analysis.bounds(build.dim_uop(d))[0] < 0:
            raise UserError(f"a dimension must not be negative: {analysis.show(dims)}")
    return dims


def param(name: str, shape: Any = (), dtype: DType = dtypes.float32) -> UOp:
    """An argument of the program: an array of this name, shape and dtype."""
    if not isinstance(name, str) or not name.isidentifier():
        raise UserError(f"param: the name must be an identifier, got {name!r}")
    if name in _RESERVED:
        raise UserError(f"param: the name {name!r} is a keyword of the call")
    arg, symbolic = split_dims(_dims(shape))
    return located(intern(Ops.PARAM, element_dtype(dtype), symbolic, ParamArg(name, arg)))


def kernel_param(slot: int, shape: Any, dtype: DType, name: str = "") -> UOp:
    """An argument of a hand-written kernel, by slot."""
    arg, symbolic = split_dims(_dims(shape))
    named = ParamArg(name or f"arg{slot}", arg, slot)
    return located(intern(Ops.PARAM, element_dtype(dtype), symbolic, named))


def buffer(shape: Any, dtype: DType, space: Space = "global", device: str = "") -> UOp:
    """New storage, different from every other."""
    arg, symbolic = split_dims(_dims(shape))
    slot = next(_buffer_slots)
    return intern(Ops.BUFFER, dtype, symbolic, BufferArg(slot, arg, device, space))


def constant(value: Any, dtype: DType | None = None) -> UOp:
    """A number or an array as part of the graph. The array is not copied and must not change."""
    if type(value) in (bool, int, float):
        return build.as_uop(value) if dtype is None else build.const(element_dtype(dtype), value)
    array = np.asarray(value)
    try:
        found = dtypes.from_numpy(array.dtype)
    except KeyError:
        raise UserTypeError(f"constant: no uopc dtype for NumPy {array.dtype}") from None
    if dtype is not None and found is not dtype:
        array, found = np.ascontiguousarray(array.astype(element_dtype(dtype).numpy)), dtype
    if array.size == 1 and array.ndim == 0:
        return build.const(found, array.item())
    return located(intern(Ops.DATA, found, (), data.register(array)))


def full(shape: Any, value: Any, dtype: DType | None = None) -> UOp:
    """Every element is `value`: a number, or a scalar UOp."""
    scalar = build.as_uop(value, None if dtype is None else element_dtype(dtype))
    if dtype is not None:
        scalar = build.cast(scalar, dtype)
    return build.filled(scalar, _dims(shape))


def zeros(shape: Any, dtype: DType = dtypes.float32) -> UOp:
    """Every element is 0."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: DType = dtypes.float32) -> UOp:
    """Every element is 1."""
    return full(shape, 1, dtype)


def iota(n: analysis.Dim) -> UOp:
    """0 … n-1 of dtype index."""
    arg, symbolic = split_dims((n,))
    return intern(Ops.IOTA, dtypes.index, symbolic, arg)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: DType | None = None) -> UOp:
    """start, start+step, … below stop: int32 (int64 where needed), float32 for floats."""
    if stop is None:
        start, stop = 0, start
    if dtype is not None:
        element_dtype(dtype)
    if any(isinstance(v, float) for v in (start, stop, step)):
        low, high, by = (arguments.number("arange", v) for v in (start, stop, step))
        if by == 0:
            raise UserError("arange: step must not be 0")
        count = max(0, math.ceil((high - low) / by))
        t = dtype or dtypes.float32
        ramp = build.cast(iota(count), t)
        return build.binary(Ops.ADD, build.binary(Ops.MUL, ramp, step), start)
    first, last, by = as_dim(start), as_dim(stop), as_dim(step)
    if isinstance(by, int) and by == 0:
        raise UserError("arange: step must not be 0")
    span = affine.sub(build.dim_uop(last), build.dim_uop(first))
    quotient = affine.floordiv(affine.mul(span, affine.const(-1)), build.dim_uop(by))
    count = as_dim(affine.mul(quotient, affine.const(-1)))  # ceil(span / step)
    if isinstance(count, int):
        count = max(0, count)
    values = build.binary(Ops.ADD, build.binary(Ops.MUL, iota(count), by), first)
    low, high = analysis.bounds(values)
    wide = low < -(1 << 31) or high >= 1 << 31
    return build.cast(values, dtype or (dtypes.int64 if wide else dtypes.int32))


def eye(n: Any, m: Any = None, dtype: DType = dtypes.float32) -> UOp:
    """Ones on the diagonal of an n × m matrix."""
    from uopc.ir.builder import movement

    rows, columns = as_dim(n), as_dim(n if m is None else m)
    i = movement.reshape(iota(rows), (rows, 1))
    return build.cast(build.binary(Ops.CMPEQ, i, iota(columns)), dtype)
