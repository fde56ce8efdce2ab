"""Calls of a program for several devices: whole arrays are cut, and results put together.

All devices are in this process, one after the other from exchange to exchange, or each is on a
rank of a job (`uopc.distributed.initialize`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.backends.cpu.arguments import Bound, KnownSizes, bind, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.exchange import lockstep
from uopc.backends.exchange.device_run import DeviceRun, result_memory
from uopc.backends.plan import AnyArray, Plan
from uopc.ir.devices import parts

if TYPE_CHECKING:  # mpi4py starts MPI when it is imported
    from uopc.backends.exchange.mpi import Ranks

ranks: Ranks | None = None  # of the job that this process has joined


class MeshRunner:
    """The devices of a mesh that this process has."""

    def __init__(self, plan: Plan, image: Image) -> None:
        assert plan.mesh is not None
        self.plan, self.mesh, self.ranks = plan, plan.mesh.mesh, ranks
        if self.ranks is not None:
            self.ranks.check_same(self.mesh, fingerprint(plan, image))
        own: Iterable[int] = range(self.mesh.size) if self.ranks is None else [self.ranks.rank]
        self.devices = {rank: DeviceRun(plan, image, rank) for rank in own}
        self._known: KnownSizes = BoundedMap()

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        """A call with whole arrays; returns whole arrays."""
        bound = bind(self.plan, positional, named, self._known)
        given = {rank: self._parts(bound, rank) for rank in self.devices}
        made = {rank: result_memory(d.plan, bound.values) for rank, d in self.devices.items()}
        running = [d.steps(given[r], made[r], bound.values) for r, d in self.devices.items()]
        try:
            while None not in (steps := [next(r, None) for r in running]):
                if self.ranks is None:
                    lockstep.exchanged(self.mesh, [s for s in steps if s is not None])
                else:
                    assert steps[0] is not None
                    self.ranks.exchanged(self.mesh, steps[0])
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

    def _of_all(self, parts_of: Mapping[int, list[AnyArray]], number: int) -> list[AnyArray]:
        """The parts of an array that all devices have, by rank."""
        own = [arrays[number] for arrays in parts_of.values()]
        return own if self.ranks is None else self.ranks.gathered(own[0])

    def _joined(
        self, bound: Bound, given: Mapping[int, list[AnyArray]], made: Mapping[int, list[AnyArray]]
    ) -> object:
        plan, mesh = self.plan, self.plan.mesh
        assert mesh is not None
        for i, (argument, spec) in enumerate(zip(plan.arguments, mesh.arguments)):
            if argument.writable:
                parts.put(bound.arrays[i], self._of_all(given, i), self.mesh, spec)
        fresh: list[AnyArray] = []
        shapes: list[tuple[int, ...]] = []
        for result, spec, out in zip(plan.results, mesh.results, bound.outs):
            shapes.append(shape_of(result.shape, bound.values))
            if result.source is not None:
                continue
            if any(spec):
                every = self._of_all(made, len(fresh))
            else:
                every = [next(iter(made.values()))[len(fresh)]]
            whole = parts.whole(every, self.mesh, spec, shapes[-1])
            if out is not None:
                out[...] = whole
            fresh.append(whole)
        return bound.results(plan, shapes, fresh, bound.arrays.__getitem__)


def fingerprint(plan: Plan, image: Image) -> str:
    """A digest of a plan and the names of its kernels: what all ranks must share."""
    text = repr((plan.mesh, plan.arguments, plan.results, plan.arena_bytes, sorted(image.symbols)))
    for launch in plan.launches:
        text += repr(launch.kernel) + repr(launch.words)
    for e in plan.exchanges:
        text += repr((e.axes, e.op, e.shift, e.mirror, e.root, e.dtype, e.sent, e.got))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_program(plan: Plan, image: Image, cls: type[Any]) -> Any:
    """A program object of class `cls` for the devices of a mesh."""
    program = object.__new__(cls)
    program._runner = MeshRunner(plan, image)
    return program
