"""The age of a launch's memory: the bytes that were touched since the last touch.

A cache keeps the bytes touched last, so a cache of n bytes holds, roughly, the bytes touched less
than n bytes ago (the stack distance of least recently used replacement; Mattson, Gecsei, Slutz and
Traiger, 1970). Launches are assumed to go through their memory from one end to the other. So if one
launch writes a buffer and a later launch reads it, each is half done, on average, when it touches a
given byte.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from uopc.ir.records import dataclass


class Region(NamedTuple):
    """Bytes from `first` to before `end` of a base, and whether a launch writes them."""

    base: Hashable
    first: int
    end: int
    written: bool


@dataclass(frozen=True)
class Reused:
    """Bytes that a launch touches, and the bytes touched since their last touch."""

    nbytes: int
    written: bool
    distance: float


def distances(
    launches: Mapping[int, Sequence[Region]], order: Sequence[int]
) -> Iterator[list[Reused]]:
    """The accesses of each launch of a call, if an equal call on the same memory came before.

    `launches`: the regions of each launch, by number; `order`: the numbers in the order of a call.
    """
    pieces = _pieces([r for number in dict.fromkeys(order) for r in launches[number]])
    touched = {number: _touched(launches[number], pieces) for number in dict.fromkeys(order)}
    last: dict[_Piece, int] = {}  # in the order of the last touch: the place of the launch
    for place, number in enumerate(order):
        _touch(last, touched[number], place - len(order))
    for place, number in enumerate(order):
        now = touched[number]
        away = _distances(last, now)
        yield [Reused(p.nbytes, now[p], away[last[p]]) for p in now]
        _touch(last, now, place)


class _Piece(NamedTuple):
    """Memory that every launch touches entirely or not at all."""

    base: Hashable
    first: int
    nbytes: int


def _pieces(regions: Iterable[Region]) -> dict[Hashable, list[_Piece]]:
    """The pieces of each base."""
    ends: dict[Hashable, set[int]] = {}
    for r in regions:
        ends.setdefault(r.base, set()).update((r.first, r.end))
    return {
        base: [_Piece(base, a, b - a) for a, b in zip(sorted(own), sorted(own)[1:])]
        for base, own in ends.items()
    }


def _touched(
    regions: Iterable[Region], pieces: Mapping[Hashable, Sequence[_Piece]]
) -> dict[_Piece, bool]:
    """Map the pieces of regions to True if the piece is written."""
    found: dict[_Piece, bool] = {}
    for r in regions:
        for p in pieces[r.base]:
            if r.first <= p.first < r.end:
                found[p] = found.get(p, False) or r.written
    return found


def _touch(last: dict[_Piece, int], now: Iterable[_Piece], place: int) -> None:
    for p in now:
        last.pop(p, None)
        last[p] = place


def _distances(last: dict[_Piece, int], now: Mapping[_Piece, bool]) -> dict[int, float]:
    """For a launch that touches `now`: by place, the distance from the last launch that touched
    memory of `now` there."""
    wanted = {last[p] for p in now}
    oldest = min(wanted, default=0)
    mine = sum([p.nbytes for p in now])
    found: dict[int, float] = {}
    later = shared = 0  # the bytes touched after a place, and those of them that are in `now`
    at: dict[int, list[_Piece]] = {}
    for p, place in reversed(last.items()):
        if place < oldest:
            break
        at.setdefault(place, []).append(p)
    for place, own in at.items():  # the last one first
        both = sum([p.nbytes for p in own if p in now])
        alone = sum([p.nbytes for p in own]) - both
        if place in wanted:
            found[place] = later + both + alone / 2 + (mine - shared - both) / 2
        later += both + alone
        shared += both
    return found
