"""Exchanges between the GPUs of the processes of a job, by NCCL through nccl4py.

The processes have met by MPI or Gloo, which distributes the unique ids. Exchanges run on a separate
stream, between events: an exchange waits for the values that it sends, and later launches wait for
the exchange. Never run on GPUs: written for the bindings of nccl4py 0.6.0 (NCCL 2.32), and tested
with a stand-in.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from uopc.backends.cuda.binding import driver
from uopc.backends.cuda.device import Device
from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.exchange.ranks import Ranks
from uopc.backends.plan import AnyDtype, Exchange
from uopc.errors import DeviceError, Unsupported
from uopc.ir.devices.mesh import Mesh

# The numbers of nccl.h, which tests compare with nccl4py's.
TYPES: dict[AnyDtype, int] = {
    np.dtype("i1"): 0, np.dtype("u1"): 1, np.dtype("?"): 1, np.dtype("i4"): 2, np.dtype("u4"): 3,
    np.dtype("i8"): 4, np.dtype("u8"): 5, np.dtype("f2"): 6, np.dtype("f4"): 7, np.dtype("f8"): 8,
    np.dtype(ml_dtypes.bfloat16): 9, np.dtype(ml_dtypes.float8_e4m3fn): 10,
    np.dtype(ml_dtypes.float8_e5m2): 11,
}  # fmt: skip
OPS = {"add": 0, "mul": 1, "max": 2, "min": 3}
BYTES = TYPES[np.dtype("u1")]
FINE = (0, 7)  # success, and in progress
_NON_BLOCKING = 1  # a stream that does not wait for the default one


class _Group(NamedTuple):
    """A communicator of the ranks that differ along some mesh axes, and the place of this rank."""

    comm: Any
    place: int
    size: int


class Nccl:
    """The GPU of this process among the GPUs of its job."""

    def __init__(self, ranks: Ranks, device: Device) -> None:
        try:
            from nccl.bindings import nccl
        except (ImportError, RuntimeError) as error:  # RuntimeError: there is no libnccl
            raise Unsupported(f"a mesh on cuda: install uopc[nccl]: {error}") from error
        self.library: Any = nccl
        self.ranks, self.device = ranks, device
        self._groups: dict[tuple[Mesh, tuple[str, ...]], _Group] = {}
        with device:
            self._stream = driver().Stream(_NON_BLOCKING)
            # The default stream waits for all work of streams like this one.
            self._before_default = driver().Stream(0)
        self._pending: deque[tuple[float, Exchange, Any, Any]] = deque()
        ranks.dog.asked.append(self._oldest)

    def exchanged(self, mesh: Mesh, step: ExchangeStep) -> Action:
        """The action of an exchange, for repeated calls."""
        start = self.started(mesh, step)
        return lambda: start()()

    def started(self, mesh: Mesh, step: ExchangeStep) -> Started:
        """A function that starts an exchange, and returns a function that makes later launches wait
        for the exchange."""
        exchange = step.exchange
        with self.ranks.watched(exchange):
            group = self._group(mesh, exchange.axes)
        queue = self._named(exchange, partial(_queued, self.library, group, step, self._stream))
        drv, stream, pending = driver(), self._stream, self._pending

        def start() -> Action:
            while pending and pending[0][3].query():
                pending.popleft()
            ready, done = drv.Event(), drv.Event()
            ready.record()
            stream.wait_for_event(ready)
            with self.ranks.watched(exchange):
                queue()
            done.record(stream)
            pending.append((time.monotonic(), exchange, group.comm, done))
            return partial(self._before_default.wait_for_event, done)

        return start

    def _named(self, exchange: Exchange, do: Callable[[], None]) -> Callable[[], None]:
        """Wrap `do`: DeviceError with the exchange's name if NCCL fails."""
        failure = self.library.NCCLError

        def act() -> None:
            try:
                do()
            except failure as error:
                raise DeviceError(f"rank {self.ranks.rank} in: {exchange}\n  {error}") from error

        return act

    def _group(self, mesh: Mesh, axes: tuple[str, ...]) -> _Group:
        """The ranks that differ along these axes only; all ranks must call together."""
        found = self._groups.get((mesh, axes))
        if found is None:
            members = next(g for g in mesh.groups(axes) if self.ranks.rank in g)
            place = members.index(self.ranks.rank)
            own = b"" if place else bytes(self.library.get_unique_id())
            unique = bytes.fromhex(self.ranks.every(own.hex())[members[0]])
            with self.device:
                comm = self.library.comm_init_rank_scalable(len(members), place, 1, unique, 0)
            found = self._groups[mesh, axes] = _Group(comm, place, len(members))
        return found

    def _oldest(self) -> tuple[float, object] | None:
        """The start time of the oldest unfinished exchange, for the watchdog. If NCCL reports a
        failure, the job ends at once."""
        for since, exchange, comm, done in self._pending.copy():
            code = int(self.library.comm_get_async_error(comm))
            if code not in FINE:
                return -math.inf, f"{exchange}\n  NCCL: {self.library.get_error_string(code)}"
            with self.device:
                if not done.query():
                    return since, exchange
        return None


def _queued(nccl: Any, group: _Group, step: ExchangeStep, stream: Any) -> None:
    """Queue an exchange on a stream."""
    exchange, sent, got = step[:3]
    comm, place, size = group
    to, source, on = got.address, sent.address, stream.handle
    count, nbytes = int(np.prod(sent.shape, dtype=np.int64)), sent.nbytes
    if not nbytes:
        return
    match exchange.kernel:
        case "allreduce":
            nccl.all_reduce(source, to, count, _type(exchange), OPS[exchange.op], comm, on)
        case "reduce_scatter":
            each = count // size
            nccl.reduce_scatter(source, to, each, _type(exchange), OPS[exchange.op], comm, on)
        case "allgather":
            nccl.all_gather(source, to, nbytes, BYTES, comm, on)
        case "alltoall":
            nccl.allto_all(source, to, nbytes // size, BYTES, comm, on)
        case "broadcast":
            nccl.broadcast(source, to, nbytes, BYTES, exchange.root, comm, on)
        case "permute_ranks":
            target, origin = exchange.ends(place)
            if origin is None:
                driver().memset_d8_async(to, 0, nbytes, stream)
            nccl.group_start()
            if target is not None:
                nccl.send(source, nbytes, BYTES, target, comm, on)
            if origin is not None:
                nccl.recv(to, nbytes, BYTES, origin, comm, on)
            nccl.group_end()
        case kind:
            raise Unsupported(f"unknown exchange {kind}")


def _type(exchange: Exchange) -> int:
    found = TYPES.get(exchange.dtype)
    if found is None:
        raise Unsupported(f"NCCL does not combine {exchange.dtype.name}: {exchange}")
    return found
