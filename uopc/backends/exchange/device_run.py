"""The launches of one device, from one exchange to the next."""

from __future__ import annotations

import ctypes
import itertools
from array import array as packed
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import NOTHING, Runner
from uopc.backends.exchange.bound_plan import bound_plan, device_plan
from uopc.backends.plan import AnyArray, AnyDtype, Exchange, Plan, Pointer, value_of


class Step(NamedTuple):
    """An exchange with this device's memory: `got` may be `sent` itself."""

    exchange: Exchange
    sent: AnyArray
    got: AnyArray


class DeviceRun:
    """The program of one device: its launch table, cut at exchanges."""

    def __init__(self, plan: Plan, image: Image, rank: int) -> None:
        mesh = plan.mesh
        assert mesh is not None
        self.plan = device_plan(plan)
        self.coordinates = mesh.variables(rank)
        fixed = {} if self.plan.variables else self.coordinates
        self.runner = Runner(bound_plan(self.plan, fixed), image)
        self._tables: dict[tuple[int, ...], list[AnyArray | Exchange]] = {}
        self._last: tuple[object, list[AnyArray | Step | _Bucket]] = None, []

    def _segments(self, values: Mapping[str, int]) -> list[AnyArray | Exchange]:
        """The tables of launches between exchanges, and these, for values of the variables."""
        key = tuple(values.values())
        found = self._tables.get(key)
        if found is not None:
            return found
        plan, found = self.runner.plan, []
        bounds = [i for i, launch in enumerate(plan.launches) if isinstance(launch, Exchange)]
        for begin, end in itertools.pairwise([-1, *bounds, len(plan.launches)]):
            if begin >= 0:
                found.append(plan.launches[begin])  # type: ignore[arg-type]
            own = [r for r in plan.repeats if begin < r.first and r.end <= end]
            moved = tuple([
                type(r)(r.first - begin - 1, r.end - begin - 1, r.times) for r in own
            ])  # fmt: skip
            launches = plan.launches[begin + 1 : end]
            if launches:
                found.append(self.runner.encode(launches, values, moved))
        if len(self._tables) >= 64:
            self._tables.clear()
        self._tables[key] = found
        return found

    def _prepared(
        self, bases: packed[int], values: Mapping[str, int], outs: Sequence[AnyArray]
    ) -> list[AnyArray | Step | _Bucket]:
        """What to do, in order: tables of launches, and exchanges with their memory. A call with
        the memory of the last one does the same."""
        key = bases.tobytes(), tuple(values.values())
        last, found = self._last
        if last == key:
            return found
        found, room = [], False
        for part in self._segments(values):
            if not isinstance(part, Exchange):
                found.append(part)
            elif part.offsets:
                memory = _room(part, self.runner.plan, outs)
                room |= memory is not None
                found.append(_bucket(part, bases, values, memory))
            else:
                found.append(_step(part, bases, values))
        self._last = (None, []) if room else (key, found)
        return found

    def steps(
        self, arrays: Sequence[AnyArray], outs: Sequence[AnyArray], values: Mapping[str, int]
    ) -> Generator[Step, None, None]:
        """Run on this device's parts of the arguments and of the results. Stops at each exchange,
        which is done when it goes on."""
        if pool.stale:
            pool.revive()
        runner, run = self.runner, install().run
        values = {**values, **self.coordinates}
        needed = value_of(runner.plan.arena_bytes, values)
        arena, owner = runner.arena.acquire(needed)
        try:
            addresses = [data_address(a) if a.size else NOTHING for a in (*arrays, *outs)]
            bases = packed("q", [*addresses, arena, *runner.fixed_bases()])
            bases_address, _ = bases.buffer_info()
            for part in self._prepared(bases, values, outs):
                if isinstance(part, Step):
                    yield part
                elif isinstance(part, tuple):
                    yield from _through_room(*part)
                else:
                    run(data_address(part), bases_address)
        finally:
            runner.arena.release(owner)


def _step(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> Step:
    got, sent = [
        _memory(address, [value_of(d, values) for d in dims], exchange.dtype)
        for address, dims in zip(
            _addresses(exchange, bases, values), (exchange.got, exchange.sent)
        )
    ]  # fmt: skip
    return Step(exchange, sent, got)


# A step, and what is copied to its memory before, and back: address, place in it, bytes.
_Bucket = tuple[Step, list[tuple[int, int, int]]]


def _bucket(
    exchange: Exchange, bases: packed[int], values: Mapping[str, int], room: AnyArray | None
) -> Step | _Bucket:
    """One step for what lies side by side; what lies elsewhere is copied to its room and back.
    `room`: the memory for all of it, if it is not in the arena."""
    every, dims = _addresses(exchange, bases, values), [value_of(d, values) for d in exchange.sent]
    memory = _memory(every[0], dims, exchange.dtype) if room is None else room
    first = data_address(memory)
    moved = [
        (address, first + at, nbytes)
        for address, at, nbytes in zip(every, exchange.offsets, exchange.nbytes)
        if address != first + at
    ]  # fmt: skip
    step = Step(exchange, memory, memory)
    return (step, moved) if moved else step


def _through_room(
    step: Step, moved: list[tuple[int, int, int]]
) -> Generator[Step, None, None]:
    for there, here, nbytes in moved:
        ctypes.memmove(here, there, nbytes)
    yield step
    for there, here, nbytes in moved:
        ctypes.memmove(there, here, nbytes)


def result_memory(plan: Plan, values: Mapping[str, int]) -> list[AnyArray]:
    """Memory for a device's parts of the fresh results: those of a bucket side by side."""
    made = [np.empty(0)] * len(plan.fresh)
    shapes = [shape_of(r.shape, values) for r in plan.fresh]
    within: set[int] = set()
    for e in plan.exchanges:
        numbers = [_number(plan, w) for w in e.words]
        if not e.offsets or numbers[0] is None:
            continue
        memory = np.empty(_count(e), e.dtype)
        for i, at, nbytes in zip(numbers, e.offsets, e.nbytes):
            if i is not None:
                begin, end = at // memory.itemsize, (at + nbytes) // memory.itemsize
                made[i] = memory[begin:end].reshape(shapes[i])
                within.add(i)
    for i, r in enumerate(plan.fresh):
        if i not in within:
            made[i] = np.empty(shapes[i], r.dtype)
    return made


def _number(plan: Plan, word: object) -> int | None:
    """Which of the fresh results a word names."""
    assert isinstance(word, Pointer)
    number = word.base - len(plan.arguments)
    return number if 0 <= number < len(plan.fresh) else None


def _count(bucket: Exchange) -> int:
    """The elements of a bucket."""
    return value_of(bucket.sent[0], {})


def _room(bucket: Exchange, plan: Plan, outs: Sequence[AnyArray]) -> AnyArray | None:
    """The memory of a bucket: None if it is in the arena; that of its first result, which has room
    if `result_memory` made it; else new memory."""
    number = _number(plan, bucket.words[0])
    if number is None:
        return None
    memory = outs[number].base
    fits = memory is not None and memory.shape == (_count(bucket),) and memory.dtype == bucket.dtype
    return memory if fits else np.empty(_count(bucket), bucket.dtype)


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
