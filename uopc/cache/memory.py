"""Objects of this process by key, up to a limit. The least recently used objects go first."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from uopc.cache import statistics

# The entries of one memory together take about this much at most.
MOST_BYTES = 256 << 20


class Sized(Protocol):
    """An object with an estimate of its memory."""

    @property
    def nbytes(self) -> int:
        """Bytes."""


T = TypeVar("T", bound=Sized)
_memories: weakref.WeakSet[MemoryCache[Any]] = weakref.WeakSet()


class MemoryCache(Generic[T]):
    """A thread-safe cache. If several threads want the same object at once, one thread makes it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        self._gates: dict[Hashable, threading.Lock] = {}
        _memories.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> T | None:
        """The object, marked as used; None if there is none."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
        return found

    def obtain(
        self, key: Hashable, make: Callable[[], T], most: int,
        holds: Callable[[T], bool] = lambda found: True,
    ) -> T:  # fmt: skip
        """The object with this key. Make it if it is missing or no longer `holds`; keep at most
        `most` objects."""

        def find() -> T | None:
            found = self.find(key)
            return found if found is not None and holds(found) else None

        found = find()
        made = False
        if found is None:
            with self._lock:
                gate = self._gates.setdefault(key, threading.Lock())
            with gate:
                found = find()  # made while this thread waited
                if found is None:
                    made = True
                    statistics.count(memory_misses=1)
                    try:
                        found = make()
                        self.put(key, found, most)
                    finally:
                        with self._lock:
                            self._gates.pop(key, None)
        statistics.count(memory_hits=not made)
        return found

    def put(self, key: Hashable, made: T, most: int) -> None:
        """Keep an object, and drop the least recently used objects beyond `most`."""
        with self._lock:
            if key in self._entries:
                self._nbytes -= self._entries.pop(key).nbytes
            self._entries[key] = made
            self._nbytes += made.nbytes
            while self._entries and (len(self._entries) > most or self._nbytes > MOST_BYTES):
                _, dropped = self._entries.popitem(last=False)
                self._nbytes -= dropped.nbytes

    def clear(self) -> None:
        """Forget every object; objects in use live on."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def _after_fork(self) -> None:
        """Make new locks in the child, which lacks the threads that may have held them."""
        self._lock, self._gates = threading.Lock(), {}


def clear() -> None:
    """Empty the memory (not the disk), and set the counters to zero.

    Examples:
        >>> uopc.cache.clear()
        >>> uopc.cache.counters()["compiled"]
        0
    """
    for memory in list(_memories):
        memory.clear()
    statistics.reset()


def _after_fork() -> None:
    for memory in list(_memories):
        memory._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
