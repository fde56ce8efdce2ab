"""The launches of one device, from one exchange to the next."""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from array import array as packed
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from uopc.backends.bound_plan import bound_plan
from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address, is_layout_known
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
    """The place in a call at which an exchange, by its number in the program, has to be over."""

    number: int


class Phase(NamedTuple):
    """The actions of a device between the last exchange and the next, and that exchange; None at
    the end of the program."""

    actions: list[Action]
    step: Step | None

    def run(self) -> Step | None:
        """Do it; the exchange is left to the caller."""
        for act in self.actions:
            act()
        return self.step


class Loop(NamedTuple):
    """Parts of a call that run so many times, with exchanges among them."""

    times: int
    parts: list[Any]


@dataclass(eq=False)
class DeviceCall:
    """A call of one device's program in given memory."""

    parts: list[Action | Step | Await | Loop]  # in order
    memory: tuple[object, ...]  # of addresses, and of the tables of launches

    def phases(self) -> Iterator[Phase]:
        """The call, each exchange of which is over before the next launch."""
        actions = list[Action]()
        for part in _in_turn(self.parts):
            if isinstance(part, Step):
                yield Phase(actions, part)
                actions = [*part.after]
            elif not isinstance(part, Await):
                actions.append(part)
        yield Phase(actions, None)


def _in_turn(parts: Iterable[Any]) -> Iterator[Any]:
    """Parts in the order in which they run."""
    for part in parts:
        if isinstance(part, Loop):
            for _ in range(part.times):
                yield from _in_turn(part.parts)
        else:
            yield part


class Memory(Protocol):
    """Memory of a device, as arrays: NumPy's, or those on a GPU."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """New memory."""

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> Any:
        """The array at an address."""

    def addresses(self, arrays: Iterable[Any]) -> list[int]:
        """The addresses of arrays; any address for one without elements."""

    def within(self, array: Any) -> Any:
        """The array of which one is a part, or None."""

    def move(self, to: int, source: int, nbytes: int) -> object:
        """Copy bytes."""


class HostMemory:
    """Memory of this process."""

    def new(self, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        return np.empty(dims, dtype)

    def at(self, address: int, dims: Sequence[int], dtype: AnyDtype) -> AnyArray:
        nbytes = math.prod(dims) * dtype.itemsize
        if not nbytes:
            return np.empty(dims, dtype)
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        return np.ndarray(dims, dtype, memory)

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
    reads_late = True  # launches read the addresses of bases when they run

    def __init__(self, plan: Plan, rank: int) -> None:
        mesh = plan.mesh
        assert mesh is not None
        self.plan, self.mesh, self.rank = plan, mesh, rank
        self.own = bound_plan(plan, {} if plan.variables else mesh.variables(rank))
        self._tables: BoundedMap[tuple[int, ...], list[Any]] = BoundedMap()
        self._last: tuple[object, DeviceCall | None] = None, None
        # The buckets that do not lie in the arena.
        self._apart = [
            e for e in plan.exchanges if e.offsets and _number(plan, e.words[0]) is not None
        ]

    def all_values(self, values: Mapping[str, int]) -> Mapping[str, int]:
        return self.mesh.on(self.rank, values)

    # ------------------------------------------------------------ what a kind of device does
    @abstractmethod
    def acquire(self, nbytes: int) -> tuple[int, object]:
        """The address of so many bytes of intermediates for a call, and what `release` takes. A
        call begins with it."""

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
    def runs(self, table: Any, bases: packed[int]) -> list[Action]:
        """The actions that run a row of launches in given memory."""

    def address_reader(self) -> Callable[[int, int], object] | None:
        """The native function that writes the addresses of a list of arrays, where there is one."""
        return None

    # ------------------------------------------------------------ what all do
    def segments(self, values: Mapping[str, int]) -> list[Any]:
        """The tables of launches between exchanges, these, where they are awaited, and loops around
        some of these, for values of the variables."""
        awaited: dict[int, list[Await]] = {}
        exchanges = [(i, e) for i, e in enumerate(self.own.launches) if isinstance(e, Exchange)]
        for number, (i, e) in enumerate(exchanges):
            if e.beside:
                awaited.setdefault(i + 1 + e.beside, []).append(Await(number))
        whole = Repeat(0, len(self.own.launches), 1)
        return self._between(whole, self.own.repeats, values, awaited)

    def _between(
        self, row: Repeat, repeats: Sequence[Repeat], values: Mapping[str, int],
        awaited: Mapping[int, list[Await]],
    ) -> list[Any]:  # fmt: skip
        """The same of a row of launches, in which these rows are repeated."""
        launches = self.own.launches
        is_exchange = [isinstance(launches[i], Exchange) for i in range(row.first, row.end)]
        cut: dict[int, Repeat] = {}  # the outermost loops around exchanges
        for r in repeats:
            inside = is_exchange[r.first - row.first : r.end - row.first]
            if any(inside) and not any([c.first <= r.first < c.end for c in cut.values()]):
                cut[r.first] = r
        found: list[Any] = []
        first = at = row.first

        def add_launches() -> None:
            if first == at:
                return
            own = [r for r in repeats if first <= r.first and r.end <= at]
            moved = tuple([type(r)(r.first - first, r.end - first, r.times) for r in own])
            found.append(self._table(launches[first:at], values, moved))

        while at < row.end:
            if at not in cut and at not in awaited and not is_exchange[at - row.first]:
                at += 1
                continue
            add_launches()
            first = at
            found += awaited.get(at, [])
            if at in cut:
                loop = cut[at]
                inner = [r for r in repeats if r is not loop]
                inner = [r for r in inner if loop.first <= r.first and r.end <= loop.end]
                own = self._between(loop, inner, values, awaited)
                found.append(Loop(value_of(loop.times, values), own))
                first = at = loop.end
            elif is_exchange[at - row.first]:
                found.append(launches[at])
                first = at = at + 1
            else:
                at += 1
        add_launches()
        return found + awaited.get(row.end, [])

    def arena_bytes(self, values: Mapping[str, int]) -> int:
        """The bytes of intermediates."""
        needed = self.own.arena_bytes
        return needed if isinstance(needed, int) else needed.evaluate(self.all_values(values))

    def call(
        self, arrays: Sequence[Any], outs: Sequence[Any], values: Mapping[str, int], arena: int
    ) -> DeviceCall:
        """The call with this device's parts of the arguments and of the results. With the memory of
        the last call it is that one again."""
        addresses = self.memory.addresses((*arrays, *outs))
        fits = self.fits(outs)
        key = [arena, *addresses, *values.values(), *fits]
        last, found = self._last
        if last == key and found is not None:
            return found
        every = self.all_values(values)
        parts = self._tables.obtain(tuple(every.values()), lambda: self.segments(every))
        bases = self.bases([*addresses, arena])
        found = DeviceCall(self._bound(parts, bases, every, iter(fits)), (bases, parts))
        self._last = (key, found) if all(fits) else (None, None)
        return found

    def without_elements(self, values: Mapping[str, int]) -> list[int]:
        """The bases of arguments and results of which a device has no elements."""
        mesh, every = self.mesh, self.all_values(values)
        results = zip(self.plan.results, mesh.results)
        cuts = [*mesh.arguments, *[cut for r, cut in results if r.source is None]]
        return [b for b, cut in enumerate(cuts) if 0 in shape_of(cut.own, every)]

    def bases(self, addresses: Sequence[int]) -> packed[int]:
        """All bases, given the addresses of those before the constants."""
        return packed("q", [*addresses, *self._constants()])

    @property
    def has_buckets_apart(self) -> bool:
        """True if there are buckets that do not lie in the arena."""
        return bool(self._apart)

    def fits(self, outs: Sequence[Any]) -> list[bool]:
        """For each bucket that is not in the arena, whether it has room where its first result
        is."""
        return [self._room(e, outs) for e in self._apart]

    def _bound(
        self, parts: Sequence[Any], bases: packed[int], values: Mapping[str, int],
        fits: Iterator[bool],
    ) -> list[Action | Step | Await | Loop]:  # fmt: skip
        """The parts of a call in given memory; `fits`: which buckets apart have room."""
        found = list[Action | Step | Await | Loop]()
        for part in parts:
            if isinstance(part, Await):
                found.append(part)
            elif isinstance(part, Loop):
                found.append(part._replace(parts=self._bound(part.parts, bases, values, fits)))
            elif isinstance(part, Exchange):
                before, step = self.step(part, bases, values, fits)
                found += [*before, step]
            else:
                found += self.runs(part, bases)
        return found

    def step(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int],
        fits: Iterator[bool],
    ) -> tuple[list[Action], Step]:  # fmt: skip
        """The actions before an exchange, and the exchange."""
        if not exchange.offsets:
            return [], self._step(exchange, bases, values)
        apart = _number(self.plan, exchange.words[0]) is not None
        has_room = next(fits) if apart else True
        step, moved = self._bucket(exchange, bases, values, has_room)
        move = self.memory.move
        into: list[Action] = [partial(move, here, there, n) for there, here, n in moved]
        back = [partial(move, there, here, n) for there, here, n in moved]
        return into, step._replace(after=back)

    def _step(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int]
    ) -> Step:  # fmt: skip
        to, source = _addresses(exchange, bases, values)
        dims = [value_of(d, values) for d in exchange.got]
        got = sent = self.memory.at(to, dims, exchange.dtype)
        if to != source or exchange.sent != exchange.got:
            dims = [value_of(d, values) for d in exchange.sent]
            sent = self.memory.at(source, dims, exchange.dtype)
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

    def acquire(self, nbytes: int) -> tuple[int, object]:
        pool.revive()
        return self.runner.arena.acquire(nbytes)

    def release(self, owner: object) -> None:
        self.runner.arena.release(owner)

    def address_reader(self) -> Callable[[int, int], object] | None:
        return install().read_addresses if is_layout_known() else None

    def _table(
        self, launches: tuple[Launch, ...], values: Mapping[str, int], repeats: tuple[Repeat, ...]
    ) -> Any:
        return self.runner.encode(launches, values, repeats)

    def _constants(self) -> Sequence[int]:
        return self.runner.fixed_bases()

    def runs(self, table: Any, bases: packed[int]) -> list[Action]:
        return [partial(install().run, data_address(table), bases.buffer_info()[0])]


class ResultMemory(NamedTuple):
    """The memory of a device's parts of the fresh results, still to be made: those of a bucket lie
    side by side."""

    apart: tuple[tuple[int, tuple[int, ...], AnyDtype], ...]  # number, shape and dtype of each
    # Of each bucket the count and dtype of its elements, and the number, shape, begin and end of
    # each of its results.
    buckets: tuple[tuple[int, AnyDtype, list[tuple[int, tuple[int, ...], int, int]]], ...]

    @staticmethod
    def of(plan: Plan, values: Mapping[str, int], rank: int) -> ResultMemory:
        """The memory of a device's parts, for values of the variables."""
        assert plan.mesh is not None
        values = plan.mesh.on(rank, values)
        made = [(r, cut) for r, cut in zip(plan.results, plan.mesh.results) if r.source is None]
        shapes = [shape_of(cut.own, values) for _, cut in made]
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
        if not self.buckets:
            return [memory.new(shape, dtype) for _, shape, dtype in self.apart]
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
