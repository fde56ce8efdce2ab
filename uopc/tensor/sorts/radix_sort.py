"""A stable sort of rows by digits, as a kernel: its time grows with the length of a row.

    count   for i: for each digit d of key(x[i]): counts[d + 1] += 1     all digits in one loop
    place   for d: counts[d + 1] += counts[d]                            where each digit begins
    move    for i: to[counts[d]] = from[i]; counts[d] += 1               a loop for each digit

The loops that move go from the lowest digit to the highest; each keeps the order of equal digits.
They move the values, and with them the places they had, between two sets of arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from uopc.ir.builder import kernel, leaves
from uopc.ir.builder.fold import cast
from uopc.ir.builder.movement import index
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import place_dtype
from uopc.tensor import creation, elementwise

_DIGIT = 8  # bits: the counters of all digits of 64 bits are 8 KiB, which the nearest cache holds


class Order(NamedTuple):
    """The order of a sort: by `key`, an unsigned integer of `bits` bits per value."""

    bits: int
    key: Callable[[UOp], UOp] = lambda v: v

    @property
    def digits(self) -> int:
        """The number of digits of a key."""
        return -(-self.bits // _DIGIT)

    @property
    def width(self) -> int:
        """The number of counters: one for each value of a digit, and one more."""
        return (1 << min(self.bits, _DIGIT)) + 1

    def digit(self, value: UOp, number: int) -> UOp:
        """Extract a digit of a value's key; digit 0 is the lowest."""
        return cast((self.key(value) >> number * _DIGIT) & (self.width - 2), dtypes.index)


def radix_sort(x: UOp, order: Order) -> tuple[UOp, UOp]:
    """Sort the rows of a matrix; also return the place that each element had."""
    made = _RadixKernel(x, order, places=True)
    return made.result(0), made.result(1)


def radix_sort_values(x: UOp, order: Order) -> UOp:
    """Sort the rows of a matrix."""
    return _RadixKernel(x, order, places=False).result(0)


def radix_time(rows: int, n: int, order: Order) -> float:
    """The estimated ns on one thread: a counter takes as long as an element."""
    return 1.2 * rows * order.digits * (order.width + n)


class _RadixKernel:
    """The kernel, and the storage of its arguments."""

    def __init__(self, x: UOp, order: Order, places: bool) -> None:
        self.order = order
        self.rows, self.n = row = shapes.shape(x)
        self.storage: list[UOp] = []  # by slot
        self.axes = itertools.count()
        kinds = [x.dtype, place_dtype(self.n)][: 1 + places]
        sets = [[self._param(creation.buffer(row, t)) for t in kinds] for _ in range(2)]
        sets = sets[: order.digits]
        counter = dtypes.uint32 if bounds.max_dim(self.n) < 1 << 32 else dtypes.uint64
        self.counts = self._param(creation.buffer((order.digits * order.width,), counter))
        self.x = self._param(elementwise.contiguous(x))
        sink = self._sink(sets)
        self.call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *self.storage)))

    def result(self, number: int) -> UOp:
        """The values, or the places."""
        return kernel.after(self.storage[number], self.call)

    def _param(self, storage: UOp) -> UOp:
        """The kernel's parameter for this storage."""
        self.storage.append(storage)
        return creation.kernel_param(len(self.storage) - 1, shapes.shape(storage), storage.dtype)

    def _range(self, end: Dim) -> UOp:
        return kernel.range(end, next(self.axes))

    # ------------------------------------------------------------ the kernel
    def _sink(self, sets: list[list[UOp]]) -> UOp:
        """For each row: count, place, and move digit by digit; the last loop fills sets[0]."""
        self.row = self._range(self.rows)
        effect = self._placed(self._counted())
        source = [self.x]
        for d in range(self.order.digits):
            target = sets[(self.order.digits - 1 - d) % 2]
            effect = self._moved(d, source, target, effect)
            source = target
        return kernel.sink(kernel.end(effect, self.row), name=f"sort_{self.x.dtype.short}")

    def _counted(self) -> UOp:
        """Make counts[d + 1] the number of occurrences of digit d."""
        width, zeros = self.order.width, self._range(self.order.digits * self.order.width)
        begin = kernel.after(self.counts, self.row)
        cleared = kernel.end(kernel.store(index(begin, zeros), 0), zeros)
        counts, i = kernel.after(self.counts, cleared), self._range(self.n)
        stores = []
        for d in range(self.order.digits):
            place = index(counts, self.order.digit(index(self.x, self.row, i), d) + d * width + 1)
            stores.append(kernel.store(place, place + 1))
        return kernel.end(kernel.group(*stores), i)

    def _placed(self, counted: UOp) -> UOp:
        """Make counts[d] the number of digits less than d, by a loop per digit. In a joined loop
        the processor would run loads before the stores they depend on, and restart."""
        effect = counted
        for k in range(self.order.digits):
            counts = kernel.after(self.counts, effect)
            d = self._range(self.order.width - 2)
            first = k * self.order.width + d + 1
            total = index(counts, first) + index(counts, first + 1)
            effect = kernel.end(kernel.store(index(counts, first + 1), total), d)
        return effect

    def _moved(self, d: int, source: list[UOp], target: list[UOp], before: UOp) -> UOp:
        """Move each element to the place of its digit, and advance the place."""
        i, counts = self._range(self.n), kernel.after(self.counts, before)
        given = source if d == 0 else [kernel.after(s, before) for s in source]
        values = [index(s, self.row, i) for s in given]
        if len(values) < len(target):  # places before the first move
            values.append(cast(i, target[1].dtype))
        count = index(counts, self.order.digit(values[0], d) + d * self.order.width)
        to = cast(count, dtypes.index)
        stores = [
            kernel.store(index(kernel.after(t, before), self.row, to), v)
            for t, v in zip(target, values)
        ]
        following = index(kernel.after(counts, *stores), *count.src[1:])
        return kernel.end(kernel.store(following, count + 1), i)
