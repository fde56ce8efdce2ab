"""Cut a large reduce to few elements in two, so that its first half runs in parallel.

Before (tensor)                       After (tensor)
  %1 = param x : f32[1048576]           %1 = param x : f32[1048576]
  %2 = reduce.add %1 axes=(0,) : f32    %2 = reshape %1 (256, 4096) : f32[256, 4096]
  sink %2                               %3 = reduce.add %2 axes=(1,) : f32[256]
                                        %4 = contiguous %3 : f32[256]
                                        %5 = reduce.add %4 axes=(0,) : f32
                                        sink %5

A reduce that reads nothing stays: it has a closed form. So does one that the user gave Opts. The
options `split_reduces`, `split_ratio` and `split_size` are the switch and the thresholds.
"""

from __future__ import annotations

from uopc.ir.builder import movement, rebuild
from uopc.ir.core import shapes, walk
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.levels import TENSOR
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.user_opts import free_reduces
from uopc.passes.contract import Context, Pass

# The number of pieces of each result: the first that divides the axis.
PIECES = range(256, 7, -1)


def split_reduces(graph: UOp, context: Context) -> UOp:
    """The graph with two reduces for each that is large."""
    if Ops.REDUCE not in walk.ops(graph) or not context.optimize:
        return graph
    if not context.options.split_reduces:
        return graph
    splits = _Splits(context)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return splits.halves(u, src[0])

    return rebuild.rewritten(graph, change, outside_kernels=True, only=free_reduces(graph))


class _Splits:
    """The thresholds, and for the dump the values that first halves store."""

    def __init__(self, context: Context) -> None:
        self.options = context.options
        self.notes: dict[UOp, str] = context.notes.setdefault("splits", {})

    def halves(self, u: UOp, value: UOp) -> UOp | None:
        """reduce over n  →  reduce over p of (reduce over n/p), with a new axis for the pieces."""
        dims = shapes.shape(value)
        if not all(isinstance(d, int) for d in dims):
            return None
        result = shapes.size(shapes.shape(u))
        if shapes.size(dims) // result < self.options.split_ratio:
            return None
        for axis in u.arg.axes:
            if value.op is Ops.EXPAND and _is_one(value.src[0], len(dims) - axis):
                continue  # it only repeats one element
            for pieces in PIECES:
                if dims[axis] % pieces == 0 and result * pieces <= self.options.split_size:
                    made = _in_pieces(u, value, dims, axis, pieces)
                    text = f"reduce.{u.arg.op} of {shapes.show(dims)} is cut in {pieces} pieces"
                    self.notes[made.src[0]] = text
                    return made
        return None


def _is_one(value: UOp, last: int) -> bool:
    """True if a value has one element along its last axis, its last but one, …, or no such axis."""
    dims = shapes.shape(value)
    return last > len(dims) or dims[-last] == 1


def _in_pieces(u: UOp, value: UOp, dims: shapes.Shape, axis: int, pieces: int) -> UOp:
    """Two reduces for one. The axis of pieces is where the cut axis is, but outside of axes along
    which an operand repeats: a part of a matrix product is then a small matrix of neighbours."""
    cut = (*dims[:axis], pieces, dims[axis] // pieces, *dims[axis + 1 :])
    operands = value.src if value.op.is_alu else ()
    repeated = [any([_is_one(s, len(dims) - i) for s in operands]) for i in range(axis)]
    outer = next((i for i in range(axis) if repeated[i] and dims[i] > 1), axis)
    order = [i for i in range(len(cut)) if i != axis]
    moved = movement.reshape(value, cut)
    moved = movement.permute(moved, (*order[:outer], axis, *order[outer:]))
    axes = tuple([i + 1 if i >= outer else i for i in u.arg.axes])
    first = intern(Ops.REDUCE, u.dtype, (moved,), ReduceArg(u.arg.op, axes))
    stored = intern(Ops.CONTIGUOUS, u.dtype, (first,))
    left = outer - sum(i < outer for i in u.arg.axes)
    return intern(Ops.REDUCE, u.dtype, (stored,), ReduceArg(u.arg.op, (left,)))


PASS = Pass("split-reduces", TENSOR, TENSOR, split_reduces, "graph", reassociates=True)
