"""The launches of each of several devices of a process, and where in the arena its storage is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from uopc.backends.memory_plan import Lifetime
from uopc.backends.plan import Exchange
from uopc.ir.core.shapes import Dim
from uopc.ir.devices import device
from uopc.ir.index.dims import dims_sum, multiple
from uopc.ir.records import dataclass

if TYPE_CHECKING:
    from uopc.ir.devices.launches import LaunchPlace

# Parts of the arena of different devices share no page.
PAGE = 4096
SHARED = -1  # the owner of storage that several devices use


@dataclass(frozen=True)
class DeviceRows:
    """The devices of a program by number, the places of its launches, and the row of each device:
    the fields of `Plan`. Without places all run in order."""

    devices: tuple[int, ...] = (0,)
    places: tuple[LaunchPlace, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    copied: tuple[Exchange, ...] = ()

    @staticmethod
    def of(
        names: Sequence[str], places: Sequence[LaunchPlace], copied: tuple[Exchange, ...] = ()
    ) -> DeviceRows:
        """The rows of launches with these places on CPU devices."""
        devices = tuple(map(device.number, names))
        rounds = [p.round for p in places]
        if not rounds or rounds != sorted(rounds):
            return DeviceRows(devices, (), (), copied)
        rows: list[list[int]] = [[] for _ in devices]
        for number, place in enumerate(places):
            row = rows[place.device]
            row += [-1] * (place.round - row.count(-1))
            row.append(number)
        for row in rows:
            row += [-1] * (rounds[-1] - row.count(-1))
        return DeviceRows(devices, tuple(places), tuple(map(tuple, rows)), copied)


ONE_DEVICE = DeviceRows()


def owner(users: set[int]) -> int:
    """The device that has a storage to itself, or SHARED."""
    return next(iter(users)) if len(users) == 1 else SHARED


def offsets(
    blocks: Sequence[Lifetime], owners: Sequence[int], places: Sequence[LaunchPlace]
) -> tuple[list[Dim], Dim]:
    """The offset of each block, and the size of the arena: a part for each owner. What several
    devices use is alive for whole rounds, because devices are at different places of a round."""
    from uopc.backends import memory_expressions  # a program from a cache is planned already

    found: list[Dim] = [0] * len(blocks)
    total: Dim = 0
    first: dict[int, int] = {}  # by round
    last: dict[int, int] = {}
    for number, place in enumerate(places):
        first.setdefault(place.round, number)
        last[place.round] = number
    for own in sorted(set(owners)):
        chosen = [i for i, o in enumerate(owners) if o == own]
        alive = [blocks[i] for i in chosen]
        if own == SHARED:
            alive = [
                replace(b, first=first[places[b.first].round], last=last[places[b.last].round])
                for b in alive
            ]
        inside, size = memory_expressions.plan(alive)
        for i, offset in zip(chosen, inside):
            found[i] = dims_sum(total, offset)
        total = dims_sum(total, multiple(size, PAGE))
    return found, total
