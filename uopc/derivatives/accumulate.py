"""Running totals: sums, products, and the greatest or least so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.derivatives import functions
from uopc.derivatives.rule import Rule
from uopc.derivatives.values import Value, fit, stored
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.args import ReduceArg, ReduceOp
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import indexing
from uopc.tensor.loops import bodies, scan


class Accumulate(Rule):
    """Of sums: their running sums. Of the greatest: the tangent of the first element that is it. Of
    products: t[i] = t[i-1] a[i] + y[i-1] a'[i]; no zero is divided by."""

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
            return recurrence(u.src[0], before(u, axis) * t, axis)
        return indexing.gather(t, axis, _holders(u, axis))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        (axis,) = u.arg.axes
        if u.arg.op == "add":
            return [_reversed_sum(cotangent, axis)]
        if u.arg.op == "mul":
            later = before(u.src[0], axis, reverse=True)
            return [recurrence(later, cotangent, axis, reverse=True) * before(u, axis)]
        read = indexing.gather(u.src[0], axis, _holders(u, axis))
        from uopc.derivatives.gather import transposed

        return [transposed(read, cotangent)]


def running(a: UOp, op: ReduceOp, axis: int) -> UOp:
    """The elements up to each one combined."""
    made = intern(Ops.ACCUMULATE, a.dtype, (a,), ReduceArg(op, (axis,)))
    return leaves.located(made)


def _reversed_sum(a: UOp, axis: int) -> UOp:
    return movement.flip(running(movement.flip(a, axis), "add", axis), axis)


def before(a: UOp, axis: int, reverse: bool = False, filling: float = 1) -> UOp:
    """The element before each one along an axis, in reverse the one after it; `filling` for none.
    """
    dims = shapes.shape(a)
    widths = [((0, 1) if reverse else (1, 0)) if i == axis else (0, 0) for i in range(len(dims))]
    begins = [int(reverse and i == axis) for i in range(len(dims))]
    return movement.window(movement.pad(a, widths, filling), begins, dims)


def recurrence(a: UOp, b: UOp, axis: int, reverse: bool = False) -> UOp:
    """t[i] = a[i] t[i-1] + b[i] along an axis, or backwards, with nothing before the first one: a
    loop, whose derivatives are loops."""
    dims = shapes.shape(b)
    order = (axis, *[i for i in range(len(dims)) if i != axis])
    steps = leaves.iota(dims[axis])
    begin = steps.eq(dim_uop(dims[axis]) - 1 if reverse else 0)
    begin = movement.reshape(begin, (dims[axis], *(1,) * (len(dims) - 1)))
    rows = [movement.permute(fit(v, dims), order) for v in (a, b)]
    rows[0] = alu.where(begin, leaves.const(b.dtype, 0), rows[0])  # an infinity times 0 is NaN
    last = functions.seed_of(b.dtype, shapes.shape(rows[0])[1:])
    factor, term = [functions.seed_of(b.dtype, shapes.shape(r)[1:]) for r in rows]
    made = last * factor + term
    body, _ = bodies.closed([made, made], [last, factor, term])
    first, way = [leaves.const_like(made, 0)], scan.Way(reverse)
    _, found = scan.scan(body, first, rows, [], dims[axis], way)
    return movement.permute_back(found, order)


def _holders(u: UOp, axis: int) -> UOp:
    """The place of the first element that is the greatest (least) so far."""
    a = stored(u.src[0])
    totals = running(a, u.arg.op, axis)
    dims = shapes.shape(a)
    rank = len(dims)
    counter = movement.reshape(leaves.iota(dims[axis]), (dims[axis], *(1,) * (rank - axis - 1)))
    place = fold.cast(counter, place_dtype(dims[axis]))
    unlike = -math.inf if u.arg.op == "max" else math.inf
    earlier = before(u, axis, filling=unlike)
    new = alu.alu(a, Ops.CMPNE, earlier) & alu.alu(a, Ops.CMPEQ, totals)
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
    up, down = sides(flat, axis)
    found = movement.reshape(up * down, shapes.shape(rows))
    return movement.permute_back(found, order)


def sides(a: UOp, axis: int) -> tuple[UOp, UOp]:
    """At each element the product of those before it along an axis, and of those after it."""
    mirrored = movement.flip(before(running(movement.flip(a, axis), "mul", axis), axis), axis)
    return before(running(a, "mul", axis), axis), mirrored
