"""Which dimensions a reshape keeps together, and along which one an index walks."""

from __future__ import annotations

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

Group = tuple[list[int], list[int]]


def groups(old: shapes.Shape, new: shapes.Shape) -> list[Group]:
    """The dimensions of a reshape that hold the same elements: (old ones, new ones)."""
    if 0 in old or 0 in new or any([type(d) is not int for d in (*old, *new)]):
        return [(list(range(len(old))), list(range(len(new))))]
    found: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        olds: list[int] = []
        news: list[int] = []
        before = after = 1
        if i < len(old):
            olds, before, i = [i], old[i], i + 1
        if j < len(new):
            news, after, j = [j], new[j], j + 1
        while before != after:
            if (before < after and i < len(old)) or j == len(new):
                before, i = before * old[i], i + 1
                olds.append(i - 1)
            else:
                after, j = after * new[j], j + 1
                news.append(j - 1)
        found.append((olds, news))
    return found


_MOVES = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.CAST, Ops.CONTIGUOUS))


def walked(index: UOp, n: shapes.Dim, block: int) -> int | None:
    """The axis of the indices' common shape, of `block` dimensions, along which an index counts
    0 … n - 1 and does nothing else; None if there is none."""
    dims = shapes.shape(index)
    wide = [k for k, d in enumerate(dims) if d != 1]
    u = index
    while u.op in _MOVES:
        u = u.src[0]
    if u.op is not Ops.IOTA or len(wide) != 1 or dims[wide[0]] != n or shapes.shape(u)[0] != n:
        return None
    return block - len(dims) + wide[0]
