"""Timing of two callables side by side, for the examples and benchmarks/run_examples.py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(call: Callable[[], object], times: int = 1) -> float:
    """The time of one call, averaged over `times` calls in a row."""
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def side_by_side(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 15, times: int = 1
) -> tuple[float, float]:
    """Medians in seconds; the two take turns, so that a busy machine slows both."""
    ours(), theirs()
    pairs = [(seconds(ours, times), seconds(theirs, times)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def line(name: str, ours: float, other: str, theirs: float) -> str:
    """Both times and their ratio, in one line."""
    faster = theirs / ours
    return f"{name}: {ours * 1e3:.3f} ms, {other}: {theirs * 1e3:.3f} ms, ratio {faster:.1f}"
