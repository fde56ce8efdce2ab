"""Arrays cut over a mesh: each process has some parts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.errors import UserError, UserTypeError
from uopc.ir.devices import parts
from uopc.ir.devices.mesh import Mesh, PartitionSpec, Spec, show, written
from uopc.ir.forks import cached_property
from uopc.ir.records import dataclass

Array = parts.Array


@dataclass(frozen=True)
class NamedSharding:
    """The layout of an array: a mesh, and a `uopc.P` of its axes.

    Examples:
        >>> uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m")).spec
        P('m')
    """

    mesh: Mesh
    spec: PartitionSpec

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, Mesh) or not isinstance(self.spec, PartitionSpec):
            raise UserTypeError(
                f"NamedSharding: expected a uopc.Mesh and a uopc.P, got {self.mesh!r} and"
                f" {self.spec!r}"
            )


@dataclass(frozen=True, eq=False)
class ShardLayout:
    """The facts shared by arrays that are cut alike."""

    shape: tuple[int, ...]
    mesh: Mesh
    spec: Spec
    dtype: np.dtype[Any]
    first: tuple[int, ...]  # the shape of the first part

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return layout, (self.shape, self.mesh, self.spec, self.dtype, self.first)


@functools.lru_cache(maxsize=1024)
def layout(
    shape: tuple[int, ...], mesh: Mesh, spec: Spec, dtype: np.dtype[Any],
    first: tuple[int, ...],
) -> ShardLayout:  # fmt: skip
    """A cached ShardLayout: the same object for the same fields, while few others are requested."""
    return ShardLayout(shape, mesh, spec, dtype, first)


class ShardedArray:
    """An array cut over a mesh: this process has the parts of its devices.

    A call on MPI ranks returns a ShardedArray for each result that stays cut. It takes one in place
    if the program cuts the argument alike; on GPUs the parts stay there. `np.asarray(x)` and
    `x.whole()` gather the array on all ranks, so all ranks must call them. `np.from_dlpack(x)` and
    its like in other libraries see this process's part.

    Examples:
        >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
        >>> x = uopc.make_array_from_callback((4,), sharding, lambda i: np.arange(4.0)[i])
        >>> x.shape, x.dtype, x.spec, x.whole()
        ((4,), dtype('float64'), P('m'), array([0., 1., 2., 3.]))
    """

    # The reason why a program for one device refuses it, though it gives its part through DLPack.
    NO_ARRAY = (
        "one that is cut over a mesh: compile with sharding=, for a mesh without devices=, or pass"
        " np.asarray(x), which gathers it"
    )

    __slots__ = ("__dict__", "__weakref__", "_gathered", "_padded", "layout")

    def __init__(
        self, layout: ShardLayout, padded: dict[int, Array],
        gathered: Callable[[Array], list[Array]] | None = None,
    ) -> None:  # fmt: skip
        """`padded`: by rank, the parts as programs take them; `gathered`: a function that gives the
        parts of all ranks."""
        self.layout, self._padded, self._gathered = layout, padded, gathered

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((4,), sharding, lambda i: np.ones(4)[i]).shape
            (4,)
        """
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((4,), sharding, lambda i: np.ones(4)[i]).dtype
            dtype('float64')
        """
        return self.layout.dtype

    @property
    def mesh(self) -> Mesh:
        """The mesh over which the array is cut.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((4,), sharding, lambda i: np.ones(4)[i]).mesh.size
            2
        """
        return self.layout.mesh

    @property
    def spec(self) -> PartitionSpec:
        """The mesh axes that cut each dimension.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((4,), sharding, lambda i: np.ones(4)[i]).spec
            P('m')
        """
        return written(self.layout.spec)

    @property
    def parts(self) -> dict[int, Array]:
        """The parts of this process's devices, by rank: views, without padding.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((3,), sharding, lambda i: np.arange(3.0)[i]).parts
            {0: array([0., 1.]), 1: array([2.])}
        """
        return {rank: self._unpadded(rank) for rank in self._padded}

    @property
    def part(self) -> Array:
        """The part of this process's device: a view, without padding. UserError if the process has
        several.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((1,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((3,), sharding, lambda i: np.arange(3.0)[i]).part
            array([0., 1., 2.])
        """
        if len(self._padded) != 1:
            raise UserError(
                f"part: this process has {len(self._padded)} devices, not 1: use `parts`"
            )
        return self._unpadded(next(iter(self._padded)))

    def whole(self) -> Array:
        """The whole array, gathered on all ranks: all ranks must call this.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((3,), sharding, lambda i: np.arange(3.0)[i]).whole()
            array([0., 1., 2.])
        """
        own = list(self._padded.values())
        every = list(map(np.asarray, own))
        if self._gathered is not None:
            every = self._gathered(parts.resized(every[0], self.first))
        found = parts.join_parts(every, self.mesh, self.layout.spec, self.shape, self.first)
        return found.copy() if any([found is a for a in every]) else found

    def _unpadded(self, rank: int) -> Array:
        inside = parts.slices(self.mesh, self.layout.spec, self.shape, rank, self.first)
        view: Array = self._padded[rank][tuple([slice(0, s.stop - s.start) for s in inside])]
        return view

    @cached_property
    def shadow(self) -> Array:
        """Zeros of the whole shape that take no memory, for checks."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    @property
    def is_on_host(self) -> bool:
        """True if the parts are NumPy arrays."""
        return all([type(a) is np.ndarray for a in self._padded.values()])

    def held(self, rank: int) -> Array:
        """The part of a device, with its padding."""
        return self._padded[rank]

    def local(self, rank: int, dims: Sequence[int]) -> Array:
        """The part of a device as a program takes it: in place, or a copy if its padding differs.
        """
        own = self._padded[rank]
        if own.shape == tuple(dims):
            return own
        if not isinstance(own, np.ndarray):
            raise UserError(
                f"a part on a GPU must have the shape {tuple(dims)}, got {own.shape}: pass"
                " np.asarray(x)"
            )
        return np.ascontiguousarray(parts.resized(own, dims))

    def put(self, rank: int, written: Array) -> None:
        """Copy a device's part from memory that a program wrote, unless the part is that memory."""
        own = self._padded[rank]
        if own is not written:
            part = self._unpadded(rank)
            part[...] = parts.resized(written, part.shape)

    def is_cut(self, mesh: Mesh, spec: Spec) -> bool:
        """True if the array is cut by this spec over an equal mesh; the names of its devices do not
        matter."""
        own = self.mesh.axis_names, self.mesh.axis_sizes
        return own == (mesh.axis_names, mesh.axis_sizes) and spec == self.layout.spec

    @property
    def first(self) -> tuple[int, ...]:
        """The shape of the first part.

        Examples:
            >>> sharding = uopc.NamedSharding(uopc.make_mesh((2,), ("m",)), uopc.P("m"))
            >>> uopc.make_array_from_callback((3,), sharding, lambda i: np.arange(3.0)[i]).first
            (2,)
        """
        return self.layout.first

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("copy=False: gathering a ShardedArray needs a copy")
        return self.whole().astype(dtype or self.dtype, copy=False)

    def __dlpack__(self, **how: Any) -> Any:
        return self.part.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.part.__dlpack_device__()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Copy or pickle the parts of this process; only this process may load the pickle."""
        if not self.is_on_host:
            raise UserTypeError(
                "a ShardedArray on GPUs cannot be pickled: pickle np.asarray(x.part)"
            )
        return ShardedArray, (self.layout, self._padded, self._gathered)

    def __repr__(self) -> str:
        ranks = ", ".join(map(str, self._padded))
        return (
            f"<uopc.ShardedArray {self.dtype.name}{list(self.shape)} cut as"
            f" {show(self.layout.spec)} over {self.mesh.shape}: parts of devices {ranks}>"
        )


def from_callback(
    shape: Sequence[int], sharding: NamedSharding, callback: Callable[..., Any],
    ranks: Sequence[int], gathered: Callable[[Array], list[Array]] | None,
) -> ShardedArray:  # fmt: skip
    """Make an array from a function that reads each part: see `uopc.make_array_from_callback`."""
    who = "make_array_from_callback"
    if not isinstance(sharding, NamedSharding):
        raise UserTypeError(f"{who}: expected a uopc.NamedSharding, got {sharding!r}")
    if not isinstance(shape, Sequence) or not callable(callback):
        raise UserTypeError(f"{who}: expected a shape and a function, got {shape!r}, {callback!r}")
    dims = tuple(shape)
    if not all([isinstance(d, int) and d >= 0 for d in dims]):
        raise UserError(f"{who}: the shape must be integers of 0 or more, got {dims!r}")
    mesh = sharding.mesh
    spec = mesh.spec(sharding.spec, dims, who)
    padded: dict[int, Array] = {}
    for rank in ranks:
        index = parts.slices(mesh, spec, dims, rank)
        own = np.asarray(callback(index))
        wanted = tuple([s.stop - s.start for s in index])
        if own.shape != wanted:
            raise UserError(f"{who}: expected an array of shape {wanted}, got {own.shape}")
        size = mesh.part_dims(dims, spec)
        if own.shape != size:
            whole = np.zeros(size, own.dtype)
            whole[tuple([slice(0, n) for n in own.shape])] = own
            own = whole
        own = np.ascontiguousarray(own) if math.prod(dims) else own.copy()
        equal = any([np.may_share_memory(own, a) for a in padded.values()])
        padded[rank] = own.copy() if equal else own  # a program may write each
    kinds = {a.dtype for a in padded.values()}
    if len(kinds) > 1:
        raise UserTypeError(
            f"{who}: all parts must have one dtype, got {', '.join(map(str, kinds))}"
        )
    least = mesh.part_dims(dims, spec)
    return ShardedArray(layout(dims, mesh, spec, kinds.pop(), least), padded, gathered)
