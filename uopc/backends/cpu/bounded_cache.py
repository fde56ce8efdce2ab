"""Maps that are bounded, and what follows from the values of a plan's variables, kept in one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from uopc.backends.plan import Plan

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Calls with more sets of sizes than this make what follows from them again.
SIZES_KEPT = 64


class KeptMap(dict[K, V]):
    """Starts again empty once it has `most` entries: whatever it holds can be made again."""

    def __init__(self, most: int = SIZES_KEPT) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """One more entry, which is not in there yet."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


class SizesByValues(Generic[V]):
    """What a runner makes of the values of its plan's variables, once for each set of them."""

    def __init__(self, plan: Plan) -> None:
        self._names = tuple([variable.name for variable in plan.variables])
        self._made: KeptMap[tuple[int, ...], V] = KeptMap()

    def get(self, values: Mapping[str, int], make: Callable[[Mapping[str, int]], V]) -> V:
        """What was made of these values, or is now."""
        key = tuple([values[name] for name in self._names])
        found = self._made.get(key)
        return self._made.keep(key, make(values)) if found is None else found
