"""Boxes: entries of a Jacobian that are computed in the same way.

    y = x[1:] * x[:-1], x (5,):   rows 0 1 2 3, columns 1 2 3 4, values x[:-1]
                                  rows 0 1 2 3, columns 0 1 2 3, values x[1:]

A box has axes. `rows` and `cols` are arrays over these axes: indices of the elements of a node, and
of the columns. `value` is a node over the same axes, of size 1 along axes where it is constant. A
movement op only changes rows, an elementwise op multiplies the values by its factor at the rows,
and a sum drops the axes that neither rows nor columns depend on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from uopc.derivatives.values import Factor, Mask, Value, fit, number_in, times, total
from uopc.ir.builder import leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.ir.records import dataclass
from uopc.sparse.reading import ArrayReader, Dims, KnownArrays, Zeros
from uopc.sparse.sparsity import Places

# The longest axis to split if one of its slices has the positions of another box.
MOST_APART = 16


@dataclass(frozen=True)
class Box:
    """Entries over the axes of `rows` and `cols`. If only their positions are needed, `value` is a
    number, or None for a computed value."""

    rows: Places
    cols: Places
    value: Value

    @property
    def size(self) -> int:
        return self.rows.size


class Boxes:
    """The operations on boxes. `values`: False if only positions are needed. `work` counts the
    products of the operations."""

    def __init__(self, values: bool) -> None:
        self.values = values
        self.reader, self.known = ArrayReader(), KnownArrays()
        self.zeros = Zeros(self.known)
        self.work = 0

    def box(
        self, rows: npt.NDArray[np.integer], cols: npt.NDArray[np.integer], value: Value
    ) -> Box:
        """Make a box without the axes of length 1."""
        ones = [axis for axis, n in enumerate(rows.shape) if n == 1]
        if ones:
            dims = [n for n in rows.shape if n != 1]
            rows, cols = rows.reshape(dims), cols.reshape(dims)
            value = self._dropped(value, ones)
        return Box(self.reader.one(rows), self.reader.one(cols), value)

    def leaf(self, like: UOp, first: int) -> Box:
        """The derivative of a node by itself, in the columns from `first` on."""
        dims: Dims = shapes.shape(like)
        places = np.arange(math.prod(dims)).reshape([d for d in dims if d != 1])
        return self.box(places, places + first, leaves.const(like.dtype, 1))

    # ------------------------------------------------------------ axes
    def _along(self, value: Value, axis: int) -> bool:
        """True if a value changes along an axis."""
        dims = () if value is None else shapes.shape(value)
        return bool(dims) and dims[axis] != 1

    def _dropped(self, value: Value, axes: Sequence[int]) -> Value:
        """Drop axes of length 1 from a value."""
        dims = () if value is None else shapes.shape(value)
        if value is None or not dims:
            return value
        return movement.reshape(value, tuple([d for i, d in enumerate(dims) if i not in axes]))

    def _chosen(self, value: Value, chosen: Sequence[Places]) -> Value:
        """Take the elements of a value at these indices along each axis."""
        for axis, numbers in enumerate(chosen):
            if value is None or not self._along(value, axis):
                continue
            dims: Dims = shapes.shape(value)
            if numbers.size == dims[axis]:
                continue
            kept = tuple([numbers.size if i == axis else d for i, d in enumerate(dims)])
            grid = np.arange(math.prod(dims)).reshape(dims).take(numbers, axis)
            value = fit(self.reader.read(value, self.reader.one(grid), dims), kept)
        return value

    def taken(self, box: Box, chosen: Sequence[Places]) -> Box:
        """Take the part of a box at these indices along each axis; drop axes of length 1."""
        at = np.ix_(*chosen) if chosen else ()
        return self.box(box.rows[at], box.cols[at], self._chosen(box.value, chosen))

    def kept(self, box: Box, mask: npt.NDArray[np.bool_]) -> Box | None:
        """Keep the entries where a mask is True; None if there are none."""
        if mask.all():
            return box
        if not mask.any():
            return None
        axes = range(mask.ndim)
        lines = [mask.any(tuple([i for i in axes if i != axis])) for axis in axes]
        chosen = [np.flatnonzero(line) for line in lines]
        if math.prod([c.size for c in chosen]) == np.count_nonzero(mask):
            return self.taken(box, chosen)
        return self.listed(box, np.flatnonzero(mask))

    def listed(self, box: Box, places: Places) -> Box:
        """Some entries of a box, by flat index, along one axis."""
        value = box.value
        if value is not None and shapes.shape(value):
            whole = fit(value, box.rows.shape)
            value = self.reader.taken(movement.reshape(whole, (box.size,)), places)
        return self.box(box.rows.reshape(-1)[places], box.cols.reshape(-1)[places], value)

    # ------------------------------------------------------------ movement
    def moved(self, box: Box, table: Places) -> Box | None:
        """Move the entries of row r to row table[r]; drop them if that is -1."""
        rows = table[box.rows]
        found = self.kept(Box(rows, box.cols, box.value), rows >= 0)
        return None if found is None else self.box(found.rows, found.cols, found.value)

    def repeated(self, box: Box, steps: Sequence[tuple[int, int]]) -> Box:
        """Repeat a box along new axes, each given by its length and the distance of its rows."""
        lead = (*box.rows.shape, *(1,) * len(steps))
        rows = box.rows.reshape(lead) + _grid(steps)
        cols = np.broadcast_to(box.cols.reshape(lead), rows.shape)
        value = box.value
        if value is not None and shapes.shape(value):
            value = movement.reshape(value, (*shapes.shape(value), *(1,) * len(steps)))
        return self.box(rows, cols, value)

    def expanded(self, box: Box, own: Dims, dims: Dims) -> Box:
        """Repeat the box of a node of shape `own` to the shape `dims`."""
        if own == dims:
            return box
        extra = len(dims) - len(own)
        far = strides(dims)
        still = [d if i >= extra and own[i - extra] == d else 1 for i, d in enumerate(dims)]
        first = self.moved(box, _grid(list(zip(still, far))).reshape(-1))
        assert first is not None
        more = [(d, s) for d, s, n in zip(dims, far, still) if n != d]
        return self.repeated(self.settled(first), more) if more else first

    def settled(self, box: Box) -> Box:
        """Sum the values along axes that neither rows nor columns depend on.

        Sums are delayed until a box is multiplied, so that sums of sums become one sum.
        """
        axes = range(box.rows.ndim)
        still = [axis for axis in axes if _is_still(box.rows, axis) and _is_still(box.cols, axis)]
        if not still:
            return box
        value = box.value
        added = [axis for axis in still if self._along(value, axis)]
        times_ = math.prod([box.rows.shape[axis] for axis in still if axis not in added])
        if value is not None and added:
            value = movement.reduce(value, "add", tuple(added), keepdims=True)
        if value is not None and times_ != 1:
            value = times(value, float(times_))
        chosen = [np.arange(1 if axis in still else n) for axis, n in enumerate(box.rows.shape)]
        return self.taken(replace(box, value=value), chosen)

    # ------------------------------------------------------------ factors
    def scaled(self, box: Box, factor: Factor, dims: Dims) -> Box | None:
        """Multiply a box by a factor of a node of shape `dims`; drop entries that are always 0."""
        if factor is None or (isinstance(factor, (int, float)) and factor == 0):
            return None
        if isinstance(factor, Mask):
            return self._masked(box, factor, dims)
        other = self.zeros.other(factor) if isinstance(factor, UOp) else None
        if other is not None:
            left = self.kept(box, np.broadcast_to(other, dims).reshape(-1)[box.rows])
            if left is None:
                return None
            box = left
        if not _is_number(factor):
            box = self._counted(self.settled(box))
            if not self.values:
                return replace(box, value=None)
        elif box.value is None:
            return box
        scale = self.reader.read(factor, box.rows, dims) if isinstance(factor, UOp) else factor
        value = times(box.value, scale)
        return None if value is None else replace(box, value=value)

    def _counted(self, box: Box) -> Box:
        """Count the products of multiplying a box: none if its value is a number."""
        is_number = box.value is not None and number_in(box.value) is not None
        self.work += 0 if is_number else box.size
        return box

    def _masked(self, box: Box, mask: Mask, dims: Dims) -> Box | None:
        if mask.scale is not None:
            found = self.scaled(box, mask.scale, dims)
            return None if found is None else self._masked(found, replace(mask, scale=None), dims)
        if mask.condition in self.known:
            on = np.broadcast_to(self.known.array(mask.condition), dims).reshape(-1)[box.rows]
            return self.kept(box, on == mask.on)
        box = self._counted(self.settled(box))
        if not self.values:
            return replace(box, value=None)
        read = self.reader.read(mask.condition, box.rows, dims)
        value = times(box.value, replace(mask, condition=read))
        return None if value is None else replace(box, value=value)

    # ------------------------------------------------------------ boxes of one place
    def merged(self, found: Sequence[Box]) -> list[Box]:
        """Add up boxes that have the same positions."""
        found = [b for b in found if b.size]
        if len(found) < 2:
            return found
        values: dict[tuple[int, int], list[Box]] = {}
        for box in self._apart([self._ordered(b) for b in found]):
            values.setdefault((id(box.rows), id(box.cols)), []).append(box)
        return [b for b in map(self._sum, values.values()) if b is not None]

    def _sum(self, same: Sequence[Box]) -> Box | None:
        if len(same) == 1:
            return same[0]
        for box in same:
            if box.value is None:
                return box
        value = total([b.value for b in same])
        return None if value is None or number_in(value) == 0 else replace(same[0], value=value)

    def _ordered(self, box: Box) -> Box:
        """Sort the axes by the distance of rows along them, then of columns."""
        first = (0,) * box.rows.ndim
        steps = []
        for axis in range(box.rows.ndim):
            at = tuple([int(i == axis) for i in range(box.rows.ndim)])
            steps.append((box.rows[at] - box.rows[first], box.cols[at] - box.cols[first]))
        order = sorted(range(box.rows.ndim), key=lambda i: steps[i], reverse=True)
        if order == list(range(box.rows.ndim)):
            return box
        value = box.value
        if value is not None and shapes.shape(value):
            value = movement.permute(value, tuple(order))
        return self.box(box.rows.transpose(order), box.cols.transpose(order), value)

    def _apart(self, found: Sequence[Box]) -> list[Box]:
        """Split a box along a short axis if one of its slices has the positions of another box."""
        places = {(id(b.rows), id(b.cols)) for b in found}
        lengths = {b.rows.shape for b in found}
        out: list[Box] = []
        for box in found:
            axis = self._parted_axis(box, places, lengths)
            if axis is None:
                out.append(box)
                continue
            for i in range(box.rows.shape[axis]):
                out.append(self.taken(box, [
                    np.asarray([i]) if k == axis else np.arange(n)
                    for k, n in enumerate(box.rows.shape)
                ]))  # fmt: skip
        return out

    def _parted_axis(
        self, box: Box, places: set[tuple[int, int]], lengths: set[Dims]
    ) -> int | None:
        dims = box.rows.shape
        for axis, n in enumerate(dims):
            if n > MOST_APART or dims[:axis] + dims[axis + 1 :] not in lengths:
                continue
            for i in range(n):
                one = [self.reader.one(np.asarray(a.take(i, axis))) for a in (box.rows, box.cols)]
                if (id(one[0]), id(one[1])) in places:
                    return axis
        return None


def _grid(steps: Sequence[tuple[int, int]]) -> Places:
    """The positions of an array: for each axis its length, and the distance of its elements."""
    grid: Places = np.zeros((), np.int64)
    for n, step in steps:
        grid = grid[..., None] + np.arange(n) * step
    return grid


def _is_still(places: Places, axis: int) -> bool:
    """True if positions are constant along an axis. Comparing the first two settles most cases."""
    ends = places.take([0, 1], axis).reshape(-1)
    return bool(ends[0] == ends[-1]) and bool((places == places.take([0], axis)).all())


def _is_number(factor: Factor) -> bool:
    return not isinstance(factor, UOp) or number_in(factor) is not None


def strides(dims: Dims) -> list[int]:
    """The distance between neighbouring elements of an array along each axis."""
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]
