"""Words of 32 bits along an axis of a sum: neighbours that a dot product multiplies at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.ir.builder import fold, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Shape
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.contractions import is_product
from uopc.passes.analysis.contraction import is_repeated

LEAST_TERMS = 8  # of a sum: shorter ones gain less than the words cost
# An axis that is filled to this share with real terms is good enough: the first such one is used.
FILLED = 0.75


def contracts(u: UOp, value: UOp, is_ready: Callable[[UOp], bool] = lambda factor: False) -> bool:
    """True for a sum of products over axes of known lengths if each factor is used more than once,
    or `is_ready`: its words are made before the program runs."""
    dims = shapes.shape(value)
    known = all([isinstance(dims[a], int) for a in u.arg.axes])
    sums = u.arg.op == "add" and value.op is Ops.MUL and known and is_product(value)
    return sums and all([is_repeated(s, value) or is_ready(s) for s in value.src])


def below_views(u: UOp) -> tuple[UOp, list[UOp]]:
    """The value under movement ops and gathers, and these views, the last one outermost."""
    views: list[UOp] = []
    while u.op.movement or u.op is Ops.INDEX:
        views.append(u)
        u = u.src[0]
    return u, views[::-1]


def viewed(value: UOp, views: Sequence[UOp]) -> UOp:
    """The same views of another value."""
    for v in views:
        value = intern(v.op, value.dtype, (value, *v.src[1:]), v.arg)
    return value


def with_rank(value: UOp, rank: int) -> UOp:
    """A value with leading axes of size 1."""
    own = shapes.shape(value)
    return movement.reshape(value, (*[1] * (rank - len(own)), *own))


def axis_of(axes: list[int], dims: Shape, count: int) -> int | None:
    """Choose the axis, among `axes` of known lengths, along which `count` neighbours share a
    word."""

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
