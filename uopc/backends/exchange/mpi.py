"""A device on each MPI rank, by mpi4py. Buffers go to the library as they are; it chooses how."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from uopc.backends.exchange.device_run import Action, Step
from uopc.backends.exchange.ranks import Ranks, as_bytes
from uopc.backends.plan import AnyArray
from uopc.errors import UserError

_OPS = {"add": MPI.SUM, "mul": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}


class MpiRanks(Ranks):
    """The processes of this MPI job."""

    def __init__(self, timeout: float) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        super().__init__(int(self.comm.rank), int(self.comm.size), timeout)

    def _abort(self, code: int) -> None:
        self.comm.Abort(code)

    def _every(self, text: str) -> list[str]:
        found: list[str] = self.comm.allgather(text)
        return found

    def _split(self, groups: list[list[int]], place: int) -> Any:
        color = next(i for i, g in enumerate(groups) if self.rank in g)
        return self.comm.Split(color, place)

    def _of_machine(self) -> tuple[int, Callable[[], None]]:
        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        return int(here.rank), here.Barrier

    def _gather(self, sent: AnyArray, got: AnyArray) -> None:
        self.comm.Allgather(sent, got)

    def _prepared(self, group: Any, step: Step) -> Action:
        exchange, sent, got = step
        in_place = sent.ctypes.data == got.ctypes.data
        match exchange.kernel:
            case "allreduce":
                given = MPI.IN_PLACE if in_place else sent
                return partial(group.Allreduce, given, got, _OPS[exchange.op])
            case "reduce_scatter":
                return partial(group.Reduce_scatter_block, sent, got, _OPS[exchange.op])
            case "allgather":
                return partial(group.Allgather, as_bytes(sent), as_bytes(got))
            case "alltoall":
                return partial(group.Alltoall, as_bytes(sent), as_bytes(got))
            case "broadcast":
                send = partial(group.Bcast, as_bytes(got), exchange.root)
                is_root = group.rank == exchange.root and not in_place
                return _after(partial(np.copyto, got, sent), send) if is_root else send
            case "permute_ranks":
                return _sent_on(group, step)
            case kind:
                raise UserError(f"no exchange {kind}")


def _sent_on(group: Any, step: Step) -> Action:
    exchange, sent, got = step
    to, source = group.rank + exchange.shift, group.rank - exchange.shift
    if exchange.mirror:
        to = source = group.size - 1 - group.rank
    to = to if 0 <= to < group.size else MPI.PROC_NULL
    comes = 0 <= source < group.size
    source = source if comes else MPI.PROC_NULL
    move = partial(group.Sendrecv, as_bytes(sent), to, 0, as_bytes(got), source, 0)
    return move if comes else _after(partial(got.fill, 0), move)


def _after(first: Action, then: Action) -> Action:
    def both() -> None:
        first()
        then()

    return both
