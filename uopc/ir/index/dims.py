"""Convert dimensions of shapes between ints and UOps of dtype index."""

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


def place_dtype(n: Dim) -> DType:
    """The dtype of indices into an axis of length n."""
    return dtypes.int32 if bounds.max_dim(n) <= 1 << 31 else dtypes.int64
