"""A device on each MPI rank, by mpi4py. Buffers go to the library as they are; it chooses how."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from uopc.backends.exchange.device_run import Step
from uopc.backends.plan import AnyArray, Exchange
from uopc.errors import UserError
from uopc.ir.devices.mesh import Mesh

_OPS = {"add": MPI.SUM, "mul": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}
STUCK = 75  # the exit code of a job that the watchdog ends


class Watchdog(threading.Thread):
    """Ends the job when an exchange takes too long: a rank that is alive may never come."""

    def __init__(self, comm: Any, timeout: float) -> None:
        super().__init__(daemon=True, name="uopc watchdog")
        self.comm, self.timeout = comm, timeout
        self.waiting: tuple[float, object] | None = None  # since when, and for what
        self.start()

    def run(self) -> None:
        while True:
            time.sleep(min(self.timeout / 4, 1.0))
            waiting = self.waiting
            if waiting is not None and time.monotonic() - waiting[0] > self.timeout:
                print(
                    f"uopc: rank {self.comm.rank} waited {self.timeout:g} s in: {waiting[1]}\n"
                    "  another rank is stuck, dead, or runs another program; the job ends",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                self.comm.Abort(STUCK)
                os._exit(STUCK)  # where the library does not come back


class Ranks:
    """The processes of this MPI job."""

    def __init__(self, timeout: float) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.dog = Watchdog(self.comm, timeout)
        self._groups: dict[tuple[Mesh, tuple[str, ...]], Any] = {}
        _end_on_errors(self.comm)

    def check_size(self, mesh: Mesh) -> None:
        """UserError unless the mesh has a device per rank."""
        if mesh.size != self.size:
            raise UserError(f"the mesh has {mesh.size} devices, the MPI job {self.size} ranks")

    def check_same(self, mesh: Mesh, fingerprint: str) -> None:
        """UserError on all ranks unless the mesh has a device per rank, and all run one program."""
        self.check_size(mesh)
        self.dog.waiting = time.monotonic(), "the comparison of programs"
        every = self.comm.allgather(fingerprint)
        self.dog.waiting = None
        odd = [r for r, found in enumerate(every) if found != every[0]]
        if odd:
            raise UserError(f"ranks {odd} compiled another program than rank 0")

    def _group(self, mesh: Mesh, axes: tuple[str, ...]) -> Any:
        """The communicator of the ranks that differ along these axes only."""
        found = self._groups.get((mesh, axes))
        if found is None:
            color = next(i for i, g in enumerate(mesh.groups(axes)) if self.rank in g)
            found = self.comm.Split(color, mesh.place(self.rank, axes))
            self._groups[mesh, axes] = found
        return found

    def exchanged(self, mesh: Mesh, step: Step) -> None:
        """Do one exchange of this rank. The watchdog sees how long it takes."""
        exchange, sent, got = step
        self.dog.waiting = time.monotonic(), exchange
        self._do(self._group(mesh, exchange.axes), exchange, sent, got)
        self.dog.waiting = None

    def _do(self, group: Any, exchange: Exchange, sent: AnyArray, got: AnyArray) -> None:
        in_place = sent.ctypes.data == got.ctypes.data
        match exchange.kernel:
            case "allreduce":
                group.Allreduce(MPI.IN_PLACE if in_place else sent, got, _OPS[exchange.op])
            case "reduce_scatter":
                group.Reduce_scatter_block(sent, got, _OPS[exchange.op])
            case "allgather":
                group.Allgather(_bytes(sent), _bytes(got))
            case "alltoall":
                group.Alltoall(_bytes(sent), _bytes(got))
            case "broadcast":
                if group.rank == exchange.root and not in_place:
                    got[...] = sent
                group.Bcast(_bytes(got), exchange.root)
            case "permute_ranks":
                to, source = group.rank + exchange.shift, group.rank - exchange.shift
                if exchange.mirror:
                    to = source = group.size - 1 - group.rank
                to = to if 0 <= to < group.size else MPI.PROC_NULL
                if not 0 <= source < group.size:
                    source, got[...] = MPI.PROC_NULL, 0
                group.Sendrecv(_bytes(sent), to, 0, _bytes(got), source, 0)
            case kind:
                raise UserError(f"no exchange {kind}")

    def gathered(self, part: AnyArray) -> list[AnyArray]:
        """The parts that all ranks have of an array."""
        every = np.empty((self.size, *part.shape), part.dtype)
        self.dog.waiting = time.monotonic(), "the parts of a result"
        self.comm.Allgather(_bytes(np.ascontiguousarray(part)), _bytes(every))
        self.dog.waiting = None
        return list(every)


def _bytes(a: AnyArray) -> AnyArray:
    return a.reshape(-1).view(np.uint8)


def _end_on_errors(comm: Any) -> None:
    """An exception that nobody catches ends the job: the other ranks would wait for ever."""
    shown = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        print(f"uopc: rank {comm.rank} failed; the job ends", file=sys.stderr)
        shown(kind, error, trace)
        sys.stderr.flush()
        comm.Abort(1)

    sys.excepthook = hook
