"""Tangents and cotangents as values: None is zero and is never built.

A factor is what multiplies a tangent: a UOp, a Python number, a Mask, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.derivatives import support
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.storage import base
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype


@dataclass(frozen=True)
class Mask:
    """The factor `scale` (None: 1) where the condition is `on`, else 0. A value that it hides is
    not looked at: it may be infinite."""

    condition: UOp
    on: bool = True
    scale: UOp | None = None


_MOVED = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK))
Value = UOp | None
Factor = UOp | float | Mask | None


def number_in(u: UOp) -> float | None:
    """The number that is every element of a value, if one is."""
    found = leaves.constant_in(u)
    return None if found is None else float(found.arg)


def nonzero(u: Value) -> Value:
    """None for a value that is plain to see zero."""
    return None if u is None or support.is_zero(u) else u


def filled(u: Value, like: UOp) -> UOp:
    """The value, or zeros of the shape and dtype of `like`."""
    return leaves.const_like(like, 0) if u is None else u


def fit(u: UOp, dims: Shape) -> UOp:
    """The value, repeated to a shape."""
    return u if shapes.shape(u) == dims else movement.expand(u, dims)


_STORED = frozenset((Ops.PARAM, Ops.BUFFER, Ops.DATA, Ops.CONST, Ops.CONTIGUOUS))


def stored(u: UOp) -> UOp:
    """The value as numbers in memory: two kernels that compute it may round it in two ways, so that
    it would not equal its own maximum."""
    return u if base(u).op in _STORED else leaves.located(intern(Ops.CONTIGUOUS, u.dtype, (u,)))


def counter(dtype: DType, n: Dim) -> DType:
    """The dtype of a count up to n, of which a share of this dtype is made: the dtype itself if it
    has all these numbers."""
    whole = 1 << (53 if dtype is dtypes.float64 else 24)
    wide = dtype is dtypes.accumulator(dtype)
    return dtype if wide and bounds.bounds(dim_uop(n))[1] <= whole else place_dtype(n)


def one_over(count: UOp, dtype: DType) -> UOp:
    """1 over a count, rounded once, in the dtype."""
    wide = fold.cast(count, dtypes.accumulator(dtype))
    return fold.cast(alu.alu(wide, Ops.RECIPROCAL), dtype)


def front_aligned(u: UOp, rank: int) -> UOp:
    """A value with a batch in front, with ones after it for `rank` dimensions besides."""
    n, *dims = shapes.shape(u)
    return movement.reshape(u, (n, *(1,) * (rank - len(dims)), *dims))


def total(values: Sequence[Value]) -> Value:
    """The sum of the values that are not zero."""
    found: Value = None
    for v in values:
        if v is None:
            continue
        if found is None:
            found = v
        elif v.op is Ops.NEG:
            found = alu.alu(found, Ops.SUB, v.src[0])
        elif found.op is Ops.NEG:
            found = alu.alu(v, Ops.SUB, found.src[0])
        else:
            found = alu.alu(found, Ops.ADD, v)
    return found


def negative(u: UOp) -> UOp:
    return u.src[0] if u.op is Ops.NEG else alu.alu(u, Ops.NEG)


def times(value: Value, factor: Factor) -> Value:
    """A tangent times a factor.

    Where a WHERE has made the tangent zero it stays zero, whatever the factor is there: the product
    goes into the branch that is not zero. Where the tangent is made of pieces, and the factor may
    be infinite, the product is chosen by the `support` of the tangent. A product that repeats both,
    as those of matrices do, does not: each of its terms would choose, where the tangent chooses
    once an element.
    """
    if value is None or factor is None:
        return None
    if isinstance(factor, Mask):
        scaled = times(value, 1.0 if factor.scale is None else factor.scale)
        return None if scaled is None else masked(scaled, factor)
    number = number_in(factor) if isinstance(factor, UOp) else float(factor)
    if number == 0:
        return None
    if number in (1, -1):
        dims = shapes.shape(factor) if isinstance(factor, UOp) else ()
        made = value if number == 1 else negative(value)
        return fit(made, shapes.broadcast([shapes.shape(value), dims]))
    other = factor if isinstance(factor, UOp) else leaves.const(value.dtype, factor)
    repeated = _repeats_both(value, other)
    found = None if repeated else _where(value)
    if found is not None:
        kept, mask = found
        scaled = times(kept, other)
        return None if scaled is None else masked(scaled, mask)
    known = number_in(value)
    if known in (1, -1):
        made = other if known == 1 else negative(other)
        return fit(made, shapes.broadcast([shapes.shape(value), shapes.shape(other)]))
    where = True if repeated or support.is_tame(other) else support.support(value)
    if where is False:
        return None
    made = alu.alu(value, Ops.MUL, other)
    return made if isinstance(where, bool) else masked(made, Mask(where))


def _repeats_both(a: UOp, b: UOp) -> bool:
    """True if the product has more elements than either value that it is made of."""
    dims = shapes.broadcast([shapes.shape(a), shapes.shape(b)])
    return all([dims != shapes.shape(u) or _repeated(u) for u in (a, b)])


def _repeated(u: UOp) -> bool:
    while u.op in _MOVED and u.op is not Ops.EXPAND:
        u = u.src[0]
    return u.op is Ops.EXPAND


def _where(value: UOp) -> tuple[UOp, Mask] | None:
    """The value that another one is where a mask is on; None for one that is not made so."""
    if value.op is Ops.WHERE:
        condition, a, b = value.src
        for kept, rest, on in ((a, b, True), (b, a, False)):
            if number_in(rest) == 0:
                return kept, Mask(condition, on)
    if value.op is Ops.CAST and value.src[0].dtype is dtypes.bool_:
        return leaves.const(value.dtype, 1), Mask(value.src[0])
    if value.op is Ops.PRIMITIVE and value.arg.name == "branches":
        return _where(value.src[0])
    if value.op is Ops.NEG or value.op in _MOVED:
        found = _where(value.src[0])
        if found is not None:
            kept, mask = found
            if value.op is Ops.NEG:
                return negative(kept), mask
            return _moved(value, kept), Mask(_moved(value, mask.condition), mask.on)
    return None


def _moved(like: UOp, u: UOp) -> UOp:
    """A part of what a node moves, moved in the same way."""
    inner = fit(u, shapes.shape(like.src[0]))
    return intern(like.op, u.dtype, (inner, *like.src[1:]), like.arg)


def masked(value: UOp, mask: Mask) -> UOp:
    """The value where the mask is on, else 0."""
    zero = leaves.const(value.dtype, 0)
    return alu.where(mask.condition, *((value, zero) if mask.on else (zero, value)))


def summed_to(u: UOp, dims: Shape) -> UOp:
    """The transpose of `fit`: the sum over the dimensions along which a value was repeated."""
    own = shapes.shape(u)
    if own == dims:
        return u
    extra = len(own) - len(dims)
    repeated = [i + extra for i, d in enumerate(dims) if d == 1 and own[i + extra] != 1]
    added = movement.reduce(u, "add", (*range(extra), *repeated))
    return movement.reshape(added, dims)


def part(u: UOp, begins: Sequence[shapes.Dim], sizes: Sequence[shapes.Dim]) -> UOp:
    """A window of a value. Of values that lie side by side, it is one of the one that it is in."""
    found = movement.part_of(u, begins, sizes, computed=True)
    return movement.window(u, begins, sizes) if found is None else found
