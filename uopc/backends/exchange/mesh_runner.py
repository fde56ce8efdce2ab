"""Calls of a program for several devices: whole arrays are cut, and results put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uopc.backends.cpu.arguments import Bound, KnownSizes, bind, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.exchange import lockstep
from uopc.backends.exchange.device_run import DeviceRun
from uopc.backends.plan import AnyArray, Plan
from uopc.ir.devices import parts


class MeshRunner:
    """All devices of a mesh in this process, one after the other from exchange to exchange."""

    def __init__(self, plan: Plan, image: Image) -> None:
        assert plan.mesh is not None
        self.plan, self.mesh = plan, plan.mesh.mesh
        self.devices = [DeviceRun(plan, image, rank) for rank in range(self.mesh.size)]
        self._known: KnownSizes = BoundedMap()

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        """A call with whole arrays; returns whole arrays."""
        bound = bind(self.plan, positional, named, self._known)
        given = [self._parts(bound, rank) for rank in range(self.mesh.size)]
        made = [self._results(bound.values) for _ in self.devices]
        running = [
            d.steps(arrays, outs, bound.values)
            for d, arrays, outs in zip(self.devices, given, made)
        ]
        try:
            while None not in (steps := [next(r, None) for r in running]):
                lockstep.exchanged(self.mesh, [s for s in steps if s is not None])
        finally:
            for r in running:
                r.close()
        return self._joined(bound, given, made)

    def _parts(self, bound: Bound, rank: int) -> list[AnyArray]:
        """A device's parts of the arguments: of its own where the program writes."""
        plan, found = self.plan, []
        assert plan.mesh is not None
        for a, spec, argument in zip(bound.arrays, plan.mesh.arguments, plan.arguments):
            own = np.ascontiguousarray(parts.part(a, self.mesh, spec, rank))
            found.append(own.copy() if argument.writable and np.shares_memory(own, a) else own)
        return found

    def _results(self, values: Mapping[str, int]) -> list[AnyArray]:
        """Memory for a device's parts of the fresh results."""
        return [
            np.empty(shape_of(r.shape, values), r.dtype) for r in self.devices[0].plan.fresh
        ]

    def _joined(
        self, bound: Bound, given: list[list[AnyArray]], made: list[list[AnyArray]]
    ) -> object:
        plan = self.plan
        assert plan.mesh is not None
        for i, (argument, spec) in enumerate(zip(plan.arguments, plan.mesh.arguments)):
            if argument.writable:
                parts.put(bound.arrays[i], [own[i] for own in given], self.mesh, spec)
        fresh, shapes, number = [], [], 0
        for result, spec, out in zip(plan.results, plan.mesh.results, bound.outs):
            shapes.append(shape_of(result.shape, bound.values))
            if result.source is not None:
                continue
            own = [m[number] for m in made]
            whole = parts.whole(own, self.mesh, spec, shapes[-1])
            if out is not None:
                out[...] = whole
            fresh.append(whole)
            number += 1
        return bound.results(plan, shapes, fresh, bound.arrays.__getitem__)


def make_program(plan: Plan, image: Image, cls: type[Any]) -> Any:
    """A program object of class `cls` for the devices of a mesh."""
    program = object.__new__(cls)
    program._runner = MeshRunner(plan, image)
    return program
