"""The program of one device in its memory: tables of launches, cut at exchanges.

`segments` cuts the plan once for given sizes; `call` fills in the addresses of one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array as packed
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from uopc.backends.bound_plan import bound_plan
from uopc.backends.cpu import pool
from uopc.backends.cpu.arguments import shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address, is_layout_known
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import Runner
from uopc.backends.exchange.device_call import Action, Await, CallLoop, DeviceCall, ExchangeStep
from uopc.backends.exchange.device_memory import HOST, ArrayMemory, bucket_elements, result_number
from uopc.backends.plan import Exchange, Plan, PlannedLaunch, Pointer, Repeat, value_of


class PhasedRun(ABC):
    """The program of one device: launches, cut at exchanges. `own`: the plan with the device's
    coordinates."""

    memory: ArrayMemory
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
            e for e in plan.exchanges if e.offsets and result_number(plan, e.words[0]) is not None
        ]

    def all_values(self, values: Mapping[str, int]) -> Mapping[str, int]:
        return self.mesh.on(self.rank, values)

    # ------------------------------------------------------------ what a kind of device does
    @abstractmethod
    def acquire(self, nbytes: int) -> tuple[int, object]:
        """The address of `nbytes` bytes of intermediates for a call, and a value for `release`. A
        call begins with this."""

    @abstractmethod
    def release(self, owner: object) -> None:
        """End the use of memory that `acquire` gave."""

    @abstractmethod
    def trim(self) -> int:
        """Give back memory for `acquire` that no call has. Returns its bytes."""

    @abstractmethod
    def _table(
        self, launches: tuple[PlannedLaunch, ...], values: Mapping[str, int],
        repeats: tuple[Repeat, ...],
    ) -> Any:  # fmt: skip
        """Encode consecutive launches, for values of the variables."""

    @abstractmethod
    def _constants(self) -> Sequence[int]:
        """The addresses of the bases that follow the arena."""

    @abstractmethod
    def runs(self, table: Any, bases: packed[int]) -> list[Action]:
        """The actions that run a table of launches in given memory."""

    def address_reader(self) -> Callable[[int, int], object] | None:
        """The native function that writes the addresses of a list of arrays, or None."""
        return None

    # ------------------------------------------------------------ what all do
    def segments(self, values: Mapping[str, int]) -> list[Any]:
        """The program as a list, for values of the variables: tables of launches, exchanges,
        Awaits, and loops that contain exchanges."""
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
        """The segments of a slice of the launches; `repeats`: the loops in the slice."""
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
                found.append(CallLoop(value_of(loop.times, values), own))
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
        """The call with this device's parts of the arguments and of the results: the last call if
        the memory is the same."""
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
        """The bases of arguments and results that have no elements on a device."""
        mesh, every = self.mesh, self.all_values(values)
        results = zip(self.plan.results, mesh.results)
        cuts = [*mesh.arguments, *[cut for r, cut in results if r.source is None]]
        return [b for b, cut in enumerate(cuts) if 0 in shape_of(cut.own, every)]

    def bases(self, addresses: Sequence[int]) -> packed[int]:
        """All bases, given the addresses of the bases before the constants."""
        return packed("q", [*addresses, *self._constants()])

    @property
    def has_buckets_apart(self) -> bool:
        """True if there are buckets outside the arena."""
        return bool(self._apart)

    def fits(self, outs: Sequence[Any]) -> list[bool]:
        """For each bucket outside the arena: True if it fits at its first result."""
        return [self._room(e, outs) for e in self._apart]

    def _bound(
        self, parts: Sequence[Any], bases: packed[int], values: Mapping[str, int],
        fits: Iterator[bool],
    ) -> list[Action | ExchangeStep | Await | CallLoop]:  # fmt: skip
        """The parts of a call in given memory. `fits`: for each bucket outside the arena, True if
        it has room."""
        found = list[Action | ExchangeStep | Await | CallLoop]()
        for part in parts:
            if isinstance(part, Await):
                found.append(part)
            elif isinstance(part, CallLoop):
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
    ) -> tuple[list[Action], ExchangeStep]:  # fmt: skip
        """The actions before an exchange, and the exchange."""
        if not exchange.offsets:
            return [], self._step(exchange, bases, values)
        apart = result_number(self.plan, exchange.words[0]) is not None
        has_room = next(fits) if apart else True
        step, moved = self._bucket(exchange, bases, values, has_room)
        move = self.memory.move
        into: list[Action] = [partial(move, here, there, n) for there, here, n in moved]
        back = [partial(move, there, here, n) for there, here, n in moved]
        return into, step._replace(after=back)

    def _step(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int]
    ) -> ExchangeStep:  # fmt: skip
        to, source = _addresses(exchange, bases, values)
        dims = [value_of(d, values) for d in exchange.got]
        got = sent = self.memory.at(to, dims, exchange.dtype)
        if to != source or exchange.sent != exchange.got:
            dims = [value_of(d, values) for d in exchange.sent]
            sent = self.memory.at(source, dims, exchange.dtype)
        return ExchangeStep(exchange, sent, got)

    def _bucket(
        self, exchange: Exchange, bases: packed[int], values: Mapping[str, int], has_room: bool
    ) -> tuple[ExchangeStep, list[tuple[int, int, int]]]:
        """One step for a contiguous bucket, and its copies as (address, place in the bucket,
        bytes): in before the step, and back after. If the bucket does not fit at its first member,
        it gets separate memory."""
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
        return ExchangeStep(exchange, room, room), moved

    def _room(self, bucket: Exchange, outs: Sequence[Any]) -> bool:
        """True if `ResultMemory` allocated the first result with room for the whole bucket."""
        number = result_number(self.own, bucket.words[0])
        assert number is not None
        memory = self.memory.within(outs[number])
        return (
            memory is not None and memory.shape == (bucket_elements(bucket),)
            and memory.dtype == bucket.dtype
        )  # fmt: skip


class DeviceRun(PhasedRun):
    """The program of one device on this processor, run by the native entry."""

    memory = HOST

    def __init__(self, plan: Plan, image: Image, rank: int) -> None:
        super().__init__(plan, rank)
        self.runner = Runner(self.own, image)

    def acquire(self, nbytes: int) -> tuple[int, object]:
        pool.revive()
        return self.runner.arena.acquire(nbytes)

    def release(self, owner: object) -> None:
        self.runner.arena.release(owner)

    def trim(self) -> int:
        return self.runner.arena.trim()

    def address_reader(self) -> Callable[[int, int], object] | None:
        return install().read_addresses if is_layout_known() else None

    def _table(
        self, launches: tuple[PlannedLaunch, ...], values: Mapping[str, int],
        repeats: tuple[Repeat, ...],
    ) -> Any:  # fmt: skip
        return self.runner.encode(launches, values, repeats)

    def _constants(self) -> Sequence[int]:
        return self.runner.fixed_bases()

    def runs(self, table: Any, bases: packed[int]) -> list[Action]:
        return [partial(install().run, data_address(table), bases.buffer_info()[0])]


def _addresses(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> list[int]:
    """The addresses that the words of an exchange point to."""
    return [
        bases[w.base] + value_of(w.offset, values)
        for w in exchange.words if isinstance(w, Pointer)
    ]  # fmt: skip
