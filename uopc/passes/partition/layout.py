"""A value on one device: its part of the whole, and what is still to be combined."""

from __future__ import annotations

from dataclasses import replace

from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Axes, Spec
from uopc.ir.records import dataclass

Partial = tuple[tuple[str, str], ...]  # (mesh axis, op), sorted
WHOLE: Axes = ()


@dataclass(frozen=True)
class Value:
    """A value on one device: `local` is its part of an array of `dims`, cut as `spec` says.

    `partial`: the mesh axes over which the parts are still to be combined, and by which op.
    """

    local: UOp
    dims: shapes.Shape
    spec: Spec
    partial: Partial = ()

    def with_axis(self, d: int, axes: Axes, local: UOp) -> Value:
        """The value on another local part, in which dimension d is cut along other axes."""
        return replace(self, local=local, spec=changed(self.spec, d, axes))


def changed(spec: Spec, d: int, axes: Axes) -> Spec:
    """The spec with another cut of one dimension."""
    return (*spec[:d], axes, *spec[d + 1 :])


def without_cuts(spec: Spec, *dims: int) -> Spec:
    """The spec with these dimensions uncut; without dimensions, all uncut."""
    return tuple([WHOLE if not dims or d in dims else axes for d, axes in enumerate(spec)])


def without_cut(u: UOp) -> Value:
    """A value that every device has."""
    dims = shapes.shape(u)
    return Value(u, dims, (WHOLE,) * len(dims))


def aligned(spec: Spec, dims: shapes.Shape, whole_dims: shapes.Shape) -> Spec:
    """The spec of an operand, written for the shape that it broadcasts to."""
    shift = len(whole_dims) - len(dims)
    own = [a if d == whole_dims[shift + i] else () for i, (a, d) in enumerate(zip(spec, dims))]
    return (*[WHOLE] * shift, *own)


def of_operand(spec: Spec, dims: shapes.Shape, whole_dims: shapes.Shape) -> Spec:
    """The spec of an operand of these dimensions, from the spec of the shape that it
    broadcasts to."""
    shift = len(whole_dims) - len(dims)
    return tuple([
        spec[shift + i] if d == whole_dims[shift + i] and d != 1 else ()
        for i, d in enumerate(dims)
    ])  # fmt: skip
