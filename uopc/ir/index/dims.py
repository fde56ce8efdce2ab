"""Dimensions of shapes: ints, and UOps of dtype index; conversions and extremes."""

from __future__ import annotations

from uopc.ir.core import bounds, dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine


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


def place_dtype(n: Dim) -> DType:
    """The dtype of indices into an axis of length n."""
    return dtypes.int32 if bounds.max_dim(n) <= 1 << 31 else dtypes.int64
