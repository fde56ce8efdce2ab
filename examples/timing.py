"""Timing of two callables side by side, for the examples and benchmarks/run_examples.py, and the
last line of an example."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def seconds(call: Callable[[], object], times: int = 1) -> float:
    """The time of one call, averaged over `times` calls in a row."""
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


@dataclass(frozen=True)
class Times:
    """The median and the least of some times, in seconds."""

    median: float
    least: float

    def __str__(self) -> str:
        return f"{self.median * 1e3:.3f} ({self.least * 1e3:.3f})"


def side_by_side(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 31, times: int = 1
) -> tuple[Times, Times]:
    """Times of both; they take turns, so that a busy machine slows both."""
    ours(), theirs()
    pairs = [(seconds(ours, times), seconds(theirs, times)) for _ in range(rounds)]
    first, second = zip(*pairs)
    return _times(first), _times(second)


def _times(found: Sequence[float]) -> Times:
    return Times(statistics.median(found), min(found))


def ratio(ours: Times, theirs: Times) -> float:
    """The factor by which we are faster, by the least times: other work on the machine only
    adds.
    """
    return theirs.least / ours.least


def line(ours: Times, other: str, theirs: Times) -> str:
    """Both times in ms, median and least, and the ratio of the least ones, in one line."""
    factor = f"ratio of least times {ratio(ours, theirs):.1f}"
    return f"median (least): uopc: {ours} ms, {other}: {theirs} ms, {factor}"


def verdict(name: str, passed: bool) -> int:
    """Prints PASS or FAIL with the name of an example; the exit status."""
    print(f"{'PASS' if passed else 'FAIL'} {name}")
    return 0 if passed else 1
