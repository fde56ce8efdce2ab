"""The orders of values whose kernels take the fewest predicted cycles.

Values that share a nest are chosen together. From the orders of their shapes, or from the first (or
second, …) other order of each, whichever is cheaper, values change alone while that saves cycles.
Where all in another order save a clear share, some go back only if that saves another one. Those in
another order stay so where that saves a clear share of the cycles of the nests around.

To predict a nest means to schedule it. So totals are compared with limits: once the nests that were
predicted, and the least that the others take, reach a limit, no more nests are predicted. A nest
that reads neighbours along one loop and writes them along another is taken to cost no less than in
the best orders that agree.
"""

from __future__ import annotations

import itertools
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
    takes in any orders. `agree`: the values of a nest have their neighbours along the same loops.
    """

    def __init__(
        self, nests: Iterable[Nest], choices: Mapping[UOp, list[Order]], cycles: Cycles,
        least: Callable[[Nest], float], agree: Callable[[Nest, Orders], bool],
    ) -> None:  # fmt: skip
        self.choices, self.cycles, self.agree = choices, cycles, agree
        self.near: dict[UOp, list[Nest]] = {}  # the nests that write or read a value
        self.values: dict[Nest, list[UOp]] = {}
        self.least: dict[Nest, float] = {}
        self._agreeing: dict[Nest, list[tuple[Order, ...]]] = {}
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
                if self._total(nests, {}, limit) >= limit:
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
        starts = [{u: c[i] for u in group if i < len(c := self.choices[u])} for i in range(most)]
        plain_start, largest = starts[0], max(nests, key=lambda n: self.least[n])
        start, *others = sorted(starts, key=lambda made: self._cost(largest, made))
        whole = self._total(nests, start)
        for made in others:
            limit = whole / (1.0 - GAIN) if made is plain_start else whole
            if (total := self._total(nests, made, limit)) < whole:
                start, whole = made, total
        plain_total = sum([self._at_least(n, plain_start) for n in nests])
        if whole < math.inf and whole <= (1.0 - GAIN) * plain_total:
            orders = self._changed(self._that_may_save(nests, start), start)
            if self._total(nests, orders) > (1.0 - GAIN) * whole:
                orders = start
        else:
            orders = self._changed(group, start)
        return {u: o for u, o in orders.items() if o != self.choices[u][0]}

    def _that_may_save(self, nests: list[Nest], start: Orders) -> list[UOp]:
        """The values whose nests take fewer cycles in other orders than in those of `start`; none
        if all nests together save no clear share."""
        now = {n: self._cost(n, start) for n in nests}
        limit, best = (1.0 - GAIN) * sum(now.values()), {n: self._best(n) for n in nests}
        for n in sorted(nests, key=lambda n: now[n] - best[n], reverse=True):
            if sum(best.values()) >= limit:
                return []
            for orders in self._agreeing_orders(n):
                self._cost(n, dict(zip(self.values[n], orders)))
            best[n] = self._best(n)
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
        """The cheapest order of a value among others in theirs; the present one if no other may
        save a clear share."""
        best = orders.get(u, self.choices[u][0])
        least = self._total(self.near[u], orders)
        for order in self.choices[u]:
            made = {**orders, u: order}
            may_save = least - sum([self._at_least(n, made) for n in self.near[u]])
            if may_save >= GAIN * least:
                total = self._total(self.near[u], made, least)
                if total < least:
                    best, least = order, total
        return best

    def _total(self, nests: list[Nest], orders: Orders, limit: float = math.inf) -> float:
        """The cycles of nests; of a total that reaches the limit only a part."""
        total = sum([self._at_least(n, orders) for n in nests], start=0.0)
        for n in sorted(nests, key=lambda n: self.least[n], reverse=True):
            if total >= limit:
                break
            before = self._at_least(n, orders)
            total += self._cost(n, orders) - before
        return total

    def _at_least(self, n: Nest, orders: Orders) -> float:
        """The cycles of a nest if they are known, or less."""
        key = self._key(n, orders)
        if key in self._known:
            return self._known[key]
        return self.least[n] if key[1] in self._agreeing_orders(n) else self._best(n)

    def _best(self, n: Nest) -> float:
        """The cycles of a nest in the best orders, as far as they are known."""
        known = [self._known.get((n, made), self.least[n]) for made in self._agreeing_orders(n)]
        return min(known, default=self.least[n])

    def _agreeing_orders(self, n: Nest) -> list[tuple[Order, ...]]:
        """The orders of the values of a nest that agree; none of a nest of very many."""
        if n not in self._agreeing:
            each = [self.choices[u] for u in self.values[n]]
            many = math.prod(map(len, each)) > MOST_ASKED
            self._agreeing[n] = [
                made for made in itertools.product(*([] if many else each))
                if self.agree(n, dict(zip(self.values[n], made)))
            ]  # fmt: skip
        return self._agreeing[n]

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
