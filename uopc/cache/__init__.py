"""Bytes and objects by key, in memory and on disk; private to the user. See docs/caches.md.

`counters()` counts the events of this process, `problems()` lists the reasons why entries on disk
were not used, and `clear()` empties the memory.
"""

from uopc.cache.memory import clear
from uopc.cache.statistics import counters, problems

__all__ = ["clear", "counters", "problems"]
