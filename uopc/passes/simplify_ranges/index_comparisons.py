"""Comparisons of integers that ranges count, made on index values.

    p = cmplt (cast i : i32) 700:i32   →   p = cmplt i 700

A mask compares in its own dtype: `arange(n) < 700`. Its values are computed from ranges, and if
bounds exclude wrapping, the comparison is one of indices: loops can be split at its breakpoint, it
folds in the parts, and equal comparisons become one node.
"""

from __future__ import annotations

from collections.abc import Generator

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import COMPARISONS, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, compare

_SUMS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))


def with_counted_comparisons(kernel: UOp) -> UOp:
    """The kernel with comparisons of indices for integers that are indices."""
    candidates = {
        u for u in walk.order(kernel)
        if u.op in COMPARISONS and u.src[0].dtype.is_int and ranges.ranges(u)
    }  # fmt: skip
    memo: dict[UOp, UOp | None] = {}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        sides = [walk.computed(s, _index_of, memo) for s in src]
        return None if any(s is None for s in sides) else compare.OPS[u.op](*sides)

    return rebuild.rewritten(kernel, change, only=candidates) if candidates else kernel


def _index_of(u: UOp) -> Generator[list[UOp], list[UOp | None], UOp | None]:
    """The index with the value of an integer, or None."""
    if u.op is Ops.CONST:
        least, most = dtypes.index.bounds
        return affine.const(u.arg) if type(u.arg) is int and least <= u.arg <= most else None
    if u.op is Ops.CAST and u.src[0].dtype is dtypes.index:
        return _fitting(u, u.src[0])
    if u.op is Ops.CAST and u.src[0].dtype.is_int:
        (inner,) = yield [u.src[0]]
        return None if inner is None else _fitting(u, inner)
    if u.op not in _SUMS or not u.dtype.is_int:
        return None
    parts = yield list(u.src)
    return None if any(s is None for s in parts) else _fitting(u, compare.OPS[u.op](*parts))


def _fitting(u: UOp, index: UOp) -> UOp | None:
    """The index, if the dtype of u has all of its values."""
    least, most = u.dtype.scalar.bounds
    low, high = bounds.bounds(index)
    return index if least <= low and high <= most else None
