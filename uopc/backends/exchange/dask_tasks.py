"""A call of a program for a mesh as Dask tasks: one per phase of a device, and one per exchange.

A task is a pure function that takes and returns the memory of its device. So Dask may run a task
anywhere, and again if its result is lost. Nothing runs before the results are computed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask import array as blocks
from dask.delayed import delayed

from uopc.backends.cpu.arguments import check_dtype, label_of, match, shape_of
from uopc.backends.cpu.bounded_cache import BoundedMap
from uopc.backends.cpu.layout import data_address
from uopc.backends.exchange.device_memory import ResultMemory
from uopc.backends.exchange.device_run import DeviceRun
from uopc.backends.exchange.mesh_runner import MeshRunner
from uopc.backends.exchange.sharded_array import ShardedArray
from uopc.backends.plan import AnyArray, Cut, Exchange, value_of
from uopc.errors import Unsupported, UserError, UserTypeError
from uopc.ir.core import dtypes
from uopc.ir.devices import parts, traffic
from uopc.ir.forks import cached_property
from uopc.ir.interpret import exchanges

Values = Mapping[str, int]
_FROM_DELAYED: Any = blocks.from_delayed  # which have no types
_CONCATENATE: Any = blocks.concatenate


class DaskMemory(NamedTuple):
    """The memory that a device has written up to an exchange: its parts of the results, the
    arguments that it writes by number, and its intermediates."""

    results: list[AnyArray]
    written: dict[int, AnyArray]
    intermediates: AnyArray


class Devices:
    """The programs of the devices, made where a task runs. `make` loads the program for the mesh in
    the first task of a worker, so that the task raises its errors. `content`: the pickled program.
    """

    def __init__(self, make: Callable[[], Any], content: bytes = b"") -> None:
        self._make, self._content = make, content
        self._made: dict[int, DeviceRun] = {}

    @cached_property
    def _program(self) -> Any:
        return self._make()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _devices, (self._content or pickle.dumps(self._program),)

    def device(self, rank: int) -> DeviceRun:
        """The program of a device."""
        made = self._made.get(rank)
        if made is None:  # two threads may make one each
            runner = self._program._runner
            made = self._made[rank] = DeviceRun(runner.plan, runner.image, rank)
        return made


_known: BoundedMap[bytes, Devices] = BoundedMap()  # by the digest of the pickle


def _devices(content: bytes) -> Devices:
    key = hashlib.blake2b(content).digest()
    return _known.obtain(key, lambda: Devices(functools.partial(pickle.loads, content), content))


# ---------------------------------------------------------------- what a task does
def phase(
    devices: Devices, rank: int, number: int, values: Values, given: Sequence[AnyArray],
    memory: DaskMemory | None, got: Any,
) -> tuple[AnyArray | None, DaskMemory]:  # fmt: skip
    """Run phase `number` of a device on its parts of the arguments, with its memory of the previous
    phase and the results of the exchange in between. Return the values that the next exchange
    sends, and the memory."""
    device = devices.device(rank)
    plan = device.plan
    given = [
        np.array(a, order="C") if argument.writable else np.ascontiguousarray(a)
        for a, argument in zip(given, plan.arguments)
    ]
    results = ResultMemory.of(plan, values, rank).make()
    arena, owner = device.acquire(device.arena_bytes(values))
    try:
        if memory is not None:
            _restore(memory, given, results, arena)
        phases = device.call(given, results, values, arena).phases()
        if number:
            before = next(itertools.islice(phases, number - 1, None)).step
            assert before is not None
            before.got[...] = got
        step = next(phases).run()
        sent = None if step is None else step.sent.copy()
        kept = np.empty(0 if step is None else device.arena_bytes(values), np.uint8)
        ctypes.memmove(data_address(kept), arena, kept.nbytes)
    finally:
        device.release(owner)
    written = {i: given[i] for i, argument in enumerate(plan.arguments) if argument.writable}
    return sent, DaskMemory(results, written, kept)


def _restore(
    memory: DaskMemory, given: list[AnyArray], results: list[AnyArray], arena: int
) -> None:
    for a, kept in zip(results, memory.results):
        a[...] = kept
    for i, kept in memory.written.items():
        given[i][...] = kept
    ctypes.memmove(arena, data_address(memory.intermediates), memory.intermediates.nbytes)


def combined(exchange: Exchange, given: Sequence[AnyArray]) -> list[AnyArray]:
    """The result of an exchange on each device of a group, in order."""
    dtype = dtypes.from_numpy(exchange.dtype)
    return exchanges.in_group(exchange.kernel, exchange, dtype, given)


def _part(array: AnyArray, dims: tuple[int, ...]) -> AnyArray:
    """A part of an argument, with padding."""
    return parts.PartWindow((), dims).of(np.asarray(array))


def _without_padding(array: AnyArray, sizes: Sequence[int]) -> AnyArray:
    return array[tuple([slice(0, n) for n in sizes])]


def _last(made: tuple[None, DaskMemory], sources: Sequence[tuple[bool, int]]) -> list[AnyArray]:
    """The final parts of some arrays: results, or arguments that the program writes."""
    _, memory = made
    return [memory.written[i] if written else memory.results[i] for written, i in sources]


# ---------------------------------------------------------------- the tasks
def call(program: Any, positional: tuple[object, ...], named: dict[str, object]) -> Any:
    """See `uopc.distributed.on_dask`."""
    if "out" in named:
        raise UserTypeError("on_dask: results are new Dask arrays; there is no out=")
    return _DaskCall(program, positional, dict(named)).results()


class _DaskCall:
    def __init__(
        self, program: Any, positional: tuple[object, ...], named: dict[str, object]
    ) -> None:
        self.runner: MeshRunner = program._runner
        self.plan, self.mesh = self.runner.plan, self.runner.mesh
        assert self.plan.mesh is not None
        self.cuts = self.plan.mesh
        own = {r.source for r in self.plan.results}
        for i, argument in enumerate(self.plan.arguments):
            if argument.writable and i not in own:
                raise Unsupported(
                    f"on_dask: {label_of(argument)} is written but not returned: return it, because"
                    " tasks change no array of the caller"
                )
        self.bound = match(self.plan, positional, named, BoundedMap(), self._as_input)
        self.devices = delayed(Devices(lambda: program), pure=False, traverse=False)
        self.windows = self.runner.windows(self.bound.values, range(self.mesh.size))

    def _as_input(self, number: int, value: object) -> AnyArray:
        """The array of an argument; for a Dask array, zeros of the same shape and dtype."""
        argument = self.plan.arguments[number]
        label = label_of(argument)
        if isinstance(value, ShardedArray) and len(value.parts) < self.mesh.size:
            raise UserError(f"{label}: other processes have parts of the array: pass a Dask array")
        if not isinstance(value, blocks.Array):
            return self.runner.as_input(number, value)
        if any([not isinstance(n, (int, np.integer)) for n in value.shape]):
            raise UserError(
                f"{label}: the sizes of the Dask array must be known, got {value.shape}"
            )
        check_dtype(label, argument, value)
        nothing: AnyArray = np.broadcast_to(np.zeros((), value.dtype), value.shape)
        return nothing

    def _given(self, rank: int) -> list[Any]:
        """A device's parts of the arguments; parts of Dask arrays are tasks."""
        found: list[Any] = []
        for value, a, window in zip(self.bound.objects, self.bound.arrays, self.windows[rank]):
            if isinstance(value, blocks.Array):
                found.append(delayed(_part, pure=False)(value[window.inside], window.dims))
                continue
            own = window.of(a)
            if isinstance(value, ShardedArray):
                own = value.local(rank, window.dims)
            found.append(delayed(own, pure=False))
        return found

    def _tasks(self) -> list[Any]:
        """The task of each device's last phase, by device."""
        run = delayed(phase, pure=False, nout=2)
        ranks, values = range(self.mesh.size), dict(self.bound.values)
        given = [self._given(r) for r in ranks]
        made = [run(self.devices, r, 0, values, given[r], None, None) for r in ranks]
        launches = [self.plan.launches[n] for n in self.plan.runs(values)]
        steps = [launch for launch in launches if isinstance(launch, Exchange)]
        for number, exchange in enumerate(steps, 1):
            got = self._exchanged(exchange, [sent for sent, _ in made])
            made = [
                run(self.devices, r, number, values, given[r], memory, got[r])
                for r, (_, memory) in enumerate(made)
            ]
        return made

    def _exchanged(self, exchange: Exchange, sent: Sequence[Any]) -> list[Any]:
        """The tasks that make each device's results of an exchange. Values that only move need no
        task."""
        got: list[Any] = [None] * len(sent)
        for group in self.mesh.groups(exchange.axes):
            own = [sent[r] for r in group]
            match exchange.kernel:
                case "broadcast":
                    each = [own[exchange.root]] * len(own)
                case "permute_ranks":
                    sources = [traffic.source(exchange, i) for i in range(len(own))]
                    each = [0 if i is None else own[i] for i in sources]
                case _:
                    each = list(delayed(combined, pure=False, nout=len(own))(exchange, own))
            for r, task in zip(group, each):
                got[r] = task
        return got

    def results(self) -> Any:
        """The results as Dask arrays, in the structure that the program returns."""
        plan, fresh = self.plan, itertools.count()
        sources = [
            (False, next(fresh)) if r.source is None else (True, r.source) for r in plan.results
        ]
        last = delayed(_last, pure=False, nout=len(sources))
        made = [last(task, sources) for task in self._tasks()]
        found = []
        for i, (result, cut) in enumerate(zip(plan.results, self.cuts.results)):
            shape = dims = tuple([value_of(d, self.bound.values) for d in result.shape])
            if result.source is not None:
                cut = self.cuts.arguments[result.source]
                dims = self.bound.arrays[result.source].shape
            whole = self._whole([m[i] for m in made], cut, dims, result.dtype)
            found.append(whole if dims == shape else whole.reshape(shape))
        return plan.contained(found)

    def _whole(self, own: list[Any], cut: Cut, dims: tuple[int, ...], dtype: Any) -> Any:
        """The Dask array made of the devices' parts, one chunk each."""
        found: dict[tuple[tuple[int, int], ...], Any] = {}
        first = shape_of(cut.first, self.cuts.with_parts(self.bound.values))
        for rank, task in enumerate(own):
            inside = parts.slices(self.mesh, cut.spec, dims, rank, first)
            place = tuple([(s.start, s.stop) for s in inside])
            if place in found:
                continue
            sizes = tuple([b - a for a, b in place])
            made = delayed(_without_padding, pure=False)(task, sizes)
            found[place] = _FROM_DELAYED(made, sizes, dtype)
        return _join_parts(found, 0, len(dims))


def _join_parts(found: Mapping[tuple[tuple[int, int], ...], Any], axis: int, rank: int) -> Any:
    """Join parts, given by their begins and ends, along the axes."""
    if axis == rank:
        return next(iter(found.values()))
    rows: dict[tuple[int, int], dict[Any, Any]] = {}
    for place, part in found.items():
        rows.setdefault(place[axis], {})[place] = part
    some = {span: row for span, row in rows.items() if span[0] < span[1]} or rows
    made = [_join_parts(some[span], axis + 1, rank) for span in sorted(some)]
    return made[0] if len(made) == 1 else _CONCATENATE(made, axis)
