"""Statistics of this process: counters, and the reasons why entries on disk were not used."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from uopc.ir import forks
from uopc.ir.core import arena
from uopc.ir.records import dataclass

COUNTERS = (
    "scheduled", "compiled", "kernel_hits", "memory_hits", "memory_misses", "disk_hits",
    "disk_misses", "disk_rejected", "disk_stored", "disk_failed",
)  # fmt: skip

_counted: Counter[str] = Counter()
_lock = threading.Lock()
forks.wait_for(_lock)
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
    programs that were reused; `*_hits` and `*_misses`: programs that were found, or not;
    disk_rejected: entries that could not be used; disk_stored and disk_failed: entries that were
    written, or could not be.

    Examples:
        >>> sorted(uopc.cache.counters())[:3]
        ['compiled', 'disk_failed', 'disk_hits']
    """
    with _lock:
        return {name: _counted[name] for name in COUNTERS}


@dataclass(frozen=True)
class Rate:
    """The hits of a cache among all lookups."""

    cache: str
    asked: int
    hits: int

    @property
    def rate(self) -> float:
        """The fraction of hits; 0 without lookups.

        Examples:
            >>> from uopc.cache.statistics import Rate
            >>> Rate("programs in memory", 4, 3).rate
            0.75
        """
        return self.hits / self.asked if self.asked else 0.0


# A cache of COUNTERS: its name, the counters of hits, and those of misses.
_COUNTED = (
    ("programs in memory", "memory_hits", ("memory_misses",)),
    ("programs on disk", "disk_hits", ("disk_misses", "disk_rejected")),
    ("kernels of other programs", "kernel_hits", ("compiled",)),
)


def rates(work: Callable[[], object]) -> list[Rate]:
    """The hit rate of every cache while `work` runs: programs and kernels first, then the
    compiler's memos by the number of lookups. Counting slows compiles down.

    Examples:
        >>> from uopc.cache import statistics
        >>> y = uopc.param("y", (12,)) * 3
        >>> found = statistics.rates(lambda: [uopc.compile(y) for _ in range(4)])
        >>> found[0].cache, found[0].asked, found[0].hits >= 3
        ('programs in memory', 4, True)
    """
    before = counters()
    with arena.counted_memos() as memos:
        work()
    after = counters()
    grown = {name: after[name] - before[name] for name in COUNTERS}
    programs = [
        Rate(cache, grown[hits] + sum([grown[m] for m in misses]), grown[hits])
        for cache, hits, misses in _COUNTED
    ]
    asked = [Rate(f"memo {m.name}", m.hits + m.misses, m.hits) for m in memos]
    return programs + sorted(asked, key=lambda r: (-r.asked, r.cache))


def problems() -> list[str]:
    """The latest reasons why entries on disk were rejected or not written.

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
