"""The orders of values whose kernels take the fewest predicted cycles.

Values that share a nest are chosen together. From the orders of their shapes, or from the first (or
second, …) other order of each, whichever is cheaper, values change alone while that saves cycles.
Where all in another order save a clear share, some go back only if that saves another one. Those in
another order stay so where that saves a clear share of the cycles of the nests around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import Order
from uopc.ir.nest.nest import Nest

# Other orders must save this share of the cycles of the kernels that write and read the values:
# where less was predicted, a half of the kernels did not get faster.
GAIN = 0.05
MOST_ROUNDS = 4  # of changes one by one
MOST_ASKED = 240  # kernels of a graph; values of later ones keep the orders of their shapes

Orders = Mapping[UOp, Order]
Cycles = Callable[[Nest, Orders], float]


class OrderChoice(NamedTuple):
    """The order of a value, and the cycles of its writers and readers with it and without it."""

    order: Order
    before: float
    after: float


def plain(root: UOp) -> Order:
    """The order of a value's shape."""
    return tuple(range(len(root.shape)))


class Chooser:
    """`choices`: the orders that each value may have, that of its shape first."""

    def __init__(
        self, nests: Iterable[Nest], choices: Mapping[UOp, list[Order]], cycles: Cycles
    ) -> None:
        self.choices, self.cycles = choices, cycles
        self.near: dict[UOp, list[Nest]] = {}  # the nests that write or read a value
        self.values: dict[Nest, list[UOp]] = {}
        for n in nests:
            found = dict.fromkeys([a.storage for a in n.accesses if a.storage in choices])
            self.values[n] = list(found)
            for u in found:
                self.near.setdefault(u, []).append(n)
        self._known: dict[tuple[Nest, tuple[Order, ...]], float] = {}

    def chosen(self) -> dict[UOp, OrderChoice]:
        """The values in another order than that of their shape."""
        found: dict[UOp, OrderChoice] = {}
        for group in self._groups(self.near):
            turned = self._cheapest(group)
            for part in self._groups(turned):
                own, nests = {u: turned[u] for u in part}, self._nests(part)
                if self._total(nests, own) < (1.0 - GAIN) * self._total(nests, {}):
                    found |= {u: self._choice(u, own) for u in part}
        return found

    def _choice(self, u: UOp, orders: Orders) -> OrderChoice:
        before, after = [self._total(self.near[u], made) for made in ({}, orders)]
        return OrderChoice(orders[u], before, after)

    def _groups(self, values: Collection[UOp]) -> Iterator[list[UOp]]:
        """The values, those together that share a nest."""
        seen: set[UOp] = set()
        for u in values:
            if u in seen:
                continue
            seen.add(u)
            group = [u]
            for v in group:  # which grows
                near = dict.fromkeys([w for n in self.near[v] for w in self.values[n]])
                more = [w for w in near if w in values and w not in seen]
                seen.update(more)
                group += more
            yield group

    def _nests(self, group: list[UOp]) -> list[Nest]:
        return list(dict.fromkeys([n for u in group for n in self.near[u]]))

    def _cheapest(self, group: list[UOp]) -> dict[UOp, Order]:
        """The values of a group that change their order."""
        nests, most = self._nests(group), max([len(self.choices[u]) for u in group])
        starts = [{u: c[i] for u in group if i < len(c := self.choices[u])} for i in range(most)]
        start = min(starts, key=lambda made: self._total(nests, made))
        orders = dict(start)
        for _ in range(MOST_ROUNDS):
            before = dict(orders)
            for u in group:
                orders[u] = self._best_order(u, orders)
            if orders == before:
                break
        plain_total, whole, mixed = [self._total(nests, o) for o in ({}, start, orders)]
        if whole < (1.0 - GAIN) * plain_total and mixed > (1.0 - GAIN) * whole:
            orders = start
        return {u: o for u, o in orders.items() if o != self.choices[u][0]}

    def _best_order(self, u: UOp, orders: Orders) -> Order:
        """The cheapest order of a value among others in theirs; of equal ones the first."""
        totals = [self._total(self.near[u], {**orders, u: o}) for o in self.choices[u]]
        return self.choices[u][totals.index(min(totals))]

    def _total(self, nests: list[Nest], orders: Orders) -> float:
        return sum([self._cost(n, orders) for n in nests], start=0.0)

    def _cost(self, n: Nest, orders: Orders) -> float:
        """The cycles of a nest; a value that `orders` does not name has the order of its shape."""
        values = self.values[n]
        key = n, tuple([orders.get(u, self.choices[u][0]) for u in values])
        if key not in self._known:
            asked = len(self._known) < MOST_ASKED
            self._known[key] = self.cycles(n, dict(zip(values, key[1]))) if asked else math.inf
        return self._known[key]
