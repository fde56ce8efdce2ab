"""The cost of kernels in parts: arithmetic, the traffic of each cache, the stores, and launches.

    cost_of(outline, machine)    2,096 cycles: launch 96, arithmetic 800, L1 1,500 (32,768 bytes)

A part is what it takes alone. Arithmetic and traffic overlap, so the parts exceed the whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass


class Moved(NamedTuple):
    """The bytes that come to a cache from beyond, and their cycles."""

    cache: str
    nbytes: float
    cycles: float

    @property
    def origin(self) -> str:
        """The next cache, or memory."""
        return {"L1": "L2", "L2": "L3"}.get(self.cache, "memory")


@dataclass(frozen=True)
class Cost:
    """The cycles of one run of a kernel, or of several kernels: of all, of the launch, of the
    arithmetic of all loops, of the traffic by cache, near caches first, of the tables of pages, and
    of stores that do not join their neighbours in a line."""

    cycles: float = 0.0
    launch: float = 0.0
    arithmetic: float = 0.0
    traffic: tuple[Moved, ...] = ()
    pages: float = 0.0
    stores: float = 0.0

    def __str__(self) -> str:
        """The cycles, and the bytes that come from each cache and from memory."""
        moved = [f"{m.nbytes:,.0f} bytes from {m.origin}" for m in self.traffic if m.nbytes >= 1]
        shown = "no code" if self == UNKNOWN else f"{self.cycles:,.0f} cycles"
        return ", ".join([shown, *moved])

    def __add__(self, other: Cost) -> Cost:
        """The cost of two runs one after the other."""
        more = {moved.cache: moved for moved in other.traffic}
        both = [
            Moved(cache, nbytes + more[cache].nbytes, taken + more[cache].cycles)
            if cache in more else Moved(cache, nbytes, taken)
            for cache, nbytes, taken in self.traffic
        ]  # fmt: skip
        return Cost(
            self.cycles + other.cycles, self.launch + other.launch,
            self.arithmetic + other.arithmetic, tuple(both) or other.traffic,
            self.pages + other.pages, self.stores + other.stores,
        )  # fmt: skip


UNKNOWN = Cost(math.inf)  # of kernels that cannot be made


class Alternative(NamedTuple):
    """One of the ways that a pass compared: in words that may go on with the names of values of the
    graph, and the cost of its kernels."""

    words: str
    cost: Cost
    values: tuple[UOp, ...] = ()


class Comparison(NamedTuple):
    """The ways that a pass compared, the number of the one that it took, and the reason."""

    ways: tuple[Alternative, ...]
    taken: int
    why: str
