"""Integers that ranges count, as index values."""

from __future__ import annotations

from collections.abc import Generator

from uopc.ir.core import bounds, dtypes, walk
from uopc.ir.core.ops import COMPARISONS, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, compare

_SUMS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG))


def comparison(u: UOp, src: tuple[UOp, ...], memo: dict[UOp, UOp | None]) -> UOp | None:
    """A comparison of integers, on these sources, as one of indices; None if they are no indices.
    `memo` keeps the index of each integer."""
    sides = [walk.computed(s, _index_of, memo) for s in src]
    return None if any(s is None for s in sides) else compare.OPS[u.op](*sides)


def is_comparison(u: UOp) -> bool:
    """True for a comparison of integers."""
    return u.op in COMPARISONS and u.src[0].dtype.is_integral


def _index_of(u: UOp) -> Generator[list[UOp], list[UOp | None], UOp | None]:
    """The index with the value of an integer, or None."""
    if u.dtype is dtypes.index:
        return u
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
