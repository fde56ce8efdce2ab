"""The orders that make a program cheapest, over the writers and all readers of each value.

Costs go from sources to readers: what a value costs in an order, with all before it in the orders
that are best for that. A value that several nests read counts in each by its share. Choices go from
readers to sources, so a value is chosen for the orders that its readers write. Last, each value
changes its order alone while that saves something.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import Order
from uopc.ir.nest.nest import Nest

# An order other than that of the value's shape must save this share of what its writers cost.
LEAST_SAVED = 0.05
# Of nests that read more values with a choice than this, each value is chosen for itself.
MOST_TOGETHER = 3
MOST_ROUNDS = 4  # of changes one by one

Cycles = Callable[[Nest, Callable[[UOp], Order]], float]


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
        """`nests`: each after the nests that write its operands."""
        self.nests, self.choices, self.cycles = list(nests), choices, cycles
        self.writers: dict[UOp, list[Nest]] = {}
        self.readers: dict[UOp, list[Nest]] = {}
        self.inputs: dict[Nest, list[UOp]] = {}
        for n in self.nests:
            self.inputs[n] = [r for r in dict.fromkeys([a.storage for a in n.read]) if r in choices]
            for r in self.inputs[n]:
                self.readers.setdefault(r, []).append(n)
            for a in n.written:
                if a.storage in choices:
                    self.writers.setdefault(a.storage, []).append(n)
        self._known: dict[tuple[Nest, tuple[Order, ...]], float] = {}
        self.upto: dict[UOp, dict[Order, float]] = {}  # of a value in an order, with all before it

    def chosen(self) -> dict[UOp, OrderChoice]:
        """The values in another order than that of their shape."""
        for u in self.writers:
            self.upto[u] = {o: self._upto(u, o) for o in self.choices[u]}
        orders: dict[UOp, Order] = {}
        for u in reversed(self.writers):
            orders[u] = self._least(u, lambda u, o: self._beyond(u, o, orders))
        self._improve(orders)
        first = {u: c[0] for u, c in self.choices.items()}
        return {
            u: OrderChoice(o, self._around(u, first), self._around(u, orders))
            for u, o in orders.items() if o != first[u]
        }  # fmt: skip

    def _cost(self, n: Nest, orders: Mapping[UOp, Order]) -> float:
        """The cycles of a nest; what `orders` does not name has the order of its shape."""
        named = (*self.inputs[n], *[a.storage for a in n.written if a.storage in self.choices])
        key = n, tuple([orders.get(u, self.choices[u][0]) for u in named])
        if key not in self._known:
            given = dict(zip(named, key[1]))
            self._known[key] = self.cycles(n, lambda u: given[u] if u in given else plain(u))
        return self._known[key]

    def _bias(self, u: UOp, order: Order) -> float:
        if order == self.choices[u][0]:
            return 0.0
        return LEAST_SAVED * sum([self._cost(n, {}) for n in self.writers[u]])

    def _upto(self, u: UOp, order: Order) -> float:
        found = [self._best(n, {u: order}) for n in self.writers[u]]
        return self._bias(u, order) + sum(found)

    def _best(self, n: Nest, orders: Mapping[UOp, Order]) -> float:
        """The least cost of a nest and all nests before it, over all orders of the operands that
        `orders` does not name."""
        free = [u for u in self.inputs[n] if u not in orders]

        def cost(made: tuple[Order, ...]) -> float:
            before = [self._share(u, o) for u, o in zip(free, made)]
            return sum(before) + self._cost(n, {**orders, **dict(zip(free, made))})

        if len(free) <= MOST_TOGETHER:
            return min(map(cost, itertools.product(*[self.choices[u] for u in free])))

        def alone(u: UOp, order: Order) -> float:
            return self._share(u, order) + self._cost(n, {**orders, u: order})

        own = [self._least(u, alone) for u in free]
        return min(cost(tuple(own)), cost(tuple([self.choices[u][0] for u in free])))

    def _least(self, u: UOp, cost: Callable[[UOp, Order], float]) -> Order:
        """The cheapest order of a value; of equal ones the first."""
        costs = [(cost(u, o), i) for i, o in enumerate(self.choices[u])]
        return self.choices[u][min(costs)[1]]

    def _share(self, u: UOp, order: Order) -> float:
        """The cost of a value, as far as each of its readers counts it."""
        return self.upto.get(u, {}).get(order, 0.0) / max(1, len(self.readers.get(u, ())))

    def _beyond(self, u: UOp, order: Order, orders: Mapping[UOp, Order]) -> float:
        """The cost of a value in an order, with all before it, and of its readers."""
        total = self.upto[u][order]
        for n in self.readers.get(u, ()):
            given = {v: orders[v] for v in (*self.inputs[n], n.written[0].storage) if v in orders}
            total += self._best(n, {**given, u: order})
        return total

    def _around(self, u: UOp, orders: Mapping[UOp, Order]) -> float:
        """The cost of a value's writers and readers."""
        return sum([self._cost(n, orders) for n in (*self.writers[u], *self.readers.get(u, ()))])

    def _improve(self, orders: dict[UOp, Order]) -> None:
        """Change orders one by one while that saves something."""

        def cost(u: UOp, order: Order) -> float:
            before, orders[u] = orders[u], order
            total = self._around(u, orders) + self._bias(u, order)
            orders[u] = before
            return total

        for _ in range(MOST_ROUNDS):
            changed = False
            for u, now in list(orders.items()):
                best = self._least(u, cost)
                if best != now and cost(u, best) < cost(u, now) * (1 - 1e-9):
                    orders[u], changed = best, True
            if not changed:
                return
