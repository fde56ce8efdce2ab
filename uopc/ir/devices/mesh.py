"""Named meshes of devices, and specs: the mesh axes that cut an array.

A dimension of n cut p ways has ceil(n / p) elements on every device. The last devices have padding
at its end, which holds any values.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.core.shapes import Dim
from uopc.ir.devices import device
from uopc.ir.index import affine
from uopc.ir.records import dataclass

Axes = tuple[str, ...]  # of a mesh, major first
Spec = tuple[Axes, ...]  # of each dimension, the mesh axes that cut it
MOST_DEVICES = 1 << 20


class PartitionSpec(tuple[Any, ...]):
    """Entries by dimension of an array: None, the mesh axis that cuts the dimension, or a tuple of
    axes. Dimensions after the last entry are not cut. `uopc.P` is a short name.

    UserTypeError for an entry of another kind.

    Examples:
        >>> uopc.P("data", None, ("x", "y"))
        P('data', None, ('x', 'y'))
    """

    __slots__ = ()

    def __new__(cls, *entries: Any) -> PartitionSpec:
        for e in entries:
            names = e if isinstance(e, tuple) else () if e is None else (e,)
            if not all([isinstance(name, str) and name for name in names]):
                raise UserTypeError(
                    f"P: an entry must be None, a mesh axis or a tuple of them, got {e!r}"
                )
        return super().__new__(cls, entries)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)  # for copies and pickles

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


def normal(given: Any, rank: int, who: str) -> Spec:
    """A PartitionSpec (or a tuple of its entries, or None) for an array of `rank` dimensions.

    UserError for more than `rank` entries, or an axis twice.
    """
    if given is None:
        given = ()
    if not isinstance(given, tuple):
        raise UserTypeError(f"{who}: expected a uopc.P, got {given!r}")
    entries = given if isinstance(given, PartitionSpec) else PartitionSpec(*given)
    if len(entries) > rank:
        raise UserError(f"{who}: {entries!r} has {len(entries)} entries for {rank} dimensions")
    out: list[Axes] = []
    for e in (*entries, *[None] * (rank - len(entries))):
        out.append(() if e is None else (e,) if isinstance(e, str) else tuple(e))
    used = [a for axes in out for a in axes]
    twice = [a for a in used if used.count(a) > 1]
    if twice:
        raise UserError(f"{who}: {entries!r}: axis {twice[0]!r} may cut one dimension only")
    return tuple(out)


def written(spec: Spec) -> PartitionSpec:
    """A spec as the user writes it."""
    entries = [None if not a else a[0] if len(a) == 1 else a for a in spec]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def show(spec: Spec) -> str:
    """The text of a spec as the user writes it."""
    return repr(written(spec))


def used_axes(spec: Spec) -> set[str]:
    """The mesh axes that cut some dimension."""
    return {a for axes in spec for a in axes}


def part_size(n: Any, parts: int) -> Dim:
    """The elements of each of `parts` parts of a dimension of n elements."""
    return n if parts == 1 else -(-n // parts)


def is_divided(n: Dim, parts: int) -> bool:
    """True if n elements divide evenly into `parts` parts."""
    return n % parts == 0 if isinstance(n, int) else affine.is_multiple(n, parts)


@dataclass(frozen=True)
class Mesh:
    """A grid of devices with named axes. Device r has the coordinates of r in row-major order.

    Examples:
        >>> mesh = uopc.make_mesh((2, 4), ("data", "model"))
        >>> mesh.size, mesh.shape, mesh.coordinates(5)
        (8, {'data': 2, 'model': 4}, {'data': 1, 'model': 1})
    """

    axis_names: Axes
    axis_sizes: tuple[int, ...]
    devices: tuple[str, ...] = ()  # those of this process that run the program, if it names them

    @property
    def size(self) -> int:
        """The number of devices.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).size
            8
        """
        return math.prod(self.axis_sizes)

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis by name.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).shape
            {'data': 2, 'model': 4}
        """
        return dict(zip(self.axis_names, self.axis_sizes))

    def parts(self, axes: Axes) -> int:
        """The number of parts of a dimension that is cut along these axes.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).parts(("data", "model"))
            8
        """
        sizes = self.shape
        return math.prod([sizes[a] for a in axes])

    def divides(self, n: Dim, axes: Axes) -> bool:
        """True if a dimension of n is cut into even parts along these axes.

        Examples:
            >>> mesh = uopc.make_mesh((4,), ("data",))
            >>> mesh.divides(8, ("data",)), mesh.divides(uopc.variable("n", 0, 8) * 2, ("data",))
            (True, False)
        """
        return is_divided(n, self.parts(axes))

    def coordinates(self, rank: int) -> dict[str, int]:
        """The place of a device along each axis.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).coordinates(5)
            {'data': 1, 'model': 1}
        """
        found: dict[str, int] = {}
        for name, size in zip(reversed(self.axis_names), reversed(self.axis_sizes)):
            rank, found[name] = divmod(rank, size)
        return {name: found[name] for name in self.axis_names}

    def rank(self, coordinates: dict[str, int]) -> int:
        """The number of the device at these coordinates.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).rank({"data": 1, "model": 1})
            5
        """
        found = 0
        for name, size in zip(self.axis_names, self.axis_sizes):
            found = found * size + coordinates[name]
        return found

    def place(self, rank: int, axes: Axes) -> int:
        """The number of a device's part among those along these axes.

        Examples:
            >>> uopc.make_mesh((2, 4), ("data", "model")).place(5, ("model",))
            1
        """
        at, found, sizes = self.coordinates(rank), 0, self.shape
        for a in axes:
            found = found * sizes[a] + at[a]
        return found

    def groups(self, axes: Axes) -> list[list[int]]:
        """The devices that differ along these axes only, in the order of their parts.

        Examples:
            >>> uopc.make_mesh((2, 2), ("data", "model")).groups(("data",))
            [[0, 2], [1, 3]]
        """
        return _groups(self, axes)

    def spec(self, given: Any, dims: Sequence[Dim], who: str) -> Spec:
        """A PartitionSpec in its normal form: dimensions of length 1 are not cut.

        UserError for an axis that the mesh does not have.

        Examples:
            >>> mesh = uopc.make_mesh((2, 1), ("data", "model"))
            >>> mesh.spec(uopc.P("data", "model"), (8, 8), "example")
            (('data',), ('model',))
        """
        sizes = self.shape
        spec = normal(given, len(dims), who)
        for a in [a for axes in spec for a in axes]:
            if a not in sizes:
                names = ", ".join(map(repr, sizes))
                raise UserError(f"{who}: {show(spec)}: unknown mesh axis {a!r}; choose {names}")
        return tuple([() if d == 1 else axes for d, axes in zip(dims, spec)])

    def part_dims(self, dims: Sequence[Dim], spec: Spec) -> tuple[Dim, ...]:
        """The shape of the part that each device has.

        Examples:
            >>> mesh = uopc.make_mesh((4,), ("data",))
            >>> mesh.part_dims((10, 3), (("data",), ()))
            (3, 3)
        """
        return tuple([part_size(d, self.parts(axes)) for d, axes in zip(dims, spec)])


@functools.lru_cache(maxsize=64)
def _groups(mesh: Mesh, axes: Axes) -> list[list[int]]:
    rest = [a for a in mesh.axis_names if a not in axes]
    sizes = mesh.shape
    found = []
    for fixed in itertools.product(*[range(sizes[a]) for a in rest]):
        at = dict(zip(rest, fixed))
        members = itertools.product(*[range(sizes[a]) for a in axes])
        found.append([mesh.rank({**at, **dict(zip(axes, m))}) for m in members])
    return found


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], *,
    devices: Sequence[str] | None = None,
) -> Mesh:  # fmt: skip
    """A mesh of devices: the size and the name of each axis.

    devices: CPU devices of this process, by rank; each has separate threads, and all run at the
    same time. Without `devices`, each device is on an MPI rank, or one thread runs all devices in
    turn.

    UserTypeError unless both are sequences, UserError unless the sizes are positive, the names
    different identifiers, and the devices different ones, as many as the mesh has.

    Examples:
        >>> uopc.make_mesh((2, 4), ("data", "model")).size
        8
        >>> uopc.make_mesh((2,), ("data",), devices=("cpu:0", "cpu:1")).devices
        ('cpu', 'cpu:1')
    """
    try:
        sizes, names = tuple(axis_shapes), tuple(axis_names)
    except TypeError:
        raise UserTypeError(
            "make_mesh: expected sequences of sizes and of names, such as (2,) and ('data',), got"
            f" {axis_shapes!r} and {axis_names!r}"
        ) from None
    if len(sizes) != len(names) or len(set(names)) != len(names):
        raise UserError(f"make_mesh: expected a size and a name per axis, got {sizes} and {names}")
    for n in sizes:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise UserError(f"make_mesh: a size must be a positive integer, got {n!r}")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise UserError(f"make_mesh: a name must be an identifier, got {name!r}")
    if math.prod(sizes) > MOST_DEVICES:
        raise UserError(
            f"make_mesh: expected at most {MOST_DEVICES} devices, got {math.prod(sizes)}"
        )
    return Mesh(names, sizes, _checked_devices(devices, math.prod(sizes)))


def _checked_devices(given: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if given is None:
        return ()
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if not listed or not all([isinstance(d, str) for d in given]):
        raise UserTypeError(f"make_mesh: devices must be names of devices, got {given!r}")
    found = tuple(map(device.named, given))
    unknown = [d for d in found if not device.is_cpu(d)]
    if unknown:
        last = device.CPU_DEVICES - 1
        raise UserError(f"make_mesh: unknown CPU device {unknown[0]!r}; choose cpu:0 to cpu:{last}")
    if len(set(found)) != len(found) or len(found) != size:
        raise UserError(f"make_mesh: expected {size} different devices, got {tuple(given)}")
    return found


def coordinate(axis: str) -> str:
    """The name of the variable for a device's coordinate on a mesh axis."""
    return f"at_{axis}"
