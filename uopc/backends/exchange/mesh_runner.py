"""Calls of a program for several devices: whole arrays are cut, and results put together.

Either this process runs all devices in turn from exchange to exchange, or each device is on a rank
of a job (`uopc.distributed.initialize`).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uopc.backends.cpu.arguments import (
    BoundArguments,
    KnownSizes,
    check_dtype,
    input_array,
    label_of,
    match,
    shape_of,
)  # fmt: skip
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.elf_loader import Image
from uopc.backends.exchange import lockstep
from uopc.backends.exchange.device_call import Action, ExchangeStep, Started
from uopc.backends.exchange.device_memory import HOST, ArrayMemory, ResultMemory
from uopc.backends.exchange.device_run import DeviceRun, PhasedRun
from uopc.backends.exchange.rank_call import RankCall
from uopc.backends.exchange.sharded_array import ShardedArray, ShardLayout, layout
from uopc.backends.plan import AnyArray, Plan
from uopc.errors import UserError
from uopc.ir.devices import parts
from uopc.ir.devices.mesh import show
from uopc.ir.forks import cached_property

if TYPE_CHECKING:  # mpi4py starts MPI when it is imported
    from uopc.backends.exchange.ranks import Ranks

ranks: Ranks | None = None  # of the job that this process has joined


class CallSizes(NamedTuple):
    """The facts that follow from the sizes of a call: by device the parts of the arguments, the
    shapes of complete results, by device the memory of its parts of results, the layout of each
    result that stays cut, and the shapes of first parts."""

    windows: dict[int, list[parts.PartWindow]]
    shapes: list[tuple[int, ...]]
    memory: dict[int, ResultMemory]
    layouts: list[ShardLayout | None]
    arguments: list[tuple[int, ...]]
    results: list[tuple[int, ...]]


class CallFacts(NamedTuple):
    """The facts shared by calls of a rank with arguments of the same kinds: the sizes, and this
    rank's window of each complete argument that the program cuts."""

    values: Mapping[str, int]
    sizes: CallSizes
    windows: list[parts.PartWindow | None]


class MeshRunner:
    """The devices of a mesh in this process."""

    memory: ArrayMemory = HOST  # that of the results
    on_host = True

    def __init__(self, plan: Plan, image: Any) -> None:
        assert plan.mesh is not None
        self.plan, self.image, self.mesh, self.ranks = plan, image, plan.mesh.mesh, ranks
        self.hosts = plan.mesh.hosts or self.mesh
        if self.ranks is not None:
            self.ranks.check_same(self.hosts, fingerprint(plan, self._names()))
        self._known: KnownSizes = BoundedMap()
        self._sizes: BoundedMap[tuple[int, ...], CallSizes] = BoundedMap()
        self._written = [i for i, a in enumerate(plan.arguments) if a.writable]
        self._on_rank = self.ranks is not None and self.hosts is self.mesh
        # Calls of this process's one device whose results are all new, by kinds of arguments.
        self._kinds: BoundedMap[tuple[object, ...], CallFacts] = BoundedMap()
        self._calls: BoundedMap[tuple[int, ...], RankCall] = BoundedMap()
        all_new = not self._written and all([r.source is None for r in plan.results])
        self._has_kinds = self._on_rank and all_new and self.on_host

    @cached_property
    def devices(self) -> dict[int, PhasedRun]:
        """The programs of the devices of this process, made for the first call."""
        own = range(self.mesh.size) if self.ranks is None else self._devices_of(self.ranks.rank)
        return {rank: self._device(rank) for rank in own}

    def trim(self) -> int:
        """Give the memory of intermediates back: see `ProgramBase.trim`."""
        made = self.devices if "devices" in vars(self) else {}
        return sum([device.trim() for device in made.values()])

    def _names(self) -> Iterable[str]:
        """The names of the kernels."""
        return list(self.image.symbols)

    def _device(self, rank: int) -> PhasedRun:
        return DeviceRun(self.plan, self.image, rank)

    def call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        """Call with arrays, complete or cut as the program takes them. Return complete arrays; on a
        rank, its part of cut results. Threads of a rank call one after the other."""
        if self.ranks is None:
            return self._call(positional, named)
        with self.ranks.turn:
            if not self._has_kinds or named:
                return self._call(positional, named)
            kinds = tuple(map(_kind_of, positional))
            known = self._kinds.get(kinds)
            if known is None:
                found = self._call(positional, named)
                if None not in kinds:
                    self._kinds.add(kinds, self._kind(positional))
                return found
            return self._again(known, positional)

    def _call(self, positional: tuple[object, ...], named: dict[str, object]) -> object:
        bound = match(self.plan, positional, named, self._known, self.as_input)
        sizes = self.sizes(bound.values)
        given = {rank: self._parts(bound, sizes, rank) for rank in self.devices}
        made = {rank: sizes.memory[rank].make(self.memory) for rank in self.devices}
        self.run(given, made, bound.values)
        return self._joined(bound, sizes, given, made)

    def _kind(self, positional: tuple[Any, ...]) -> CallFacts:
        """The facts shared by calls with arguments of these kinds."""
        values = match(self.plan, positional, {}, self._known, self.as_input).values
        sizes, (rank,) = self.sizes(values), self.devices
        windows = [
            None if isinstance(a, ShardedArray) or w.is_all_of(a.shape) else w
            for a, w in zip(positional, sizes.windows[rank])
        ]  # fmt: skip
        return CallFacts(values, sizes, windows)

    def _again(self, kind: CallFacts, positional: tuple[Any, ...]) -> object:
        """Call with arguments of a known kind."""
        assert self.ranks is not None
        rank, sizes = self.ranks.rank, kind.sizes
        given = []
        for value, window, part in zip(positional, kind.windows, sizes.windows[rank]):
            own = value.local(rank, part.dims) if type(value) is ShardedArray else value
            own = own if window is None else window.of(own)
            given.append(own if own.flags.c_contiguous else np.ascontiguousarray(own))
        made = sizes.memory[rank].make()
        self._rank_call(kind.values).run(given, made)
        gathered = self.ranks.gathered
        return self.plan.contained([
            own if cut is None else ShardedArray(cut, {rank: own}, gathered)
            for own, cut in zip(made, sizes.layouts)
        ])  # fmt: skip

    def _rank_call(self, values: Mapping[str, int]) -> RankCall:
        """The calls of this rank's device for these values of the variables."""
        key = tuple(values.values())
        found = self._calls.get(key)
        if found is None:
            (device,) = self.devices.values()
            found = RankCall(device, values, self._exchange_of_rank, self._started)
            self._calls.add(key, found)
        return found

    def sizes(self, values: Mapping[str, int]) -> CallSizes:
        """All sizes for these values of the variables."""
        return self._sizes.obtain(tuple(values.values()), lambda: self._make_sizes(values))

    def _make_sizes(self, values: Mapping[str, int]) -> CallSizes:
        windows = self.windows(values, self.devices)
        shapes = [shape_of(r.shape, values) for r in self.plan.results]
        memory = {rank: ResultMemory.of(self.plan, values, rank) for rank in self.devices}
        mesh = self.plan.mesh
        assert mesh is not None
        every = mesh.with_parts(values)
        arguments, results = [
            [shape_of(cut.first, every) for cut in cuts] for cuts in (mesh.arguments, mesh.results)
        ]  # fmt: skip
        layouts = [
            layout(dims, self.mesh, cut.spec, r.dtype, first)
            if self._on_rank and any(cut.spec) else None
            for r, dims, cut, first in zip(self.plan.results, shapes, mesh.results, results)
        ]  # fmt: skip
        return CallSizes(windows, shapes, memory, layouts, arguments, results)

    def windows(
        self, values: Mapping[str, int], ranks: Iterable[int]
    ) -> dict[int, list[parts.PartWindow]]:
        """The windows of the arguments, by device."""
        plan, mesh = self.plan, self.plan.mesh
        assert mesh is not None
        found = {}
        for rank in ranks:
            every = mesh.on(rank, values)
            found[rank] = [
                parts.window(
                    self.mesh, cut.spec, shape_of(a.shape, every), rank,
                    shape_of(cut.first, every), shape_of(cut.own, every),
                )
                for a, cut in zip(plan.arguments, mesh.arguments)
            ]  # fmt: skip
        return found

    def run(
        self, given: Mapping[int, list[AnyArray]], made: Mapping[int, list[AnyArray]],
        values: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Run the devices of this process on their parts of the arguments and of the results."""
        if self._on_rank:
            self._rank_call(values).run(*given.values(), *made.values())
            return
        owners, calls = [], []
        try:
            for rank, device in self.devices.items():
                arena, owner = device.acquire(device.arena_bytes(values))
                owners.append((device, owner))
                calls.append(device.call(given[rank], made[rank], values, arena))
            for phases in zip(*[c.phases() for c in calls], strict=True):
                steps = [p.run() for p in phases]
                if phases[0].step is not None:
                    self._exchanged([s for s in steps if s is not None])
        finally:
            for device, owner in owners:
                device.release(owner)

    def _exchange_of_rank(self, step: ExchangeStep) -> Action:
        assert self.ranks is not None
        return self.ranks.exchanged(self.mesh, step)

    def _started(self, step: ExchangeStep) -> Started:
        assert self.ranks is not None
        return self.ranks.started(self.mesh, step)

    def as_input(self, number: int, value: object) -> AnyArray:
        """The array of an argument; for a cut argument, zeros of the same kind that take no memory.
        """
        argument, mesh = self.plan.arguments[number], self.plan.mesh
        assert mesh is not None
        if not isinstance(value, ShardedArray):
            return input_array(argument, value)
        label, spec = label_of(argument), mesh.arguments[number].spec
        check_dtype(label, argument, value)
        if not value.is_cut(self.mesh, spec):
            raise UserError(
                f"{label} is cut as {value.spec} over {value.mesh.shape}, but the program takes"
                f" {show(spec)} over {self.mesh.shape}: compile with in_shardings, or pass"
                " np.asarray(x), which gathers it"
            )
        self._check_parts(label, argument.writable, [value.held(r) for r in self.devices])
        return value.shadow

    def check_first(self, number: int, value: ShardedArray, first: tuple[int, ...]) -> None:
        """UserError unless an argument has the parts that the program expects."""
        if value.first != first:
            raise UserError(
                f"{label_of(self.plan.arguments[number])}: the first part is {value.first}, but the"
                f" program cuts it into parts of {first}: pass np.asarray(x), which gathers it"
            )

    def _check_parts(self, label: str, writable: bool, own: list[Any]) -> None:
        """UserError unless the program can use these parts in place."""
        if not all([isinstance(a, np.ndarray) for a in own]):
            raise UserError(f"{label} is on a GPU, but the program is for CPUs: pass np.asarray(x)")
        if writable and not all([a.flags.writeable for a in own]):
            raise UserError(f"{label} is written, but the array is read-only")

    def _parts(self, bound: BoundArguments, sizes: CallSizes, rank: int) -> list[AnyArray]:
        """A device's parts of the arguments. For an argument that the program writes: a copy of the
        part of a complete array, or the part itself of a cut array."""
        found: list[AnyArray] = []
        for i, (value, a, window) in enumerate(
            zip(bound.objects, bound.arrays, sizes.windows[rank])
        ):
            if isinstance(value, ShardedArray):
                self.check_first(i, value, sizes.arguments[i])
                found.append(value.local(rank, window.dims))
            else:
                found.append(np.ascontiguousarray(window.of(a)))
        for i in self._written:
            whole = not isinstance(bound.objects[i], ShardedArray)
            if whole and np.shares_memory(found[i], bound.arrays[i]):
                found[i] = found[i].copy()
        self._check_apart(found)
        return found

    def _check_apart(self, given: list[Any]) -> None:
        """UserError if the program writes an argument that shares memory with another argument."""
        for i in self._written:
            others = (a for j, a in enumerate(given) if j != i)
            if any(self._may_share(given[i], a) for a in others):
                label = label_of(self.plan.arguments[i])
                raise UserError(f"{label} is written, but another argument shares its memory")

    def _may_share(self, a: Any, b: Any) -> bool:
        return bool(np.may_share_memory(a, b))

    def _of_all(
        self, parts_of: Mapping[int, list[AnyArray]], number: int, first: Sequence[int]
    ) -> list[AnyArray]:
        """All devices' parts of an array, by rank, padded to the shape of the first part."""
        own = [arrays[number] for arrays in parts_of.values()]
        if self.ranks is not None:
            own = [parts.resized(a, first) for a in own]
        return self._everywhere(own)

    def _devices_of(self, process: int) -> list[int]:
        """The devices that a rank of the job has: one, or the blocks of its part of the mesh."""
        each = [n // h for n, h in zip(self.mesh.axis_sizes, self.hosts.axis_sizes)]
        begin = self.hosts.coordinates(process)
        places = itertools.product(*[
            range(begin[a] * n, (begin[a] + 1) * n) for a, n in zip(self.mesh.axis_names, each)
        ])  # fmt: skip
        return [self.mesh.rank(dict(zip(self.mesh.axis_names, at))) for at in places]

    def _everywhere(self, own: list[AnyArray]) -> list[AnyArray]:
        """The values of all devices, by their number, from those of this process's devices."""
        if self.ranks is None:
            return own
        found: dict[int, AnyArray] = {}
        for process, arrays in enumerate(self.ranks.gathered(np.stack(own))):
            found.update(zip(self._devices_of(process), arrays))
        return [found[rank] for rank in range(self.mesh.size)]

    def _exchanged(self, steps: list[ExchangeStep]) -> None:
        """Run one exchange among the devices of this process. Combine blocks in their order, so
        that the result is the same for any assignment of blocks to processes."""
        if self.ranks is None:
            lockstep.exchanged(self.mesh, steps)
            return
        given = self._everywhere([s.sent for s in steps])
        got = lockstep.exchange_values(self.mesh, steps[0].exchange, given)
        for rank, step in zip(self.devices, steps):
            step.got[...] = got[rank]

    def _joined(
        self, bound: BoundArguments, sizes: CallSizes, given: Mapping[int, list[AnyArray]],
        made: Mapping[int, list[AnyArray]],
    ) -> object:  # fmt: skip
        plan, mesh = self.plan, self.plan.mesh
        assert mesh is not None
        for i in self._written:
            value, first = bound.objects[i], sizes.arguments[i]
            if isinstance(value, ShardedArray):
                for rank, arrays in given.items():
                    value.put(rank, arrays[i])
            else:
                every = self._of_all(given, i, first)
                parts.put(bound.arrays[i], every, self.mesh, mesh.arguments[i].spec, first)
        fresh: list[object] = []
        results = zip(plan.results, mesh.results, bound.outs, sizes.layouts)
        for i, (result, cut, out, stays) in enumerate(results):
            if result.source is not None:
                continue
            spec, shape, first = cut.spec, sizes.shapes[i], sizes.results[i]
            own = {rank: arrays[len(fresh)] for rank, arrays in made.items()}
            if stays is not None and out is None:
                assert self.ranks is not None
                fresh.append(ShardedArray(stays, own, self.ranks.gathered))
                continue
            every = self._of_all(made, len(fresh), first) if any(spec) else [*own.values()]
            whole = parts.join_parts(every, self.mesh, spec, shape, first)
            if out is not None:
                out[...] = whole
            fresh.append(whole)
        return bound.results(plan, sizes.shapes, fresh, bound.arrays.__getitem__)


def _kind_of(value: Any) -> object:
    """A key of an argument: calls treat arguments with equal keys alike. None if each call must
    inspect the argument."""
    if type(value) is np.ndarray:
        return value.dtype, value.shape
    return value.layout if type(value) is ShardedArray and value.is_on_host else None


def fingerprint(plan: Plan, names: Iterable[str]) -> str:
    """A digest of a plan and the names of its kernels, which all ranks must share."""
    text = repr((plan.mesh, plan.arguments, plan.results, plan.arena_bytes, sorted(names)))
    for launch in plan.launches:
        text += repr(launch.kernel) + repr(launch.words)
    for e in plan.exchanges:
        text += repr((e.axes, e.op, e.shift, e.mirror, e.wrap, e.root))
        text += repr((e.dtype, e.sent, e.got, e.beside))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_program(plan: Plan, image: Image, cls: type[Any]) -> Any:
    """A program object of class `cls` for the devices of a mesh."""
    program = object.__new__(cls)
    program._runner = MeshRunner(plan, image)
    return program
