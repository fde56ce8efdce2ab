"""Dimensions of shapes: ints, and UOps of dtype index; conversions, extremes, typical values."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, closed, compare, monomials

# What a size is taken for where nobody says more: a batch, the tokens of a text, the pixels of an
# axis. No bound of a size decides what is typical of it.
TYPICAL_SIZE = 256


def dim_uop(d: Dim) -> UOp:
    """A dimension as a UOp."""
    return affine.const(d) if isinstance(d, int) else d


def uop_dim(d: Dim) -> Dim:
    """A dimension as an int if its UOp is a constant."""
    return d.arg if isinstance(d, UOp) and d.op is Ops.CONST else d


def maximum(a: Dim, b: Dim) -> Dim:
    """The greater of two dimensions."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return uop_dim(affine.maximum(dim_uop(a), dim_uop(b)))


def minimum(a: Dim, b: Dim) -> Dim:
    """The less of two dimensions."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return uop_dim(affine.minimum(dim_uop(a), dim_uop(b)))


def truncated(op: Op, a: Dim, b: Dim) -> Dim | None:
    """The quotient (CDIV) or the remainder (CMOD) of a division that rounds toward 0; None if the
    divisor may be 0."""
    (least, _), (low, high) = _bounds(a), _bounds(b)
    if low <= 0 <= high:
        return None
    if least >= 0 and low > 0:
        return a // b if op is Ops.CDIV else a % b
    if isinstance(a, int) and isinstance(b, int):
        size = abs(a) // abs(b)
        quotient = size if (a < 0) == (b < 0) else -size
        return quotient if op is Ops.CDIV else a - quotient * b
    return monomials.node(op, dim_uop(a), dim_uop(b))


def condition(op: Op, a: Dim, b: Dim) -> Dim:
    """1 where a comparison of two dimensions holds, else 0."""
    holds = compare.OPS[op](dim_uop(a), dim_uop(b))
    return int(holds.arg) if holds.op is Ops.CONST else intern(Ops.CAST, dtypes.index, (holds,))


def chosen(which: Dim, a: Dim, b: Dim) -> Dim:
    """a where a condition is 1, b where it is 0."""
    if isinstance(which, int) or a is b:
        return a if which else b
    if isinstance(a, int) and isinstance(b, int):
        return b + which * (a - b)
    holds = which.src[0] if monomials.is_condition(which) else compare.less(affine.const(0), which)
    return intern(Ops.WHERE, dtypes.index, (holds, dim_uop(a), dim_uop(b)))


def _bounds(d: Dim) -> tuple[int, int]:
    return (d, d) if isinstance(d, int) else bounds.bounds(d)


def plus(a: Dim, b: int) -> Dim:
    """a + b, of which b is a number."""
    return a + b if isinstance(a, int) else uop_dim(affine.plus(a, b))


def dims_sum(a: Dim, b: Dim) -> Dim:
    """a + b"""
    return uop_dim(affine.add(dim_uop(a), dim_uop(b)))


def multiple(d: Dim, n: int) -> Dim:
    """The least multiple of n that is at least a dimension."""
    parts = affine.floordiv(affine.plus(dim_uop(d), n - 1), affine.const(n))
    return uop_dim(affine.scaled(parts, n))


def place_dtype(n: Dim) -> DType:
    """The dtype of indices into an axis of length n."""
    return dtypes.int32 if bounds.max_dim(n) <= 1 << 31 else dtypes.int64


def typical_value(low: int, high: int) -> int:
    """The value that a variable with these bounds is taken for."""
    return min(max(TYPICAL_SIZE, low), high)


def typical(d: Dim) -> int:
    """The value of a dimension for typical values of its variables."""
    if isinstance(d, int):
        return d
    values = {v.arg.name: typical_value(v.arg.low, v.arg.high) for v in walk.variables(d)}
    return closed.value(closed.instructions(d), values)
