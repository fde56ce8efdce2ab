"""Whole arrays, of which each device of a mesh in this process has its parts."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.builder import kernel, leaves, movement
from uopc.ir.builder.programs import Slots
from uopc.ir.builder.unrolled import Unrolled, part_window
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import whole_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Spec
from uopc.passes.effects.versions import EffectsBelow
from uopc.passes.effects.views import (
    effects_by_root,
    is_final_storage,
    reshaped_base,
    roots_of_views,
)
from uopc.passes.sharding import MeshLayout

Box = tuple[tuple[shapes.Dim, ...], tuple[shapes.Dim, ...]]  # begins and sizes


class WholeArrays:
    """The arguments and results of a graph of one device of a mesh, by what all devices have."""

    def __init__(self, graph: UOp, order: list[UOp], sharding: MeshLayout) -> None:
        self.sharding, self.mesh, self.slots = sharding, sharding.mesh, Slots(graph)
        self.arguments = {
            name: leaves.with_dims(p, sharding.in_sums(shapes.shape(p)))
            for name, p in sharding.arguments.items()
        }
        self._layouts = iter(zip(sharding.results, sharding.dims))
        self._effects = effects_by_root(order, roots_of_views(order), written_only=True)
        self._below = EffectsBelow(order)
        self._params = {u.arg.name: u for u in order if u.op is Ops.PARAM}
        self._results: dict[tuple[UOp, Spec], UOp] = {}
        self._written: dict[str, UOp] = {}

    def part(self, param: UOp, rank: int) -> UOp:
        """A device's part of an argument: read where it is, or a copy if the device writes to it.
        Zeros are where an uneven part ends."""
        name = param.arg.name
        dims, spec = self._dims(name), self.sharding.params[name]
        begins, sizes = self._box(dims, spec, rank)
        padded = tuple([
            self.mesh.part_dims((n,), (axes,))[0] if isinstance(n, int) else size
            for n, axes, size in zip(dims, spec, sizes)
        ])  # fmt: skip
        value = part_window(self.arguments[name], begins, padded)
        return intern(Ops.COPY, value.dtype, (value,), self.mesh.devices[rank])

    def result(self, found: Unrolled, value: UOp) -> UOp:
        """A complete result: an argument, the value of a device that has all of it, or an array to
        which the devices store their parts."""
        spec, dims = next(self._layouts)
        root = whole_root(value)
        shape = self.sharding.in_sums(dims)
        if root.op is Ops.PARAM and is_final_storage(value, self._effects, self._below):
            written = self._after_writes(found, root)
            return written if reshaped_base(value) is value else movement.reshape(written, shape)
        if not any(spec) or 0 in dims:
            return part_window(found.parts(value)[0], (0,) * len(dims), shape)
        key = value, spec
        if key not in self._results:
            storage = leaves.buffer(self.slots(), value.dtype, shape)
            own = [found.part(value, rank) for rank in range(self.mesh.size)]
            stores = self._stores(storage, dims, spec, own)
            self._results[key] = kernel.after(storage, *stores)
        return self._results[key]

    def written_back(self, found: Unrolled) -> list[UOp]:
        """The arguments after what the devices have written to their parts."""
        for p in self._params.values():
            if p in self._effects:
                self._after_writes(found, p)
        return [e for after in self._written.values() for e in after.src[1:]]

    def _after_writes(self, found: Unrolled, param: UOp) -> UOp:
        name = param.arg.name
        if param not in self._effects:
            return self.arguments[name]
        if name not in self._written:
            ordered = sorted(self._effects[param], key=self._below.numbers.__getitem__)
            parts = [
                kernel.after(own, *[found.part(e, rank) for e in ordered])
                for rank, own in enumerate(found.parts(param))
            ]
            whole, spec = self.arguments[name], self.sharding.params[name]
            stores = self._stores(whole, self._dims(name), spec, parts)
            self._written[name] = kernel.after(whole, *stores)
        return self._written[name]

    def _dims(self, name: str) -> shapes.Shape:
        return shapes.shape(self.sharding.arguments[name])

    def _stores(
        self, whole: UOp, dims: shapes.Shape, spec: Spec, parts: Sequence[UOp]
    ) -> list[UOp]:
        """The stores of the parts of all devices; of equal parts the first one."""
        made: dict[Box, UOp] = {}
        for rank, own in enumerate(parts):
            box = begins, sizes = self._box(dims, spec, rank)
            if box in made or 0 in sizes:
                continue
            inside = part_window(own, (0,) * len(dims), sizes)
            made[box] = kernel.store(movement.window(whole, begins, sizes), inside)
        return list(made.values())

    def _box(self, dims: shapes.Shape, spec: Spec, rank: int) -> Box:
        """The box of a device's part, without padding."""
        begins: list[shapes.Dim] = []
        sizes: list[shapes.Dim] = []
        for n, axes in zip(dims, spec):
            begin, size = (0, n)
            if axes:
                begin, size = self.sharding.sizes.at(n, axes, self.mesh.place(rank, axes))
            begins.append(begin)
            sizes.append(size)
        return self.sharding.in_sums(tuple(begins)), self.sharding.in_sums(tuple(sizes))
