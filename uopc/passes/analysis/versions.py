"""Versions of storage, the effects that each includes, and the order of launches that follows.

An effect (STORE or CALL) on a version of storage makes the next version. Effects that follow one
another are a chain, so a version is a position in each chain: 10,000 updates of one array are
10,000 positions in one chain, not sets of up to 10,000 effects.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from uopc.ir.core.uop import UOp


@dataclass(eq=False, slots=True)
class Version:
    """Some effects and everything they come after; complete once the nodes in `last` are done."""

    # The number of effects of each chain; `_length` of `_chain` replaces what `_others` says.
    _others: dict[int, int]
    _chain: int
    _length: int
    last: tuple[UOp, ...]
    before: Version | None

    def length(self, chain: int) -> int:
        """The number of effects of a chain that it includes."""
        return self._length if chain == self._chain else self._others.get(chain, 0)

    def chains(self) -> dict[int, int]:
        """Every chain that it includes effects of, with their number."""
        return self._others if self._chain < 0 else {**self._others, self._chain: self._length}


NEW = Version({}, -1, 0, (), None)


class Position(NamedTuple):
    """An effect's chain, its index in the chain, and the order in which it was found."""

    chain: int
    at: int
    number: int


class Versions:
    """The chains of a program. Effects are added sources first."""

    def __init__(self) -> None:
        self.positions: dict[UOp, Position] = {}
        self.joins: dict[UOp, tuple[UOp, ...]] = {}  # node that joins versions -> last nodes
        self._lengths: list[int] = []

    def sees(self, version: Version, effect: UOp) -> bool:
        """True if the version includes the effect."""
        position = self.positions[effect]
        return position.at < version.length(position.chain)

    def after(self, effect: UOp, seen: Version) -> Version:
        """The version after an effect on the version `seen`."""
        # A chain that may end with the last effect of the version.
        chain = seen._chain if seen._chain >= 0 else next(reversed(seen._others), -1)
        if chain < 0 or self._lengths[chain] != seen.length(chain):
            chain = len(self._lengths)
            self._lengths.append(0)
        others = seen._others if chain == seen._chain else seen.chains()
        self.positions[effect] = Position(chain, self._lengths[chain], len(self.positions))
        self._lengths[chain] += 1
        return Version(others, chain, self._lengths[chain], (effect,), seen)

    def joined(self, node: UOp, versions: Iterable[Version]) -> Version:
        """The version of a node whose sources have these versions."""
        found = [v for v in dict.fromkeys(versions) if v is not NEW]
        if len(found) == 2:
            found = [v for v, w in zip(found, reversed(found)) if not self._within(v, w)]
        if len(found) < 2:
            return found[0] if found else NEW
        chains: dict[int, int] = {}
        for v in found:
            for chain, length in v.chains().items():
                chains[chain] = max(length, chains.get(chain, 0))
        self.joins[node] = tuple([u for v in found for u in v.last])
        return Version(chains, -1, 0, (node,), None)

    def _within(self, a: Version, b: Version) -> bool:
        """True if version `b` includes `a`, as far as one look tells."""
        return a is b.before or (a.before is not None and self.sees(b, a.last[0]))


class Spans:
    """A list of intervals [begin, end), with a tree of enclosing intervals over it: `levels` ends
    with the one that encloses all."""

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        self.levels = [spans]
        while len(spans) > 1:
            rest = iter(spans)
            pairs = [(a, next(rest, a)) for a in rest]
            spans = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]
            self.levels.append(spans)

    def first(self, at: int, begin: float, end: float) -> int | None:
        """The first interval, from index `at` on, that overlaps [begin, end)."""
        level = 0
        while at < len(self.levels[level]):
            low, high = self.levels[level][at]
            if low < end and begin < high:
                if level == 0:
                    return at
                level, at = level - 1, 2 * at
                continue
            at += 1
            while at % 2 == 0 and level + 1 < len(self.levels):
                level, at = level + 1, at // 2
        return None


class Writers:
    """The effects on one storage in the order found, with the span [begin, end) each writes."""

    def __init__(
        self, versions: Versions, written: list[tuple[UOp, tuple[float, float]]]
    ) -> None:
        chains: dict[int, list[tuple[UOp, tuple[float, float]]]] = {}
        for effect, span in written:
            chains.setdefault(versions.positions[effect].chain, []).append((effect, span))
        self.versions, self.chains = versions, sorted(chains)
        self.effects = {c: [e for e, _ in found] for c, found in chains.items()}
        self.spans = {c: Spans([s for _, s in found]) for c, found in chains.items()}
        self.hulls = Spans([self.spans[c].levels[-1][0] for c in self.chains])

    def following(
        self, begin: float, end: float, seen: Version, found_after: UOp | None = None
    ) -> Iterator[UOp]:
        """In each chain, the first effect after the version that may write to [begin, end); later
        ones in the chain follow it. With `found_after`, only effects found after that one."""
        positions = self.versions.positions
        at_of, number_of = lambda e: positions[e].at, lambda e: positions[e].number
        number = -1 if found_after is None else positions[found_after].number
        at = self.hulls.first(0, begin, end)
        while at is not None:
            chain = self.chains[at]
            effects = self.effects[chain]
            first = bisect.bisect_left(effects, seen.length(chain), key=at_of)
            first = bisect.bisect(effects, number, first, key=number_of)
            found = self.spans[chain].first(first, begin, end)
            if found is not None:
                yield effects[found]
            at = self.hulls.first(at + 1, begin, end)


class Span(NamedTuple):
    """The elements of a storage from `begin` up to `end`, in the version `seen`."""

    root: UOp
    begin: float
    end: float
    seen: Version = NEW


@dataclass
class Footprint:
    """The spans that a launch reads and writes, and the versions that it must follow."""

    reads: list[Span]
    writes: list[Span]
    after: list[Version]


class LaunchGraph:
    """The launches before each launch: it reads their results, or overwrites what they read.

    Nodes that join versions are in the graph too; they take no time. `launches` lists effects in
    the order of their versions.
    """

    def __init__(self, versions: Versions, launches: Mapping[UOp, Footprint]) -> None:
        written: dict[UOp, list[tuple[UOp, tuple[float, float]]]] = {}
        self.before: dict[UOp, set[UOp]] = {}
        for e, launch in launches.items():
            self.before[e] = {u for v in launch.after for u in v.last if u is not e}
            for p in launch.writes:
                written.setdefault(p.root, []).append((e, (p.begin, p.end)))
        for u, last in versions.joins.items():
            self.before.setdefault(u, set()).update(last)
        self.writers = {root: Writers(versions, spans) for root, spans in written.items()}
        self.overwriting: dict[UOp, set[UOp]] = {}  # launch -> those that overwrite what it reads
        for e, launch in launches.items():
            reads = [p for p in launch.reads if p.root in self.writers]
            later = {w for p in reads for w in self.writers[p.root].following(*p[1:])} - {e}
            self.overwriting[e] = later
            for w in later:
                self.before[w].add(e)
