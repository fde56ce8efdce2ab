"""Maps of bounded size, among them the launch tables per values of a plan's variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from uopc.backends.plan import Plan

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Most sets of variable values per program; with more, entries are computed again.
MOST_SIZES = 64


class BoundedMap(dict[K, V]):
    """A map that is cleared once it has `most` entries, which can all be computed again."""

    def __init__(self, most: int = MOST_SIZES) -> None:
        super().__init__()
        self._most = most

    def add(self, key: K, value: V) -> V:
        """Add an entry that is not there yet."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


class SizesByValues(Generic[V]):
    """The results of a runner's function of the variables' values, one per set of values."""

    def __init__(self, plan: Plan) -> None:
        self._names = tuple([variable.name for variable in plan.variables])
        self._made: BoundedMap[tuple[int, ...], V] = BoundedMap()

    def get(self, values: Mapping[str, int], make: Callable[[Mapping[str, int]], V]) -> V:
        """The result for these values, computed on first use."""
        key = tuple([values[name] for name in self._names])
        found = self._made.get(key)
        return self._made.add(key, make(values)) if found is None else found
