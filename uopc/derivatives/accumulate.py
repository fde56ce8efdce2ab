"""Running totals: sums, products, and the greatest or least so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uopc.derivatives import functions
from uopc.derivatives.rule import DerivativeRule, OfBody
from uopc.derivatives.values import Value, fit, front_aligned, stored, summed_to, total
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.args import ReduceArg, ReduceOp
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.tensor import indexing
from uopc.tensor.loops import bodies, scan
from uopc.tensor.primitive import primitive


class Accumulate(DerivativeRule):
    """Sums: the tangent is a running sum. Max (min): the tangent of the first greatest (least)
    element. Products: t[i] = t[i-1] a[i] + y[i-1] a'[i], without division by zero; 0 times an
    overflowed product is 0."""

    kind = "linear"

    def batch_dimensions(self, u: UOp) -> int:
        return int(min(u.arg.axes))

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        t, (axis,) = tangents[0], u.arg.axes
        if t is None:
            return None
        if u.arg.op == "add":
            return running(t, "add", axis)
        if u.arg.op == "mul":
            return recurrence(u.src[0], product(before(u, axis), t), axis)
        return indexing.gather(t, axis, _holders(u, axis))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        (axis,) = u.arg.axes
        if u.arg.op == "add":
            return [_reversed_sum(cotangent, axis)]
        if u.arg.op == "mul":
            later = before(u.src[0], axis, reverse=True)
            back = recurrence(later, cotangent, axis, reverse=True)
            return [product(back, before(u, axis))]
        read = indexing.gather(u.src[0], axis, _holders(u, axis))
        from uopc.derivatives.gather import transposed

        return [transposed(read, cotangent)]


def running(a: UOp, op: ReduceOp, axis: int) -> UOp:
    """Combine each element with all elements before it."""
    made = intern(Ops.ACCUMULATE, a.dtype, (a,), ReduceArg(op, (axis,)))
    return leaves.located(made)


def _reversed_sum(a: UOp, axis: int) -> UOp:
    return movement.flip(running(movement.flip(a, axis), "add", axis), axis)


def before(a: UOp, axis: int, reverse: bool = False, filling: float = 1) -> UOp:
    """Shift along an axis: each element is replaced by the previous (`reverse`: the next) element,
    or by `filling` if there is none."""
    dims = shapes.shape(a)
    widths = [((0, 1) if reverse else (1, 0)) if i == axis else (0, 0) for i in range(len(dims))]
    begins = [int(reverse and i == axis) for i in range(len(dims))]
    return movement.window(movement.pad(a, widths, filling), begins, dims)


def recurrence(a: UOp, b: UOp, axis: int, reverse: bool = False) -> UOp:
    """Compute t[i] = a[i] t[i-1] + b[i] along an axis (`reverse`: t[i+1]) by a loop, so that its
    derivatives are loops. The first t is b."""
    dims = shapes.shape(b)
    order = (axis, *[i for i in range(len(dims)) if i != axis])
    steps = leaves.iota(dims[axis])
    begin = steps.eq(dim_uop(dims[axis]) - 1 if reverse else 0)
    begin = movement.reshape(begin, (dims[axis], *(1,) * (len(dims) - 1)))
    rows = [movement.permute(fit(v, dims), order) for v in (a, b)]
    rows[0] = alu.where(begin, leaves.const(b.dtype, 0), rows[0])
    last = functions.seed_of(b.dtype, shapes.shape(rows[0])[1:])
    factor, term = [functions.seed_of(b.dtype, shapes.shape(r)[1:]) for r in rows]
    made = product(last, factor) + term
    body, _ = bodies.closed([made, made], [last, factor, term])
    first, way = [leaves.const_like(made, 0)], scan.Way(reverse)
    _, found = scan.scan(body, first, rows, [], dims[axis], way)
    return movement.permute_back(found, order)


def _holders(u: UOp, axis: int) -> UOp:
    """The index of the first element that is the greatest (least) so far."""
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
    """For each element, the product of all other elements along the axes, also if some are zero."""
    is_zero = alu.binary(Ops.CMPEQ, a, 0)
    zeros = fold.cast(is_zero, place_dtype(shapes.size(shapes.shape(a))))
    count = movement.reduce(zeros, "add", tuple(axes), keepdims=True)
    more = alu.alu(zeros, Ops.CMPLT, count)
    # One side may have overflowed where the other one is 0.
    up, down = _sides(a, axes, lambda rows, axis: running(rows, "mul", axis))
    value = alu.where(more, leaves.const(a.dtype, 0), up * down)
    return primitive(value, "others", a, details=tuple(axes))


class Others(OfBody):
    """The products of all other elements. The derivative is taken of (product before) * (product
    after), in which zeros and overflowed numbers are separate factors. `details`: the axes."""

    joint = False

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        (found,) = type(self).push_all([self._apart(u)], {u.src[1]: tangents[1]})
        return found

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        return [None, *type(self).pull_all([self._apart(u)], [u.src[1]], [cotangent])]

    def batch_dimensions(self, u: UOp) -> int:
        return int(min(u.arg.details, default=0))

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        return others(operands[0], [axis + 1 for axis in u.arg.details])

    def _apart(self, u: UOp) -> UOp:
        return product(*_sides(u.src[1], u.arg.details, _products))


def _sides(
    a: UOp, axes: Sequence[int], along: Callable[[UOp, int], UOp]
) -> tuple[UOp, UOp]:
    """For each element, the product of the elements before it along the axes, and the product of
    the elements after it. `along` computes running products."""
    dims = shapes.shape(a)
    kept = [i for i in range(len(dims)) if i not in axes]
    order, axis = (*kept, *axes), len(kept)
    rows = movement.permute(a, order)
    n = shapes.size(tuple([dims[i] for i in axes]))
    flat = movement.reshape(rows, (*[dims[i] for i in kept], n))
    mirrored = movement.flip(before(along(movement.flip(flat, axis), axis), axis), axis)
    up, down = [
        movement.permute_back(movement.reshape(v, shapes.shape(rows)), order)
        for v in (before(along(flat, axis), axis), mirrored)
    ]
    return up, down


def _products(a: UOp, axis: int) -> UOp:
    """The running products, 0 from the first zero on even if other elements overflow: the running
    product of the nonzero elements times the running product of the zeros."""
    is_zero, one = alu.binary(Ops.CMPEQ, a, 0), leaves.const(a.dtype, 1)
    usual, zeros = alu.where(is_zero, one, a), alu.where(is_zero, a, one)
    return product(running(usual, "mul", axis), running(zeros, "mul", axis))


def product(a: UOp, b: UOp) -> UOp:
    """Multiply a and b; 0 times an infinity (an overflowed product) is 0."""
    made, known = a * b, a + b
    undefined = alu.alu(made, Ops.CMPNE, made) & alu.alu(known, Ops.CMPEQ, known)
    return primitive(alu.where(undefined, leaves.const(a.dtype, 0), made), "product", a, b)


class Product(DerivativeRule):
    """Linear in both operands; its derivatives are made by `product`, too."""

    kind = "linear"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        (_, a, b), (_, t, v) = u.src, tangents
        terms = [None if t is None else product(t, b), None if v is None else product(a, v)]
        found = total(terms)
        return None if found is None else fit(found, shapes.shape(u))

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        _, a, b = u.src
        return [
            None,
            summed_to(product(cotangent, b), shapes.shape(a)) if wanted[1] else None,
            summed_to(product(cotangent, a), shapes.shape(b)) if wanted[2] else None,
        ]

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        rank = len(shapes.shape(u))
        return product(*[front_aligned(v, rank) if b else v for v, b in zip(operands, batched)])
