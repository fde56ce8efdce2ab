"""Running totals: sums, products, and the greatest or least so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.derivatives.rule import Rule
from uopc.derivatives.values import Value, stored
from uopc.errors import Unsupported
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import indexing
from uopc.tensor.sorts.radix_sort import place_dtype


class Accumulate(Rule):
    """Of sums: their running sums. Of the greatest: the tangent of the first element that is it. Of
    products: t[i] = t[i-1] a[i] + y[i-1] a'[i], solved in log2(n) steps; no zero is divided by."""

    kind = "linear"

    def alone(self, u: UOp) -> int:
        return int(min(u.arg.axes))

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        t, (axis,) = tangents[0], u.arg.axes
        if t is None:
            return None
        if u.arg.op == "add":
            return running(t, "add", axis)
        if u.arg.op == "mul":
            return _recurrence(u.src[0], _before(u, axis) * t, axis, reverse=False)
        return indexing.gather(t, axis, _holders(u, axis))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        (axis,) = u.arg.axes
        if u.arg.op == "add":
            return [_reversed_sum(cotangent, axis)]
        if u.arg.op == "mul":
            later = _shifted(u.src[0], axis, -1, 1)
            return [_recurrence(later, cotangent, axis, reverse=True) * _before(u, axis)]
        read = indexing.gather(u.src[0], axis, _holders(u, axis))
        from uopc.derivatives.gather import transposed

        return [transposed(read, cotangent)]


def running(a: UOp, op: str, axis: int) -> UOp:
    """The elements up to each one combined."""
    made = intern(Ops.ACCUMULATE, a.dtype, (a,), ReduceArg(op, (axis,)))  # type: ignore[arg-type]
    return leaves.located(made)


def _reversed_sum(a: UOp, axis: int) -> UOp:
    return movement.flip(running(movement.flip(a, axis), "add", axis), axis)


def _shifted(a: UOp, axis: int, by: int, filling: float) -> UOp:
    """Element i is a[i - by]; `filling` where there is none."""
    n = shapes.shape(a)[axis]
    if not isinstance(n, int):
        raise Unsupported("the derivative of a product along a symbolic dimension")
    size = min(abs(by), n)
    begin, width = (0, (size, 0)) if by > 0 else (size, (0, size))
    begins = [begin if i == axis else 0 for i in range(len(shapes.shape(a)))]
    sizes = [n - size if i == axis else d for i, d in enumerate(shapes.shape(a))]
    widths = [width if i == axis else (0, 0) for i in range(len(sizes))]
    return movement.pad(movement.window(a, begins, sizes), widths, filling)


def _before(u: UOp, axis: int) -> UOp:
    """The total before each element."""
    return _shifted(u, axis, 1, 1)


def _recurrence(a: UOp, b: UOp, axis: int, reverse: bool) -> UOp:
    """t[i] = a[i] t[i-1] + b[i], or backwards, by doubling the length of what is combined."""
    n = shapes.shape(a)[axis]
    if not isinstance(n, int):
        raise Unsupported("the derivative of a product along a symbolic dimension")
    for k in range(max(n - 1, 0).bit_length()):
        step = -(1 << k) if reverse else 1 << k
        earlier = a * _shifted(b, axis, step, 0)
        there = _has_source(shapes.shape(a), axis, step)  # an infinity times the 0 would be NaN
        b = (there.where(earlier, 0.0) + b).contiguous()
        a = (a * _shifted(a, axis, step, 1)).contiguous()
    return b


def _has_source(dims: shapes.Shape, axis: int, by: int) -> UOp:
    """Whether there is an element i - by along the axis."""
    counter = leaves.iota(dims[axis])
    inside = counter >= by if by > 0 else counter < dims[axis] + by
    return movement.reshape(inside, (dims[axis], *(1,) * (len(dims) - axis - 1)))


def _holders(u: UOp, axis: int) -> UOp:
    """The place of the first element that is the greatest (least) so far."""
    a = stored(u.src[0])
    totals = running(a, u.arg.op, axis)
    dims = shapes.shape(a)
    rank = len(dims)
    counter = movement.reshape(leaves.iota(dims[axis]), (dims[axis], *(1,) * (rank - axis - 1)))
    place = fold.cast(counter, place_dtype(dims[axis]))
    unlike = -math.inf if u.arg.op == "max" else math.inf
    before = _shifted(u, axis, 1, unlike)
    new = alu.alu(a, Ops.CMPNE, before) & alu.alu(a, Ops.CMPEQ, totals)
    held = alu.where(new, movement.expand(place, dims), leaves.const(place.dtype, 0))
    return running(held, "max", axis)


def others(a: UOp, axes: Sequence[int]) -> UOp:
    """At each element the product of all others along the axes; zeros are no exception."""
    dims = shapes.shape(a)
    kept = [i for i in range(len(dims)) if i not in axes]
    order = (*kept, *axes)
    rows = movement.permute(a, order)
    n = shapes.size(tuple([dims[i] for i in axes]))
    flat = movement.reshape(rows, (*[dims[i] for i in kept], n))
    axis = len(kept)
    up = _shifted(running(flat, "mul", axis), axis, 1, 1)
    mirrored = movement.flip(flat, axis)
    down = movement.flip(_shifted(running(mirrored, "mul", axis), axis, 1, 1), axis)
    found = movement.reshape(up * down, shapes.shape(rows))
    return movement.permute(found, tuple(sorted(range(len(dims)), key=lambda i: order[i])))


