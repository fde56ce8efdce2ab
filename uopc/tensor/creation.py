"""Beginnings of graphs: parameters, constants, ranges of numbers, storage."""

from __future__ import annotations

import itertools
import math
from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, checks, fold, leaves, movement, operands
from uopc.ir.builder.checks import element_dtype
from uopc.ir.builder.leaves import iota, located
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.args import Space
from uopc.ir.core.dtypes import DTypeLike
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, note_made

_buffer_slots = itertools.count()


def dims_of(shape: Any, who: str = "") -> shapes.Shape:
    """Return the shape for a size or several sizes; UserError, naming `who`, for a bad shape."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    dims = tuple([as_dim(d) for d in given])
    if any([(d if isinstance(d, int) else bounds.bounds(d)[0]) < 0 for d in dims]):
        of = f"{who}: " if who else ""
        raise UserError(f"{of}a dimension must not be negative: {shapes.show(dims)}")
    shapes.check_size(dims)
    return dims


def param(name: str, shape: Any = (), dtype: DTypeLike = dtypes.float32) -> UOp:
    """Make an argument of the program: an array of this name, shape and dtype.

    Positional arguments come in the order in which params are made. If a param is made again with
    the same name, shape and dtype, the later call sets its position.

    The name is any printable text. If it is not an identifier, pass it in a dict, as in
    `f(**{"input.1": a})`. UserError for another name, for `out`, and for a bad shape.

    Examples:
        >>> x, y = uopc.param("x", (3,)), uopc.param("y", (3,))
        >>> program = uopc.compile(x - y)
        >>> program(np.array([3, 4, 5], "f4"), np.ones(3, "f4"))
        array([2., 3., 4.], dtype=float32)
    """
    checks.argument_name("param", name)
    if name == "out":
        raise UserError(
            f"param: the name {name!r} is taken by the keyword of a call: choose another"
        )
    dims = dims_of(shape)
    return note_made(located(leaves.param(-1, element_dtype(dtype), dims, name)))


def kernel_param(
    slot: int, shape: Any = (), dtype: DTypeLike = dtypes.float32, name: str = ""
) -> UOp:
    """An argument of a kernel written by hand: the array of position `slot` in a call.

    Read it by `x[i]` or `x.index(i)`, write it by `o[i].store(value)`; a value with a shape is
    stored by loops that the compiler makes. UserError for a slot below 0, a name that is no
    identifier, or a bad shape.

    Examples:
        >>> o, x = uopc.kernel_param(0, (3,)), uopc.kernel_param(1, (3,))
        >>> double = uopc.compile(o.store(x * 2).sink(name="double"))
        >>> memory = np.zeros(3, "f4")
        >>> _ = double(memory, np.array([1, 2, 3], "f4"))
        >>> memory
        array([2., 4., 6.], dtype=float32)
    """
    if isinstance(slot, bool) or not isinstance(slot, int) or slot < 0:
        raise UserError(f"kernel_param: the slot must be an int of 0 or more, got {slot!r}")
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise UserError(f"kernel_param: the name must be an identifier, got {name!r}")
    dims = dims_of(shape)
    return located(leaves.param(slot, element_dtype(dtype), dims, name or f"arg{slot}"))


def buffer(
    shape: Any, dtype: DTypeLike = dtypes.float32, space: Space = "global", device: str = ""
) -> UOp:
    """New storage, different from all other storage, for a handwritten kernel to write; its
    elements are arbitrary before that. The storage lasts for one call of the program.

    The shape may have variables.

    Examples:
        >>> o, x = uopc.kernel_param(0, (3,)), uopc.kernel_param(1, (3,))
        >>> double = o.store(x * 2).sink(name="double")
        >>> (twice,) = double.call(uopc.buffer((3,)), uopc.param("a", (3,)) + 1)
        >>> uopc.compile(twice - 1)(np.array([1, 2, 3], "f4"))
        array([3., 5., 7.], dtype=float32)
    """
    dims, slot = dims_of(shape), next(_buffer_slots)
    return located(leaves.buffer(slot, element_dtype(dtype), dims, space, device))


def full(shape: Any, value: Any, dtype: DTypeLike | None = None) -> UOp:
    """Every element is `value`: a number, or a scalar UOp.

    The dtype is that of the value, int32 or float32 for Python's numbers, or `dtype`. The shape may
    have variables.

    Examples:
        >>> uopc.compile(uopc.full((2, 2), 7))()
        array([[7, 7],
               [7, 7]], dtype=int32)
    """
    scalar = operands.as_uop(value, None if dtype is None else element_dtype(dtype))
    if dtype is not None:
        scalar = fold.cast(scalar, dtype)
    return leaves.full(scalar, dims_of(shape))


def zeros(shape: Any, dtype: DTypeLike = dtypes.float32) -> UOp:
    """Every element is 0.

    The shape may have variables; the dtype is float32 by default.

    Examples:
        >>> uopc.compile(uopc.zeros((2,)))()
        array([0., 0.], dtype=float32)
    """
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: DTypeLike = dtypes.float32) -> UOp:
    """Every element is 1.

    The shape may have variables; the dtype is float32 by default.

    Examples:
        >>> uopc.compile(uopc.ones((2,), dtypes.int64))()
        array([1, 1])
    """
    return full(shape, 1, dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None) -> UOp:
    """start, start+step, … below stop: int32 (int64 where needed), float32 for floats.

    The ends may be variables. UserError for a step of 0.

    Examples:
        >>> uopc.compile(uopc.arange(2, 10, 3))(), uopc.arange(0.5).dtype
        (array([2, 5, 8], dtype=int32), dtypes.float32)
    """
    if stop is None:
        start, stop = 0, start
    if dtype is not None:
        dtype = element_dtype(dtype)
    if any(isinstance(v, float) for v in (start, stop, step)):
        low, high, by = (checks.number("arange", v) for v in (start, stop, step))
        if by == 0:
            raise UserError("arange: step must not be 0")
        count = max(0, math.ceil((high - low) / by))
        t = dtype or dtypes.float32
        ramp = fold.cast(iota(count), t)
        return alu.binary(Ops.ADD, alu.binary(Ops.MUL, ramp, step), start)
    first, last, by = as_dim(start), as_dim(stop), as_dim(step)
    if isinstance(by, int) and by == 0:
        raise UserError("arange: step must not be 0")
    count = as_dim(-((first - last) // by))  # rounded up
    if isinstance(count, int):
        count = max(0, count)
    values = alu.binary(Ops.ADD, alu.binary(Ops.MUL, iota(count), by), first)
    low, high = bounds.bounds(values)
    wide = low < -(1 << 31) or high >= 1 << 31
    return fold.cast(values, dtype or (dtypes.int64 if wide else dtypes.int32))


def eye(n: Any, m: Any = None, dtype: DTypeLike = dtypes.float32) -> UOp:
    """Ones on the diagonal of a matrix of n by m (n by default), else 0; float32 by default.

    Examples:
        >>> uopc.compile(uopc.eye(2, 3))()
        array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
    """
    rows, columns = dims_of((n, n if m is None else m))
    i = movement.reshape(iota(rows), (rows, 1))
    return fold.cast(alu.binary(Ops.CMPEQ, i, iota(columns)), dtype)
