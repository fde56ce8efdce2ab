"""A device in each process of a job without MPI: torch.distributed's Gloo, over TCP."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.exchange.ranks import Ranks, as_bytes
from uopc.backends.plan import AnyArray, AnyDtype, Exchange
from uopc.errors import Error, UserError

_OPS = {
    "add": dist.ReduceOp.SUM, "mul": dist.ReduceOp.PRODUCT, "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}  # fmt: skip
_Dtypes = dict[AnyDtype, AnyDtype]
# Sums and products of these have the bits of those of signed integers.
_SIGNED: _Dtypes = {np.dtype("u4"): np.dtype("i4"), np.dtype("u8"): np.dtype("i8")}
# Gloo combines no integers of 16 bits, and no unsigned ones but bytes.
_WIDE: _Dtypes = {np.dtype("i2"): np.dtype("i4"), np.dtype("u2"): np.dtype("i4")}
_WIDE_ORDERED: _Dtypes = {**_WIDE, np.dtype("u4"): np.dtype("i8")}
_TOP = np.uint64(1 << 63)
_T = TypeVar("_T")


class GlooRanks(Ranks):
    """The processes that met at an address."""

    def __init__(self, address: str, size: int, rank: int, timeout: float) -> None:
        # The watchdog is first: it can name the exchange.
        limit = timedelta(seconds=timeout + 3600)
        host, _, port = address.rpartition(":")
        meeting = timedelta(seconds=timeout)
        self.store = dist.TCPStore(host, int(port), size, rank == 0, timeout=meeting)
        dist.init_process_group("gloo", store=self.store, rank=rank, world_size=size, timeout=limit)
        super().__init__(rank, size, timeout)

    def _leave(self) -> None:
        # A thread of Gloo that drops its last tensor later would end the process by SIGABRT.
        if dist.is_initialized():  # else the program has left itself
            dist.destroy_process_group()

    def _abort(self, code: int) -> None:
        os._exit(code)  # its sockets close: the others get an error

    def _every(self, text: str) -> list[str]:
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, text)
        return found

    def _split(self, groups: list[list[int]], place: int) -> Any:
        made = [(g, dist.new_group(g)) for g in groups]
        return next((members, group) for members, group in made if self.rank in members)

    def _of_machine(self) -> tuple[int, Callable[[], None]]:
        names = self._every(socket.gethostname())
        groups = [[r for r, n in enumerate(names) if n == name] for name in dict.fromkeys(names)]
        members, handle = self._split(groups, 0)
        return members.index(self.rank), lambda: dist.barrier(handle)

    def _gather(self, sent: AnyArray, got: AnyArray) -> None:
        begin = partial(_all_gather, sent, got, None)
        self._named("the parts of a result", lambda: begin()())

    def _named(self, what: object, do: Callable[[], _T]) -> _T:
        """Run a part of an exchange. Error with the exchange's name if another process is gone."""
        try:
            return do()
        except RuntimeError as error:
            raise Error(f"rank {self.rank} in: {what}\n  another rank is gone: {error}") from error

    def _begun(self, group: Any, step: ExchangeStep) -> Started:
        members, handle = group
        exchange, sent, got = step[:3]
        place = members.index(self.rank)
        begin = partial(_exchange, handle, members, place, exchange, sent, got)

        def start() -> Action:
            wait = self._named(exchange, begin)
            return partial(self._named, exchange, wait)

        return start


def _exchange(
    group: Any, members: list[int], place: int, exchange: Exchange, sent: AnyArray, got: AnyArray
) -> Action:
    """Start an exchange. Return a function that waits for its end."""
    match exchange.kernel:
        case "allreduce":
            return _combined(sent, got, exchange.op, group)
        case "reduce_scatter":  # which Gloo does not have for all dtypes
            whole = np.empty_like(sent)
            wait = _combined(sent, whole, exchange.op, group)
            return _all_of([wait, lambda: np.copyto(got, whole[place])])
        case "allgather":
            return _all_gather(as_bytes(sent), as_bytes(got), group)
        case "alltoall":
            given, room = _tensor(as_bytes(sent)), _tensor(as_bytes(got))
            return _wait(dist.all_to_all_single(room, given, group=group, async_op=True))
        case "broadcast":
            if place == exchange.root:
                got[...] = sent
            room = _tensor(as_bytes(got))
            return _wait(dist.broadcast(room, members[exchange.root], group, async_op=True))
        case "permute_ranks":
            return _sent_on(group, members, place, exchange.ends(place), sent, got)
        case kind:
            raise UserError(f"unknown exchange {kind}")


def _sent_on(
    group: Any, members: list[int], place: int, ends: tuple[int | None, int | None],
    sent: AnyArray, got: AnyArray,
) -> Action:  # fmt: skip
    to, source = ends
    if to == source == place:
        got[...] = sent
        return _all_of([])
    works = []
    if to is not None and sent.size:
        works.append(dist.isend(_tensor(as_bytes(sent.copy())), members[to], group))
    if source is None:
        got[...] = 0
    elif got.size:
        works.append(dist.irecv(_tensor(as_bytes(got)), members[source], group))
    return _all_of(list(map(_wait, works)))


def _wait(work: Any) -> Action:
    wait: Action = work.wait
    return wait


def _all_of(actions: Sequence[Action]) -> Action:
    def do() -> None:
        for act in actions:
            act()

    return do


def _all_gather(sent: AnyArray, got: AnyArray, group: Any) -> Action:
    if not sent.size:
        return _all_of([])
    room, given = _tensor(got), _tensor(sent)
    return _wait(dist.all_gather_into_tensor(room, given, group, async_op=True))


def _combined(sent: AnyArray, got: AnyArray, op: str, group: Any) -> Action:
    """Start to combine the values of all processes. Return a function that waits for the end."""
    t, ordered = sent.dtype, op in ("max", "min")
    if not sent.size:
        return _all_of([])
    if ordered and t == np.uint64:
        found = (sent ^ _TOP).view(np.int64)
        wait = _wait(dist.all_reduce(_tensor(found), _OPS[op], group, async_op=True))
        return _all_of([wait, lambda: np.copyto(got, found.view(np.uint64) ^ _TOP)])
    wide = (_WIDE_ORDERED if ordered else _WIDE).get(t, t)
    made = sent.astype(wide) if wide != t else sent.copy()
    view = made if ordered else made.view(_SIGNED.get(made.dtype, made.dtype))
    wait = _wait(dist.all_reduce(_tensor(view), _OPS[op], group, async_op=True))
    return _all_of([wait, lambda: np.copyto(got, made.astype(t, copy=False))])


def _tensor(a: AnyArray) -> Any:
    """A torch tensor of the same memory."""
    return torch.from_numpy(a)
