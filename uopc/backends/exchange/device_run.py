"""The launches of one device, from one exchange to the next."""

from __future__ import annotations

import ctypes
import itertools
from array import array as packed
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from uopc.backends.cpu import pool
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.runner import NOTHING, Runner
from uopc.backends.exchange.bound_plan import bound_plan, device_plan
from uopc.backends.plan import AnyArray, Exchange, Plan, Pointer, value_of


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
            for part in self._segments(values):
                if isinstance(part, Exchange):
                    yield _step(part, bases, values)
                else:
                    run(data_address(part), bases_address)
        finally:
            runner.arena.release(owner)


def _step(exchange: Exchange, bases: packed[int], values: Mapping[str, int]) -> Step:
    got, sent = [
        _memory(bases, word, [value_of(d, values) for d in dims], exchange, values)
        for word, dims in zip(exchange.words, (exchange.got, exchange.sent))
    ]
    return Step(exchange, sent, got)


def _memory(
    bases: packed[int], word: object, dims: Sequence[int], exchange: Exchange,
    values: Mapping[str, int],
) -> AnyArray:  # fmt: skip
    """The array at a word of a launch."""
    assert isinstance(word, Pointer)
    dtype = exchange.dtype
    nbytes = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(dims, dtype)
    address = bases[word.base] + value_of(word.offset, values)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    found: AnyArray = np.ctypeslib.as_array(memory).view(dtype).reshape(dims)
    return found
