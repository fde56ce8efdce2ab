"""Arrays cut over a mesh: the part of a device, and the array of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.ir.devices.mesh import Mesh, Spec

Array = npt.NDArray[Any]


def slices(
    mesh: Mesh, spec: Spec, dims: Sequence[int], rank: int, first: Sequence[int] | None = None
) -> tuple[slice, ...]:
    """The slices of an array for a device's part, without padding. `first`: the shape of the first
    part, unless it is the least possible shape."""
    found = []
    for n, axes, size in zip(dims, spec, first or mesh.part_dims(dims, spec)):
        begin = min(n, mesh.place(rank, axes) * size) if axes else 0
        found.append(slice(begin, min(n, begin + size)))
    return tuple(found)


class PartWindow(NamedTuple):
    """The slices of an array for a device's part, and the shape of the part with padding."""

    inside: tuple[slice, ...]
    dims: tuple[int, ...]

    def is_all_of(self, dims: Sequence[int]) -> bool:
        """True if the part is all of an array of this shape."""
        return self.dims == dims and all([s == slice(0, n) for s, n in zip(self.inside, dims)])

    def of(self, array: Array) -> Array:
        """The part of an array: a view, or a copy with zeros at its end if the part has padding."""
        return resized(array[self.inside], self.dims)


def window(
    mesh: Mesh, spec: Spec, dims: Sequence[int], rank: int, first: Sequence[int] | None = None,
    own: Sequence[int] | None = None,
) -> PartWindow:  # fmt: skip
    """The window of a device's part of an array of this shape. `own`: the shape of the part with
    padding, unless it is the shape of the first part."""
    size = own or first or mesh.part_dims(dims, spec)
    return PartWindow(slices(mesh, spec, dims, rank, first), tuple(size))


def resized(array: Array, dims: Sequence[int]) -> Array:
    """An array cut to `dims`: a view, or a copy filled up with zeros if the array is too short."""
    kept = array[tuple([slice(0, n) for n in dims])]
    if kept.shape == tuple(dims):
        return kept
    padded = np.zeros(dims, array.dtype)
    padded[tuple([slice(0, n) for n in kept.shape])] = kept
    return padded


def part(array: Array, mesh: Mesh, spec: Spec, rank: int) -> Array:
    """The part of a device: a view, or a copy with zeros at its end if the part has padding."""
    return window(mesh, spec, array.shape, rank).of(array)


def join_parts(
    parts: Sequence[Array], mesh: Mesh, spec: Spec, dims: Sequence[int],
    first: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """Join the parts of all devices, by rank, to an array."""
    if not any(spec):
        return parts[0]
    made = np.empty(tuple(dims), parts[0].dtype)
    put(made, parts, mesh, spec, first)
    return made


def put(
    array: Array, parts: Sequence[Array], mesh: Mesh, spec: Spec, first: Sequence[int] | None = None
) -> None:
    """Write the parts of all devices into an array; among equal parts, write the first."""
    done: set[tuple[tuple[int, int], ...]] = set()
    for rank, own in enumerate(parts):
        where = slices(mesh, spec, array.shape, rank, first)
        key = tuple([(s.start, s.stop) for s in where])
        if key in done:
            continue
        done.add(key)
        array[where] = own[tuple([slice(0, s.stop - s.start) for s in where])]
