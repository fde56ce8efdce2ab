"""Calls of a program for the GPUs of a mesh, one on each rank of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from uopc.backends.cpu.arguments import BoundArguments
from uopc.backends.cuda import device as devices
from uopc.backends.cuda.arrays import DeviceArray
from uopc.backends.cuda.binding import failures
from uopc.backends.exchange.cuda_device_run import CudaDeviceRun, DeviceMemory
from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.exchange.device_run import PhasedRun
from uopc.backends.exchange.mesh_runner import CallSizes, MeshRunner
from uopc.backends.exchange.nccl import Nccl
from uopc.backends.exchange.sharded_array import ShardedArray
from uopc.backends.plan import AnyArray, Plan
from uopc.errors import Unsupported, UserError

_known: dict[tuple[int, int], Nccl] = {}  # by the job and the GPU


class CudaMeshRunner(MeshRunner):
    """The GPU of a mesh that belongs to this process. Each call copies uncut arguments to it, and
    uncut results from it; cut arrays stay there, as a ShardedArray."""

    memory: DeviceMemory
    on_host = False

    def __init__(self, plan: Plan, ptx: Mapping[str, str], number: str) -> None:
        """`number`: the GPU's number; empty for the number of this rank on its machine."""
        super().__init__(plan, ptx)
        self.device = devices.device(int(number) if number else self._place())
        self.memory = DeviceMemory(self.device)

    def _place(self) -> int:
        if self.ranks is None:
            return 0
        return self.ranks.of_machine[0] % devices.count()

    def _names(self) -> Iterable[str]:
        return list(self.image)

    def _device(self, rank: int) -> PhasedRun:
        return CudaDeviceRun(self.plan, self.image, self.device, rank)

    def _nccl(self) -> Nccl:
        assert self.ranks is not None
        key = id(self.ranks), self.device.ordinal
        if key not in _known:
            _known[key] = Nccl(self.ranks, self.device)
        return _known[key]

    def _exchange_of_rank(self, step: ExchangeStep) -> Action:
        return self._nccl().exchanged(self.mesh, step)

    def _started(self, step: ExchangeStep) -> Started:
        return self._nccl().started(self.mesh, step)

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        if self.ranks is None and self.mesh.size > 1:
            raise Unsupported(
                f"{self.plan.name}: a mesh of GPUs needs a job with a rank per GPU: call"
                " uopc.distributed.initialize() first"
            )
        with self.device, failures(f"running {self.plan.name!r}"):
            return super().call(positional, named)

    def _check_parts(self, label: str, writable: bool, own: list[Any]) -> None:
        if writable and not all([isinstance(a, DeviceArray) for a in own]):
            raise UserError(
                f"{label} is written, but its parts are not on a GPU: pass a result of a program"
            )

    def _parts(self, bound: BoundArguments, sizes: CallSizes, rank: int) -> list[Any]:
        return [
            a if isinstance(a, DeviceArray) else self._uploaded(a)
            for a in super()._parts(bound, sizes, rank)
        ]

    def _may_share(self, a: Any, b: Any) -> bool:
        if isinstance(a, DeviceArray) and isinstance(b, DeviceArray):
            return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
        return False  # what is not on the GPU is copied to it

    def _uploaded(self, array: AnyArray) -> DeviceArray:
        new = self.memory.new(array.shape, array.dtype)
        used: list[Any] = []
        self.device.upload(array, new.address, used)
        if used:
            self.device.synchronize()
            self.device.release(used)
        return new

    def _joined(
        self, bound: BoundArguments, sizes: CallSizes, given: Mapping[int, list[Any]],
        made: Mapping[int, list[Any]],
    ) -> object:  # fmt: skip
        mesh = self.plan.mesh
        assert mesh is not None
        fresh = [
            (cut.spec, out) for result, cut, out in zip(self.plan.results, mesh.results, bound.outs)
            if result.source is None
        ]  # fmt: skip
        stays = [self.ranks is not None and out is None and any(spec) for spec, out in fresh]
        last = self.plan.exchanges[-1] if self.plan.exchanges else "the results of a GPU"
        with nullcontext() if self.ranks is None else self.ranks.watched(last):
            made = {
                rank: [a if keep else a.numpy() for a, keep in zip(own, stays)]
                for rank, own in made.items()
            }
            back = [
                i for i in self._written if not isinstance(bound.objects[i], ShardedArray)
            ]
            given = {
                rank: [a.numpy() if i in back else a for i, a in enumerate(own)]
                for rank, own in given.items()
            }
        return super()._joined(bound, sizes, given, made)
