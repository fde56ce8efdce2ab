"""A module in place of nccl4py's bindings: each rank's device is a stand-in, and MPI moves bytes.

The calls that the runtime makes, with their arguments in order, as in nccl.bindings.nccl 0.6.0.
"""

from __future__ import annotations

import enum
import sys
import types
import zlib
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from tests.standin.driver import Driver

# As nccl.h lists them.
DATA_TYPES = {
    "ncclInt8": 0, "ncclUint8": 1, "ncclInt32": 2, "ncclUint32": 3, "ncclInt64": 4,
    "ncclUint64": 5, "ncclFloat16": 6, "ncclFloat32": 7, "ncclFloat64": 8, "ncclBfloat16": 9,
    "ncclFloat8e4m3": 10, "ncclFloat8e5m2": 11,
}  # fmt: skip
OPS = {"ncclSum": 0, "ncclProd": 1, "ncclMax": 2, "ncclMin": 3}
RESULTS = {"ncclSuccess": 0, "ncclInvalidArgument": 4, "ncclRemoteError": 6, "ncclInProgress": 7}
DTYPES = [
    np.dtype(t)
    for t in ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16,
              ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]  # fmt: skip
FOLDS = [np.add, np.multiply, np.maximum, np.minimum]


class NCCLError(Exception):
    """A result other than success."""


class Result(enum.IntEnum):
    Success = 0
    RemoteError = 6


class Bindings(types.ModuleType):
    """`calls`: the names of calls in order. `failing`: the code that a communicator reports."""

    NCCLError = NCCLError

    def __init__(self, driver: Driver) -> None:
        super().__init__("nccl.bindings.nccl")
        self.driver = driver
        self.calls: list[str] = []
        self.failing = 0
        self.group: list[Any] | None = None

    def install(self) -> None:
        """Put the stand-in where `from nccl.bindings import nccl` finds it."""
        package, bindings = types.ModuleType("nccl"), types.ModuleType("nccl.bindings")
        vars(package)["bindings"], vars(bindings)["nccl"] = bindings, self
        sys.modules |= {m.__name__: m for m in (package, bindings, self)}

    def get_unique_id(self) -> bytes:
        self.calls.append("get_unique_id")
        return f"id of {MPI.COMM_WORLD.rank}, {len(self.calls)}".encode().ljust(128, b"\0")

    def comm_init_rank_scalable(
        self, nranks: int, rank: int, count: int, ids: bytes, config: int
    ) -> Any:
        """All ranks of the world come here at once, each with the id of its group."""
        assert count == 1 and len(ids) == 128 and config == 0
        self.calls.append("comm_init_rank_scalable")
        made = MPI.COMM_WORLD.Split(zlib.crc32(ids) >> 1, rank)
        assert (made.size, made.rank) == (nranks, rank)
        return made

    def comm_get_async_error(self, comm: Any) -> int:
        return self.failing

    def get_error_string(self, code: int) -> str:
        return f"error {code}"

    def _at(self, address: int, nbytes: int, stream: int) -> Any:
        assert isinstance(address, int) and isinstance(stream, int) and stream
        return self.driver.memory.bytes_at(address, nbytes)

    def _gathered(self, name: str, address: int, nbytes: int, comm: Any, stream: int) -> Any:
        self.calls.append(name)
        own = self._at(address, nbytes, stream).copy()
        every = np.empty((comm.size, nbytes), np.uint8)
        comm.Allgather(own, every)
        return every

    def _folded(self, every: Any, datatype: int, op: int) -> Any:
        found = every.view(DTYPES[datatype])
        total = found[0].copy()
        for row in found[1:]:
            total = FOLDS[op](total, row).astype(total.dtype)
        return total.view(np.uint8)

    def all_reduce(self, sendbuff: int, recvbuff: int, count: int, datatype: int, op: int,
                   comm: Any, stream: int) -> None:  # fmt: skip
        nbytes = count * DTYPES[datatype].itemsize
        every = self._gathered("all_reduce", sendbuff, nbytes, comm, stream)
        self._at(recvbuff, nbytes, stream)[:] = self._folded(every, datatype, op)

    def reduce_scatter(self, sendbuff: int, recvbuff: int, recvcount: int, datatype: int, op: int,
                       comm: Any, stream: int) -> None:  # fmt: skip
        each = recvcount * DTYPES[datatype].itemsize
        every = self._gathered("reduce_scatter", sendbuff, each * comm.size, comm, stream)
        total = self._folded(every, datatype, op).reshape(comm.size, each)
        self._at(recvbuff, each, stream)[:] = total[comm.rank]

    def all_gather(self, sendbuff: int, recvbuff: int, sendcount: int, datatype: int, comm: Any,
                   stream: int) -> None:  # fmt: skip
        nbytes = sendcount * DTYPES[datatype].itemsize
        every = self._gathered("all_gather", sendbuff, nbytes, comm, stream)
        self._at(recvbuff, every.size, stream)[:] = every.reshape(-1)

    def allto_all(self, sendbuff: int, recvbuff: int, count: int, datatype: int, comm: Any,
                  stream: int) -> None:  # fmt: skip
        each = count * DTYPES[datatype].itemsize
        every = self._gathered("allto_all", sendbuff, each * comm.size, comm, stream)
        parts = every.reshape(comm.size, comm.size, each)[:, comm.rank]
        self._at(recvbuff, each * comm.size, stream)[:] = parts.reshape(-1)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int,
                  comm: Any, stream: int) -> None:  # fmt: skip
        nbytes = count * DTYPES[datatype].itemsize
        every = self._gathered("broadcast", sendbuff, nbytes, comm, stream)
        self._at(recvbuff, nbytes, stream)[:] = every[root]

    def group_start(self) -> None:
        self.group = []

    def send(self, sendbuff: int, count: int, datatype: int, peer: int, comm: Any,
             stream: int) -> None:  # fmt: skip
        assert self.group is not None
        given = self._at(sendbuff, count * DTYPES[datatype].itemsize, stream).copy()
        self.group.append((comm.Isend(given, peer), given))

    def recv(self, recvbuff: int, count: int, datatype: int, peer: int, comm: Any,
             stream: int) -> None:  # fmt: skip
        assert self.group is not None
        room = np.empty(count * DTYPES[datatype].itemsize, np.uint8)
        self.group.append((comm.Irecv(room, peer), room, self._at(recvbuff, room.size, stream)))

    def group_end(self) -> None:
        self.calls.append("group")
        assert self.group is not None
        for request, data, *target in self.group:
            request.Wait()
            for memory in target:
                memory[:] = data
        self.group = None
