"""Compiled programs of this process, by what they depend on: the least used go first."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from uopc.program.artifact import Compiled

# All entries together take about this much at most.
MOST_BYTES = 256 << 20


class Memory:
    """Thread-safe. Of threads that want the same program at once, one makes it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[Compiled, Any]] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        self._gates: dict[Hashable, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> Compiled | None:
        """The program, which from now on is the one used last."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def obtain(
        self, key: Hashable, make: Callable[[], Compiled], most: int, alive: Any = None
    ) -> tuple[Compiled, bool]:
        """The program, and whether it was there; `make` is called where it was not.

        `alive` is kept with it: an object that the key names by its id.
        """
        found = self.find(key)
        if found is not None:
            return found, True
        with self._lock:
            gate = self._gates.setdefault(key, threading.Lock())
        with gate:
            found = self.find(key)  # made while this thread waited
            if found is not None:
                return found, True
            try:
                made = make()
                self._put(key, made, most, alive)
            finally:
                with self._lock:
                    self._gates.pop(key, None)
        return made, False

    def _put(self, key: Hashable, made: Compiled, most: int, alive: Any) -> None:
        with self._lock:
            before = self._entries.pop(key, None)
            self._nbytes -= before[0].nbytes if before is not None else 0
            self._entries[key] = (made, alive)
            self._nbytes += made.nbytes
            while self._entries and (len(self._entries) > most or self._nbytes > MOST_BYTES):
                _, (dropped, _) = self._entries.popitem(last=False)
                self._nbytes -= dropped.nbytes

    def clear(self) -> None:
        """Forget every program; those in use live on."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def after_fork(self) -> None:
        """In the child: threads that held a lock are not here."""
        self._lock = threading.Lock()
        self._gates = {}


programs = Memory()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=programs.after_fork)
