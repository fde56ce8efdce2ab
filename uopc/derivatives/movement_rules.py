"""Rules of the ops that move, join and combine elements. All are linear but some reduces."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.derivatives import accumulate, gather
from uopc.derivatives.rule import DerivativeRule, Linear
from uopc.derivatives.values import (
    Factor,
    Mask,
    Value,
    counter,
    filled,
    fit,
    nonzero,
    one_over,
    part,
    stored,
    summed_to,
    times,
)
from uopc.ir.builder import alu, fold, movement
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp


def _again(u: UOp, value: UOp) -> UOp:
    """Apply the op to another value of the shape of its operand."""
    return remake(u, (value, *u.src[1:]))


def _reshape(u: UOp, value: UOp) -> UOp:
    return movement.reshape(value, shapes.shape(u))


def _expand(u: UOp, value: UOp) -> UOp:
    return movement.expand(value, shapes.shape(u))


def _expand_back(u: UOp, value: UOp) -> UOp:
    return summed_to(value, shapes.shape(u.src[0]))


def _permute(u: UOp, value: UOp) -> UOp:
    return movement.permute(value, u.arg)


def _shrink(u: UOp, value: UOp) -> UOp:
    return part(value, *shapes.window(u))


def _pad(u: UOp, value: UOp) -> UOp:
    begins, sizes = shapes.window(u)
    inner = shapes.shape(u.src[0])
    return movement.pad(value, [(b, n - b - d) for b, d, n in zip(begins, inner, sizes)])


def _pad_back(u: UOp, value: UOp) -> UOp:
    return part(value, shapes.window(u)[0], shapes.shape(u.src[0]))


def _same(u: UOp, value: UOp) -> UOp:
    return value


def _stored_back(u: UOp, value: UOp) -> UOp:
    return value if value.op is Ops.CONTIGUOUS else value.contiguous()


class _Joined(DerivativeRule):
    """STACK and CAT: linear in all operands."""

    kind = "linear"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        if all([t is None for t in tangents]):
            return None
        parts = [filled(t, s) for t, s in zip(tangents, u.src)]
        return movement.stack(*parts) if u.op is Ops.STACK else movement.cat(*parts, axis=u.arg)

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        axis = 0 if u.op is Ops.STACK else u.arg
        rank = len(shapes.shape(u))
        found: list[Value] = []
        at: shapes.Dim = 0
        for s, w in zip(u.src, wanted):
            n = 1 if u.op is Ops.STACK else shapes.shape(s)[axis]
            if w:
                begins = [at if i == axis else 0 for i in range(rank)]
                sizes = [n if i == axis else d for i, d in enumerate(shapes.shape(u))]
                mine = movement.reshape(part(cotangent, begins, sizes), shapes.shape(s))
                found.append(nonzero(mine))
            else:
                found.append(None)
            at = at + n
        return found


class _Reduce(DerivativeRule):
    """The tangent is a sum of tangents times factors: 1 for a sum, a share for each greatest
    (least) element, the product of the other elements for a product."""

    kind = "partials"

    def push(self, u: UOp, tangents: Sequence[Value]) -> Value:
        scaled = times(tangents[0], share(u))
        return None if scaled is None else _sum(scaled, u.arg.axes)

    def pull(self, u: UOp, cotangent: UOp, wanted: Sequence[bool]) -> list[Value]:
        spread = movement.reshape(cotangent, _kept(u))
        found = times(spread, share(u))
        return [None if found is None else fit(found, shapes.shape(u.src[0]))]


def _kept(u: UOp) -> shapes.Shape:
    """The shape of a reduce with its reduced dimensions kept as 1."""
    return tuple([1 if i in u.arg.axes else d for i, d in enumerate(shapes.shape(u.src[0]))])


def _sum(a: UOp, axes: Sequence[int]) -> UOp:
    return movement.reduce(a, "add", tuple(axes))


def share(u: UOp) -> Factor:
    """The factor of each element's tangent in a reduce."""
    a = u.src[0]
    if u.arg.op == "add":
        return 1.0
    if u.arg.op == "mul":
        return accumulate.others(a, u.arg.axes)
    a = stored(a)
    best = alu.alu(a, Ops.CMPEQ, movement.reduce(a, u.arg.op, u.arg.axes, keepdims=True))
    n = shapes.size(tuple([shapes.shape(a)[i] for i in u.arg.axes]))
    count = movement.reduce(fold.cast(best, counter(u.dtype, n)), "add", u.arg.axes, keepdims=True)
    return Mask(best, scale=one_over(count, u.dtype))


_IDENTITY = Linear(_same, _same)
RULES: dict[Op, DerivativeRule] = {
    Ops.RESHAPE: Linear(_reshape, movement.under),
    Ops.EXPAND: Linear(_expand, _expand_back),
    Ops.PERMUTE: Linear(_permute, movement.under),
    Ops.FLIP: Linear(movement.under, movement.under),
    Ops.SHRINK: Linear(_shrink, movement.under),
    Ops.PAD: Linear(_pad, _pad_back),
    Ops.STACK: _Joined(),
    Ops.CAT: _Joined(),
    Ops.REDUCE: _Reduce(),
    Ops.ACCUMULATE: accumulate.Accumulate(),
    # The transpose of a gather adds at the positions that the gather reads.
    Ops.INDEX: Linear(lambda u, t: nonzero(gather.read(u, t)), gather.transposed),
    Ops.CONTIGUOUS: _IDENTITY,
    Ops.COPY: _IDENTITY,
    Ops.STAGE: _IDENTITY,
    Ops.SHARD: _IDENTITY,
    Ops.BIND: _IDENTITY,
    Ops.CONTIGUOUS_BACKWARD: Linear(_same, _stored_back),
}
