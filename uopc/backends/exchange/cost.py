"""The seconds that an exchange takes: a latency, and seconds per byte, by the best known algorithm.

Libraries choose alike: a sum sends everything in log2(p) rounds, or is scattered and gathered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Protocol

import numpy as np

from uopc.backends.plan import Exchange, PlanMesh, value_of
from uopc.errors import UserError, UserTypeError
from uopc.ir.records import dataclass


class Predicted(Protocol):
    """A program."""

    def predict(self, machine: Machine) -> Any: ...


@dataclass(frozen=True)
class Link:
    """The connection of devices along a mesh axis: the seconds of a message without content, and
    the bytes per second that a device sends while it receives at the same rate.

    beside: the share of an exchange's seconds in which the device can run kernels; 0 if the
    device's cores move the bytes. UserError for a latency or bandwidth that is not a positive
    number, and a share that is not from 0 to 1.

    Examples:
        >>> from uopc.distributed import Link
        >>> Link(latency=2e-6, bandwidth=12.5e9)
        Link(latency=2e-06, bandwidth=12500000000.0, beside=0.0)
    """

    latency: float
    bandwidth: float
    beside: float = 0.0

    def __post_init__(self) -> None:
        _check("Link", {"latency": self.latency, "bandwidth": self.bandwidth})
        share = self.beside
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise UserError(f"Link: beside must be a number from 0 to 1, got {share!r}")


@dataclass(frozen=True)
class Cache:
    """The bytes per second of reads and writes of memory if the device touched `nbytes` other bytes
    since it last touched this memory.

    UserError for values that are not positive numbers.

    Examples:
        >>> from uopc.distributed import Cache
        >>> Cache(nbytes=1 << 20, bandwidth=60e9, writing=30e9)
        Cache(nbytes=1048576, bandwidth=60000000000.0, writing=30000000000.0)
    """

    nbytes: float
    bandwidth: float
    writing: float

    def __post_init__(self) -> None:
        _check("Cache", vars(self))


@dataclass(frozen=True)
class Machine:
    """The rates of one device, and its links to other devices.

    operations: float operations per second; bandwidth: bytes of memory read per second, and written
    unless `writing` is given; caches: the rates for recently touched memory, from near to far;
    link: the connection along mesh axes that `links` does not name; launch, exchange: the fixed
    seconds of each.

    UserError for values that are not positive numbers, and caches that are not from near to far;
    UserTypeError unless links are Links and caches are Caches.

    Examples:
        >>> from uopc.distributed import Link, Machine
        >>> node = Machine(operations=2e12, bandwidth=200e9, link=Link(2e-6, 12.5e9))
        >>> x, mesh = uopc.param("x", (1 << 20,)), uopc.make_mesh((4,), ("data",))
        >>> cut = uopc.Sharding(mesh, in_shardings=uopc.P("data"))
        >>> program = uopc.compile((x * x).sum(), sharding=cut)
        >>> f"{program.predict(node).exchanges:.1e}"
        '4.0e-06'
    """

    operations: float
    bandwidth: float
    link: Link
    links: Mapping[str, Link] = field(default_factory=dict)
    launch: float = 1e-7
    exchange: float = 1e-9
    writing: float | None = None
    caches: tuple[Cache, ...] = ()

    def __post_init__(self) -> None:
        names = ["operations", "bandwidth", "launch", "exchange"]
        names += [] if self.writing is None else ["writing"]
        _check("Machine", {name: getattr(self, name) for name in names})
        if not isinstance(self.links, Mapping) or not isinstance(self.caches, tuple):
            raise UserTypeError(
                "Machine: expected links as a mapping of mesh axes to Links, and caches as a tuple"
                f" of Caches, got {self.links!r} and {self.caches!r}"
            )
        for link in (self.link, *self.links.values()):
            if not isinstance(link, Link):
                raise UserTypeError(f"Machine: expected a uopc.distributed.Link, got {link!r}")
        for c in self.caches:
            if not isinstance(c, Cache):
                raise UserTypeError(f"Machine: expected a uopc.distributed.Cache, got {c!r}")
        sizes = [c.nbytes for c in self.caches]
        if any(a >= b for a, b in zip(sizes, sizes[1:])):
            raise UserError(f"Machine: caches must grow from near to far, got {sizes} bytes")

    def fitted(self, program: Predicted, seconds: float) -> Machine:
        """The machine with rates scaled so that a program, called with arrays, takes `seconds`:
        kernels reach different shares of a device's speed.

        UserError for seconds that are not a positive number, UserTypeError for no program.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9))
            >>> program = uopc.compile(uopc.param("x", (1000,)) * 2)
            >>> f"{machine.fitted(program, 2e-5).bandwidth:.0e}"
            '4e+08'
        """
        if not callable(getattr(program, "predict", None)):
            raise UserTypeError(f"fitted: expected a uopc.Program, got {program!r}")
        _check("fitted", {"seconds": seconds})
        return self.faster(program.predict(self).kernels / seconds)

    def faster(self, times: float) -> Machine:
        """The machine with kernels `times` times as fast and the same links.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9))
            >>> machine.faster(2).operations
            2000000000.0
        """
        _check("faster", {"times": times})
        writing = None if self.writing is None else self.writing * times
        caches = [Cache(c.nbytes, c.bandwidth * times, c.writing * times) for c in self.caches]
        return replace(
            self, operations=self.operations * times, bandwidth=self.bandwidth * times,
            launch=self.launch / times, writing=writing, caches=tuple(caches),
        )  # fmt: skip

    def moving(self, nbytes: int, written: bool, distance: float = math.inf) -> float:
        """The seconds to read or write `nbytes` bytes that were last touched `distance` bytes ago.
        Between the sizes of two caches, interpolate by the logarithm; from twice the last size on,
        use the rates of memory.

        Examples:
            >>> from uopc.distributed import Cache, Link, Machine
            >>> near = Cache(1 << 20, bandwidth=4e9, writing=2e9)
            >>> machine = Machine(1e9, 1e9, Link(1e-6, 1e9), writing=5e8, caches=(near,))
            >>> times = [machine.moving(1000, written=False, distance=d) for d in (1000, 1 << 21)]
            >>> [f"{t:.1e}" for t in times]
            ['2.5e-07', '1.0e-06']
            >>> f"{machine.moving(1000, written=True):.1e}"
            '2.0e-06'
        """
        points = [(c.nbytes, c.writing if written else c.bandwidth) for c in self.caches]
        memory = self.writing or self.bandwidth if written else self.bandwidth
        points.append((2 * points[-1][0] if points else 1, memory))
        sizes, rates = zip(*points)
        away = math.log2(min(max(distance, sizes[0]), sizes[-1]))
        return nbytes * float(np.interp(away, np.log2(sizes), 1 / np.array(rates)))

    def between(self, axes: tuple[str, ...]) -> Link:
        """The slowest of the links along these mesh axes.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> Machine(1e9, 1e9, Link(1e-6, 1e9), {"model": Link(1e-7, 9e9)}).between(("model",))
            Link(latency=1e-07, bandwidth=9000000000.0, beside=0.0)
        """
        found = [self.links.get(a, self.link) for a in axes]
        return Link(
            max([v.latency for v in found]), min([v.bandwidth for v in found]),
            min([v.beside for v in found]),
        )  # fmt: skip


def _check(who: str, values: Mapping[str, object]) -> None:
    for name, v in values.items():
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not 0 < v < math.inf:
            raise UserError(f"{who}: {name} must be a positive number, got {v!r}")


# Where exchanges run beside launches: the bytes of a bucket, or how many latencies they take.
BUCKET = 1 << 20
LATENCIES = 16


def bucket_bytes(overlap: bool | Machine, axes: tuple[str, ...]) -> int:
    """The bytes that complete a bucket; 0 if exchanges do not overlap with launches. `overlap`: as
    for `compile`; `axes`: all axes of the mesh."""
    if isinstance(overlap, bool):
        return BUCKET if overlap else 0
    link = overlap.between(axes)
    return max(1, int(LATENCIES * link.latency * link.bandwidth)) if link.beside else 0


def pays_beside(overlap: bool | Machine, axes: tuple[str, ...], nbytes: int) -> bool:
    """True if an exchange that sends `nbytes` per device should overlap with launches, because the
    overlap hides more seconds than one more exchange costs."""
    if isinstance(overlap, bool):
        return overlap
    link = overlap.between(axes)
    hidden = link.beside * (link.latency + nbytes / link.bandwidth)
    return hidden > link.latency + overlap.exchange


def seconds(
    exchange: Exchange, machine: Machine, values: Mapping[str, int], mesh: PlanMesh | None = None
) -> float:
    """The seconds that an exchange takes for these values of the variables. With blocks, a process
    gathers everything sent and keeps what its own blocks need."""
    count = np.prod([value_of(d, values) for d in exchange.sent], dtype=np.int64)
    n = int(count) * exchange.dtype.itemsize
    if mesh is not None and mesh.hosts is not None:
        link, own = machine.between(mesh.hosts.axis_names), n * mesh.blocks
        gathered = of_kind("allgather", own, mesh.hosts.size, link)
        got = math.prod([value_of(d, values) for d in exchange.got]) * exchange.dtype.itemsize
        written = got * mesh.blocks
        read = n * exchange.parts * mesh.blocks
        made = machine.moving(read, written=False) + machine.moving(written, written=True)
        return machine.exchange + gathered + made
    return machine.exchange + of_kind(
        exchange.kernel, n, exchange.parts, machine.between(exchange.axes)
    )


def of_kind(kind: str, nbytes: int, parts: int, link: Link) -> float:
    """The seconds of an exchange among `parts` devices that each give `nbytes` bytes."""
    if parts == 1:
        return 0.0
    rounds, wait, all_of_it = math.ceil(math.log2(parts)), link.latency, nbytes / link.bandwidth
    others = (parts - 1) / parts
    match kind:
        case "allreduce" | "broadcast":
            return min(
                rounds * (wait + all_of_it), 2 * rounds * wait + 2 * others * all_of_it
            )  # fmt: skip
        case "reduce_scatter":
            return rounds * wait + others * all_of_it
        case "allgather":
            return rounds * wait + (parts - 1) * all_of_it
        case "alltoall":
            return min(
                (parts - 1) * wait + others * all_of_it, rounds * (wait + all_of_it / 2)
            )  # fmt: skip
    return wait + all_of_it
