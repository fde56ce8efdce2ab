"""Einops on Arrays and UOps: its functions become those of `uopc.numpy`.

einops finds the classes that derive from its AbstractBackend. A trace imports this module when
einops has been imported; for graphs without `jit`, import it yourself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops import _backends

import uopc.numpy as unp
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, uop_of


class EinopsBackend(_backends.AbstractBackend):
    """The functions that einops calls for a kind of arrays."""

    framework_name = "uopc"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, (Array, UOp))

    def to_numpy(self, x: Any) -> Any:
        return unp.asarray(x).__array__()

    def from_numpy(self, x: Any) -> Any:
        return unp.asarray(x)

    def arange(self, start: Any, stop: Any) -> Any:
        return unp.arange(start, stop)

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        return unp.reshape(x, tuple(shape))

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return unp.permute_dims(x, tuple(axes))

    def reduce(self, x: Any, operation: str, axes: Sequence[int]) -> Any:
        return getattr(unp, operation)(x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
        return unp.stack(tensors)

    def add_axis(self, x: Any, new_position: int) -> Any:
        return unp.expand_dims(x, axis=new_position)

    def tile(self, x: Any, repeats: Sequence[Any]) -> Any:
        return unp.tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[Any], axis: int) -> Any:
        return unp.concat(tensors, axis=axis)

    def is_float_type(self, x: Any) -> bool:
        return uop_of(x).dtype.is_float

    def einsum(self, pattern: str, *x: Any) -> Any:
        return unp.einsum(pattern, *x)
