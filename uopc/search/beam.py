"""The search: lists of Opts compete with the schedule's list, and the best lists stay.

The search begins with the schedule's own list, the lists that it gives with one threshold changed,
and the empty list. In each round it tries the neighbours of the best `width` lists. At the end the
best lists meet the schedule's list in a longer match, which a list must win by `MARGIN`; a tie goes
to the schedule.

A Bench does all compiling and timing, so a test can give a Bench without a clock.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from uopc.program.tuned.kernel_opts import Opts

SAMPLES, FINAL_SAMPLES = 3, 15  # turns of a match
FINALISTS = 3
MARGIN = 0.03  # of the time that a list must save in the final match
GAIN = 0.01  # of the best time that a round must save
ROUNDS = 8
PER_ROUND = 16  # lists that a round tries, for each one that stays
BATCH = 8  # lists that are compiled side by side
# A list is timed if its cost is at most this many times the least one. Of 261 kernels on a CPU, the
# fastest list of 260 costs less than 3 times the least one: tests/cost/points.jsonl.
WORTH = 4.0
NEAR_COPY = 0.87  # the share of a copy's speed from which on memory is the limit


@dataclass(frozen=True)
class Start:
    """The schedule's list, its seconds, and its speed relative to a copy of as many bytes."""

    opts: Opts
    seconds: float
    of_copy: float


@dataclass(frozen=True)
class Candidate:
    """A list of Opts whose code is ready. `code`: equal for lists that give the same code."""

    opts: Opts
    code: str
    cycles: float  # its cost: see uopc/cost


@dataclass(frozen=True)
class Match:
    """The seconds of a candidate, and of the schedule's list timed in turns with the candidate."""

    own: Sequence[float]
    schedule: Sequence[float]

    @property
    def ratio(self) -> float:
        """The least time of the candidate over the least time of the schedule's list."""
        return min(self.own) / max(min(self.schedule), 1e-12)

    @property
    def won(self) -> bool:
        """True if the candidate is faster by MARGIN in its best turn, and faster in most turns."""
        pairs = [a / max(b, 1e-12) for a, b in zip(self.own, self.schedule)]
        return max(self.ratio, statistics.median(pairs)) < 1 - MARGIN


class Bench(Protocol):
    """Compiles and times one kernel. A result is None after an error, a crash or a timeout."""

    def start(self) -> Start:
        """The schedule's list."""
        ...

    def varied(self) -> list[Opts]:
        """The lists that the schedule gives with other thresholds."""
        ...

    def compiled(self, lists: Sequence[Opts]) -> list[Candidate | None]:
        """Code for lists, in the same order."""
        ...

    def match(self, candidate: Candidate, samples: int) -> Match | None:
        """Time a candidate and the schedule's list in turns, `samples` times each."""
        ...

    def agrees(self, candidate: Candidate) -> bool:
        """True if a candidate computes the same values as the schedule's list."""
        ...


@dataclass(frozen=True)
class SearchResult:
    """The outcome; `opts` is None if the schedule's list stays. `before`, `after`: seconds."""

    opts: Opts | None
    before: float
    after: float
    why: str
    measured: int = 0


class _BeamSearch:
    def __init__(self, bench: Bench, width: int, expired: Callable[[], bool]) -> None:
        self.bench, self.width, self.expired = bench, width, expired
        self.first = bench.start()
        self.ratios: dict[Opts, float] = {self.first.opts: 1.0}
        self.ready: dict[Opts, Candidate] = {}
        self.tried: set[Opts] = {self.first.opts}
        self.codes: set[str] = set()
        self.least = float("inf")  # of the costs
        (own,) = bench.compiled([self.first.opts])
        if own is not None:
            self.least = own.cycles
            self.codes.add(own.code)

    @property
    def best(self) -> list[Opts]:
        """The lists that stay, the fastest first."""
        return sorted(self.ratios, key=lambda o: (self.ratios[o], len(o)))[: self.width]

    def round(self, lists: Iterable[Opts], most: int) -> None:
        """Compile at most `most` of these lists, and time the promising ones."""
        new = [o for o in dict.fromkeys(lists) if o not in self.tried]
        random.Random(0).shuffle(new)
        for at in range(0, min(len(new), most), BATCH):
            batch = new[at : min(at + BATCH, most)]
            if self.expired():
                return
            self.tried.update(batch)
            made = [c for c in self.bench.compiled(batch) if c is not None]
            for c in sorted(made, key=lambda c: c.cycles):
                self.least = min(self.least, c.cycles)
                if c.code in self.codes or c.cycles > WORTH * self.least:
                    continue
                self.codes.add(c.code)
                found = self.bench.match(c, SAMPLES)
                if found is not None:
                    self.ratios[c.opts], self.ready[c.opts] = found.ratio, c
                if self.expired():
                    return

    def final(self) -> SearchResult:
        """Run the final matches and return their result."""
        before = self.first.seconds
        measured = len(self.ready)
        winner: tuple[tuple[float, int], Match, Candidate] | None = None
        for opts in [o for o in self.best[:FINALISTS] if o in self.ready]:
            candidate = self.ready[opts]
            found = self.bench.match(candidate, FINAL_SAMPLES)
            if found is None or not found.won or not self.bench.agrees(candidate):
                continue
            rank = round(found.ratio, 2), len(opts)  # of lists as fast, the shorter one
            if winner is None or rank < winner[0]:
                winner = rank, found, candidate
        if winner is None:
            return SearchResult(None, before, before, "the schedule's list is as fast", measured)
        _, match, candidate = winner
        times = min(match.schedule), min(match.own)
        return SearchResult(candidate.opts, *times, "faster in the final match", measured)


def search(
    bench: Bench, neighbours: Callable[[Opts], Iterable[Opts]], width: int,
    expired: Callable[[], bool],
) -> SearchResult:  # fmt: skip
    """Search for the best list until `expired`."""
    found = _BeamSearch(bench, width, expired)
    if found.first.of_copy >= NEAR_COPY:
        said = f"bound by memory: {found.first.of_copy:.0%} of the speed of a copy"
        return SearchResult(None, found.first.seconds, found.first.seconds, said)
    most = PER_ROUND * width
    found.round([(), *bench.varied()], 4 * most)
    for _ in range(ROUNDS):
        before = found.ratios[found.best[0]]
        found.round([n for o in found.best for n in neighbours(o)], most)
        if found.expired() or found.ratios[found.best[0]] > (1 - GAIN) * before:
            break
    return found.final()
