"""Cut a large reduce to few elements in two, so that its first half runs in parallel.

Before (tensor)                       After (tensor)
  %1 = param x : f32[1048576]           %1 = param x : f32[1048576]
  %2 = reduce.add %1 axes=(0,) : f32    %2 = reshape %1 (256, 4096) : f32[256, 4096]
  sink %2                               %3 = reduce.add %2 axes=(1,) : f32[256]
                                        %4 = contiguous %3 : f32[256]
                                        %5 = reduce.add %4 axes=(0,) : f32
                                        sink %5

Where threads would share the columns of a sum down few of them, they share its rows: a thread that
has some columns of each row reads most of the lines of all rows.

Where no number of pieces divides the axis, the second half also reduces the few elements after the
last piece. A reduce that reads nothing stays: it has a closed form. So does one that the user gave
Opts. The options `split_reduces`, `split_ratio` and `split_size` are the switch and the thresholds.
"""

from __future__ import annotations

from uopc.ir.builder import alu, movement, rebuild
from uopc.ir.core import shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.user_opts import free_reduces
from uopc.passes.contract import Context

# The number of pieces of each result: the first of those that leave the fewest elements.
PIECES = range(256, 7, -1)

# A sum down columns for several threads: the most bytes of a row, and the most pieces, for each
# thread; the fewest elements. docs/lab/schedule.md: "Rows that two threads share".
ROW_BYTES, ROW_PIECES, LEAST_ELEMENTS = 256, 8, 1 << 19


def split_reduces(graph: UOp, context: Context) -> UOp:
    """The graph with two reduces for each that is large."""
    splits = _Splits(context)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return splits.halves(u, src[0])

    return rebuild.rewritten(graph, change, outside_kernels=True, only=free_reduces(graph))


class _Splits:
    """The thresholds, and for the dump the values that first halves store."""

    def __init__(self, context: Context) -> None:
        self.options, self.is_cpu = context.options, context.target.gpu is None
        self.threads = context.threads
        self.notes: dict[UOp, str] = context.notes.setdefault("splits", {})

    def halves(self, u: UOp, value: UOp) -> UOp | None:
        """reduce over n  →  reduce over p of (reduce over n/p), with a new axis for the pieces."""
        dims = shapes.shape(value)
        if not all(isinstance(d, int) for d in dims):
            return None
        result = shapes.size(shapes.shape(u))
        most = self.options.split_size // max(result, 1)
        if shapes.size(dims) // result < self.options.split_ratio:
            if not self._has_thin_columns(u, dims, result, value.dtype.itemsize):
                return None
            most = min(most, ROW_PIECES * self.threads)
        found = [
            (dims[axis] % pieces * (shapes.size(dims) // dims[axis]), axis, pieces)
            for axis in u.arg.axes for pieces in PIECES if pieces <= min(most, dims[axis])
            # Not where it only repeats one element.
            if value.op is not Ops.EXPAND or not _is_one(value.src[0], len(dims) - axis)
        ]  # fmt: skip
        if not found:
            return None
        _, axis, pieces = min(found, key=lambda f: f[0])
        whole, stored = _in_pieces(u, value, axis, pieces)
        text = f"reduce.{u.arg.op} of {shapes.show(dims)} is cut in {pieces} pieces"
        self.notes[stored] = text
        return whole

    def _has_thin_columns(
        self, u: UOp, dims: tuple[int, ...], result: int, itemsize: int
    ) -> bool:
        """True if the results are neighbours, and so few that threads should not share them."""
        columns = 1 if len(dims) - 1 in u.arg.axes else dims[-1]
        wide = columns * itemsize > ROW_BYTES * self.threads
        if self.threads < 2 or not self.is_cpu or columns == 1 or wide:
            return False
        return columns == result and shapes.size(dims) >= LEAST_ELEMENTS


def _is_one(value: UOp, last: int) -> bool:
    """True if a value has one element along its last axis, its last but one, …, or no such axis."""
    dims = shapes.shape(value)
    return last > len(dims) or dims[-last] == 1


def _in_pieces(u: UOp, value: UOp, axis: int, pieces: int) -> tuple[UOp, UOp]:
    """Split a reduce into two, and a third for the elements after the last piece; also return the
    stored value of the first. The axis of pieces takes the place of the cut axis, outside of axes
    along which an operand repeats: a part of a matrix product is then a small contiguous matrix."""
    dims, length = shapes.shape(value), shapes.shape(value)[axis] // pieces
    even = _part(value, len(dims) - axis, 0, pieces * length)
    cut = (*dims[:axis], pieces, length, *dims[axis + 1 :])
    operands = value.src if value.op.is_alu else ()
    repeated = [any([_is_one(s, len(dims) - i) for s in operands]) for i in range(axis)]
    outer = next((i for i in range(axis) if repeated[i] and dims[i] > 1), axis)
    order = [i for i in range(len(cut)) if i != axis]
    moved = movement.reshape(even, cut)
    moved = movement.permute(moved, (*order[:outer], axis, *order[outer:]))
    axes = tuple([i + 1 if i >= outer else i for i in u.arg.axes])
    first = intern(Ops.REDUCE, u.dtype, (moved,), ReduceArg(u.arg.op, axes))
    stored = intern(Ops.CONTIGUOUS, u.dtype, (first,))
    left = outer - sum(i < outer for i in u.arg.axes)
    whole = intern(Ops.REDUCE, u.dtype, (stored,), ReduceArg(u.arg.op, (left,)))
    if pieces * length < dims[axis]:
        rest = _part(value, len(dims) - axis, pieces * length, dims[axis])
        rest = intern(Ops.REDUCE, u.dtype, (rest,), u.arg)
        whole = alu.alu(whole, Op.by_name(u.arg.op), rest)
    return whole, stored


def _part(value: UOp, last: int, begin: int, end: int) -> UOp:
    """The elements `begin` to `end` along the last axis, the last but one, …; taken from operands,
    so that a repeating operand stays unchanged."""

    def cut(v: UOp) -> UOp:
        bounds = [(0, d) for d in shapes.shape(v)]
        bounds[-last] = (begin, end)
        return movement.shrink(v, bounds)

    if end - begin == shapes.shape(value)[-last]:
        return value
    if not value.op.is_alu:
        return cut(value)
    return rebuild.remake(value, tuple([s if _is_one(s, last) else cut(s) for s in value.src]))
