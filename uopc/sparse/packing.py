"""The values of boxes as one vector, and sums of values that belong to one entry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from uopc.derivatives import gather
from uopc.derivatives.values import filled, fit, number_in, part
from uopc.ir.builder import alu, fold, leaves, movement, operands
from uopc.ir.core import shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.sparse.boxes import Box, Boxes
from uopc.sparse.reading import Dims, guarded
from uopc.sparse.sparsity import Places

# If more boxes add to an entry, one table of all values sums the entries.
MOST_ADDED = 4


@dataclass(frozen=True)
class Packed:
    """The values of boxes in one vector; `places`: for each box, the positions of its entries."""

    vector: UOp
    places: list[Places]


def by_shape(boxes: Sequence[Box]) -> list[int]:
    """The order of boxes in `packed`: boxes of one shape together, then numbers."""
    groups: dict[Dims | None, list[int]] = {}
    for i, box in enumerate(boxes):
        is_number = box.value is not None and number_in(box.value) is not None
        groups.setdefault(None if is_number else box.rows.shape, []).append(i)
    numbers = groups.pop(None, [])
    return [i for members in groups.values() for i in members] + numbers


def packed(boxes: Sequence[Box], dtype: DType, in_order: bool = False) -> Packed:
    """Join the values of boxes into one vector.

    Boxes of one shape are rows of a stored STACK, so that their kernel computes shared values once.
    If a value sums an array of such a shape, the array is one more row. Numbers are a constant
    array without repetitions; with `in_order` a number appears once for each entry, so that the
    vector has the values of boxes in the order of `by_shape`.
    """
    made = _Packing(boxes, dtype)
    for dims in list(made.groups):
        made.add_group(dims, with_numbers=len(made.groups) == 1 and not in_order)
    made.add_sums()
    made.add_numbers(in_order)
    parts = made.parts
    vector = movement.cat(*parts, axis=0).contiguous() if len(parts) > 1 else parts[0]
    return Packed(vector, made.places)


class _Packing:
    """The parts of a vector, and the positions of each box's entries in the vector."""

    def __init__(self, boxes: Sequence[Box], dtype: DType) -> None:
        self.boxes, self.dtype = boxes, dtype
        self.groups: dict[Dims, dict[int, UOp]] = {}  # by shape: the values of boxes
        self.numbers: dict[int, float] = {}
        self.summed: dict[Dims, dict[int, UOp]] = {}  # by shape of the summed array: sums
        self.parts: list[UOp] = []
        self.places: list[Places] = [np.zeros(0, np.int64)] * len(boxes)
        self._totals: dict[int, UOp] = {}
        self._at = 0
        values = [filled(b.value, like=leaves.const(dtype, 0)) for b in boxes]
        shapes_of = {b.rows.shape for b, v in zip(boxes, values) if number_in(v) is None}
        for i, (box, value) in enumerate(zip(boxes, values)):
            number, value = number_in(value), fold.cast(value, dtype)
            reduce = _sum_in(value)
            if number is not None:
                self.numbers[i] = number
            elif reduce is not None and shapes.shape(reduce.src[0]) in shapes_of:
                dims: Dims = shapes.shape(reduce.src[0])
                self.summed.setdefault(dims, {})[i] = reduce
            else:
                full = fit(value, box.rows.shape)
                self.groups.setdefault(box.rows.shape, {})[i] = full
        for dims in [d for d in self.summed if d not in self.groups]:
            self.groups[dims] = {}

    def _place(self, i: int, size: int) -> None:
        self.places[i] = np.arange(self._at, self._at + size)
        self._at += size

    def add_group(self, dims: Dims, with_numbers: bool) -> None:
        """Add the boxes of one shape as rows; a few numbers become rows, not a part of their
        own."""
        members, summed = self.groups[dims], self.summed.get(dims, {})
        rows, n, first = list(members.values()), math.prod(dims), self._at
        for i in members:
            self._place(i, n)
        rows += [u.src[0] for u in summed.values()]
        unique = sorted(set(self.numbers.values()))
        if with_numbers and len(unique) <= len(rows):
            for i, number in self.numbers.items():
                place = first + (len(rows) + unique.index(number)) * n
                self.places[i] = np.full(self.boxes[i].size, place)
            rows += [leaves.full(leaves.const(self.dtype, number), dims) for number in unique]
            self.numbers = {}
        whole = movement.reshape(movement.stack(*rows), (len(rows), *dims)).contiguous()
        for k, (i, u) in enumerate(summed.items()):
            row = movement.reshape(
                part(whole, [len(members) + k, *[0] * len(dims)], [1, *dims]), dims
            )
            self._totals[i] = movement.reduce(row, "add", u.arg.axes)
        self.parts.append(movement.reshape(whole, (n * len(rows),)))
        self._at = first + n * len(rows)

    def add_sums(self) -> None:
        """Add the sums of stored rows."""
        for i, total in self._totals.items():
            n, full = self.boxes[i].size, fit(total, self.boxes[i].rows.shape)
            self.parts.append(movement.reshape(full, (n,)))
            self._place(i, n)

    def add_numbers(self, in_order: bool) -> None:
        """Add the numbers that are not in a row."""
        if not self.numbers:
            return
        if in_order:
            repeated = [np.full(self.boxes[i].size, number) for i, number in self.numbers.items()]
            values = np.concatenate(repeated)
            for i in self.numbers:
                self._place(i, self.boxes[i].size)
        else:
            values = np.unique(list(self.numbers.values()))
            for i, number in self.numbers.items():
                place = self._at + int(np.searchsorted(values, number))
                self.places[i] = np.full(self.boxes[i].size, place)
        self.parts.append(operands.constant(values.astype(self.dtype.numpy)))


def _sum_in(value: UOp) -> UOp | None:
    """The additive REDUCE that a value is, up to its shape; None for other values."""
    while value.op is Ops.RESHAPE:
        value = value.src[0]
    return value if value.op is Ops.REDUCE and value.arg.op == "add" else None


def sums(tools: Boxes, vector: UOp, places: Places, targets: Places, n: int) -> UOp:
    """A vector of n elements: element places[k] of `vector` is added to element targets[k]."""
    order = np.argsort(targets, kind="stable")
    counts = np.bincount(targets, minlength=n)
    rank = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    most = int(counts.max(initial=0))
    if most > MOST_ADDED:
        given = tools.reader.taken(vector, places)
        return gather.by_table(given, 0, targets, n)
    found: UOp | None = None
    for level in range(most):
        mine = order[rank == level]
        table = np.full(n, -1, np.int64)
        table[targets[mine]] = places[mine]
        full = (table >= 0).all()
        part = tools.reader.taken(vector, table) if full else movement.index(vector, guarded(table))
        found = part if found is None else alu.alu(found, Ops.ADD, part)
    return leaves.full(leaves.const(vector.dtype, 0), (n,)) if found is None else found


class Columns:
    """The sorted columns of each position."""

    def __init__(self, columns: int) -> None:
        self._columns = max(columns, 1)
        self._keys: list[Places] = []
        self._all: Places = np.zeros(0, np.int64)

    def add(self, place: Places, cols: Places) -> None:
        self._keys.append(np.unique(place * self._columns + cols))

    def table(self, count: int) -> tuple[int, Places]:
        """The most columns of a position, and a table by (number, position) of the columns of
        `count` positions, padded with -1."""
        self._all = np.unique(np.concatenate(self._keys))
        place = self._all // self._columns
        self._first = np.searchsorted(place, np.arange(count))
        number = np.arange(place.size) - self._first[place]
        most = int(number.max(initial=-1)) + 1
        found = np.full((most, count), -1, np.int64)
        found[number, place] = self._all % self._columns
        return most, found

    def number(self, place: Places, cols: Places) -> Places:
        """The index of each column among the columns of its position."""
        found = np.searchsorted(self._all, place * self._columns + cols) - self._first[place]
        return np.asarray(found, np.int64)


@dataclass(frozen=True)
class Coloured:
    """Columns with colours: columns of one colour share a tangent."""

    colours: Places

    def number(self, place: Places, cols: Places) -> Places:
        """The colour of each column."""
        return np.asarray(self.colours[cols], np.int64)


def column_tangents(
    tools: Boxes, boxes: Sequence[Box], columns: Columns | Coloured, tangents: int, count: int,
    like: UOp,
) -> UOp:  # fmt: skip
    """The tangents of a node along a new first dimension. The node's leading dimensions are `count`
    positions; tangent t is by column t of each position."""
    dims = shapes.shape(like)
    n = math.prod(dims)
    made = packed(boxes, like.dtype)
    targets = [columns.number(b.rows // (n // count), b.cols) * n + b.rows for b in boxes]
    dense = sums(tools, made.vector, _join_places(made.places), _join_places(targets), tangents * n)
    return movement.reshape(dense, (tangents, *dims))


def _join_places(arrays: Sequence[npt.NDArray[np.integer]]) -> Places:
    return np.concatenate([a.reshape(-1) for a in arrays]).astype(np.int64)
