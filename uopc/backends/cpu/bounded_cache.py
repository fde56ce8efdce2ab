"""A map of bounded size, for what a runner can compute again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# The most sets of variable values per program.
MOST_SIZES = 64


class BoundedMap(dict[K, V]):
    """A map that is cleared once it has `most` entries."""

    def __init__(self, most: int = MOST_SIZES) -> None:
        super().__init__()
        self._most = most

    def add(self, key: K, value: V) -> V:
        """Add an entry that is not there yet."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value

    def obtain(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key; `make` computes it on first use."""
        found = self.get(key)
        return self.add(key, make()) if found is None else found
