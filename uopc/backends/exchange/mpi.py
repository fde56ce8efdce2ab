"""A device on each MPI rank, by mpi4py. Buffers go to the library as they are, and the library
chooses the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from uopc.backends.cpu.layout import data_address
from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.exchange.ranks import Ranks, as_bytes
from uopc.backends.plan import AnyArray, Exchange
from uopc.errors import UserError

_OPS = {"add": MPI.SUM, "mul": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}


class MpiRanks(Ranks):
    """The processes of this MPI job."""

    def __init__(self, timeout: float) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        super().__init__(int(self.comm.rank), int(self.comm.size), timeout)

    def _leave(self) -> None:
        self.comm.Barrier()  # while the watchdog runs: MPI's own end may wait for ever

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

    def _prepared(self, group: Any, step: ExchangeStep) -> Action:
        if step.exchange.kernel == "permute_ranks":
            return _sent_on(group, step)
        name, given, first = _call(group, step)
        do = partial(getattr(group, name), *given)
        return do if first is None else _after(first, do)

    def _begun(self, group: Any, step: ExchangeStep) -> Started:
        if step.exchange.kernel == "permute_ranks":
            return _sending(group, step)
        name, given, first = _call(group, step)
        start = _request(getattr(group, f"I{name.lower()}"), *given)
        return start if first is None else _before(first, start)


def _call(group: Any, step: ExchangeStep) -> tuple[str, tuple[Any, ...], Action | None]:
    """The library call of a blocking exchange, its arguments, and a preparation to run first. The
    non-blocking call has an I before its name."""
    exchange, sent, got = step[:3]
    in_place = sent is got or data_address(sent) == data_address(got)
    match exchange.kernel:
        case "allreduce":
            given = MPI.IN_PLACE if in_place else sent
            return "Allreduce", (given, got, _OPS[exchange.op]), None
        case "reduce_scatter":
            return "Reduce_scatter_block", (sent, got, _OPS[exchange.op]), None
        case "allgather":
            return "Allgather", (as_bytes(sent), as_bytes(got)), None
        case "alltoall":
            return "Alltoall", (as_bytes(sent), as_bytes(got)), None
        case "broadcast":
            is_root = group.rank == exchange.root and not in_place
            copy = partial(np.copyto, got, sent) if is_root else None
            return "Bcast", (as_bytes(got), exchange.root), copy
        case kind:
            raise UserError(f"unknown exchange {kind}")


def _request(call: Any, *given: Any) -> Started:
    """A function that starts a non-blocking call and returns a function to wait for its end."""

    def start() -> Action:
        wait: Action = call(*given).Wait
        return wait

    return start


def _sending(group: Any, step: ExchangeStep) -> Started:
    """A function that starts to send values on, and returns a function that waits for the end. A
    device to which no device sends gets zeros."""
    exchange, sent, got = step[:3]
    to, source, comes = _ends(group, exchange)
    given, room = as_bytes(sent), as_bytes(got)

    def start() -> Action:
        works = group.Irecv(room, source, 0), group.Isend(given, to, 0)
        return partial(MPI.Request.Waitall, list(works))

    return start if comes else _before(partial(got.fill, 0), start)


def _before(first: Action, start: Started) -> Started:
    def both() -> Action:
        first()
        return start()

    return both


def _ends(group: Any, exchange: Exchange) -> tuple[int, int, bool]:
    """The ranks to send to and to receive from, and True if the latter exists."""
    ends = exchange.ends(group.rank)
    to, source = [MPI.PROC_NULL if end is None else end for end in ends]
    return to, source, ends[1] is not None


def _sent_on(group: Any, step: ExchangeStep) -> Action:
    exchange, sent, got = step[:3]
    to, source, comes = _ends(group, exchange)
    move = partial(group.Sendrecv, as_bytes(sent), to, 0, as_bytes(got), source, 0)
    return move if comes else _after(partial(got.fill, 0), move)


def _after(first: Action, then: Action) -> Action:
    def both() -> None:
        first()
        then()

    return both
