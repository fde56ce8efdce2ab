"""Non-maximum suppression: of boxes that overlap, the one with the greatest score.

    candidates: the places of scores > least, by batch and class, the greatest score first
    for i in candidates:
        begin = total, where another class begins
        loop over rows begin … total:             covered |= overlap > allowed
        rows[total] = batch, class, box
        total += kept < limit, not covered

A box that comes when enough are kept loops over nothing.
"""

from __future__ import annotations

from uopc.ir.builder import alu, kernel, leaves, movement
from uopc.ir.builder.fold import bitcast, cast
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop, uop_dim
from uopc.tensor import creation, elementwise, indexing
from uopc.tensor.sorts import compaction, sorting


def suppressed(low: UOp, high: UOp, scores: UOp, limit: UOp, allowed: UOp, least: UOp) -> UOp:
    """The rows (batch, class, box), int64, of the boxes that are kept: batch by batch, class by
    class, the greatest score first.

    `low`, `high`: float32 corners of shape (batch, n, 2); `scores`: (batch, class, n). `limit`: the
    most boxes of a class, an int64; `allowed`: the greatest overlap of two that are kept, and
    `least`: what a score must exceed, float32; all three without dimensions.
    """
    batch, classes, n = shapes.shape(scores)
    most = uop_dim(affine.mul(affine.mul(dim_uop(batch), dim_uop(classes)), dim_uop(n)))
    if most == 0:
        return leaves.full(leaves.const(dtypes.int64, 0), (0, 3))
    flat = movement.reshape(scores, (most,))
    places = cast(compaction.places(flat > least, "candidates"), dtypes.int64)
    best = sorting.argsort(indexing.gather(flat, 0, places), descending=True)
    places = indexing.gather(places, 0, cast(best, dtypes.int64))
    size = cast(dim_uop(n), dtypes.int64)
    by_class = sorting.argsort(cast(places // size, dtypes.int32))
    places = indexing.gather(places, 0, cast(by_class, dtypes.int64))
    pairs, count = places // size, cast(dim_uop(classes), dtypes.int64)
    columns = movement.stack(pairs // count, pairs % count, places % size, axis=1)
    inputs = [low, high, columns, movement.reshape(limit, (1,)), movement.reshape(allowed, (1,))]
    made = [
        creation.buffer((most, 3), dtypes.int64), creation.buffer((1,), dtypes.int64),
        creation.buffer((2,), dtypes.int64),
    ]  # fmt: skip
    storage = [*made, *[elementwise.contiguous(v) for v in inputs]]
    params = [creation.kernel_param(i, shapes.shape(s), s.dtype) for i, s in enumerate(storage)]
    sink = _Suppression(params).sink()
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *storage)))
    total = movement.reshape(kernel.after(made[1], call), ())
    kept = compaction.length("boxes", total, most)
    return movement.shrink(kernel.after(made[0], call), [(0, kept), (0, 3)])


class _Suppression:
    """The kernel. `state`: where the rows of the class begin, and whether a box is covered."""

    def __init__(self, params: list[UOp]) -> None:
        self.rows, self.total, self.state, self.low, self.high = params[:5]
        self.columns, self.limit, self.allowed = params[5:]
        self.most = shapes.shape(self.rows)[0]
        self.batches, self.n = shapes.shape(self.low)[:2]

    def sink(self) -> UOp:
        """Each candidate in order."""
        cleared = kernel.store(movement.index(self.total, 0), 0)
        begun = kernel.store(movement.index(kernel.after(self.state, cleared), 0), 0)
        i = kernel.range(shapes.shape(self.columns)[0], 0)
        step = self._box(i, begun)
        return kernel.sink(kernel.end(step, i), name="suppress")

    def _box(self, i: UOp, begun: UOp) -> UOp:
        """Keep a box, or not."""
        values = [movement.index(self.columns, i, k) for k in range(3)]
        first = alu.alu(affine.plus(i, -1), Ops.MAX, affine.const(0))
        before = [movement.index(self.columns, first, k) for k in range(2)]
        same = values[0].eq(before[0]) & values[1].eq(before[1])
        count = movement.index(kernel.after(self.total, begun, i), 0)
        state = kernel.after(self.state, begun, i)
        moved = kernel.store(
            movement.index(state, 0), alu.where(same, movement.index(state, 0), count)
        )
        begin = movement.index(kernel.after(self.state, moved), 0)
        good = (count - begin) < movement.index(self.limit, 0)
        end = alu.where(good, count - begin, leaves.const(dtypes.int64, 0))
        covered, found = self._covered(values, begin, end, kernel.after(self.state, moved))
        rows, at = kernel.after(self.rows, found), _place(count, self.most)
        stores = [kernel.store(movement.index(rows, at, k), v) for k, v in enumerate(values)]
        more = cast(good & covered.eq(0), dtypes.int64)
        return kernel.store(movement.index(kernel.after(self.total, *stores), 0), count + more)

    def _covered(self, box: list[UOp], begin: UOp, end: UOp, state: UOp) -> tuple[UOp, UOp]:
        """Give 1 if a kept box of the class overlaps too much, and the effect that finds it."""
        cleared = kernel.store(movement.index(state, 1), 0)
        j = kernel.range(alu.alu(_index(end), Ops.MIN, dim_uop(self.n)), 1)
        flag = movement.index(kernel.after(self.state, cleared, j), 1)
        known = kernel.after(self.rows, cleared, j)
        other = movement.index(known, _place(begin + cast(j, dtypes.int64), self.most), 2)
        overlaps = self._overlap(box, other) > movement.index(self.allowed, 0)
        found = kernel.end(kernel.store(flag, flag | cast(overlaps, dtypes.int64)), j)
        return movement.index(kernel.after(self.state, found), 1), found

    def _overlap(self, box: list[UOp], other: UOp) -> UOp:
        """The area that two boxes of a batch share, of that of both; 0 without an area."""
        batch = _place(box[0], self.batches)
        both, one, two = (leaves.const(dtypes.float32, 1.0) for _ in range(3))
        for k in (0, 1):
            (low_a, high_a), (low_b, high_b) = (
                [movement.index(v, batch, _place(b, self.n), k) for v in (self.low, self.high)]
                for b in (box[2], other)
            )
            shared = high_a.minimum(high_b) - low_a.maximum(low_b)
            both = both * shared.maximum(0.0)
            one, two = one * (high_a - low_a), two * (high_b - low_b)
        whole = one + two - both
        return alu.where(whole > 0.0, both / whole, 0.0)


def _index(number: UOp) -> UOp:
    """The index that a number is, which is not negative."""
    return cast(bitcast(number, dtypes.uint64), dtypes.index)


def _place(number: UOp, n: Dim) -> UOp:
    """The index below n that a number is; this proves that it is inside."""
    return alu.alu(_index(number), Ops.MIN, affine.plus(dim_uop(n), -1))
