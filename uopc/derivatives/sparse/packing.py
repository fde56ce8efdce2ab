"""The values of boxes as one vector, and sums of those that are one entry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uopc.derivatives import gather
from uopc.derivatives.sparse.boxes import Box, Boxes
from uopc.derivatives.sparse.reading import Dims, Places, guarded
from uopc.derivatives.values import fit, number_in
from uopc.ir.builder import alu, fold, leaves, movement, operands
from uopc.ir.core import shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# Entries to which more boxes add are summed by one table of all their values.
MOST_ADDED = 4


@dataclass(frozen=True)
class Packed:
    """The values of boxes in one vector; `places` has those of the entries of each box in it."""

    vector: UOp
    places: list[Places]


def by_shape(boxes: Sequence[Box]) -> list[int]:
    """The order in which `packed` has boxes: those of one shape together, then numbers."""
    groups: dict[Dims | None, list[int]] = {}
    for i, box in enumerate(boxes):
        is_number = box.value is not None and number_in(box.value) is not None
        groups.setdefault(None if is_number else box.rows.shape, []).append(i)
    numbers = groups.pop(None, [])
    return [i for members in groups.values() for i in members] + numbers


def packed(boxes: Sequence[Box], dtype: DType, in_order: bool = False) -> Packed:
    """The values of boxes, which have some, in one vector.

    Boxes of one shape are rows of a STACK, stored: their kernel computes once what they share.
    Numbers are a constant array, with each of them once; with `in_order` as often as they are
    entries, so that the vector has the values of boxes in the order of `by_shape` as they are.
    """
    groups: dict[Dims, dict[int, UOp]] = {}
    numbers: dict[int, float] = {}
    for i, box in enumerate(boxes):
        assert box.value is not None
        number = number_in(box.value)
        if number is None:
            value = fit(fold.cast(box.value, dtype), box.rows.shape)
            groups.setdefault(box.rows.shape, {})[i] = value
        else:
            numbers[i] = number
    places: list[Places] = [np.zeros(0, np.int64)] * len(boxes)
    parts: list[UOp] = []
    unique = sorted(set(numbers.values()))
    at = 0
    for dims, members in groups.items():
        rows, n = list(members.values()), math.prod(dims)
        if len(groups) == 1 and not in_order and len(unique) <= len(rows):
            # As more rows, few numbers need no other part, and no copy that joins the parts.
            for i, number in numbers.items():
                places[i] = np.full(boxes[i].size, (len(rows) + unique.index(number)) * n)
            rows += [leaves.full(leaves.const(dtype, number), dims) for number in unique]
            numbers = {}
        whole = movement.stack(*rows) if len(rows) > 1 else rows[0]
        parts.append(movement.reshape(whole.contiguous(), (n * len(rows),)))
        for i in members:
            places[i] = np.arange(at, at + n)
            at += n
    if numbers and in_order:
        repeated = [np.full(boxes[i].size, number) for i, number in numbers.items()]
        parts.append(operands.constant(np.concatenate(repeated).astype(dtype.numpy)))
        for i in numbers:
            places[i] = np.arange(at, at + boxes[i].size)
            at += boxes[i].size
    elif numbers:
        parts.append(operands.constant(np.asarray(unique, dtype.numpy)))
        for i, number in numbers.items():
            places[i] = np.full(boxes[i].size, at + unique.index(number))
    vector = movement.cat(*parts, axis=0).contiguous() if len(parts) > 1 else parts[0]
    return Packed(vector, places)


def sums(tools: Boxes, vector: UOp, places: Places, targets: Places, n: int) -> UOp:
    """A vector of n elements: to each target the element of `vector` at its place is added."""
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
    """The columns that each of some places has, in order."""

    def __init__(self, columns: int) -> None:
        self._columns = max(columns, 1)
        self._keys: list[Places] = []
        self._all: Places = np.zeros(0, np.int64)

    def add(self, place: Places, cols: Places) -> None:
        self._keys.append(np.unique(place * self._columns + cols))

    def table(self, count: int) -> tuple[int, Places]:
        """The most columns of a place, and the columns of each of `count` places, by (number,
        place); -1 where a place has fewer."""
        self._all = np.unique(np.concatenate(self._keys))
        place = self._all // self._columns
        self._first = np.searchsorted(place, np.arange(count))
        number = np.arange(place.size) - self._first[place]
        most = int(number.max(initial=-1)) + 1
        found = np.full((most, count), -1, np.int64)
        found[number, place] = self._all % self._columns
        return most, found

    def number(self, place: Places, cols: Places) -> Places:
        """Which of the columns of its place each column is."""
        found = np.searchsorted(self._all, place * self._columns + cols) - self._first[place]
        return np.asarray(found, np.int64)


def column_tangents(
    tools: Boxes, boxes: Sequence[Box], columns: Columns, tangents: int, count: int, like: UOp
) -> UOp:
    """The tangents of a node along a new first dimension; tangent t is by column t of each of
    `count` places, which are the leading dimensions of the node."""
    dims = shapes.shape(like)
    n = math.prod(dims)
    made = packed(boxes, like.dtype)
    targets = [columns.number(b.rows // (n // count), b.cols) * n + b.rows for b in boxes]
    dense = sums(tools, made.vector, _joined(made.places), _joined(targets), tangents * n)
    return movement.reshape(dense, (tangents, *dims))


def _joined(arrays: Sequence[npt.NDArray[np.integer]]) -> Places:
    return np.concatenate([a.reshape(-1) for a in arrays]).astype(np.int64)
