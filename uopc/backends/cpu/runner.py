"""Runs one program: the launch table that native code walks, the arena, the calls from Python."""

from __future__ import annotations

import os
import time
import weakref
from array import array as packed
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uopc.backends.cpu.arguments import Bound, KnownSizes, bind, number, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap, SizesByValues
from uopc.backends.cpu.elf_loader import Image, address_of, map_private
from uopc.backends.cpu.layout import data_address
from uopc.backends.cpu.native import install
from uopc.backends.cpu.pool import Pool, is_stale, revive_shared_pool, shared_pool
from uopc.backends.plan import AnyArray, Argument, Launch, Plan, Pointer, Result
from uopc.errors import InvalidIR


def is_fixed(plan: Plan) -> bool:
    """True if every number of the plan is known before the call."""
    dims = [plan.arena_bytes]
    outer: list[Argument | Result] = [*plan.arguments, *plan.results]
    for shaped in outer:
        dims.extend(shaped.shape)
    for launch in plan.launches:
        dims.append(launch.chunks)
        dims.extend(w.offset if isinstance(w, Pointer) else w.value for w in launch.words)
    return not plan.variables and all(isinstance(dim, int) for dim in dims)


def _check_plan(plan: Plan, image: Image) -> None:
    """InvalidIR if a launch names a kernel or a base that does not exist."""
    bases = plan.arena_base + 1 + len(plan.constants)
    for launch in plan.launches:
        if launch.kernel not in image.symbols:
            raise InvalidIR(f"{plan.name}: the code has no kernel {launch.kernel!r}")
        for word in launch.words:
            if isinstance(word, Pointer) and not 0 <= word.base < bases:
                raise InvalidIR(f"{plan.name}: {launch.kernel!r} names base {word.base} of {bases}")
    for index, constant in enumerate(plan.constants):
        if not (constant.flags.c_contiguous and constant.flags.aligned):
            raise InvalidIR(f"{plan.name}: constant {index} is not contiguous and aligned")
    if plan.structure == "single" and len(plan.results) != 1:
        raise InvalidIR(f"{plan.name}: a single result expected, got {len(plan.results)}")
    if plan.structure == "dict" and len(plan.results) != len(plan.keys):
        raise InvalidIR(f"{plan.name}: {len(plan.results)} results for {len(plan.keys)} keys")


class Table(NamedTuple):
    """The launches in the form that native code walks (see launch_ir.py)."""

    words: npt.NDArray[np.int64]
    address: int


def encode(
    launches: tuple[Launch, ...],
    plan: Plan,
    symbols: Mapping[str, int],
    values: Mapping[str, int],
    pool: Pool | None,
) -> Table:
    """Lay launches out as a table, with every dimension replaced by its value."""
    zero = plan.arena_base + 1 + len(plan.constants)
    widest = max((len(launch.words) for launch in launches), default=0)
    words = [len(launches), widest, pool.address if pool else 0, plan.threads - 1]
    for launch in launches:
        spread = launch.parallel and pool is not None
        chunks = number(launch.chunks, values)
        words += [symbols[launch.kernel], chunks, int(spread), len(launch.words)]
        for word in launch.words:
            if isinstance(word, Pointer):
                words += [word.base, number(word.offset, values)]
            else:
                words += [zero, number(word.value, values)]
    encoded = np.array(words, np.int64)
    return Table(encoded, data_address(encoded))


class Arena:
    """A program's scratch memory, and the flag that keeps two calls from sharing it."""

    def __init__(self, nbytes: int) -> None:
        self.memory = map_private(nbytes) if nbytes else None
        self.address = address_of(self.memory) if self.memory is not None else 0
        self._size = nbytes
        self._flag = np.zeros(1, np.int64)
        self.flag_address = data_address(self._flag)
        self.keep = (self._flag, self.memory)
        _arenas.add(self)

    def take(self, nbytes: int) -> tuple[int, object]:
        """Memory for one call and the token to give back: this arena's if it is free."""
        if not nbytes:
            return 0, None
        if install().try_acquire(self.flag_address):
            if nbytes <= self._size:
                return self.address, self
            try:
                self.memory = map_private(nbytes)
                self.address, self._size = address_of(self.memory), nbytes
            except BaseException:
                self._flag[0] = 0
                raise
            return self.address, self
        other = map_private(nbytes)
        return address_of(other), other

    def give_back(self, token: object) -> None:
        """End of the call that took `token`."""
        if token is self:
            self._flag[0] = 0


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for arena in _arenas:
        arena.give_back(arena)  # the call that used it is not in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Sizes(NamedTuple):
    """The launch table and all sizes for one set of variable values."""

    table: Table
    arena_bytes: int
    shapes: tuple[tuple[int, ...], ...]


class _Call(NamedTuple):
    """One call, ready to run. It holds all memory that machine code will touch."""

    bound: Bound
    sizes: Sizes
    outs: list[AnyArray]

    def results(self, plan: Plan) -> object:
        """The results, once the call has run."""
        return self.bound.results(plan, self.sizes.shapes, self.outs, self.bound.arrays.__getitem__)


class Runner:
    """Everything one program needs to be called from Python."""

    def __init__(self, plan: Plan, image: Image) -> None:
        _check_plan(plan, image)
        self.plan = plan
        self.image = image
        self.fixed = is_fixed(plan)
        parallel = plan.threads > 1 and any(launch.parallel for launch in plan.launches)
        self._pool = shared_pool(plan.threads - 1) if parallel else None
        self.arena = Arena(number(plan.arena_bytes, {}) if self.fixed else 0)
        self._constants = [data_address(constant) for constant in plan.constants]
        self._known: KnownSizes = BoundedMap()
        self._sizes: SizesByValues[Sizes] = SizesByValues(plan)

    def sizes(self, values: Mapping[str, int]) -> Sizes:
        """The launch table and all sizes for these variable values."""
        return self._sizes.get(values, self._make_sizes)

    def _make_sizes(self, values: Mapping[str, int]) -> Sizes:
        plan = self.plan
        return Sizes(
            self._encode(plan.launches, values),
            number(plan.arena_bytes, values),
            tuple(shape_of(result.shape, values) for result in plan.results),
        )

    def _encode(self, launches: tuple[Launch, ...], values: Mapping[str, int]) -> Table:
        return encode(launches, self.plan, self.image.symbols, values, self._pool)

    def base_template(self, arena_address: int) -> list[int]:
        """The bases after the arrays of a call; against the last, an offset is a plain number."""
        return [arena_address, *self._constants, 0]

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        """A call through Python: takes all legal arguments, and raises UserError for others."""
        call = self._prepare(positional, named)
        runtime = install()
        run = runtime.run if self.plan.nogil else runtime.run_holding
        arena_address, token = self.arena.take(call.sizes.arena_bytes)
        try:
            bases = self._bases(call, arena_address)
            run(call.sizes.table.address, bases.buffer_info()[0])
        finally:
            self.arena.give_back(token)
        return call.results(self.plan)

    def trace(
        self, positional: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, list[tuple[str, float]]]:
        """The same call, one launch at a time; also returns the seconds of each."""
        call = self._prepare(positional, named)
        tables = [self._encode((launch,), call.bound.values) for launch in self.plan.launches]
        times = []
        arena_address, token = self.arena.take(call.sizes.arena_bytes)
        try:
            bases = self._bases(call, arena_address)
            for launch, table in zip(self.plan.launches, tables, strict=True):
                begin = time.perf_counter()
                install().run(table.address, bases.buffer_info()[0])
                times.append((launch.kernel, time.perf_counter() - begin))
        finally:
            self.arena.give_back(token)
        return call.results(self.plan), times

    def _prepare(self, positional: tuple[object, ...], named: dict[str, object]) -> _Call:
        if is_stale():
            revive_shared_pool()
        bound = bind(self.plan, positional, named, self._known)
        sizes = self.sizes(bound.values)
        outs = [
            np.empty(shape, result.dtype) if out is None else out
            for result, shape, out in zip(self.plan.results, sizes.shapes, bound.outs, strict=True)
            if result.source is None
        ]
        return _Call(bound, sizes, outs)

    def _bases(self, call: _Call, arena_address: int) -> packed[int]:
        addresses = [data_address(array) for array in (*call.bound.arrays, *call.outs)]
        return packed("q", addresses + self.base_template(arena_address))
