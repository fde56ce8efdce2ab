"""The cycles of a loop nest whose arrays are stored in given orders.

The lanes of a sum of products are the innermost axis of what is stored, and its tile is that of
`register_tiles`, the one that the schedule takes. Any other nest has the lanes that access memory
best. Only what differs between orders matters: a comparison of two orders of the same nest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from uopc.cost.machine import machine_of
from uopc.ir.core import ranges
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import Access, Order, Strides
from uopc.ir.nest.contractions import Contraction
from uopc.ir.nest.loops import most_of, trips
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis import register_tiles, thresholds
from uopc.passes.analysis.lanes import MOST_STEP, fitting
from uopc.passes.order_storage import order_thresholds as order
from uopc.target import Target

Orders = Callable[[UOp], Order]


class NestCosts:
    """The cycles of nests on a machine."""

    def __init__(self, target: Target) -> None:
        self.target, self.machine = target, machine_of(target)
        self._tiles: dict[tuple[int, int, int, int], tuple[int, int, float]] = {}

    def cycles(self, nest: Nest, orders: Orders) -> float:
        """The cycles of a nest whose arrays are in the order that `orders` gives each."""
        return _Cycles(nest, orders, self).total()

    def tile(self, rows: int, columns: int, bits: int, row_bytes: int) -> tuple[int, int, float]:
        """The rows and vectors of a tile of sums of `bits` bits, and the cycles per step over all
        tiles."""
        key, target = (rows, columns, bits, row_bytes), self.target
        if key not in self._tiles:
            self._tiles[key] = register_tiles.register_tile(
                rows, columns, target.lanes(bits), target.registers, row_bytes, self.machine,
            )  # fmt: skip
        return self._tiles[key]


class _Cycles:
    def __init__(self, nest: Nest, orders: Orders, costs: NestCosts) -> None:
        self.nest, self.costs, self.target = nest, costs, costs.target
        self.strides: dict[Access, Strides] = {
            a: a.strides(orders(a.storage)) for a in (*nest.read, *nest.written)
        }
        self.written = self.strides[nest.written[0]]
        self.loops = [r for r in ranges.closed_ranges(nest.order[-1]) if most_of(r) > 1]

    def total(self) -> float:
        """The cycles of the nest."""
        lane = next((r for r in self.loops if self.written.get(r) == 1), None)
        sums = [c.with_column(lane) for c in self.nest.contractions]
        if lane is None or not sums or any([c is None or not _rows(c) for c in sums]):
            return self._plain()
        return self._products([c for c in sums if c is not None], lane)

    # ------------------------------------------------------------ loops that become one
    def _joined(self, first: UOp) -> list[UOp]:
        """The loop and the loops around it that continue its index in all arrays."""
        found, length = [first], most_of(first)
        rest = [r for r in self.loops if r is not first]
        while True:
            more = next((r for r in rest if self._counts_on(r, first, length)), None)
            if more is None:
                return found
            found.append(more)
            rest.remove(more)
            length *= most_of(more)

    def _counts_on(self, outer: UOp, inner: UOp, length: int) -> bool:
        for x, strides in self.strides.items():
            step = strides.get(inner, 0)
            if step is None or strides.get(outer, 0) != length * step:
                return False
            if x.gate is not None and (inner in x.loops or outer in x.loops):
                return False
        return True

    # ------------------------------------------------------------ sums of products
    def _products(self, sums: list[Contraction], lane: UOp) -> float:
        columns = self._joined(lane)
        row = min(_rows(sums[0]), key=lambda r: self.written.get(r) or 0)
        rows = self._joined(row)
        around = [r for r in self.loops if r not in columns and r not in rows]
        operands = [(self.nest.read_by(c.a), self.nest.read_by(c.b)) for c in sums]
        # One after the other: if the near caches do not hold all, they hold none of them.
        size = sum([_bytes(x) for a, b in operands for x in (*a, *b)])
        misses_l2 = size > self.target.l2_bytes
        total = self._after(lane)
        for c, (a, b) in zip(sums, operands):
            total += self._product(c, a, b, columns, rows, around, misses_l2)
        return total

    def _product(
        self, c: Contraction, a: list[Access], b: list[Access], columns: list[UOp],
        rows: list[UOp], around: list[UOp], misses_l2: bool,
    ) -> float:  # fmt: skip
        """The cycles of one sum: the cheaper of separate rows of the result, and rows merged with
        the rows around."""
        steps, wide, lane = trips(c.depth), trips(columns), columns[0]
        fill, far_fill = self._fill(c, b, lane, wide)
        bits, row = c.reduce.dtype.bits, rows[0]
        row_bytes = c.a.dtype.itemsize * max([self.strides[x].get(row, 0) or 0 for x in a] + [0])
        half = self.target.l2_bytes // 2
        near_rows = sum(map(_bytes, a)) <= half < sum(map(_bytes, b))

        def tiles(wide: int, others: list[UOp]) -> float:
            high, vectors, cycles = self.costs.tile(trips(rows), wide, bits, row_bytes)
            panels = -(-wide // (vectors * self.target.lanes(bits)))
            if near_rows and others and others[-1] in c.rows:
                # `contraction` puts all rows of an image inside of the panels.
                reread = self._reread_cycles(a, others[:-1], 1)
                reread += self._reread_cycles(b, others[:-1], 1)
            else:
                reread = self._reread_cycles(a, others, panels)
                reread += self._reread_cycles(b, others, 1)
            cycles += -(-trips(rows) // high) * panels * self._far_step(c, a)
            return steps * trips(others) * cycles + (reread if misses_l2 else 0.0)

        separate = tiles(wide, around) + self._packed(c, a, b, fill + far_fill, trips(rows))
        own = [r for r in around if r in c.columns and self.written.get(r) == wide]
        if not own:
            return separate
        others = [r for r in around if r is not own[0]]
        both = wide * most_of(own[0])
        gathered = far_fill * self._values(b)
        return min(separate, tiles(both, others) + steps * trips(others) * both * fill + gathered)

    def _far_step(self, c: Contraction, a: list[Access]) -> float:
        """More cycles of a step of a tile whose rows' factor is read in place, and far from that of
        the step before."""
        if not _is_element(c.a, a):
            return 0.0  # it is packed
        strides = self.strides[a[0]]
        loops = [r for r in c.depth if strides.get(r, 0) != 0]
        steps = [k for r in loops if (k := strides[r]) is not None]
        if not loops or len(steps) < len(loops):
            return 0.0
        count, step = trips(loops), min(map(abs, steps)) * c.a.dtype.itemsize
        each = min(1.0, step / order.PAGE)  # pages of a step
        if count * each <= order.NEAR_PAGES:
            return 0.0
        period = self.target.l2_bytes // order.L2_WAYS
        # A row's lines are next to another one's, so a step may take two.
        crowded = 2 * count > order.L2_WAYS * (period // math.gcd(step, period))
        return each * (order.CROWDED_STEP if crowded else order.FAR_STEP)

    def _fill(
        self, c: Contraction, b: list[Access], lane: UOp, wide: int
    ) -> tuple[float, float]:
        """The cycles of a read that brings an element in the order of the lanes, and more of the
        first read of each element."""
        steps = [self.strides[x].get(lane, 0) for x in b]
        if all([k == 1 for k in steps]):
            return self._fill_of_neighbours(c.b), 0.0
        # The step of a quotient is not known; its neighbours share what they read.
        known = [k for k in steps if k is not None]
        if all([abs(k) <= MOST_STEP for k in known]):
            return self.costs.machine.gather, 0.0
        near = self.costs.machine.caches[0]
        crowded = any([near.is_crowded(wide, k * c.b.dtype.itemsize) for k in known])
        return self.costs.machine.gather, order.CROWDED_FILL if crowded else order.FAR_FILL

    def _fill_of_neighbours(self, element: UOp) -> float:
        """The cycles of an element whose neighbours in the lanes are its neighbours in memory."""
        return self.costs.machine.fill / self.target.lanes(element.dtype.bits)

    def _packed(
        self, c: Contraction, a: list[Access], b: list[Access], fill: float, rows: int
    ) -> float:
        """The cycles that bring the factors in the order of the tile."""
        total = 0.0
        if not _is_element(c.a, a):
            total += max([self._computed(x) for x in a], default=0.0)
        if _is_element(c.b, b):
            if b[0].storage.op is Ops.DATA:
                return total
            many = rows >= thresholds.LEAST_ROWS_OF_LINES
            large = many and _bytes(b[0]) >= self.target.l2_bytes // thresholds.PACKED_SHARE
            if fill == self._fill_of_neighbours(c.b) and not large:
                return total
            if any([self.strides[b[0]].get(r) == 1 for r in c.depth]):
                fill = min(fill, order.TURNED_FILL)
        return total + fill * self._values(b)

    def _values(self, b: list[Access]) -> int:
        """The number of values to reorder: if an array is read at a sum of all loops around (an
        image), its elements; else one per iteration."""
        loops = dict.fromkeys([r for x in b for r in x.loops])
        full_sizes = [
            x.elements for x in b
            if loops.keys() <= set(x.loops) and None not in self.strides[x].values()
        ]  # fmt: skip
        return min(full_sizes) if full_sizes else trips(loops) if loops else 0

    def _computed(self, x: Access) -> float:
        """The cycles of what a computed factor reads, which is packed; each time anew if the index
        is no sum of loops."""
        if None in self.strides[x].values():
            return self.costs.machine.gather * trips(x.loops)
        return self._fill_of_neighbours(x.node) * x.elements

    def _reread_cycles(self, operand: list[Access], around: list[UOp], panels: int) -> float:
        """The cycles of reading an operand from a far cache, but for the first time."""
        total = 0.0
        for x in operand:
            times = panels * trips([r for r in around if r not in x.loops])
            total += (times - 1) * _bytes(x) / self.target.figures.last_bytes
        return total

    def _after(self, lane: UOp) -> float:
        """The cycles of reads outside of the sums."""
        inside = {r for u in self.nest.reduces for r in u.src[1:]}
        outside_sums = [x for x in self.nest.read if inside.isdisjoint(x.loops)]
        lanes = self._lanes()
        return order.ACCESS * sum([
            trips(x.loops) / (lanes if self.strides[x].get(lane, 0) in (0, 1) else 1.0)
            for x in outside_sums
        ])  # fmt: skip

    # ------------------------------------------------------------ other nests
    def _plain(self) -> float:
        """The least cycles with any loop in lanes."""
        summed = [r for u in self.nest.reduces for r in u.src[1:]]
        loops = dict.fromkeys([*self.loops, *summed])
        found = [self._in_lanes(r) for r in loops if most_of(r) > 1]
        return min(found, default=0.0)

    def _in_lanes(self, lane: UOp) -> float:
        joined = self._joined(lane) if lane in self.loops else [lane]
        length = trips(joined)
        width = fitting(self._lanes(), length)
        vectors = length // width + (length % width > 0)

        def often(around: Collection[UOp]) -> float:
            if lane not in around:
                return trips(around)
            return vectors * trips([r for r in around if r not in joined])

        total = 0.0
        for x, strides in self.strides.items():
            times = 2 if x is self.nest.written[0] else 1
            step = 1 if x.storage.op is Ops.DATA else strides.get(lane, 0)
            total += often(x.loops) * times * _loads(step, width)
        total += sum([cost * often(around) for around, cost in self.nest.costs.items()])
        return order.ACCESS * total

    def _lanes(self) -> int:
        bits = [8 * x.itemsize for x in self.strides]
        return self.target.lanes(max(bits))


def _loads(step: int | None, lanes: int) -> float:
    """The accesses per vector if its lanes are `step` elements apart."""
    if step is not None and abs(step) <= MOST_STEP:
        return max(1, abs(step))
    return order.FAR_ACCESS * lanes


def _bytes(x: Access) -> int:
    return x.elements * x.itemsize


def _rows(c: Contraction) -> list[UOp]:
    return [r for r in c.rows if most_of(r) > 1]


def _is_element(value: UOp, reads: list[Access]) -> bool:
    """True if a factor is an element of an array, read without a guard."""
    return len(reads) == 1 and reads[0].node is value and reads[0].gate is None
