"""The launches of one device, from one exchange to the next."""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array as packed
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from uopc.backends.bound_plan import bound_plan
from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import NOTHING, Runner
from uopc.backends.plan import AnyArray, AnyDtype, Exchange, Plan, Pointer, value_of

Action = Callable[[], object]
Started = Callable[[], Action]  # starts an exchange, and gives what waits for it


class Step(NamedTuple):
    """An exchange with this device's memory: `got` may be `sent` itself. `after`: what is done
    once it is over."""

    exchange: Exchange
    sent: AnyArray
    got: AnyArray
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
    _actions: list[Action] | None = None

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
        """All of the call in order. `exchanged` makes the action of an exchange, once, and
        `started` that of one that runs beside launches."""
        if self._actions is None:
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
            self._actions = found
        return self._actions

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


_Part = AnyArray | Exchange | Await  # a table of launches, an exchange, or where one is awaited


class DeviceRun:
    """The program of one device: its launch table, cut at exchanges."""

    def __init__(self, plan: Plan, image: Image, rank: int) -> None:
        mesh = plan.mesh
        assert mesh is not None
        self.plan, self.mesh = plan, mesh
        self.coordinates = mesh.variables(rank)
        fixed = {} if plan.variables else self.coordinates
        self.runner = Runner(bound_plan(plan, fixed), image)
        self._tables: BoundedMap[tuple[int, ...], list[_Part]] = BoundedMap()
        self._last: tuple[object, DeviceCall | None] = None, None
        # The buckets that do not lie in the arena.
        self._apart = [
            e for e in plan.exchanges if e.offsets and _number(plan, e.words[0]) is not None
        ]

    def _all_values(self, values: Mapping[str, int]) -> Mapping[str, int]:
        return {**self.mesh.with_parts(values), **self.coordinates} if values else self.coordinates

    def _segments(self, values: Mapping[str, int]) -> list[_Part]:
        """The tables of launches between exchanges, these, and where they are awaited, for values
        of the variables."""
        plan = self.runner.plan
        found: list[_Part] = []
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
            found.append(self.runner.encode(launches, values, moved))
        return found + awaited.get(len(plan.launches), [])

    def acquire(self, values: Mapping[str, int]) -> tuple[int, object]:
        """The address of intermediates for one call, and what `release` takes."""
        return self.runner.arena.acquire(self.arena_bytes(values))

    def arena_bytes(self, values: Mapping[str, int]) -> int:
        """The bytes of intermediates."""
        needed = self.runner.plan.arena_bytes
        return needed if isinstance(needed, int) else needed.evaluate(self._all_values(values))

    def release(self, owner: object) -> None:
        """End the use of memory that `acquire` gave."""
        self.runner.arena.release(owner)

    def call(
        self, arrays: Sequence[AnyArray], outs: Sequence[AnyArray], values: Mapping[str, int],
        arena: int,
    ) -> DeviceCall:  # fmt: skip
        """The call with this device's parts of the arguments and of the results. With the memory of
        the last call it is that one again."""
        if pool.stale:
            pool.revive()
        addresses = [data_address(a) if a.size else NOTHING for a in (*arrays, *outs)]
        fits = [_room(e, self.runner.plan, outs) for e in self._apart]
        key = [arena, *addresses, *values.values(), *fits]
        last, found = self._last
        if last == key and found is not None:
            return found
        every = self._all_values(values)
        parts = self._tables.obtain(tuple(every.values()), lambda: self._segments(every))
        bases = packed("q", [*addresses, arena, *self.runner.fixed_bases()])
        found = DeviceCall(self._bound(parts, bases, every, fits), (bases, parts))
        self._last = (key, found) if all(fits) else (None, None)
        return found

    def _bound(
        self, parts: Sequence[_Part], bases: packed[int], values: Mapping[str, int],
        fits: Sequence[bool],
    ) -> list[Action | Step | Await]:  # fmt: skip
        """The parts of a call in given memory; `fits`: which buckets apart have room."""
        run, (address, _) = install().run, bases.buffer_info()
        found, rooms = list[Action | Step | Await](), iter(fits)
        for part in parts:
            if isinstance(part, Await):
                found.append(part)
                continue
            if not isinstance(part, Exchange):
                found.append(partial(run, data_address(part), address))
                continue
            moved: list[tuple[int, int, int]] = []
            if part.offsets:
                has_room = _number(self.plan, part.words[0]) is None or next(rooms)
                step, moved = _bucket(part, bases, values, has_room)
            else:
                step = _step(part, bases, values)
            found += [partial(ctypes.memmove, here, there, n) for there, here, n in moved]
            back = [partial(ctypes.memmove, there, here, n) for there, here, n in moved]
            found.append(step._replace(after=back))
        return found


def _step(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> Step:
    got, sent = [
        _memory(address, [value_of(d, values) for d in dims], exchange.dtype)
        for address, dims in zip(
            _addresses(exchange, bases, values), (exchange.got, exchange.sent)
        )
    ]  # fmt: skip
    return Step(exchange, sent, got)


def _bucket(
    exchange: Exchange, bases: packed[int], values: Mapping[str, int], has_room: bool
) -> tuple[Step, list[tuple[int, int, int]]]:
    """One step for what lies side by side, and what is copied to its memory before, and back:
    address, place in it, bytes. Without room where the first one is, it has memory of its own."""
    every, dims = _addresses(exchange, bases, values), [value_of(d, values) for d in exchange.sent]
    memory = (
        _memory(every[0], dims, exchange.dtype) if has_room else np.empty(dims, exchange.dtype)
    )
    first = data_address(memory)
    moved = [
        (address, first + at, nbytes)
        for address, at, nbytes in zip(every, exchange.offsets, exchange.nbytes)
        if address != first + at
    ]  # fmt: skip
    return Step(exchange, memory, memory), moved


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

    def make(self) -> list[AnyArray]:
        """New memory, by number of the result."""
        found = {i: np.empty(shape, dtype) for i, shape, dtype in self.apart}
        for count, dtype, own in self.buckets:
            memory = np.empty(count, dtype)
            for i, shape, begin, end in own:
                found[i] = memory[begin:end].reshape(shape)
        return [found[i] for i in range(len(found))]


def _number(plan: Plan, word: object) -> int | None:
    """Which of the fresh results a word names."""
    assert isinstance(word, Pointer)
    number = word.base - len(plan.arguments)
    return number if 0 <= number < len(plan.fresh) else None


def _count(bucket: Exchange) -> int:
    """The elements of a bucket."""
    return value_of(bucket.sent[0], {})


def _room(bucket: Exchange, plan: Plan, outs: Sequence[AnyArray]) -> bool:
    """True if the memory of a bucket's first result has room for all of it: `ResultMemory` made it
    so."""
    number = _number(plan, bucket.words[0])
    assert number is not None
    memory = outs[number].base
    return (
        memory is not None and memory.shape == (_count(bucket),) and memory.dtype == bucket.dtype
    )


def _addresses(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> list[int]:
    """The memory that the words of an exchange name."""
    return [
        bases[w.base] + value_of(w.offset, values)
        for w in exchange.words if isinstance(w, Pointer)
    ]  # fmt: skip


def _memory(address: int, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
    """The array at an address."""
    nbytes = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(dims, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    found: AnyArray = np.ctypeslib.as_array(memory).view(dtype).reshape(dims)
    return found
