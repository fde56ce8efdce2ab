"""The plan of a program: plain data that the compiler hands to the runtimes.

Storage has *base* numbers: first the arguments, then the fresh results in order, then the arena
(which counts even when empty), then the constants.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.index import closed
from uopc.ir.index.closed import Instruction
from uopc.ir.records import dataclass

if TYPE_CHECKING:  # a program for one device needs no mesh
    from uopc.ir.devices.mesh import Mesh, Spec

AnyDtype: TypeAlias = np.dtype[Any]
AnyArray: TypeAlias = npt.NDArray[Any]
_BYTE: AnyDtype = np.dtype(np.uint8)


@dataclass(frozen=True)
class DimValue:
    """A number known at the call: an index expression over variables, as a list of instructions."""

    instructions: tuple[Instruction, ...]

    @staticmethod
    def of(u: UOp) -> DimValue:
        """The value of an index expression."""
        return DimValue(closed.instructions(u))

    @cached_property
    def variable(self) -> str | None:
        """The variable's name when this is just a variable, else None."""
        op, known, _ = self.instructions[-1]
        return str(known) if op == Ops.VARIABLE.name else None

    @property
    def variables(self) -> set[str]:
        """The names of the variables in it."""
        return {str(known) for op, known, _ in self.instructions if op == Ops.VARIABLE.name}

    def expression(self, variables: Mapping[str, UOp]) -> UOp:
        """The index expression over these variables."""
        return closed.expression(self.instructions, variables)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number, given every variable's value."""
        return values[self.variable] if self.variable else closed.value(self.instructions, values)

    def __str__(self) -> str:
        return closed.show(self.instructions)


Dim: TypeAlias = int | DimValue
Dims3: TypeAlias = tuple[Dim, Dim, Dim]
Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that the caller passes, by position or by name. If a launch runs on its own, the
    array may share memory with argument number `over`."""

    name: str
    dtype: AnyDtype
    shape: Shape
    writable: bool = False
    over: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """An integer in lo..hi: from the shapes of arrays, else by name, else its default."""

    name: str
    lo: int
    hi: int
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Length:
    """A size in lo..hi that the program computes: an int64 in memory, known once the launches
    before number `launch` are done."""

    name: str
    lo: int
    hi: int
    at: Pointer
    launch: int


@dataclass(frozen=True, slots=True)
class SizeRelation:
    """A relation of two sizes that the graph relies on, and each side as text.

    `node`: the number of the node that relies on it, in `walk.nodes` of the graph, or -1. `line`:
    where the user made it, as the end of a message.
    """

    what: str
    relation: Literal["equal", "at most", "below"]
    left: Dim
    right: Dim
    sides: tuple[str, str]
    node: int
    line: str = ""


@dataclass(frozen=True, slots=True)
class ResultArray:
    """An array handed back: fresh memory, or (source = index) that argument itself."""

    dtype: AnyDtype
    shape: Shape
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel word: the address of a base plus an offset in bytes."""

    base: int
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel word: a 64-bit integer."""

    value: Dim


Word: TypeAlias = Pointer | Scalar


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """Call `kernel(words, chunk)` for every chunk in 0..chunks-1, in any order when parallel."""

    kernel: str
    words: tuple[Word, ...]
    chunks: Dim = 1
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class GpuLaunch(PlannedLaunch):
    """Run `kernel` on a grid of blocks: parameter i is word i, 8 bytes; x is the first of three.

    Nothing runs where a size of the grid is 0. `dynamic_shared`: the bytes of shared memory that
    the launch must request, 0 where the kernel declares its own. Pointers have the alignment that
    `nvptx.calls.Calls` says.
    """

    grid: Dims3 = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared: int = 0


@dataclass(frozen=True, slots=True)
class Exchange(PlannedLaunch):
    """An exchange between devices; `kernel` is the name of its op, and the words are where what
    arrives is written, and what is sent. The fields of `ExchangeArg`; the shapes of both.

    A bucket is several exchanges in place that are one. Its words are what each sends; word i
    belongs `offsets[i]` bytes after the first one, and has `nbytes[i]`. The arena has room for all
    where the first one is in it; else the memory of that result has, if `result_memory` makes it.

    `beside`: how many launches run between its start and where it is awaited; 0 if it is one call.
    `bytes`: the least that each device sends. `node`: the number of the user's node that it is
    for, in `relying` of the graph, or -1; `line`: where that was made, as the end of a message.
    """

    axes: tuple[str, ...] = ()
    parts: int = 1
    op: str = ""
    shift: int = 0
    mirror: bool = False
    wrap: bool = False
    root: int = 0
    dtype: AnyDtype = _BYTE
    sent: Shape = ()
    got: Shape = ()
    bytes: int = 0
    reason: str = ""
    node: int = -1
    line: str = ""
    offsets: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    beside: int = 0

    def ends(self, place: int) -> tuple[int | None, int | None]:
        """The places that the device at a place of its group sends on to, and gets from; None where
        there is no device."""
        from uopc.ir.devices import traffic

        return traffic.target(self, place), traffic.source(self, place)

    def __str__(self) -> str:
        combined = f" {self.op}" if self.op else ""
        beside = f", beside {self.beside} launches" if self.beside else ""
        return (
            f"{self.kernel}{combined} over {', '.join(self.axes)}, {self.bytes} bytes a device:"
            f" {self.reason}{beside}{self.line}"
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of an array: the shape of the first part, and the shape of a device's part, which
    depends on the device's place."""

    spec: Spec
    first: Shape
    own: Shape


@dataclass(frozen=True, slots=True)
class PlanMesh:
    """The mesh of a plan for several devices, whose arguments and results are whole arrays, and how
    each of these is cut. `hosts`: where devices are blocks, the mesh of the processes that have
    as many of them each. `made`: what variables of a device's program are, by the plan's variables
    and the coordinates, of which `fixed` have their values. `graph`: a digest of the user's graph,
    which all ranks must share."""

    mesh: Mesh
    arguments: tuple[Cut, ...]
    results: tuple[Cut, ...]
    hosts: Mesh | None = None
    made: tuple[tuple[str, DimValue], ...] = ()
    graph: str = ""
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def blocks(self) -> int:
        """The number of devices of each process."""
        return 1 if self.hosts is None else self.mesh.size // self.hosts.size

    def with_parts(self, values: Mapping[str, int]) -> dict[str, int]:
        """Values of variables, and of those that they decide."""
        known = {**dict(self.fixed), **values}
        return known | {n: d.evaluate(known) for n, d in self.made if d.variables <= known.keys()}

    def on(self, rank: int, values: Mapping[str, int]) -> dict[str, int]:
        """The values of all variables on one device."""
        return self.with_parts({**values, **self.variables(rank)})

    def variables(self, rank: int) -> dict[str, int]:
        """The values of the variables that say where a device is."""
        from uopc.ir.devices.mesh import coordinate

        return {coordinate(a): i for a, i in self.mesh.coordinates(rank).items()}


@dataclass(frozen=True, slots=True)
class Repeat:
    """The launches from number `first` to before `end` run `times` times, one row after another."""

    first: int
    end: int
    times: Dim


def value_of(dim: Dim, values: Mapping[str, int]) -> int:
    """A dimension's value."""
    return dim if isinstance(dim, int) else dim.evaluate(values)


# Numbers of launches, and rows of them with their Repeat, in order.
Row: TypeAlias = list["int | tuple[Repeat, Row]"]


def nested(count: int, repeats: Sequence[Repeat]) -> Row:
    """`count` launches, with repeated launches in rows of their own. The outer of two repeats comes
    first."""
    left = list(reversed(repeats))

    def row(first: int, end: int) -> Row:
        found: Row = []
        while first < end:
            if left and left[-1].first == first:
                repeat = left.pop()
                found.append((repeat, row(first, repeat.end)))
                first = repeat.end
            else:
                found.append(first)
                first += 1
        return found

    return row(0, count)


def _runs(row: Row, values: Mapping[str, int]) -> Iterator[int]:
    for part in row:
        if isinstance(part, int):
            yield part
        else:
            for _ in range(value_of(part[0].times, values)):
                yield from _runs(part[1], values)


Structure: TypeAlias = Literal["single", "tuple", "list", "dict"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One program. `keys` are the names of a dict's results; `arena_bytes` includes padding.
    `conditions` must hold before anything runs.

    The compiler guarantees that every word stays inside its base and that chunks which run in
    parallel write disjoint memory; the runtime cannot check that.
    """

    arguments: tuple[Argument, ...]
    results: tuple[ResultArray, ...]
    launches: tuple[PlannedLaunch, ...]
    variables: tuple[Variable, ...] = ()
    structure: Structure = "single"
    keys: tuple[Hashable, ...] = ()
    arena_bytes: Dim = 0
    constants: tuple[AnyArray, ...] = ()
    nogil: bool = False
    threads: int = 1
    name: str = "program"
    conditions: tuple[SizeRelation, ...] = ()
    repeats: tuple[Repeat, ...] = ()  # outer ones first
    mesh: PlanMesh | None = None  # of a program for several devices
    devices: tuple[int, ...] = (0,)  # the numbers of the CPU devices of this process
    # Of each of several devices the launches that it runs, in order, and -1 where all of them wait
    # for each other.
    rows: tuple[tuple[int, ...], ...] = ()
    copied: tuple[Exchange, ...] = ()  # exchanges that are copies among the launches
    lengths: tuple[Length, ...] = ()  # sizes that the program computes, in the order of `launch`

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges, in order."""
        if self.copied:
            return self.copied
        return tuple([launch for launch in self.launches if isinstance(launch, Exchange)])

    @property
    def device_threads(self) -> int:
        """The number of threads of each device, if all run at the same time; else of the one that
        runs."""
        own = self.threads // len(self.devices)
        return own if own and self.rows else self.threads

    @property
    def together(self) -> bool:
        """True if the devices may run at the same time: there is a thread for each."""
        return len(self.rows) > 1 and self.threads >= len(self.rows)

    def runs(self, values: Mapping[str, int]) -> Iterator[int]:
        """The numbers of the launches in the order in which a call runs them."""
        return _runs(nested(len(self.launches), self.repeats), values)

    def rounds(self, values: Mapping[str, int]) -> list[int]:
        """The number of times that a call runs each launch."""
        around = [(r.first, r.end, value_of(r.times, values)) for r in self.repeats]
        return [
            math.prod([times for first, end, times in around if first <= i < end])
            for i in range(len(self.launches))
        ]

    @property
    def sizes(self) -> tuple[Variable, ...]:
        """The variables, and the sizes that the program computes."""
        return *self.variables, *[Variable(x.name, x.lo, x.hi) for x in self.lengths]

    def is_computed(self, *dims: Dim) -> bool:
        """True if a size among these depends on one that the program computes."""
        names = {x.name for x in self.lengths}
        return any([not isinstance(d, int) and not names.isdisjoint(d.variables) for d in dims])

    @property
    def fresh(self) -> tuple[ResultArray, ...]:
        """The results that need memory, in base order."""
        return tuple(result for result in self.results if result.source is None)

    def shown(self, d: Dim) -> int | UOp:
        """A size as users read it: a number, or an expression over the variables. On a mesh it may
        have variables of a device."""
        if isinstance(d, int):
            return d
        from uopc.ir.builder.operands import variable

        least, most = dtypes.index.bounds
        names = {name: variable(name, least, most) for name in d.variables}
        names |= {v.name: variable(v.name, v.lo, v.hi) for v in self.variables}
        return d.expression(names)

    @property
    def arena_base(self) -> int:
        """The base number of the arena."""
        return len(self.arguments) + len(self.fresh)

    def contained(self, results: Sequence[object]) -> object:
        """The results of a call in the structure that the program returns."""
        match self.structure:
            case "single":
                return results[0]
            case "tuple":
                return tuple(results)
            case "list":
                return list(results)
            case "dict":
                return dict(zip(self.keys, results, strict=True))
