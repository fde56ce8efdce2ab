"""The launches of one device, from one exchange to the next."""

from __future__ import annotations

import ctypes
import functools
import itertools
from abc import ABC, abstractmethod
from array import array as packed
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from uopc.backends.bound_plan import bound_plan
from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import NOTHING, Runner
from uopc.backends.plan import (
    AnyArray,
    AnyDtype,
    Exchange,
    Launch,
    Plan,
    Pointer,
    Repeat,
    value_of,
)  # fmt: skip

Action = Callable[[], object]
Started = Callable[[], Action]  # starts an exchange, and gives what waits for it


class Step(NamedTuple):
    """An exchange with this device's memory, NumPy's arrays or those of a GPU: `got` may be `sent`
    itself. `after`: what is done once it is over."""

    exchange: Exchange
    sent: Any
    got: Any
    after: Sequence[Action] = ()


class Await(NamedTuple):
    """Where an exchange, by its number in the program, has to be over."""

    number: int


class Phase(NamedTuple):
    """What a device does before an exchange, after the last one, and the exchange; None at the end
    of the program."""

    actions: list[Action]
    step: Step | None

    def run(self) -> Step | None:
        """Do it; the exchange is left to the caller."""
        for act in self.actions:
            act()
        return self.step


@dataclass(eq=False)
class DeviceCall:
    """A call of one device's program in given memory."""

    parts: list[Action | Step | Await]  # in order
    memory: tuple[object, ...]  # of addresses, and of the tables of launches
    ready: list[Action] | None = None  # `actions`, where they are kept for the next call

    @functools.cached_property
    def phases(self) -> list[Phase]:
        """The call, each exchange of which is over before the next launch."""
        found, actions = [], list[Action]()
        for part in self.parts:
            if isinstance(part, Step):
                found.append(Phase(actions, part))
                actions = [*part.after]
            elif not isinstance(part, Await):
                actions.append(part)
        return [*found, Phase(actions, None)]

    def actions(
        self, exchanged: Callable[[Step], Action], started: Callable[[Step], Started]
    ) -> list[Action]:
        """All of the call, in order. `exchanged` makes the action of an exchange, and `started`
        what starts one that runs beside launches."""
        found: list[Action] = []
        running: dict[int, _Running] = {}
        steps = 0
        for part in self.parts:
            if isinstance(part, Step) and part.exchange.beside:
                running[steps] = _Running(started(part))
                found.append(running[steps].start)
            elif isinstance(part, Step):
                found += [exchanged(part), *part.after]
            elif isinstance(part, Await):
                step = self.steps[part.number]
                found += [running.pop(part.number).wait, *step.after]
            else:
                found.append(part)
            steps += isinstance(part, Step)
        return found

    @functools.cached_property
    def steps(self) -> list[Step]:
        """The exchanges."""
        return [part for part in self.parts if isinstance(part, Step)]


class _Running:
    """An exchange that has been started, until it is awaited."""

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


class Memory(Protocol):
    """Memory of a device, as arrays: NumPy's, or those on a GPU."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """New memory."""

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """The array at an address."""

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """Where arrays are; any address for one without elements."""

    def within(self, array: Any) -> Any:
        """The array of which one is a part, or None."""

    def move(self, to: int, source: int, nbytes: int) -> object:
        """Copy bytes."""


class HostMemory:
    """Memory of this process."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        return np.empty(dims, dtype)

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        nbytes = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
        if not nbytes:
            return np.empty(dims, dtype)
        memory = (ctypes.c_uint8 * nbytes).from_address(address)
        found: AnyArray = np.ctypeslib.as_array(memory).view(dtype).reshape(dims)
        return found

    def addresses(self, arrays: Iterable[AnyArray]) -> list[int]:
        return [data_address(a) if a.size else NOTHING for a in arrays]

    def within(self, array: AnyArray) -> Any:
        return array.base

    def move(self, to: int, source: int, nbytes: int) -> object:
        return ctypes.memmove(to, source, nbytes)


HOST = HostMemory()


class PhasedRun(ABC):
    """The program of one device, `own` with its coordinates in it: launches, cut at exchanges."""

    memory: Memory

    def __init__(self, plan: Plan, rank: int) -> None:
        mesh = plan.mesh
        assert mesh is not None
        self.plan, self.mesh = plan, mesh
        self.coordinates = mesh.variables(rank)
        self.own = bound_plan(plan, {} if plan.variables else self.coordinates)
        self._tables: BoundedMap[tuple[int, ...], list[Any]] = BoundedMap()
        self._last: tuple[object, DeviceCall | None] = None, None
        # The buckets that do not lie in the arena.
        self._apart = [
            e for e in plan.exchanges if e.offsets and _number(plan, e.words[0]) is not None
        ]

    def _all_values(self, values: Mapping[str, int]) -> Mapping[str, int]:
        return {**self.mesh.with_parts(values), **self.coordinates} if values else self.coordinates

    # ------------------------------------------------------------ what a kind of device does
    @abstractmethod
    def acquire(self, values: Mapping[str, int]) -> tuple[int, object]:
        """The address of intermediates for one call, and what `release` takes."""

    @abstractmethod
    def release(self, owner: object) -> None:
        """End the use of memory that `acquire` gave."""

    @abstractmethod
    def _table(
        self, launches: tuple[Launch, ...], values: Mapping[str, int], repeats: tuple[Repeat, ...]
    ) -> Any:
        """Launches in a row, for values of the variables."""

    @abstractmethod
    def _constants(self) -> Sequence[int]:
        """The addresses of the bases behind the arena."""

    @abstractmethod
    def _runs(self, table: Any, bases: packed[int]) -> list[Action]:
        """What runs a row of launches in given memory."""

    # ------------------------------------------------------------ what all do
    def _segments(self, values: Mapping[str, int]) -> list[Any]:
        """The tables of launches between exchanges, these, and where they are awaited, for values
        of the variables."""
        plan = self.own
        found: list[Any] = []
        exchanges = {i: e for i, e in enumerate(plan.launches) if isinstance(e, Exchange)}
        awaited: dict[int, list[Await]] = {}
        for number, (i, e) in enumerate(exchanges.items()):
            if e.beside:
                awaited.setdefault(i + 1 + e.beside, []).append(Await(number))
        begins = [i + 1 for i in exchanges]
        cuts = sorted({0, *exchanges, *begins, *awaited, len(plan.launches)})
        for begin, end in itertools.pairwise(cuts):
            found += awaited.get(begin, [])
            if begin in exchanges:
                found.append(exchanges[begin])
                continue
            own = [r for r in plan.repeats if begin <= r.first and r.end <= end]
            moved = tuple([type(r)(r.first - begin, r.end - begin, r.times) for r in own])
            launches = plan.launches[begin:end]
            found.append(self._table(launches, values, moved))
        return found + awaited.get(len(plan.launches), [])

    def arena_bytes(self, values: Mapping[str, int]) -> int:
        """The bytes of intermediates."""
        needed = self.own.arena_bytes
        return needed if isinstance(needed, int) else needed.evaluate(self._all_values(values))

    def call(
        self, arrays: Sequence[Any], outs: Sequence[Any], values: Mapping[str, int], arena: int
    ) -> DeviceCall:
        """The call with this device's parts of the arguments and of the results. With the memory of
        the last call it is that one again."""
        addresses = self.memory.addresses((*arrays, *outs))
        fits = [self._room(e, outs) for e in self._apart]
        key = [arena, *addresses, *values.values(), *fits]
        last, found = self._last
        if last == key and found is not None:
            return found
        every = self._all_values(values)
        parts = self._tables.obtain(tuple(every.values()), lambda: self._segments(every))
        bases = packed("q", [*addresses, arena, *self._constants()])
        found = DeviceCall(self._bound(parts, bases, every, fits), (bases, parts))
        self._last = (key, found) if all(fits) else (None, None)
        return found

    def _bound(
        self, parts: Sequence[Any], bases: packed[int], values: Mapping[str, int],
        fits: Sequence[bool],
    ) -> list[Action | Step | Await]:  # fmt: skip
        """The parts of a call in given memory; `fits`: which buckets apart have room."""
        found, rooms, move = list[Action | Step | Await](), iter(fits), self.memory.move
        for part in parts:
            if isinstance(part, Await):
                found.append(part)
                continue
            if not isinstance(part, Exchange):
                found += self._runs(part, bases)
                continue
            moved: list[tuple[int, int, int]] = []
            if part.offsets:
                has_room = _number(self.plan, part.words[0]) is None or next(rooms)
                step, moved = self._bucket(part, bases, values, has_room)
            else:
                step = self._step(part, bases, values)
            found += [partial(move, here, there, n) for there, here, n in moved]
            back = [partial(move, there, here, n) for there, here, n in moved]
            found.append(step._replace(after=back))
        return found

    def _step(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int]
    ) -> Step:  # fmt: skip
        got, sent = [
            self.memory.at(address, [value_of(d, values) for d in dims], exchange.dtype)
            for address, dims in zip(
                _addresses(exchange, bases, values), (exchange.got, exchange.sent)
            )
        ]  # fmt: skip
        return Step(exchange, sent, got)

    def _bucket(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int], has_room: bool
    ) -> tuple[Step, list[tuple[int, int, int]]]:
        """One step for what lies side by side, and what is copied to its memory before, and back:
        address, place in it, bytes. Without room where the first one is, it has memory of its own.
        """
        every = _addresses(exchange, bases, values)
        dims, memory = [value_of(d, values) for d in exchange.sent], self.memory
        if has_room:
            room = memory.at(every[0], dims, exchange.dtype)
        else:
            room = memory.new(dims, exchange.dtype)
        (first,) = memory.addresses([room])
        moved = [
            (address, first + at, nbytes)
            for address, at, nbytes in zip(every, exchange.offsets, exchange.nbytes)
            if address != first + at
        ]  # fmt: skip
        return Step(exchange, room, room), moved

    def _room(self, bucket: Exchange, outs: Sequence[Any]) -> bool:
        """True if the memory of a bucket's first result has room for all of it: `ResultMemory` made
        it so."""
        number = _number(self.own, bucket.words[0])
        assert number is not None
        memory = self.memory.within(outs[number])
        return (
            memory is not None and memory.shape == (_count(bucket),)
            and memory.dtype == bucket.dtype
        )  # fmt: skip


class DeviceRun(PhasedRun):
    """The same on this processor, by the native entry."""

    memory = HOST

    def __init__(self, plan: Plan, image: Image, rank: int) -> None:
        super().__init__(plan, rank)
        self.runner = Runner(self.own, image)

    def acquire(self, values: Mapping[str, int]) -> tuple[int, object]:
        if pool.stale:
            pool.revive()
        return self.runner.arena.acquire(self.arena_bytes(values))

    def release(self, owner: object) -> None:
        self.runner.arena.release(owner)

    def _table(
        self, launches: tuple[Launch, ...], values: Mapping[str, int], repeats: tuple[Repeat, ...]
    ) -> Any:
        return self.runner.encode(launches, values, repeats)

    def _constants(self) -> Sequence[int]:
        return self.runner.fixed_bases()

    def _runs(self, table: Any, bases: packed[int]) -> list[Action]:
        return [partial(install().run, data_address(table), bases.buffer_info()[0])]


class ResultMemory(NamedTuple):
    """How the memory of a device's parts of the fresh results is made: those of a bucket side by
    side."""

    apart: tuple[tuple[int, tuple[int, ...], AnyDtype], ...]  # number, shape and dtype of each
    # Of each bucket the count and dtype of its elements, and the number, shape, begin and end of
    # each of its results.
    buckets: tuple[tuple[int, AnyDtype, list[tuple[int, tuple[int, ...], int, int]]], ...]

    @staticmethod
    def of(plan: Plan, values: Mapping[str, int]) -> ResultMemory:
        """That of a device's parts, for values of the variables."""
        assert plan.mesh is not None
        made = [(r, s) for r, s in zip(plan.results, plan.mesh.results) if r.source is None]
        shapes = [plan.mesh.part(shape_of(r.shape, values), spec) for r, spec in made]
        buckets = []
        for e in plan.exchanges:
            numbers = [_number(plan, w) for w in e.words]
            if not e.offsets or numbers[0] is None:
                continue
            size, each = e.dtype.itemsize, zip(numbers, e.offsets, e.nbytes)
            own = [
                (i, shapes[i], at // size, (at + n) // size) for i, at, n in each if i is not None
            ]
            buckets.append((_count(e), e.dtype, own))
        within = {i for _, _, own in buckets for i, *_ in own}
        apart = [(i, shapes[i], r.dtype) for i, r in enumerate(plan.fresh) if i not in within]
        return ResultMemory(tuple(apart), tuple(buckets))

    def make(self, memory: Memory = HOST) -> list[Any]:
        """New memory, by number of the result."""
        found = {i: memory.new(shape, dtype) for i, shape, dtype in self.apart}
        for count, dtype, own in self.buckets:
            room = memory.new((count,), dtype)
            for i, shape, begin, end in own:
                found[i] = room[begin:end].reshape(shape)
        return [found[i] for i in range(len(found))]


def _number(plan: Plan, word: object) -> int | None:
    """Which of the fresh results a word names."""
    assert isinstance(word, Pointer)
    number = word.base - len(plan.arguments)
    return number if 0 <= number < len(plan.fresh) else None


def _count(bucket: Exchange) -> int:
    """The elements of a bucket."""
    return value_of(bucket.sent[0], {})


def _addresses(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> list[int]:
    """The memory that the words of an exchange name."""
    return [
        bases[w.base] + value_of(w.offset, values)
        for w in exchange.words if isinstance(w, Pointer)
    ]  # fmt: skip
