"""Dimensions of shapes: ints, and UOps of dtype index; conversions, extremes, typical values."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed

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
