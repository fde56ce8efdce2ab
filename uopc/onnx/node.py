"""A node of a model as its function sees it: inputs, and attributes with defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core import shapes
from uopc.onnx.narrow import Narrow
from uopc.onnx.values import Array, as_size, is_known, lifted, params_of

# The most numbers of an array, and the most parts of a value, that an operator makes of attributes.
MOST_NUMBERS, MOST_PARTS = 1 << 26, 1 << 16


class Decides(UserError):
    """Raised where a shape depends on an input of the model, so that its value must be known."""

    def __init__(self, names: Sequence[str]) -> None:
        listed, given = ", ".join(map(repr, names)), ", ".join([f"{n!r}: array" for n in names])
        how = f"the value of {listed}: pass constants={{{given}}}"
        if not names:
            how = "sizes in a way that uopc cannot express: give these sizes as numbers by dims="
        super().__init__(f"the shape of its result depends on {how}")
        self.names = list(names)


class Node:
    """A node of a model. `run(graph, values)` returns the outputs of a graph attribute;
    so does `trial`, for values of which nothing becomes a part of the program."""

    def __init__(
        self, inputs: list[Any], attributes: dict[str, Any], outputs: int, version: int,
        run: Callable[..., list[Any]], trial: Callable[..., list[Any]] | None = None,
    ) -> None:  # fmt: skip
        self.inputs, self.attributes, self.outputs = inputs, attributes, outputs
        self.version, self.run, self.trial = version, run, trial or run

    def has(self, k: int) -> bool:
        """True if input k is given."""
        return k < len(self.inputs) and self.inputs[k] is not None

    def raw(self, k: int) -> Any:
        """Input k unchanged: a UOp, an array, a list, or None."""
        return self.inputs[k] if k < len(self.inputs) else None

    def x(self, k: int) -> UOp:
        """Input k as a UOp; UserError if the input is left out."""
        if not self.has(k):
            raise UserError(f"input {k} is missing")
        return lifted(self.inputs[k])

    def maybe(self, k: int) -> UOp | None:
        """Input k as a UOp; None if the input is left out."""
        return self.x(k) if self.has(k) else None

    def all(self) -> list[UOp]:
        """The inputs that are not left out, as UOps."""
        return [lifted(v) for v in self.inputs if v is not None]

    def known(self, k: int) -> Array | None:
        """Input k as a known array, or None; Decides if it depends on an input of the model."""
        v = self.raw(k)
        if not is_known(v):
            raise Decides(params_of(v.held if isinstance(v, Narrow) else v))
        return None if v is None else np.asarray(v)

    def first(self, k: int) -> Any:
        """The first number of input k, which must be `known`; None if the input is left out."""
        found = self.known(k)
        return None if found is None else found.reshape(-1)[0]

    def ints(self, k: int) -> list[Any] | None:
        """Input k as a list of ints; symbolic sizes are UOps of dtype index."""
        v = self.known(k)
        if v is None:
            return None
        return [as_size(x) for x in v.reshape(-1)]

    def ints_of(self, k: int, name: str) -> list[Any] | None:
        """Read a list of ints from input k, or from the attribute that older versions have."""
        if self.has(k):
            return self.ints(k)
        found = self.attributes.get(name)
        return None if found is None else list(found)

    def attr(self, name: str, default: Any) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)

    def number(self, name: str, default: float) -> float:
        """Return a float attribute, or its default."""
        return float(self.attr(name, default))

    def floats(self, name: str) -> Array:
        """Return an attribute that is a list of floats; empty if missing."""
        return np.asarray(self.attr(name, []), np.float32)

    def axis(self, default: int, rank: int) -> int:
        """The attribute `axis`, counted from the front."""
        return normal(self.attr("axis", default), rank)


def normal(axis: int, rank: int) -> int:
    """Count an axis from the front; UserError if the axis does not exist."""
    if not -rank <= axis < max(rank, 1):
        raise UserError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank if rank else 0


def along(v: UOp, axis: int, rank: int) -> UOp:
    """Reshape a vector to lie along one axis of an array of this rank."""
    return v.reshape(tuple([shapes.shape(v)[0] if i == axis else 1 for i in range(rank)]))


def places(size: Any, axis: int, rank: int) -> UOp:
    """The numbers 0 … size - 1 along one axis of an array of this rank."""
    return along(uopc.arange(size, dtype=dtypes.int64), axis, rank)


def few(count: float, what: str, most: int = MOST_NUMBERS) -> int:
    """Return a count of things made while reading a model; UserError if it exceeds `most`."""
    if not count <= most:
        raise UserError(f"{what}: expected at most {most}, got {count}")
    return int(count)


def dims(u: UOp) -> tuple[Any, ...]:
    """The sizes of a value."""
    return shapes.shape(u)


def fixed(size: Any, what: str) -> int:
    """Return a size that must be a number; UserError if the size is symbolic."""
    if not isinstance(size, int):
        free = ", ".join(sorted([repr(v.arg.name) for v in size.variables()]))
        raise UserError(f"{what} must be a number, got {size.render()}: give {free} by dims=")
    return size
