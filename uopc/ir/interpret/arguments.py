"""The arguments of a run: arrays of storage, values of variables, and the checks of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.core import shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine


class Variables:
    """The values of named integers, from the caller or from the shapes of arrays."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self.values = dict(given)

    def __getitem__(self, u: UOp) -> int:
        """The value of a VARIABLE; UserError if the value is missing or out of bounds."""
        name, low, high = u.arg.name, u.arg.low, u.arg.high
        if name not in self.values:
            raise UserError(f"variable {name} has no value: pass it, or an array with it as a size")
        value = int(self.values[name])
        if not low <= value <= high:
            raise UserError(f"variable {name} = {value} is outside of {low}..{high}")
        return value

    def bind(self, name: str, value: int) -> None:
        """Give a variable its value; UserError if the variable already has another value."""
        if self.values.setdefault(name, value) != value:
            raise UserError(f"variable {name} is both {self.values[name]} and {value}")

    def solve(self, storage: UOp, array: Array) -> None:
        """Bind the variables that stand alone in a dimension (`n`, `2*n + 1`) of a storage."""
        dims = shapes.with_dims(storage.arg.dims, storage.src)
        if len(dims) != array.ndim:
            raise UserError(
                f"{name_of(storage)}: expected {len(dims)} dimensions {shapes.show(dims)},"
                f" got shape {array.shape}"
            )
        for d, got in zip(dims, array.shape):
            if isinstance(d, int):
                continue
            constant, terms = affine.form(d)
            (atom, factor), *others = terms.items()
            if not others and atom.op is Ops.VARIABLE and (got - constant) % factor == 0:
                self.bind(atom.arg.name, (got - constant) // factor)


def name_of(storage: UOp) -> str:
    """The name of a storage in messages."""
    if storage.op is Ops.PARAM:
        return str(storage.arg.name)
    return f"buffer {storage.arg.slot}" if storage.op is Ops.BUFFER else "constant array"


def check_array(storage: UOp, array: Array, dims: Sequence[int] | None = None) -> None:
    """UserError if an array lacks the dtype of a storage, or the shape `dims` (if given)."""
    if not isinstance(array, np.ndarray):
        raise UserTypeError(f"{name_of(storage)}: expected an array, got {type(array).__name__}")
    if array.dtype != storage.dtype.numpy:
        raise UserTypeError(
            f"{name_of(storage)}: expected dtype {storage.dtype.name}, got {array.dtype}"
        )
    if dims is not None and array.shape != tuple(dims):
        raise UserError(f"{name_of(storage)}: expected shape {tuple(dims)}, got {array.shape}")


def undefined(dtype: DType, dims: Sequence[int]) -> Array:
    """The contents of new storage: NaN or the largest integer, so that uses show in results."""
    if dtype.is_float:
        return np.full(dims, np.nan, np.float32).astype(dtype.numpy)
    return np.full(dims, dtype.bounds[1] if dtype.kind != "index" else -1, dtype.numpy)
