"""Nodes without operands: constants, iota, dimensions; and the user's source line on a node."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.errors import UserError, UserTypeError
from uopc.ir.core import arena, dtypes, shapes
from uopc.ir.core.args import BufferArg, ParamArg, Space
from uopc.ir.core.constants import const_value
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_origin

Scalar = bool | int | float
_record_origins = True
_INNER = ("uopc.", "functools")  # modules whose lines are no user's
_MOST_LINES = 10_000  # each keeps a code object alive
_lines: dict[tuple[CodeType, int], tuple[CodeType, int]] = {}
# The origin of new nodes; `()` where they have none, None where it is the user's line.
_place: ContextVar[tuple[MakerPlace, int] | tuple[()] | None] = ContextVar(
    "uopc_place", default=None
)


def record_origins(on: bool) -> None:
    """Turn on or off the recording of the user's source line on nodes of public builders."""
    global _record_origins
    _record_origins = on


class MakerPlace(NamedTuple):
    """The origin of nodes that no Python line made: a file, and a name in it. It has the attributes
    of a code object that messages read."""

    co_filename: str
    co_name: str


@contextlib.contextmanager
def made_for(place: MakerPlace | None, line: int = 0) -> Iterator[None]:
    """Give new nodes of this thread a place and a line in it as their origin, or no origin."""
    token = _place.set(() if place is None else (place, line))
    try:
        yield
    finally:
        _place.reset(token)


def located(u: UOp) -> UOp:
    """Record the user's source line on a node without one (the first builder of a node wins)."""
    if u.origin is None and _record_origins and not arena.in_arena():
        given = _place.get()
        if given is not None:
            set_origin(u, given or None)
            return u
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INNER):
            frame = frame.f_back
        source_line = (frame.f_code, frame.f_lineno)
        if len(_lines) > _MOST_LINES:
            _lines.clear()
        set_origin(u, _lines.setdefault(source_line, source_line))  # the nodes of one line share it
    return u


def fitting(made: UOp) -> UOp:
    """A new node with the user's source line; UserError if its operands do not fit its op."""
    try:
        shapes.shape(made)
    except UserError as error:
        error.args = (f"{made.op.name}: {error}",)
        raise
    return located(made)


# ---------------------------------------------------------------- constants
def const(dtype: DType, value: Any) -> UOp:
    """A constant, its value converted to the dtype. A tuple has one value per lane.

    UserTypeError without a dtype.

    Examples:
        >>> uopc.UOp.const(dtypes.int8, 3.7).arg
        3
    """
    if not isinstance(dtype, DType):
        raise UserTypeError(f"const: expected a dtype, then a value, got {dtype!r}")
    if isinstance(value, tuple):
        dtype = dtype.vec(len(value))
    return intern(Ops.CONST, dtype, (), const_value(dtype, value))


def const_of_bits(dtype: DType, value: np.generic | npt.NDArray[Any]) -> UOp | None:
    """The constant with the bits of an element of an array; None for a NaN with a payload."""
    made = const(dtype, value.item())
    lost = made.arg != made.arg and value.tobytes() != np.asarray(made.arg, value.dtype).tobytes()
    return None if lost else made


def const_like(u: UOp, value: Any) -> UOp:
    """A constant with the dtype and shape of `u`.

    Examples:
        >>> x = uopc.param("x", (2, 3), dtypes.int8)
        >>> x.const_like(1).shape, x.const_like(1).dtype
        ((2, 3), dtypes.int8)
    """
    return full(const(u.dtype.scalar, value), shapes.shape(u))


def full(value: UOp, dims: shapes.Shape) -> UOp:
    """Fill a shape with a scalar value; repeat any other value to the shape."""
    if not dims:
        return value
    arg, symbolic = split_dims(dims)
    made = intern(Ops.EXPAND, value.dtype, (value, *symbolic), arg)
    return located(made) if symbolic else made  # an error may be about a symbolic size


def filling(u: UOp) -> UOp | None:
    """The scalar that fills `u`, if `u` is a constant or an EXPAND of a scalar."""
    if u.op is Ops.EXPAND and not shapes.shape(u.src[0]):
        return u.src[0]
    return u if u.op is Ops.CONST and type(u.arg) is not tuple else None


def constant_in(u: UOp) -> UOp | None:
    """The constant that fills all elements of `u`, or None."""
    if u.op is Ops.EXPAND:
        u = u.src[0]
    return u if u.op is Ops.CONST and type(u.arg) is not tuple else None


def spread(u: UOp, dims: shapes.Shape) -> UOp:
    """`u` repeated to a shape that it broadcasts to."""
    if shapes.shape(u) == dims:
        return u
    return full(u.src[0] if u.op is Ops.EXPAND else u, dims)


def split_dims(dims: shapes.Shape) -> tuple[tuple[int | None, ...], tuple[UOp, ...]]:
    """Dimensions as an arg (None for symbolic ones) and the symbolic ones as sources."""
    arg = tuple([d if isinstance(d, int) else None for d in dims])
    return arg, tuple([d for d in dims if not isinstance(d, int)])


def param(slot: int, dtype: DType, dims: shapes.Shape, name: str = "") -> UOp:
    """The argument of a kernel or a function at position `slot` of its call."""
    arg, symbolic = split_dims(dims)
    return intern(Ops.PARAM, dtype, symbolic, ParamArg(name, arg, slot))


def buffer(
    slot: int, dtype: DType, dims: shapes.Shape, space: Space = "global", device: str = ""
) -> UOp:
    """Storage that a program makes; `slot` is unique."""
    arg, symbolic = split_dims(dims)
    return intern(Ops.BUFFER, dtype, symbolic, BufferArg(slot, arg, device, space))


def with_dims(storage: UOp, dims: shapes.Shape) -> UOp:
    """A PARAM, BUFFER or DATA with other dimensions."""
    arg, symbolic = split_dims(dims)
    return intern(storage.op, storage.dtype, symbolic, replace(storage.arg, dims=arg), storage.tag)


def iota(n: shapes.Dim) -> UOp:
    """0 … n-1 of dtype index: places along an axis of n elements. n may be a variable, or a sum or
    product of some. UserTypeError for any other n.

    Examples:
        >>> x, i = uopc.constant([[1, 2], [3, 4]]), uopc.iota(2)
        >>> uopc.compile(x[i, 1 - i])()
        array([2, 3])
    """
    if not isinstance(n, (int, UOp)):
        raise UserTypeError(f"iota: expected an int or a variable, got {n!r}")
    arg, symbolic = split_dims((n,))
    made = intern(Ops.IOTA, dtypes.index, symbolic, arg)
    return located(made) if symbolic else made
