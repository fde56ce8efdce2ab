"""The launches of one GPU of a mesh, from one exchange to the next."""

from __future__ import annotations

import math
from array import array as packed
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from uopc.backends.cuda.arrays import DeviceArray
from uopc.backends.cuda.binding import driver
from uopc.backends.cuda.device import Device
from uopc.backends.cuda.runner import BoundLaunch, CudaRunner
from uopc.backends.exchange.device_call import Action
from uopc.backends.exchange.device_run import PhasedRun
from uopc.backends.plan import AnyDtype, Plan, PlannedLaunch, Repeat


class DeviceMemory:
    """Memory of a GPU."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> DeviceArray:
        memory = self.device.pool.acquire(math.prod(dims) * dtype.itemsize)
        return DeviceArray(memory.address, tuple(dims), dtype, self.device, memory)

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> DeviceArray:
        return DeviceArray(address, tuple(dims), dtype, self.device, None)

    def addresses(self, arrays: Iterable[DeviceArray]) -> list[int]:
        return [a.address for a in arrays]

    def within(self, array: DeviceArray) -> Any:
        """The outermost array that contains this array, or None."""
        found: Any = array.owner
        while isinstance(found, DeviceArray) and isinstance(found.owner, DeviceArray):
            found = found.owner
        return found if isinstance(found, DeviceArray) else None

    def move(self, to: int, source: int, nbytes: int) -> object:
        return driver().memcpy_dtod(to, source, nbytes)


class CudaDeviceRun(PhasedRun):
    """The program of a GPU. Its context must be current."""

    reads_late = False

    def __init__(self, plan: Plan, ptx: Mapping[str, str], device: Device, rank: int) -> None:
        super().__init__(plan, rank)
        self.memory = DeviceMemory(device)
        self.device = device
        self.runner = CudaRunner(self.own, ptx, device)

    def acquire(self, nbytes: int) -> tuple[int, object]:
        memory = self.device.pool.acquire(nbytes)
        return memory.address, memory

    def release(self, owner: object) -> None:
        """Do nothing: memory is free once nobody refers to it."""

    def trim(self) -> int:
        return self.runner.trim()

    def _table(
        self, launches: tuple[PlannedLaunch, ...], values: Mapping[str, int],
        repeats: tuple[Repeat, ...],
    ) -> list[BoundLaunch]:  # fmt: skip
        row = replace(self.own, launches=launches, repeats=repeats)
        bound = [self.runner.bind_launch(launch, values) for launch in launches]
        return [b for n in row.runs(values) if (b := bound[n]) is not None]

    def _constants(self) -> Sequence[int]:
        return self.runner.last_bases

    def runs(self, table: list[BoundLaunch], bases: packed[int]) -> list[Action]:
        ready = [b.ready(bases) for b in table]
        return [partial(launch, *given) for launch, *given in ready]
