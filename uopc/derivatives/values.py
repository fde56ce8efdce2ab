"""Tangents and cotangents as values: None is zero and is never built.

A factor multiplies a tangent: a UOp, a Python number, a Mask, or None.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.derivatives import support
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim, Shape
from uopc.ir.core.storage import base
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop, place_dtype
from uopc.ir.records import dataclass


@dataclass(frozen=True)
class Mask:
    """A factor: `scale` (None: 1) where the condition equals `on`, else 0. Hidden values are never
    read, so they may be infinite."""

    condition: UOp
    on: bool = True
    scale: UOp | None = None


_MOVED = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK))
Value = UOp | None
Factor = UOp | float | Mask | None


def number_in(u: UOp) -> float | None:
    """The number that all elements of a value equal; None if they may differ."""
    found = leaves.constant_in(u)
    return None if found is None else float(found.arg)


def nonzero(u: Value) -> Value:
    """Return None instead of a value that is zero by its structure."""
    return None if u is None or support.is_zero(u) else u


def filled(u: Value, like: UOp) -> UOp:
    """The value, or zeros of the shape and dtype of `like`."""
    return leaves.const_like(like, 0) if u is None else u


def fit(u: UOp, dims: Shape) -> UOp:
    """Repeat a value to a shape."""
    return u if shapes.shape(u) == dims else movement.expand(u, dims)


_STORED = frozenset((Ops.PARAM, Ops.BUFFER, Ops.DATA, Ops.CONST, Ops.CONTIGUOUS))


def stored(u: UOp) -> UOp:
    """Store a value in memory: if two kernels computed it, they might round it in two ways, and it
    would not equal its own maximum."""
    return u if base(u).op in _STORED else leaves.located(intern(Ops.CONTIGUOUS, u.dtype, (u,)))


def counter(dtype: DType, n: Dim) -> DType:
    """The dtype of a count up to n that is divided into shares of `dtype`: `dtype` if it represents
    all counts exactly."""
    whole = 1 << (53 if dtype is dtypes.float64 else 24)
    wide = dtype is dtypes.accumulator(dtype)
    return dtype if wide and bounds.bounds(dim_uop(n))[1] <= whole else place_dtype(n)


def one_over(count: UOp, dtype: DType) -> UOp:
    """1 over a count, in the dtype, rounded once."""
    wide = fold.cast(count, dtypes.accumulator(dtype))
    return fold.cast(alu.alu(wide, Ops.RECIPROCAL), dtype)


def front_aligned(u: UOp, rank: int) -> UOp:
    """Insert dimensions of length 1 after the batch, so that `rank` dimensions follow."""
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
    """Multiply a tangent by a factor.

    If a WHERE made the tangent zero, the product stays zero, whatever the factor is there: only the
    branch that is not zero is multiplied. If the tangent is made of pieces and the factor may be
    infinite, the `support` of the tangent masks the product. A product that repeats both operands,
    as in a matrix product, has no mask: it would mask each term, not each element of the tangent.
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
    """True if a product has more elements than either of its stored operands."""
    dims = shapes.broadcast([shapes.shape(a), shapes.shape(b)])
    return all([dims != shapes.shape(u) or _repeated(u) for u in (a, b)])


def _repeated(u: UOp) -> bool:
    while u.op in _MOVED and u.op is not Ops.EXPAND:
        u = u.src[0]
    return u.op is Ops.EXPAND


def _where(value: UOp) -> tuple[UOp, Mask] | None:
    """Split a value that is 0 where a mask is off into value and mask; None for other values."""
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
    """Move a part of a node's operand as the node moves its operand."""
    inner = fit(u, shapes.shape(like.src[0]))
    return intern(like.op, u.dtype, (inner, *like.src[1:]), like.arg)


def masked(value: UOp, mask: Mask) -> UOp:
    """The value where the mask is on, else 0."""
    zero = leaves.const(value.dtype, 0)
    return alu.where(mask.condition, *((value, zero) if mask.on else (zero, value)))


def summed_to(u: UOp, dims: Shape) -> UOp:
    """The transpose of `fit`: sum over the dimensions along which a value was repeated."""
    own = shapes.shape(u)
    if own == dims:
        return u
    extra = len(own) - len(dims)
    repeated = [i + extra for i, d in enumerate(dims) if d == 1 and own[i + extra] != 1]
    added = movement.reduce(u, "add", (*range(extra), *repeated))
    return movement.reshape(added, dims)


def part(u: UOp, begins: Sequence[shapes.Dim], sizes: Sequence[shapes.Dim]) -> UOp:
    """A window of a value. Of joined values, a window of the operand that holds it."""
    found = movement.part_of(u, begins, sizes, computed=True)
    return movement.window(u, begins, sizes) if found is None else found
