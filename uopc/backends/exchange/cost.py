"""The seconds that an exchange takes: a latency, and seconds per byte, by the best known algorithm.

As libraries choose it: sums go in log2(p) rounds of everything, or are scattered and gathered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from uopc.backends.plan import Exchange, value_of
from uopc.errors import UserError, UserTypeError


class Predicted(Protocol):
    """A program."""

    def predict(self, machine: Machine) -> Any: ...


@dataclass(frozen=True)
class Link:
    """What connects the devices along a mesh axis: the seconds of a message without content, and
    the bytes per second that a device sends while it receives as many.

    UserError for values that are not positive numbers.

    Examples:
        >>> from uopc.distributed import Link
        >>> Link(latency=2e-6, bandwidth=12.5e9)
        Link(latency=2e-06, bandwidth=12500000000.0)
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        _check("Link", vars(self))


@dataclass(frozen=True)
class Machine:
    """The rates of one device, and what connects it to others.

    operations: of floats per second; bandwidth: bytes per second of memory; link: along every mesh
    axis that `links` does not name; launch, exchange: the seconds that each costs in any case.

    UserError for values that are not positive numbers, UserTypeError for what is no Link.

    Examples:
        >>> from uopc.distributed import Link, Machine
        >>> node = Machine(operations=2e12, bandwidth=200e9, link=Link(2e-6, 12.5e9))
        >>> x, mesh = uopc.param("x", (1 << 20,)), uopc.make_mesh((4,), ("data",))
        >>> program = uopc.compile((x * x).sum(), mesh=mesh, in_shardings=uopc.P("data"))
        >>> f"{program.predict(node).exchanges:.1e}"
        '4.0e-06'
    """

    operations: float
    bandwidth: float
    link: Link
    links: Mapping[str, Link] = field(default_factory=dict)
    launch: float = 1e-7
    exchange: float = 1e-9

    def __post_init__(self) -> None:
        names = ("operations", "bandwidth", "launch", "exchange")
        _check("Machine", {name: getattr(self, name) for name in names})
        for link in (self.link, *self.links.values()):
            if not isinstance(link, Link):
                raise UserTypeError(f"Machine: expected a uopc.distributed.Link, got {link!r}")

    def fitted(self, program: Predicted, seconds: float) -> Machine:
        """The machine with the rates at which a program, called with arrays, took so many seconds:
        as kernels reach other parts of what a device can do.

        UserError for seconds that are not a positive number, UserTypeError for no program.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> machine = Machine(operations=1e9, bandwidth=1e9, link=Link(1e-6, 1e9))
            >>> program = uopc.compile(uopc.param("x", (1000,)) * 2)
            >>> f"{machine.fitted(program, 2e-5).bandwidth:.1e}"
            '4.0e+08'
        """
        if not callable(getattr(program, "predict", None)):
            raise UserTypeError(f"fitted: expected a uopc.Program, got {program!r}")
        _check("fitted", {"seconds": seconds})
        faster = program.predict(self).kernels / seconds
        operations, bandwidth = self.operations * faster, self.bandwidth * faster
        launch = self.launch / faster
        return replace(self, operations=operations, bandwidth=bandwidth, launch=launch)

    def between(self, axes: tuple[str, ...]) -> Link:
        """The slowest of the links along these mesh axes.

        Examples:
            >>> from uopc.distributed import Link, Machine
            >>> Machine(1e9, 1e9, Link(1e-6, 1e9), {"model": Link(1e-7, 9e9)}).between(("model",))
            Link(latency=1e-07, bandwidth=9000000000.0)
        """
        found = [self.links.get(a, self.link) for a in axes]
        return Link(max([v.latency for v in found]), min([v.bandwidth for v in found]))


def _check(who: str, values: Mapping[str, object]) -> None:
    for name, v in values.items():
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not 0 < v < math.inf:
            raise UserError(f"{who}: {name} must be a positive number, got {v!r}")


def seconds(exchange: Exchange, machine: Machine, values: Mapping[str, int]) -> float:
    """How long an exchange takes, for these values of the variables."""
    count = np.prod([value_of(d, values) for d in exchange.sent], dtype=np.int64)
    n = int(count) * exchange.dtype.itemsize
    return machine.exchange + of_kind(
        exchange.kernel, n, exchange.parts, machine.between(exchange.axes)
    )


def of_kind(kind: str, nbytes: int, parts: int, link: Link) -> float:
    """The seconds of an exchange among so many devices, of which each gives so many bytes."""
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
