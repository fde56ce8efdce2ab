"""Programs of graphs that files describe, such as models: found by the files, without making the
graph.

    description: files, options, machine   →   Stored: key of the program, where its constants are

A file counts as unchanged if its stamp is (`ir/core/data/files.py`), so no content is read. The
constants lie in a file of the cache, in the order that kernels read, and are mapped: no memory
holds them in the graph's order. Everything stored follows from the graph, so a description that is
not found only costs time.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uopc import config
from uopc.backends.plan import Plan
from uopc.cache import statistics
from uopc.cache.disk import DiskCache, Unusable
from uopc.errors import InvalidIR, UserError
from uopc.ir.core import dtypes
from uopc.ir.core.data import blocks, files
from uopc.ir.core.data.files import FilePlace, Identity, Stamp
from uopc.ir.core.ops import Ops
from uopc.ir.core.serialize import Fingerprint
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import device as devices
from uopc.ir.records import dataclass
from uopc.program.artifact import Array, Artifact, Constant, in_order, located
from uopc.program.backend import Backend, backend_of
from uopc.program.cached import key, record, reuse
from uopc.program.program import Obtained, Program
from uopc.program.request import Request, thread_count
from uopc.program.source import ProgramSource
from uopc.program.tuned import schedules


@dataclass(frozen=True)
class Made:
    """A graph: outputs (or None) and inputs as `compile` takes them, and the paths of its files,
    from the root. `notes`: metadata the importer needs when the graph comes from the cache; None:
    do not store."""

    outputs: Any
    inputs: Sequence[UOp]
    files: tuple[str, ...]
    notes: str | None


@dataclass(frozen=True)
class Description:
    """All that a graph depends on besides file contents, and the function that makes the graph."""

    components: record.Components
    make: Callable[[], Made]


class Found(NamedTuple):
    """A program, its importer's notes, and the stamps of the files if the program needs no
    graph."""

    program: Program
    notes: str | None
    files: tuple[Stamp, ...] = ()


@dataclass(frozen=True)
class FilePart:
    """An array in a file of arrays."""

    offset: int
    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class StoredFacts:
    """The facts that a program needs besides its artifact and would otherwise take from its graph.

    `constants`: the place of each of the artifact's constants; None if the artifact holds the
    constant. `arrays`, `identity`: the file of arrays, by name and as it was written. `lines`: the
    source lines of the plan's conditions.
    """

    program: record.Components
    files: tuple[Stamp, ...]
    constants: tuple[FilePart | FilePlace | None, ...]
    arrays: str
    identity: Identity | None
    structure: str
    keys: tuple[str, ...]
    lines: tuple[str, ...]
    notes: str


class Described:
    """A description for one machine. `request`: the compile's request, without a graph. `source`:
    makes the graph of a program that was found without one. `kept`: the stamps of what `detach`
    stored."""

    def __init__(
        self, description: Description, request: Request, backend: Backend, disk: DiskCache,
        source: Callable[[], ProgramSource],
    ) -> None:  # fmt: skip
        self.description, self.request = description, request
        self.backend, self.disk, self.source = backend, disk, source
        self.kept: tuple[Stamp, ...] = ()
        self.machine = backend.target(request.device, request.options.target_cpu)
        self._begin = time.time_ns()
        options = request.options
        self.key = key.with_process((
            *description.components,
            *key.code_components(request, self.machine), ("name", repr(request.name)),
            ("graph options", repr((options.fast_zeros, options.origins))),
        ))  # fmt: skip

    @staticmethod
    def of(
        description: Description, options: config.Options, arguments: Mapping[str, Any],
        source: Callable[[], ProgramSource],
    ) -> Described | None:  # fmt: skip
        """A description in the cache; None where a compile is to be seen, or no cache can hold the
        description. `arguments`: of `compile`."""
        kinds = {"device": str, "optimize": bool, "threads": int, "name": str}
        plain = all([v is None or type(v) is kinds.get(k) for k, v in arguments.items()])
        seen = options.debug or options.spec or options.match_stats or config.page_folder(options)
        disk = DiskCache.of(options)
        if disk is None or not plain or seen or not description.components:
            return None
        device = (arguments["device"] or options.device).lower()
        if not devices.is_cpu(device) or arguments["optimize"] is None:
            return None
        nothing = intern(Ops.SINK, dtypes.void, ())
        optimize, name = arguments["optimize"] and not options.noopt, arguments["name"] or ""
        threads = thread_count(arguments["threads"], options)
        blank = Request(nothing, "tuple", (), (), optimize, threads, name, options, device=device)
        return Described(description, blank, backend_of(device), disk, source)

    def find(self) -> Found | None:
        """The program, if some process stored it and all files are unchanged."""
        start = time.perf_counter()
        stored = self.disk.load(
            self.key.digest, lambda data: record.decode(data, self.key, StoredFacts), counted=False
        )
        if stored is None or not all(map(_is_same, stored.files)):
            return None
        found = reuse.known(
            stored.program, self.backend.artifact, self.disk, self.request.options, self._holds
        )
        if found is None:
            return None
        obtained = Obtained(self.request, self.backend, *found, start)
        try:
            program = obtained.program(self._plan(found[0], stored), self.source)
        except (Unusable, UserError, InvalidIR) as problem:
            statistics.note("disk_rejected", problem)
            return None
        return Found(program, stored.notes, stored.files)

    def _holds(self, found: Artifact) -> bool:
        return schedules.holds(self.request, self.machine, found.schedules)

    def _plan(self, found: Artifact, stored: StoredFacts) -> Plan:
        """The plan of an artifact. Unusable, UserError or InvalidIR if a constant has changed."""
        mapped = None
        if stored.identity is not None:
            mapped = self.disk.arrays(stored.arrays)
            if mapped is None or mapped.identity != stored.identity:
                gone = "is gone" if mapped is None else "was written since"
                raise Unusable(f"{stored.arrays}: the file of arrays {gone}")
        if len(stored.constants) != len(found.constants):
            raise Unusable(f"{len(stored.constants)} arrays for {len(found.constants)} constants")
        structure: Any = stored.structure
        return dataclasses.replace(
            found.plan, structure=structure, keys=stored.keys,
            constants=tuple([
                _array(c, at, mapped) for c, at in zip(found.constants, stored.constants)
            ]),
            conditions=located(found.plan.conditions, stored.lines),
        )  # fmt: skip

    # ------------------------------------------------------------ storing
    def detach(
        self, made: Made, request: Request, found: Artifact, printed: Fingerprint
    ) -> tuple[Plan, Callable[[], ProgramSource]] | None:
        """Store a compiled program. Return its plan without its graph, and the function that makes
        its source; None if that is not possible."""
        if made.notes is None or request.bound or request.rules or self.machine.rules is not None:
            return None
        try:
            stamps = tuple(map(Stamp.of, made.files))
        except OSError:  # a file is gone: the graph is of no use to another process
            return None
        if not all([s.is_settled(self._begin) for s in stamps]):
            return None
        components = key.request_components(request, self.machine, printed, "")
        try:
            name, identity, places = self._arrays(found.constants, printed)
            stored = StoredFacts(
                components, stamps, places, name, identity, request.structure,
                tuple(map(str, request.keys)), found.lines(request), made.notes,
            )  # fmt: skip
            reuse.keep(components, found, self.disk)
            self.disk.write(self.key.digest, record.encode(self.key, [], stored))
            plan = self._plan(found, stored)
        except Unusable as problem:
            statistics.note("disk_failed", problem)
            return None
        self.kept = stamps
        return plan, self.source

    def _arrays(
        self, constants: Sequence[Constant], printed: Fingerprint
    ) -> tuple[str, Identity | None, tuple[FilePart | FilePlace | None, ...]]:
        """The file of the constants, and the place of each. Constants in mapped files stay
        there."""
        places: list[FilePart | FilePlace | None] = []
        moved: list[tuple[Constant, Array, int]] = []
        end = 0
        for c in constants:
            array = printed.arrays[c.key] if c.array is None else c.array
            placed = None if c.order else files.placed(array)
            if c.array is not None and not c.order:
                places.append(None)
            elif placed is not None:
                places.append(placed[0])
            else:
                dims = (blocks.size(c.order),) if c.order else array.shape
                begin = -(-end // blocks.LINE) * blocks.LINE
                places.append(FilePart(begin, dtypes.from_numpy(array.dtype).name, dims))
                moved.append((c, array, begin))
                end = begin + math.prod(dims) * array.itemsize
        if not end:
            return "", None, tuple(places)
        name = record.digest(repr([(c.key, c.order, a.dtype.str, a.shape) for c, a, _ in moved]))
        return name, self._written(name, moved, end), tuple(places)

    def _written(
        self, name: str, moved: Sequence[tuple[Constant, Array, int]], nbytes: int
    ) -> Identity:
        """Write the file of these arrays, unless the existing file holds the same."""

        def parts() -> Iterator[memoryview]:
            """The arrays to write, each brought in its order only when its turn comes, to save
            memory."""
            at = 0
            for c, array, begin in moved:
                if begin > at:
                    yield memoryview(bytes(begin - at))
                whole = np.ascontiguousarray(in_order(c, array)).reshape(-1).view(np.uint8)
                at = begin + whole.nbytes
                yield whole.data

        try:
            there = self.disk.arrays(name)
        except Unusable:  # it is replaced, if it can be
            there = None
        if there is not None and there.identity.size == nbytes and _holds(there, parts()):
            return there.identity
        return self.disk.write_arrays(name, nbytes, parts())


def _holds(mapped: files.Mapping, parts: Iterator[memoryview]) -> bool:
    """True if a file begins with these bytes."""
    held, at = np.frombuffer(mapped, np.uint8), 0
    for part in parts:
        if not np.array_equal(held[at : at + len(part)], np.frombuffer(part, np.uint8)):
            return False
        at += len(part)
    return True


def _is_same(stamp: Stamp) -> bool:
    """True if a file is unchanged."""
    try:
        return Stamp.of(stamp.identity.path) == stamp
    except OSError:
        return False


def _array(c: Constant, at: FilePart | FilePlace | None, mapped: files.Mapping | None) -> Array:
    """A constant, read from its place."""
    if isinstance(at, FilePlace):
        return at.open()
    if at is None:
        if c.array is None or c.order:
            raise Unusable("a constant without a place")
        return c.array
    dtype = dtypes.by_name(at.dtype).numpy
    end = at.offset + math.prod(at.dims) * dtype.itemsize
    if end == at.offset:
        return np.zeros(at.dims, dtype)
    if mapped is None or at.offset < 0 or at.offset % blocks.LINE or end > mapped.identity.size:
        raise Unusable(f"bytes {at.offset} to {end} are no array")
    return mapped.array(at.offset, dtype, at.dims)
