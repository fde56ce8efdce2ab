"""Words of 32 bits along an axis of a sum: neighbours that a dot product multiplies at once."""

from __future__ import annotations

from uopc.ir.builder import fold, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp, intern

LEAST_TERMS = 8  # of a sum: shorter ones gain less than the words cost
# An axis that is filled to this share with real terms is good enough: the first such one is used.
FILLED = 0.75


def axis_of(axes: list[int], dims: Shape, count: int) -> int | None:
    """The axis, of some with known lengths, of which `count` neighbours share a word."""

    def filled(k: int) -> float:
        n: int = dims[k]
        return n / (count * -(-n // count))

    good = [k for k in axes if filled(k) >= FILLED]
    best = good[0] if good else max(axes, key=filled, default=None)
    return best if best is not None and dims[best] > 1 else None


def along(v: UOp, axis: int) -> UOp:
    """The neighbours of an axis as int32; zeros complete the last word."""
    dims, each = shapes.shape(v), 4 // v.dtype.itemsize
    count = -(-dims[axis] // each)
    if missing := count * each - dims[axis]:
        v = movement.pad(v, [(0, missing if i == axis else 0) for i in range(len(dims))])
    v = movement.reshape(v, (*dims[:axis], count, each, *dims[axis + 1 :]))
    order = [i for i in range(len(dims) + 1) if i != axis + 1]
    word = fold.bitcast(movement.permute(v, (*order, axis + 1)), dtypes.int32)
    return movement.reshape(word, shapes.shape(word)[:-1])


def summed(u: UOp, op: Op, dims: Shape, axis: int, a: UOp, b: UOp) -> UOp:
    """The sum `u` of products of two factors as one of dot products, of words along an axis."""
    each = 4 // a.dtype.itemsize
    shape = tuple([-(-d // each) if i == axis else d for i, d in enumerate(dims)])
    both = [movement.expand(along(v, axis), shape) for v in (a, b)]
    t = fold.result_of(op, dtypes.int32)
    return intern(Ops.REDUCE, t, (intern(op, t, tuple(both)),), u.arg)
