"""Runs one program: the launch table that native code walks, the arena, the calls from Python."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import time
import weakref
from array import array as packed
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.backends import memory_plan
from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import BoundArguments, KnownSizes, bind, shape_of
from uopc.backends.cpu.array_memory import NOTHING, new_result
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.computed_sizes import Observer, SizedCall, launch_runs
from uopc.backends.cpu.elf_loader import Image, address_of, map_private
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.structs import JUMP_WORDS, TOGETHER
from uopc.backends.cpu.tracing import PREFIX, ChunkRun, Log
from uopc.backends.plan import (
    Dim,
    Exchange,
    Plan,
    PlannedLaunch,
    Pointer,
    Repeat,
    Row,
    Scalar,
    nested,
    value_of,
)  # fmt: skip
from uopc.errors import DeviceMemoryError, InvalidIR


def _check_plan(plan: Plan, image: Image) -> None:
    """InvalidIR if a launch names a kernel or a base that does not exist."""
    bases = plan.arena_base + 1 + len(plan.constants)
    for launch in plan.launches:
        if launch.kernel not in image.symbols and not isinstance(launch, Exchange):
            raise InvalidIR(f"{plan.name}: the code has no kernel {launch.kernel!r}")
        for word in launch.words:
            if isinstance(word, Pointer) and not 0 <= word.base < bases:
                raise InvalidIR(f"{plan.name}: {launch.kernel!r} names base {word.base} of {bases}")
    for index, constant in enumerate(plan.constants):
        if not (constant.flags.c_contiguous and constant.flags.aligned):
            raise InvalidIR(f"{plan.name}: constant {index} is not contiguous and aligned")
    if plan.structure == "single" and len(plan.results) != 1:
        raise InvalidIR(f"{plan.name}: expected a single result, got {len(plan.results)}")
    if plan.structure == "dict" and len(plan.results) != len(plan.keys):
        raise InvalidIR(f"{plan.name}: {len(plan.results)} results for {len(plan.keys)} keys")


def _in_loops(row: Row, records: list[list[Dim]], depth: int, spare: int) -> list[Dim]:
    """The records of a row of launches, with records that jump. Loops at one depth share a counter;
    jumps back use the `spare` counter."""
    words: list[Dim] = []
    for part in row:
        if isinstance(part, int):
            words += records[part]
            continue
        repeat, inner = part[0], _in_loops(part[1], records, depth + 1, spare)
        size = 8 * (len(inner) + JUMP_WORDS)
        words += [0, repeat.times, depth, size, *inner]
        words += [0, 0, spare, -size - 8 * JUMP_WORDS]
    return words


MEET = "meet"  # a launch whose code is the runtime's
# A row of runs of a short launch takes about this long: a hundred times what reading a clock does.
LEAST_SECONDS = 50e-6
# The table of a longer row would displace the kernel's data from the cache.
MOST_IN_A_ROW = 64
_SAMPLES_OF_NOTHING = 10


# Vectors at the border of a padded image have lanes before its first or after its last element.
# They read nothing there, but a processor (Zen 3) takes 100 ns for such a vector where it finds no
# page. So the arena has pages beside it that were written once.
_MARGIN = 1 << 14


def _scratch(nbytes: int) -> tuple[int, mmap.mmap]:
    """The address of memory for intermediates, and the memory. DeviceMemoryError if there is too
    little. A value that begins at the end has no elements."""
    margin = min(_MARGIN, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
    try:
        memory = map_private(nbytes + 2 * margin)
    except (OSError, OverflowError, ValueError) as error:
        raise DeviceMemoryError(f"no memory for {nbytes} bytes of intermediates: {error}") from None
    memory[:margin] = memory[-margin:] = bytes(margin)
    return address_of(memory) + margin, memory


class Arena:
    """A program's scratch memory, and the flag that keeps two calls from sharing it.

    `words`, for machine code: the flag, the memory's address, and its size.
    """

    def __init__(self, nbytes: int) -> None:
        self.words = np.array([0, NOTHING, 0], np.int64)
        self.words_address = data_address(self.words)
        self.memory: mmap.mmap | None = None
        if nbytes:
            self._grow(nbytes)
        _arenas.add(self)

    def _grow(self, nbytes: int) -> None:
        """Replace the memory by a larger one. Sizes that grow step by step find room for some
        steps: pages that no call touches are no memory."""
        room = nbytes + nbytes // 4 if self.words[2] else nbytes
        try:
            address, self.memory = _scratch(room)
        except DeviceMemoryError:
            room = nbytes
            address, self.memory = _scratch(room)
        self.words[1:] = address, room

    def trim(self) -> int:
        """Give the memory back, unless a call has it. Returns the bytes."""
        if self.memory is None or not install().try_acquire(self.words_address):
            return 0
        memory, nbytes = self.memory, int(self.words[2])
        self.memory = None
        self.words[1:] = NOTHING, 0
        memory.close()
        self.release(self)
        return nbytes

    def acquire(self, nbytes: int) -> tuple[int, object]:
        """The address of memory for one call, and its owner: this arena if no other call has it."""
        if not nbytes:
            return NOTHING, None
        if not install().try_acquire(self.words_address):
            return _scratch(nbytes)
        try:
            if nbytes > self.words[2]:
                self._grow(nbytes)
        except BaseException:
            self.release(self)
            raise
        return int(self.words[1]), self

    def release(self, owner: object) -> None:
        """End the use of memory that `acquire` gave with this owner."""
        if owner is self:
            self.words[0] = 0


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for arena in _arenas:
        arena.release(arena)  # the call that used it is not in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class LaunchTable(NamedTuple):
    """The launch table and all sizes for one set of variable values."""

    table: npt.NDArray[np.int64]
    table_address: int
    arena_bytes: int
    shapes: tuple[tuple[int, ...], ...]


class Runner:
    """Everything one program needs to be called from Python."""

    def __init__(self, plan: Plan, image: Image) -> None:
        _check_plan(plan, image)
        self.plan = plan
        self.image = image
        helpers = plan.device_threads - 1
        parallel = helpers > 0 and any(launch.parallel for launch in plan.launches)
        self._pools = [pool.shared_pool(helpers, d) for d in plan.devices] if parallel else []
        self._devices: pool.ThreadPool | None = None  # the workers that run devices
        if plan.together:
            self._devices = pool.shared_pool(len(plan.rows) - 1, pool.DEVICES)
        self.arena = Arena(0 if plan.variables else value_of(plan.arena_bytes, {}))
        self._constants = [data_address(c) if c.size else NOTHING for c in plan.constants]
        self._known: KnownSizes = BoundedMap()
        self._sizes: BoundedMap[tuple[int, ...], LaunchTable] = BoundedMap()
        self._runs = launch_runs(plan, self.table_words) if plan.lengths else []

    def sizes(self, values: Mapping[str, int]) -> LaunchTable:
        """The launch table and all sizes for these variable values."""
        return self._sizes.obtain(tuple(values.values()), lambda: self._make_sizes(values))

    def _make_sizes(self, values: Mapping[str, int]) -> LaunchTable:
        plan = self.plan
        table = np.array([value_of(w, values) for w in self.call_words()], np.int64)
        shapes = tuple([shape_of(result.shape, values) for result in plan.results])
        return LaunchTable(table, data_address(table), value_of(plan.arena_bytes, values), shapes)

    def encode(
        self, launches: tuple[PlannedLaunch, ...], values: Mapping[str, int],
        repeats: tuple[Repeat, ...] = (), log: Log | None = None,
    ) -> npt.NDArray[np.int64]:  # fmt: skip
        """The table of launches that native code walks (see launch_ir.py), with sizes known. With
        a log, each chunk writes a record to it."""
        words = self.table_words(launches, repeats, log)
        return np.array([value_of(w, values) for w in words], np.int64)

    def call_words(self) -> list[Dim]:
        """The words of the table of a call: with several devices, of one for each that has a thread
        of its own, and one that runs all launches in order."""
        plan = self.plan
        serial = self.table_words(plan.launches, plan.repeats)
        if self._devices is None:
            return serial
        tables = [serial]
        for device, row in enumerate(plan.rows):
            launches = tuple([self._meeting if i < 0 else plan.launches[i] for i in row])
            tables.append(self.table_words(launches, device=device))
        head = JUMP_WORDS + 1 + len(tables)
        offsets = itertools.accumulate(map(len, tables[:-1]), initial=head)
        record = [0, len(plan.rows), TOGETHER, 0, self._devices.address, *[8 * o for o in offsets]]
        return [8 * JUMP_WORDS, 0, 0, 0, 0, *record, *[w for words in tables for w in words]]

    @property
    def _meeting(self) -> PlannedLaunch:
        """The launch of each device that waits for those of the others."""
        assert self._devices is not None
        words = Scalar(self._devices.address), Scalar(len(self.plan.rows))
        return PlannedLaunch(MEET, words)

    def table_words(
        self, launches: tuple[PlannedLaunch, ...], repeats: tuple[Repeat, ...] = (),
        log: Log | None = None, device: int = 0,
    ) -> list[Dim]:  # fmt: skip
        """The words of a table of launches, on a device of the program."""
        workers = self._pools[device] if self._pools else None
        extra = len(PREFIX.fields) if log else 0
        widest = extra + max((len(launch.words) for launch in launches), default=0)
        counters = len(repeats) + 1 if repeats else 0
        address = workers.address if workers else 0
        records = [self._record(number, launch, log) for number, launch in enumerate(launches)]
        words = _in_loops(nested(len(launches), repeats), records, 0, counters - 1)
        return [8 * len(words), widest, counters, address, self.plan.device_threads - 1, *words]

    def _record(self, number: int, launch: PlannedLaunch, log: Log | None) -> list[Dim]:
        """The words of a launch."""
        zero = self.plan.arena_base + 1 + len(self.plan.constants)
        spread = launch.parallel and len(self._pools) > 0
        is_meeting = launch.kernel == MEET
        image = install().image if is_meeting else self.image
        kernel = image.symbols[launch.kernel]
        count = (len(PREFIX.fields) if log else 0) + len(launch.words)
        words: list[Dim] = [log.traced if log else kernel, launch.chunks, int(spread), count]
        for own in log.prefix(number, kernel) if log else ():
            words += [zero, own]
        for word in launch.words:
            if isinstance(word, Pointer):
                words += [word.base, word.offset]
            else:
                words += [zero, word.value]
        return words

    def trim(self) -> int:
        """Give the memory of intermediates back: see `ProgramBase.trim`."""
        return self.arena.trim()

    def fixed_bases(self) -> list[int]:
        """The bases after the arena; against the last, an offset is a plain number."""
        return [*self._constants, 0]

    def slow(self, /, *positional: object, **named: object) -> object:
        """A call that machine code does not handle."""
        return self.call(positional, named)

    def call(
        self, positional: tuple[object, ...], named: dict[str, object],
        through: Observer | None = None,
    ) -> object:  # fmt: skip
        """A call through Python: takes all legal arguments, and raises UserError for others.

        `through` runs the launches, where given.
        """
        return self.run(self.bind(positional, named), through)

    def bind(self, positional: tuple[object, ...], named: dict[str, object]) -> BoundArguments:
        """The checked arrays and sizes of a call."""
        return bind(self.plan, positional, named, self._known)

    def run(self, bound: BoundArguments, through: Observer | None = None) -> object:
        """The value of a call."""
        pool.revive()
        if self.plan.lengths:
            return self._run_computing(bound, through)
        plan, runtime = self.plan, install()
        sizes = self.sizes(bound.values)
        read = [data_address(a) for a in bound.arrays if a.nbytes >= memory_plan.LARGE]
        arena_address, owner = self.arena.acquire(sizes.arena_bytes)
        if sizes.arena_bytes >= memory_plan.LARGE:
            read.append(arena_address)
        try:
            outs = [
                new_result(plan.name, shape, result.dtype, read) if out is None else out
                for result, shape, out in zip(plan.results, sizes.shapes, bound.outs, strict=True)
                if result.source is None
            ]
            addresses = [
                data_address(array) if array.size else NOTHING
                for array in (*bound.arrays, *outs)
            ]
            bases = packed("q", [*addresses, arena_address, *self.fixed_bases()])
            bases_address, _ = bases.buffer_info()
            if through is None:
                run = runtime.run if plan.nogil else runtime.run_holding
                run(sizes.table_address, bases_address)
            else:
                through(bases_address, bound.values)
        finally:
            self.arena.release(owner)
        return bound.results(plan, sizes.shapes, outs, bound.arrays.__getitem__)

    def _run_computing(self, bound: BoundArguments, through: Observer | None) -> object:
        """The value of a call of a program that computes sizes."""
        plan, constants = self.plan, self.fixed_bases()
        arena, owner = self.arena.acquire(value_of(plan.arena_bytes, bound.values))
        try:
            return SizedCall(plan, bound, arena, constants).run(self._runs, through)
        finally:
            self.arena.release(owner)

    def trace(
        self, positional: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, list[tuple[str, float]]]:
        """The same call, one launch at a time; also returns the seconds of each."""
        times: list[tuple[str, float]] = []

        def one_by_one(bases: int, values: Mapping[str, int]) -> None:
            tables = [self.encode((launch,), values) for launch in self.plan.launches]
            for number in self.plan.runs(values):
                seconds = self._seconds(tables[number], bases)
                times.append((self.plan.launches[number].kernel, seconds))

        return self.call(positional, named, one_by_one), times

    def slices(
        self, positional: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, list[ChunkRun]]:
        """The same call; also returns when each thread ran each chunk of each launch."""
        found: list[ChunkRun] = []

        def logged(bases: int, values: Mapping[str, int]) -> None:
            plan = self.plan
            chunks = [value_of(launch.chunks, values) for launch in plan.launches]
            log = Log(sum([chunks[number] for number in plan.runs(values)]))
            self._seconds(self.encode(plan.launches, values, plan.repeats, log), bases)
            found.extend(log.slices())

        return self.call(positional, named, logged), found

    def time(
        self, positional: tuple[object, ...], named: dict[str, object], samples: int
    ) -> list[list[float]]:
        """The seconds of each launch, `samples` times, in the memory of a call.

        A sample of a short launch is the mean over a row of runs, without the time of an empty row.
        A launch that writes over what it reads reads what its last run wrote.
        """
        found: list[list[float]] = []

        def in_rows(bases: int, values: Mapping[str, int]) -> None:
            empty = self.encode((), values)
            empties = [self._seconds(empty, bases) for _ in range(_SAMPLES_OF_NOTHING)]
            for launch in self.plan.launches:
                table = self.encode((launch,), values)
                once = min([self._seconds(table, bases) for _ in range(2)])
                count = min(MOST_IN_A_ROW, 1 + int(LEAST_SECONDS / once))
                table = self.encode((launch,) * count, values)
                times = []
                for _ in range(samples):
                    empties.append(self._seconds(empty, bases))  # the processor's speed may change
                    times.append(self._seconds(table, bases))
                nothing = min(empties)
                found.append([max(t - nothing, 0.0) / count for t in times])

        self.call(positional, named, in_rows)
        return found

    def count(
        self, positional: tuple[object, ...], named: dict[str, object]
    ) -> list[dict[str, float]]:
        """The hardware events of one run of each launch: means of a row of runs, caches warm.

        Unavailable where this process cannot count them.
        """
        from uopc.backends.cpu import hardware_counters

        found: list[dict[str, float]] = []

        def in_rows(bases: int, values: Mapping[str, int]) -> None:
            empty = self.encode((), values)
            nothing = counters.of(lambda: self._seconds(empty, bases))
            for launch in self.plan.launches:
                table = self.encode((launch,), values)
                once = min([self._seconds(table, bases) for _ in range(2)])
                runs = min(MOST_IN_A_ROW, 1 + int(LEAST_SECONDS / once))
                table = self.encode((launch,) * runs, values)
                events = counters.of(functools.partial(self._seconds, table, bases))
                found.append({k: max(0.0, n - nothing[k]) / runs for k, n in events.items()})

        with hardware_counters.opened() as counters:
            self.call(positional, named, in_rows)
        return found

    @staticmethod
    def _seconds(table: npt.NDArray[np.int64], bases: int) -> float:
        """The seconds that the launches of a table take."""
        run, address = install().run, data_address(table)
        begin = time.perf_counter()
        run(address, bases)
        return time.perf_counter() - begin
