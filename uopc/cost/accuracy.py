"""Scores of costs: how well they order and predict the measured times of lists of Opts."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import field

from uopc.ir.records import dataclass

DIFFERENT = 1.3  # times: pairs of lists that differ by so much should be in order


@dataclass
class Score:
    """Pairs of lists that differ by DIFFERENT, those in order, for each kernel the time of the list
    with the least cost over the least time, and for each list the predicted over the measured."""

    pairs: int = 0
    ordered: float = 0.0
    regrets: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of pairs in order."""
        return self.ordered / max(1, self.pairs)

    @property
    def regret(self) -> float:
        """The geometric mean of the regrets."""
        return math.exp(sum(map(math.log, self.regrets)) / max(1, len(self.regrets)))

    @property
    def ratio(self) -> float:
        """The median of predicted over measured times."""
        return statistics.median(self.ratios)

    def add(self, times: Sequence[float], costs: Sequence[float]) -> None:
        """Add a kernel: the time and the cost of each list."""
        for a, b in itertools.permutations(range(len(times)), 2):
            if times[b] >= DIFFERENT * times[a]:
                self.pairs += 1
                self.ordered += 0.5 * ((costs[a] < costs[b]) + (costs[a] <= costs[b]))
        first = min(range(len(costs)), key=costs.__getitem__)
        self.regrets.append(times[first] / min(times))
        self.ratios += [cost / seconds for seconds, cost in zip(times, costs)]
