"""Arrays cut over a mesh: the part of a device, and the whole of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.ir.devices.mesh import Mesh, Spec, part_size

Array = npt.NDArray[Any]


def slices(mesh: Mesh, spec: Spec, dims: Sequence[int], rank: int) -> tuple[slice, ...]:
    """Which elements of an array a device has, without padding."""
    found = []
    for n, axes in zip(dims, spec):
        size = part_size(n, mesh.parts(axes))
        begin = min(n, mesh.place(rank, axes) * size)
        found.append(slice(begin, min(n, begin + size)))
    return tuple(found)


class Window(NamedTuple):
    """Which elements of an array a device has, and the shape of its part with padding."""

    inside: tuple[slice, ...]
    dims: tuple[int, ...]

    def is_all_of(self, dims: Sequence[int]) -> bool:
        """True if it shows all of an array of this shape."""
        return self.dims == dims and all([s == slice(0, n) for s, n in zip(self.inside, dims)])

    def of(self, array: Array) -> Array:
        """The part: a view, or where it needs padding a copy, with zeros at its end."""
        inside = array[self.inside]
        if inside.shape == self.dims:
            return inside
        padded = np.zeros(self.dims, array.dtype)
        padded[tuple([slice(0, n) for n in inside.shape])] = inside
        return padded


def window(mesh: Mesh, spec: Spec, dims: Sequence[int], rank: int) -> Window:
    """The part of a device of an array of this shape."""
    return Window(slices(mesh, spec, dims, rank), mesh.part_dims(dims, spec))


def part(array: Array, mesh: Mesh, spec: Spec, rank: int) -> Array:
    """The part of a device: a view, or where it needs padding a copy, with zeros at its end."""
    return window(mesh, spec, array.shape, rank).of(array)


def whole(parts: Sequence[Array], mesh: Mesh, spec: Spec, dims: Sequence[int]) -> Array:
    """The array whose parts the devices have, by rank."""
    if not any(spec):
        return parts[0]
    made = np.empty(tuple(dims), parts[0].dtype)
    put(made, parts, mesh, spec)
    return made


def put(array: Array, parts: Sequence[Array], mesh: Mesh, spec: Spec) -> None:
    """Write the parts of all devices into an array; of equal parts the first one."""
    done: set[tuple[tuple[int, int], ...]] = set()
    for rank, own in enumerate(parts):
        where = slices(mesh, spec, array.shape, rank)
        key = tuple([(s.start, s.stop) for s in where])
        if key in done:
            continue
        done.add(key)
        array[where] = own[tuple([slice(0, s.stop - s.start) for s in where])]
