"""Calls of the program of one rank, prepared once: a call only changes addresses of memory."""

from __future__ import annotations

from array import array as packed
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from uopc.backends.cpu.array_memory import NOTHING
from uopc.backends.exchange.device_call import Action, Await, CallLoop, ExchangeStep, Started
from uopc.backends.exchange.device_run import PhasedRun
from uopc.backends.plan import Exchange, Pointer


class _ExchangeActions(NamedTuple):
    """The actions that start an exchange, and the actions that await its end."""

    actions: list[Action]
    awaited: list[Action]


class RankCall:
    """The calls of a program for some values of its variables, one after the other. `exchanged`
    makes the action of an exchange; `started` makes the action that starts an exchange beside
    launches."""

    def __init__(
        self, device: PhasedRun, values: Mapping[str, int],
        exchanged: Callable[[ExchangeStep], Action], started: Callable[[ExchangeStep], Started],
    ) -> None:  # fmt: skip
        self._device, self._every = device, device.all_values(values)
        self._exchanged, self._started = exchanged, started
        self._segments, self._needed = device.segments(self._every), device.arena_bytes(values)
        # The arguments and results, the arena, and constants, which stay.
        self._count = device.own.arena_base
        self._bases = device.bases([NOTHING] * (self._count + 1))
        self._address, self._read = self._bases.buffer_info()[0], device.address_reader()
        self._empty, self._apart = device.without_elements(values), device.has_buckets_apart
        every = set(range(self._count + 1))
        self._touched = list(_bases_of(self._segments) & every if device.reads_late else every)
        self._known: list[int] = []  # where these were in the last call
        self._fits: list[bool] = []
        self._runs: dict[int, list[Action]] = {}  # of tables of launches, by their place in memory
        self._exchanges: list[_ExchangeActions] = []  # in order
        self._ready: list[Action] = []

    def run(self, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
        """Call with this rank's parts of the arguments and of the results."""
        every, bases = [*arrays, *outs], self._bases
        bases[self._count], owner = self._device.acquire(self._needed)
        try:
            if self._read is not None:
                self._read(id(every), self._address)
            else:
                bases[: self._count] = packed("q", self._device.memory.addresses(every))
            for b in self._empty:
                bases[b] = NOTHING
            now = [bases[b] for b in self._touched]
            fits = self._device.fits(outs) if self._apart else []
            if now != self._known or fits != self._fits or False in fits or not self._ready:
                self._move(now, fits)
            for act in self._ready:
                act()
        finally:
            self._device.release(owner)

    def _move(self, now: list[int], fits: list[bool]) -> None:
        """Prepare the actions that depend on memory with a new address since the last call."""
        last, self._known = self._known, []  # unless this comes to its end
        changed = {b for b, old, new in zip(self._touched, last, now) if old != new}
        if not last or fits != self._fits or not all(fits):
            self._exchanges = []
        if not self._device.reads_late:
            self._runs = {}
        known, self._exchanges = iter(self._exchanges), []
        self._ready = self._actions(self._segments, changed, iter(fits), known)
        self._known, self._fits = now, fits

    def _actions(
        self, segments: Sequence[Any], changed: set[int], fits: Iterator[bool],
        known: Iterator[_ExchangeActions],
    ) -> list[Action]:  # fmt: skip
        """The actions of all segments, in order."""
        found: list[Action] = []
        for part in segments:
            if isinstance(part, CallLoop):
                inner = self._actions(part.parts, changed, fits, known)
                found.append(partial(_again, part.times, inner))
            elif isinstance(part, Await):
                found += self._exchanges[part.number].awaited
            elif isinstance(part, Exchange):
                ready = next(known, None)
                if ready is None or not changed.isdisjoint(_bases_of([part])):
                    ready = self._prepared(part, fits)
                self._exchanges.append(ready)
                found += ready.actions
            else:
                if id(part) not in self._runs:
                    self._runs[id(part)] = self._device.runs(part, self._bases)
                found += self._runs[id(part)]
        return found

    def _prepared(self, exchange: Exchange, fits: Iterator[bool]) -> _ExchangeActions:
        before, step = self._device.step(exchange, self._bases, self._every, fits)
        if not exchange.beside:
            return _ExchangeActions([*before, self._exchanged(step), *step.after], [])
        running = _Running(self._started(step))
        return _ExchangeActions([*before, running.start], [running.wait, *step.after])


def _bases_of(segments: Sequence[Any]) -> set[int]:
    """The bases that the exchanges of some segments name."""
    found: set[int] = set()
    for part in segments:
        if isinstance(part, CallLoop):
            found |= _bases_of(part.parts)
        elif isinstance(part, Exchange):
            found.update([w.base for w in part.words if isinstance(w, Pointer)])
    return found


def _again(times: int, actions: Sequence[Action]) -> None:
    for _ in range(times):
        for act in actions:
            act()


class _Running:
    """An exchange between its start and its end."""

    __slots__ = ("_begin", "_wait")

    def __init__(self, begin: Started) -> None:
        self._begin = begin
        self._wait: Action | None = None

    def start(self) -> None:
        self._wait = self._begin()

    def wait(self) -> None:
        assert self._wait is not None
        self._wait()
        self._wait = None
