"""The orders of values whose kernels take the fewest predicted cycles.

Values that share a nest are chosen together. From the orders of their shapes, or from the first (or
second, …) other order of each, whichever is cheaper, values change alone while that saves cycles.
Where all in another order save a clear share, some go back only if that saves another one. Those in
another order stay so where that saves a clear share of the cycles of the nests around.

To predict a nest means to schedule it. So totals are compared with limits: once the nests that were
predicted, and the least that the others take, exceed a limit, no more nests are predicted.
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
    """The order of a value, and the cycles of its writers and readers: in the order of its shape at
    least so many, and in this order."""

    order: Order
    before: float
    after: float


def plain(root: UOp) -> Order:
    """The order of a value's shape."""
    return tuple(range(len(root.shape)))


class Chooser:
    """`choices`: the orders that each value may have, that of its shape first. `least`: what a nest
    takes in any orders."""

    def __init__(
        self, nests: Iterable[Nest], choices: Mapping[UOp, list[Order]], cycles: Cycles,
        least: Callable[[Nest], float],
    ) -> None:  # fmt: skip
        self.choices, self.cycles = choices, cycles
        self.near: dict[UOp, list[Nest]] = {}  # the nests that write or read a value
        self.values: dict[Nest, list[UOp]] = {}
        self.least: dict[Nest, float] = {}
        for n in nests:
            found = dict.fromkeys([a.storage for a in n.accesses if a.storage in choices])
            self.values[n] = list(found)
            self.least[n] = least(n) if found else 0.0
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
                limit = self._total(nests, own) / (1.0 - GAIN)
                if self._total(nests, {}, limit) > limit:
                    found |= {u: self._choice(u, own) for u in part}
        return found

    def _choice(self, u: UOp, orders: Orders) -> OrderChoice:
        before = sum([self._at_least(n, {}) for n in self.near[u]])
        return OrderChoice(orders[u], before, self._total(self.near[u], orders))

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
        others = [{u: c[i] for u in group if i < len(c := self.choices[u])} for i in range(1, most)]
        start = min(others, key=lambda made: self._total(nests, made))
        whole = self._total(nests, start)
        limit = whole / (1.0 - GAIN)
        plain_total = self._total(nests, {}, limit)
        if plain_total > limit:
            back = self._cheaper_before(nests, start)
            orders = self._changed(back, start)
            if self._total(nests, orders) > (1.0 - GAIN) * whole:
                orders = start
        else:
            orders = self._changed(group, start if whole < plain_total else {})
        return {u: o for u, o in orders.items() if o != self.choices[u][0]}

    def _cheaper_before(self, nests: list[Nest], start: Orders) -> list[UOp]:
        """The values whose nests take fewer cycles in the orders of the shapes than in those of
        `start`; none if these nests together save no clear share. A nest whose values have
        different orders is taken to cost no less than in the better of both."""
        limit = (1.0 - GAIN) * self._total(nests, start)
        now = {n: self._cost(n, start) for n in nests}
        best = {n: min(now[n], self._at_least(n, {})) for n in nests}
        for n in sorted(nests, key=lambda n: now[n] - best[n], reverse=True):
            if sum(best.values()) > limit:
                return []
            best[n] = min(now[n], self._cost(n, {}))
        cheaper = [n for n in nests if best[n] < now[n]]
        return list(dict.fromkeys([u for n in cheaper for u in self.values[n]]))

    def _changed(self, group: list[UOp], start: Orders) -> dict[UOp, Order]:
        """The orders after values have changed alone while that saves cycles."""
        orders = dict(start)
        for _ in range(MOST_ROUNDS):
            before = dict(orders)
            for u in group:
                orders[u] = self._best_order(u, orders)
            if orders == before:
                break
        return orders

    def _best_order(self, u: UOp, orders: Orders) -> Order:
        """The cheapest order of a value among others in theirs; of equal ones the first."""
        limit = self._total(self.near[u], orders)
        totals = {o: self._total(self.near[u], {**orders, u: o}, limit) for o in self.choices[u]}
        return min(self.choices[u], key=lambda o: totals[o])

    def _total(self, nests: list[Nest], orders: Orders, limit: float = math.inf) -> float:
        """The cycles of nests; of a total above the limit only a part."""
        total = sum([self._at_least(n, orders) for n in nests], start=0.0)
        for n in sorted(nests, key=lambda n: self.least[n], reverse=True):
            if total > limit:
                break
            before = self._at_least(n, orders)
            total += self._cost(n, orders) - before
        return total

    def _at_least(self, n: Nest, orders: Orders) -> float:
        """The cycles of a nest if they are known, or the least that it takes in any orders."""
        return self._known.get(self._key(n, orders), self.least[n])

    def _key(self, n: Nest, orders: Orders) -> tuple[Nest, tuple[Order, ...]]:
        """A value that `orders` does not name has the order of its shape."""
        return n, tuple([orders.get(u, self.choices[u][0]) for u in self.values[n]])

    def _cost(self, n: Nest, orders: Orders) -> float:
        """The cycles of a nest."""
        key = self._key(n, orders)
        if key not in self._known and len(self._known) >= MOST_ASKED:
            return self.least[n] if key == self._key(n, {}) else math.inf
        if key not in self._known:
            self._known[key] = self.cycles(n, dict(zip(self.values[n], key[1])))
        return self._known[key]
