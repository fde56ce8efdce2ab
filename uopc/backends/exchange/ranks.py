"""The processes of a job, each with one device of a mesh: the part that all libraries share."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.plan import AnyArray, Exchange
from uopc.errors import UserError
from uopc.ir.devices.mesh import Mesh
from uopc.ir.forks import cached_property

STUCK = 75  # the exit code of a job that the watchdog ends
COMPILE = 600.0  # seconds that a compile may take besides the timeout


class Watchdog(threading.Thread):
    """End the job when an exchange takes too long: a rank that is alive may never join it."""

    def __init__(self, rank: int, timeout: float, abort: Callable[[int], None]) -> None:
        super().__init__(daemon=True, name="uopc watchdog")
        self.rank, self.timeout, self.abort = rank, timeout, abort
        self.waiting: tuple[float, object] | None = None  # since when, and for what
        # Others that may wait, on a GPU say.
        self.asked: list[Callable[[], tuple[float, object] | None]] = []
        self.start()

    def run(self) -> None:
        while True:
            time.sleep(min(self.timeout / 4, 1.0))
            for waiting in (self.waiting, *[ask() for ask in self.asked]):
                if waiting is not None and time.monotonic() - waiting[0] > self.timeout:
                    self._end(*waiting)

    def _end(self, since: float, what: object) -> None:
        how = "failed" if since == -math.inf else f"waited {self.timeout:g} s"
        print(
            f"uopc: rank {self.rank} {how} in: {what}\n"
            "  another rank is stuck, dead, or runs another program; the job ends",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        self.abort(STUCK)
        os._exit(STUCK)  # where the library does not come back


_joined: list[Ranks] = []  # the job of this process


def of_pickle(rank: int, size: int) -> Ranks:
    """The job of this process, for an object that a rank pickled. UserError on any other rank."""
    if not _joined or (_joined[-1].rank, _joined[-1].size) != (rank, size):
        raise UserError(
            f"this is a pickle of rank {rank} of {size}, with its part of an array: load it there,"
            " after uopc.distributed.initialize()"
        )
    return _joined[-1]


class Ranks:
    """The processes of a job. A subclass exchanges by a library; a group of processes is any object
    of the library."""

    def __init__(self, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size = rank, size
        _joined.append(self)
        self.dog = Watchdog(rank, timeout, self._abort)
        self.turn = threading.RLock()  # of the threads: all ranks exchange in one order
        self._groups: dict[tuple[Mesh, tuple[str, ...]], Any] = {}
        self._end_on_errors()
        atexit.register(self._end)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return of_pickle, (self.rank, self.size)

    # ------------------------------------------------------------ what a library does
    def _abort(self, code: int) -> None:
        """End the job, as far as the library can."""

    def _leave(self) -> None:
        """Leave the job, before the interpreter ends."""

    def _every(self, text: str) -> list[str]:
        """Gather a text from each rank."""
        raise NotImplementedError

    def _split(self, groups: list[list[int]], place: int) -> Any:
        """The group of this rank, at `place` in it. All ranks call this with all groups."""
        raise NotImplementedError

    def _prepared(self, group: Any, step: ExchangeStep) -> Action:
        """The action of an exchange of this rank, for any number of runs."""
        begin = self._begun(group, step)
        return lambda: begin()()

    def _begun(self, group: Any, step: ExchangeStep) -> Started:
        """A function that starts an exchange of this rank, for any number of runs, and returns a
        function that waits for its end."""
        raise NotImplementedError

    def _of_machine(self) -> tuple[int, Callable[[], None]]:
        """The number of this rank on its machine, and a function that waits for all its ranks."""
        raise NotImplementedError

    def _gather(self, sent: AnyArray, got: AnyArray) -> None:
        """Gather the bytes of all ranks."""
        raise NotImplementedError

    # ------------------------------------------------------------ what programs ask
    @contextmanager
    def watched(self, what: object, more: float = 0.0) -> Iterator[None]:
        """Let the watchdog time the block; `more`: the seconds besides the timeout."""
        self.dog.waiting = time.monotonic() + more, what
        try:
            yield
        finally:
            self.dog.waiting = None

    @contextmanager
    def in_turn(self, one_first: bool) -> Iterator[None]:
        """Run the block on the first rank of each machine before its other ranks; on all ranks at
        once if `one_first` is False. All ranks must enter equally often."""
        place, wait = self.of_machine
        if place and one_first:
            self._after_compile(wait)
        try:
            yield
        finally:
            if not (place and one_first):
                self._after_compile(wait)

    @cached_property
    def of_machine(self) -> tuple[int, Callable[[], None]]:
        """The number of this rank on its machine, and a function that waits for all its ranks."""
        return self._of_machine()

    def every(self, text: str) -> list[str]:
        """Gather a text from each rank."""
        with self.watched("a text of all ranks"):
            return self._every(text)

    def _after_compile(self, wait: Callable[[], None]) -> None:
        with self.watched("the compile of the first rank", COMPILE):
            wait()

    def check_size(self, mesh: Mesh) -> None:
        """UserError unless the mesh has a device per rank."""
        if mesh.size != self.size:
            raise UserError(
                f"the mesh must have a device per rank: it has {mesh.size}, the job {self.size}"
            )

    def check_same(self, mesh: Mesh, fingerprint: str) -> None:
        """UserError on all ranks unless the mesh has a device per rank, and all run one program."""
        self.check_size(mesh)
        with self.watched("the comparison of programs"):
            every = self._every(fingerprint)
        odd = [r for r, found in enumerate(every) if found != every[0]]
        if odd:
            raise UserError(
                f"all ranks must compile the same program: ranks {odd} differ from rank 0"
            )

    def exchanged(self, mesh: Mesh, step: ExchangeStep) -> Action:
        """The action of an exchange of this rank, for repeated calls."""
        exchange, dog, clock = step.exchange, self.dog, time.monotonic
        do = self._prepared(self._group(mesh, exchange), step)

        def act() -> None:
            dog.waiting = clock(), exchange  # a context takes 0.5 µs more
            try:
                do()
            finally:
                dog.waiting = None

        return act

    def started(self, mesh: Mesh, step: ExchangeStep) -> Started:
        """A function that starts an exchange of this rank, for repeated calls, and returns a
        function that waits for its end. The watchdog times the waiting."""
        exchange = step.exchange
        begin = self._begun(self._group(mesh, exchange), step)

        def start() -> Action:
            with self.watched(exchange):
                wait = begin()

            def awaited() -> None:
                with self.watched(exchange):
                    wait()

            return awaited

        return start

    def _group(self, mesh: Mesh, exchange: Exchange) -> Any:
        """The ranks that differ only along the axes of an exchange."""
        axes = exchange.axes
        found = self._groups.get((mesh, axes))
        if found is None:
            with self.watched(exchange):
                found = self._split(mesh.groups(axes), mesh.place(self.rank, axes))
            self._groups[mesh, axes] = found
        return found

    def gathered(self, part: AnyArray) -> list[AnyArray]:
        """All ranks' parts of an array."""
        every = np.empty((self.size, *part.shape), part.dtype)
        with self.turn, self.watched("the parts of a result"):
            self._gather(as_bytes(np.ascontiguousarray(part)), as_bytes(every))
        return list(every)

    def _end(self) -> None:
        with self.watched("the end of the job, at which ranks may meet"):
            self._leave()

    def _end_on_errors(self) -> None:
        """End the job at an uncaught exception: the other ranks would wait for ever."""
        shown = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            print(f"uopc: rank {self.rank} failed; the job ends", file=sys.stderr)
            shown(kind, error, trace)
            sys.stderr.flush()
            self._abort(1)

        sys.excepthook = hook


def as_bytes(a: AnyArray) -> AnyArray:
    """The memory of an array, as bytes."""
    return a.reshape(-1).view(np.uint8)
