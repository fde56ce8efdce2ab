"""Statistics of this process: counters, and the reasons why entries on disk were not used."""

from __future__ import annotations

import threading
from collections import Counter

COUNTERS = (
    "scheduled", "compiled", "kernel_hits", "memory_hits", "memory_misses", "disk_hits",
    "disk_misses", "disk_rejected", "disk_stored", "disk_failed",
)  # fmt: skip

_counted: Counter[str] = Counter()
_lock = threading.Lock()
_problems: dict[str, None] = {}
_MOST_PROBLEMS = 20


def count(**numbers: int) -> None:
    """Add to counters."""
    with _lock:
        _counted.update(numbers)


def note(counter: str, problem: Exception) -> None:
    """Add one to a counter, and keep the reason."""
    with _lock:
        _counted[counter] += 1
        _problems[str(problem)] = None
        while len(_problems) > _MOST_PROBLEMS:
            del _problems[next(iter(_problems))]


def counters() -> dict[str, int]:
    """The counters of this process so far.

    scheduled: graphs lowered; compiled: kernels that LLVM compiled; kernel_hits: kernels of other
    programs that were used instead; `*_hits` and `*_misses`: programs that were found, or not;
    disk_rejected: entries that could not be used; disk_stored and disk_failed: entries that were
    written, or could not be.

    Examples:
        >>> sorted(uopc.cache.counters())[:3]
        ['compiled', 'disk_failed', 'disk_hits']
    """
    with _lock:
        return {name: _counted[name] for name in COUNTERS}


def problems() -> list[str]:
    """The latest reasons why entries were rejected or not written.

    Examples:
        >>> uopc.cache.clear()
        >>> uopc.cache.problems()
        []
    """
    return list(_problems)


def reset() -> None:
    """Set all counters to zero and forget the problems."""
    with _lock:
        _counted.clear()
        _problems.clear()
