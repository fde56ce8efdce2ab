"""Non-maximum suppression: of boxes that overlap, the one with the greatest score.

    for pair in batches × classes:
        for i in range(n):                        boxes in the order of their scores
            loop over the boxes kept so far:      covered |= overlap > allowed
            rows[total] = batch, class, box
            total += score > least, kept < limit, not covered

A box whose score is too low, or that comes when enough are kept, loops over nothing.
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
from uopc.tensor import creation, elementwise
from uopc.tensor.sorts import compaction, sorting


def suppressed(low: UOp, high: UOp, scores: UOp, limit: UOp, allowed: UOp, least: UOp) -> UOp:
    """The rows (batch, class, box), int64, of the boxes that are kept: batch by batch, class by
    class, the greatest score first.

    `low`, `high`: float32 corners of shape (batch, n, 2); `scores`: (batch, class, n). `limit`: the
    most boxes of a class, an int64; `allowed`: the greatest overlap of two that are kept, and
    `least`: what a score must exceed, float32; all three without dimensions.
    """
    batch, classes, n = shapes.shape(scores)
    pairs = uop_dim(affine.mul(dim_uop(batch), dim_uop(classes)))
    most = uop_dim(affine.mul(dim_uop(pairs), dim_uop(n)))
    if 0 in (pairs, n):
        return leaves.full(leaves.const(dtypes.int64, 0), (0, 3))
    flat = movement.reshape(scores, (pairs, n))
    order = cast(sorting.argsort(flat, 1, descending=True), dtypes.int32)
    numbers = movement.stack(cast(allowed, dtypes.float32), cast(least, dtypes.float32))
    inputs = [low, high, flat, order, movement.reshape(cast(limit, dtypes.int64), (1,)), numbers]
    made = [
        creation.buffer((most, 3), dtypes.int64), creation.buffer((1,), dtypes.int64),
        creation.buffer((2,), dtypes.int64),
    ]  # fmt: skip
    storage = [*made, *[elementwise.contiguous(v) for v in inputs]]
    params = [creation.kernel_param(i, shapes.shape(s), s.dtype) for i, s in enumerate(storage)]
    sink = _Suppression(params, pairs, classes, n, most).sink()
    call = leaves.located(intern(Ops.CALL, dtypes.void, (sink, *storage)))
    total = movement.reshape(kernel.after(made[1], call), ())
    count = compaction.length("boxes", total, most)
    return movement.shrink(kernel.after(made[0], call), [(0, count), (0, 3)])


class _Suppression:
    """The kernel. `state` holds where the rows of the class begin, and whether a box is covered."""

    def __init__(self, params: list[UOp], pairs: Dim, classes: Dim, n: Dim, most: Dim) -> None:
        self.rows, self.total, self.state, self.low, self.high = params[:5]
        self.scores, self.order, self.limit, self.numbers = params[5:]
        self.pairs, self.classes, self.n, self.most = pairs, classes, n, most

    def sink(self) -> UOp:
        """For each class, each box in order."""
        cleared = kernel.store(movement.index(self.total, 0), 0)
        pair = kernel.range(self.pairs, 0)
        total = kernel.after(self.total, cleared, pair)
        begun = kernel.store(movement.index(self.state, 0), movement.index(total, 0))
        i = kernel.range(self.n, 1)
        step = self._box(pair, i, begun)
        return kernel.sink(kernel.end(kernel.end(step, i), pair), name="suppress")

    def _box(self, pair: UOp, i: UOp, begun: UOp) -> UOp:
        """Keep a box, or not."""
        state = kernel.after(self.state, begun, i)
        count = movement.index(kernel.after(self.total, begun, i), 0)
        begin = movement.index(state, 0)
        kept = count - begin
        box = _place(movement.index(self.order, pair, i), self.n)
        good = movement.index(self.scores, pair, box) > movement.index(self.numbers, 1)
        good = good & (kept < movement.index(self.limit, 0))
        covered, store = self._covered(pair, box, kept, begin, good, state)
        at = _place(count, self.most)
        batch = affine.floordiv(pair, dim_uop(self.classes))
        values = batch, affine.sub(pair, affine.mul(batch, dim_uop(self.classes))), box
        rows = kernel.after(self.rows, store)
        stores = [
            kernel.store(movement.index(rows, at, k), cast(v, dtypes.int64))
            for k, v in enumerate(values)
        ]
        total = movement.index(kernel.after(self.total, *stores), 0)
        more = good & covered.eq(0)
        return kernel.store(total, count + cast(more, dtypes.int64))

    def _covered(
        self, pair: UOp, box: UOp, kept: UOp, begin: UOp, good: UOp, state: UOp
    ) -> tuple[UOp, UOp]:
        """Give 1 if a kept box of the class overlaps too much, and the effect that finds it.
        `state`: in the loop over boxes."""
        cleared = kernel.store(movement.index(state, 1), 0)
        none = leaves.const(dtypes.int64, 0)
        end = alu.alu(_place(alu.where(good, kept, none), None), Ops.MIN, dim_uop(self.n))
        j = kernel.range(end, 2)
        flag = movement.index(kernel.after(self.state, cleared, j), 1)
        at = _place(begin + cast(j, dtypes.int64), self.most)
        known = kernel.after(self.rows, cleared, j)
        other = _place(movement.index(known, at, 2), self.n)
        batch = affine.floordiv(pair, dim_uop(self.classes))
        overlaps = self._overlap(batch, box, other) > movement.index(self.numbers, 0)
        found = kernel.end(kernel.store(flag, flag | cast(overlaps, dtypes.int64)), j)
        return movement.index(kernel.after(self.state, found), 1), found

    def _overlap(self, batch: UOp, a: UOp, b: UOp) -> UOp:
        """The area that two boxes share, of that of both; 0 without an area."""
        both, one, two = (leaves.const(dtypes.float32, 1.0) for _ in range(3))
        for k in (0, 1):
            (low_a, high_a), (low_b, high_b) = (
                [movement.index(v, batch, box, k) for v in (self.low, self.high)] for box in (a, b)
            )
            shared = high_a.minimum(high_b) - low_a.maximum(low_b)
            both = both * shared.maximum(0.0)
            one, two = one * (high_a - low_a), two * (high_b - low_b)
        whole = one + two - both
        return alu.where(whole > 0.0, both / whole, 0.0)


def _place(number: UOp, n: Dim | None) -> UOp:
    """An index below n that a number is, which proves that it is inside."""
    unsigned = dtypes.uint32 if number.dtype.bits == 32 else dtypes.uint64
    place = cast(bitcast(number, unsigned), dtypes.index)
    return place if n is None else alu.alu(place, Ops.MIN, affine.plus(dim_uop(n), -1))
