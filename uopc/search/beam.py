"""The search: lists of Opts compete with the schedule's list, and the best lists stay.

Each round takes the neighbours of the best `width` lists, asks their cost, which needs no code, and
compiles and times the cheapest ones. At the end the best lists meet the schedule's list in a longer
match, which a list must win by `MARGIN`; a tie goes to the schedule.

A Bench does all compiling and timing, so a test can give a Bench without a clock.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from uopc.ir.records import dataclass
from uopc.program.tuned.kernel_opts import Opts

SAMPLES, FINAL_SAMPLES = 3, 15  # turns of a match
FINALISTS = 3
MARGIN = 0.03  # of the time that a list must save in the final match
GAIN = 0.01  # of the best time that one of two rounds must save
ROUNDS = 16
PER_ROUND = 4  # lists that a round compiles, for each one that stays
BATCH = 4  # lists that are compiled side by side
# A list is timed if its cost is at most this many times the least one. Of 261 kernels on a CPU, the
# fastest list of 260 costs less than 3 times the least one: tests/cost/points.jsonl.
WORTH = 4.0


class Start(NamedTuple):
    """The schedule's list, its seconds, and the digest of its code."""

    opts: Opts
    seconds: float
    code: str


class Priced(NamedTuple):
    """A list of Opts, and the cycles that the kernel takes with the list: see uopc/cost."""

    cycles: float
    opts: Opts


class Neighbourhood(Protocol):
    """The lists of a kernel that a search may try."""

    def starts(self) -> Iterable[Priced]:
        """The lists that it begins with."""
        ...

    def neighbours(self, opts: Opts) -> Iterable[Priced]:
        """The lists that are one move away from a list."""
        ...


@dataclass(frozen=True)
class Match:
    """The seconds of a list, and of the schedule's list timed in turns with the list."""

    own: Sequence[float]
    schedule: Sequence[float]

    @property
    def ratio(self) -> float:
        """The least time of the list over the least time of the schedule's list."""
        return min(self.own) / max(min(self.schedule), 1e-12)

    @property
    def won(self) -> bool:
        """True if the list is faster by MARGIN in its best turn, and faster in most turns."""
        pairs = [a / max(b, 1e-12) for a, b in zip(self.own, self.schedule)]
        return max(self.ratio, statistics.median(pairs)) < 1 - MARGIN


class Bench(Protocol):
    """Compiles and times one kernel. A result is None after an error, a crash or a timeout."""

    def start(self) -> Start:
        """The schedule's list."""
        ...

    def compiled(self, lists: Sequence[Opts]) -> list[str | None]:
        """Make code for lists; the digests of the code, in the same order."""
        ...

    def match(self, opts: Opts, samples: int) -> Match | None:
        """Time a list and the schedule's list in turns, `samples` times each."""
        ...

    def agrees(self, opts: Opts) -> bool:
        """True if a list computes the same values as the schedule's list."""
        ...


@dataclass(frozen=True)
class SearchResult:
    """The outcome; `opts` is None if the schedule's list stays. `before`, `after`: seconds."""

    opts: Opts | None
    before: float
    after: float
    why: str


class _BeamSearch:
    def __init__(self, bench: Bench, width: int, expired: Callable[[], bool]) -> None:
        self.bench, self.width, self.expired = bench, width, expired
        self.first = bench.start()
        self.ratios: dict[Opts, float] = {self.first.opts: 1.0}
        self.tried: set[Opts] = {self.first.opts}
        self.codes = {self.first.code}
        self.least = float("inf")  # of the costs

    @property
    def best(self) -> list[Opts]:
        """The lists that stay, the fastest first."""
        return sorted(self.ratios, key=lambda o: (self.ratios[o], len(o)))[: self.width]

    def round(self, lists: Iterable[Priced]) -> None:
        """Time the cheapest of these lists."""
        new = {opts: cycles for cycles, opts in lists if opts not in self.tried}
        self.least = min([self.least, *new.values()])
        worth = [opts for opts, cycles in new.items() if cycles <= WORTH * self.least]
        chosen = sorted(worth, key=new.__getitem__)[: PER_ROUND * self.width]
        for at in range(0, len(chosen), BATCH):
            self._time(chosen[at : at + BATCH])

    def _time(self, lists: Sequence[Opts]) -> None:
        """Compile lists, and time those whose code is new."""
        if self.expired():
            return
        self.tried.update(lists)
        for opts, code in zip(lists, self.bench.compiled(lists)):
            if code is None or code in self.codes or self.expired():
                continue
            self.codes.add(code)
            found = self.bench.match(opts, SAMPLES)
            if found is not None:
                self.ratios[opts] = found.ratio

    def final(self) -> SearchResult:
        """Run the final matches and return their result."""
        before = self.first.seconds
        winner: tuple[tuple[float, int], Match, Opts] | None = None
        for opts in self.best[:FINALISTS]:
            if opts == self.first.opts:
                continue
            found = self.bench.match(opts, FINAL_SAMPLES)
            if found is None or not found.won or not self.bench.agrees(opts):
                continue
            rank = round(found.ratio, 2), len(opts)  # of lists as fast, the shorter one
            if winner is None or rank < winner[0]:
                winner = rank, found, opts
        if winner is None:
            return SearchResult(None, before, before, "the schedule's list is as fast")
        _, match, opts = winner
        times = min(match.schedule), min(match.own)
        return SearchResult(opts, *times, "faster in the final match")


def search(
    bench: Bench, moves: Neighbourhood, width: int, expired: Callable[[], bool]
) -> SearchResult:
    """Search for the best list until `expired`."""
    found = _BeamSearch(bench, width, expired)

    @functools.cache
    def neighbours(opts: Opts) -> list[Priced]:
        return list(itertools.takewhile(lambda _: not expired(), moves.neighbours(opts)))

    found.round([*moves.starts(), *neighbours(()), *neighbours(found.first.opts)])
    idle = 0  # rounds in a row that saved nothing
    for _ in range(ROUNDS):
        before = found.ratios[found.best[0]]
        found.round([near for opts in found.best for near in neighbours(opts)])
        idle = 0 if found.ratios[found.best[0]] <= (1 - GAIN) * before else idle + 1
        if expired() or idle == 2:
            break
    return found.final()
