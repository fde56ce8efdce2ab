"""Versions of storage, the effects that each includes, and the order of launches that follows.

An effect (STORE or CALL) on a version of storage makes the next version. A version includes all
effects below it in the graph, those that only its values come from too: `x.assign(x.assign(b) * 2)`
is after two. Effects are numbered as they are found, and a version is a set of bits. Effects on one
storage that follow one another are a chain: of 10,000 updates, a reader waits for one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from uopc.ir.core.calls import operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass


class EffectsBelow:
    """The STOREs and CALLs of a graph, and which of them are below a node, as bits."""

    def __init__(self, order: Iterable[UOp]) -> None:
        """Nodes are given sources first."""
        self.effects: list[UOp] = []
        self.numbers: dict[UOp, int] = {}
        self.bits: dict[UOp, int] = {}  # of nodes with any; an effect has its own
        bits = self.bits
        for u in order:
            found = 0
            for s in operands(u):
                more = bits.get(s, 0)
                if more and more != found:  # equal sets are one number
                    both = found | more
                    found = more if both == more else found if both == found else both
            if u.op is Ops.STORE or u.op is Ops.CALL:
                self.numbers[u] = len(self.effects)
                found |= 1 << len(self.effects)
                self.effects.append(u)
            if found:
                bits[u] = found

    def sees(self, u: UOp, effects: Iterable[UOp]) -> bool:
        """True if a node comes after all of these effects."""
        bits, numbers = self.bits.get(u, 0), self.numbers
        return all([bits >> numbers[e] & 1 for e in effects])


@dataclass(eq=False, slots=True)
class Version:
    """Some effects, as bits; complete once the nodes in `last` are done. `before`: the version that
    the last effect came after."""

    effects: int
    last: tuple[UOp, ...]
    before: Version | None = None


NEW = Version(0, ())


class Versions:
    """The numbers of a program's effects. Effects are added sources first."""

    def __init__(self) -> None:
        self.numbers: dict[UOp, int] = {}
        self.below: dict[UOp, int] = {}  # effect -> the effects that it comes after
        self.joins: dict[UOp, tuple[UOp, ...]] = {}  # node that joins versions -> last nodes

    def sees(self, version: Version, effect: UOp) -> bool:
        """True if the version includes the effect, as far as it has a number."""
        number = self.numbers.get(effect)
        return number is not None and version.effects >> number & 1 == 1

    def after(self, effect: UOp, seen: Version, numbered: bool = True) -> Version:
        """The version after an effect on the version `seen`. An effect needs no number if it is the
        only one on new storage: nothing reads that before."""
        effects = seen.effects
        if numbered:
            self.numbers[effect] = number = len(self.numbers)
            self.below[effect] = effects
            effects |= 1 << number
        return Version(effects, (effect,), seen)

    def joined(self, node: UOp, versions: Iterable[Version]) -> Version:
        """The version of a node whose sources have these versions."""
        found = [v for v in dict.fromkeys(versions) if v is not NEW]
        if len(found) == 2:
            found = [v for v, w in zip(found, reversed(found)) if not self._within(v, w)]
        if len(found) < 2:
            return found[0] if found else NEW
        effects = 0
        for v in found:
            effects |= v.effects
        self.joins[node] = tuple([u for v in found for u in v.last])
        return Version(effects, (node,))

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
        chains: list[list[tuple[UOp, tuple[float, float]]]] = []
        ends: dict[int, int] = {}  # the number of the last effect in a chain -> the chain
        all_of_them = 0
        for effect, span in written:
            number = versions.numbers[effect]
            before = versions.below[effect] & all_of_them
            chain = ends.pop(before.bit_length() - 1, len(chains))
            if chain == len(chains):
                chains.append([])
            chains[chain].append((effect, span))
            ends[number] = chain
            all_of_them |= 1 << number
        self.effects = [[e for e, _ in found] for found in chains]
        self.numbers = [[versions.numbers[e] for e in found] for found in self.effects]
        self.spans = [Spans([s for _, s in found]) for found in chains]
        self.hulls = Spans([spans.levels[-1][0] for spans in self.spans])

    def following(
        self, begin: float, end: float, seen: int, found_after: int = -1
    ) -> Iterator[UOp]:
        """In each chain, the first effect that is not in `seen`, was found after `found_after`, and
        may write to [begin, end). Later effects of the chain follow it."""
        chain = self.hulls.first(0, begin, end)
        while chain is not None:
            numbers = self.numbers[chain]
            first = bisect.bisect_left(numbers, True, key=lambda n: not seen >> n & 1)
            first = bisect.bisect(numbers, found_after, first)
            found = self.spans[chain].first(first, begin, end)
            if found is not None:
                yield self.effects[chain][found]
            chain = self.hulls.first(chain + 1, begin, end)


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
    """The launches before each launch: it reads their results, or overwrites what they read, or
    what they wrote where no order is given: then as found.

    Nodes that join versions are in the graph too; they take no time. `launches` lists effects in
    the order of their versions.
    """

    def __init__(self, versions: Versions, launches: Mapping[UOp, Footprint]) -> None:
        written: dict[UOp, list[tuple[UOp, tuple[float, float]]]] = {}
        numbered = {e: launch for e, launch in launches.items() if e in versions.numbers}
        for e, launch in numbered.items():
            for p in launch.writes:
                written.setdefault(p.root, []).append((e, (p.begin, p.end)))
        self.writers = {root: Writers(versions, spans) for root, spans in written.items()}
        self.before: dict[UOp, set[UOp]] = {
            e: {u for v in launch.after for u in v.last if u is not e}
            for e, launch in launches.items()
        }
        for u, last in versions.joins.items():
            self.before.setdefault(u, set()).update(last)
        for e, launch in numbered.items():
            seen, number = versions.below[e], versions.numbers[e]
            for p in launch.writes:
                for w in self.writers[p.root].following(p.begin, p.end, seen, number):
                    self.before[w].add(e)
        # launch -> those that wait for it only because they overwrite what it reads
        self.overwriting: dict[UOp, set[UOp]] = {}
        for e, launch in launches.items():
            later = {w for w in self.overwriters(launch.reads) if e not in self.before[w]} - {e}
            self.overwriting[e] = later
        for e, later in self.overwriting.items():
            for w in later:
                self.before[w].add(e)

    def overwriters(self, reads: Iterable[Span]) -> set[UOp]:
        """The launches that overwrite what is read."""
        return {
            w for p in reads if p.root in self.writers
            for w in self.writers[p.root].following(p.begin, p.end, p.seen.effects)
        }  # fmt: skip
