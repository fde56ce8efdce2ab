"""The dimensions that a reshape keeps together, and the one along which an index walks."""

from __future__ import annotations

from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

Group = tuple[list[int], list[int]]


def groups(old: shapes.Shape, new: shapes.Shape) -> list[Group]:
    """The dimensions of a reshape that hold the same elements: (old ones, new ones)."""
    if 0 in old or 0 in new:
        return [(list(range(len(old))), list(range(len(new))))]
    if any([type(d) is not int for d in (*old, *new)]):
        return _with_symbols(old, new)
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


def _with_symbols(old: shapes.Shape, new: shapes.Shape) -> list[Group]:
    """The same for sizes that are symbols: those before and after which all dimensions are equal,
    or 1, stand alone."""
    first, (i, j) = _equal(old, new)
    last, (k, m) = _equal(old[i:][::-1], new[j:][::-1])
    k, m = len(old) - k, len(new) - m
    ends = [([len(old) - 1 - a for a in olds], [len(new) - 1 - b for b in news])
            for olds, news in reversed(last)]  # fmt: skip
    middle: list[Group] = []
    if i < k or j < m:
        fixed = all([type(d) is int for d in (*old[i:k], *new[j:m])])
        inner = groups(old[i:k], new[j:m]) if fixed else [([*range(k - i)], [*range(m - j)])]
        middle = [([i + a for a in olds], [j + b for b in news]) for olds, news in inner]
    return [*first, *middle, *ends]


def _equal(old: shapes.Shape, new: shapes.Shape) -> tuple[list[Group], tuple[int, int]]:
    """The groups from the front while dimensions are equal, or 1, and where they end."""
    found: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            found.append(([i], [j]))
            i, j = i + 1, j + 1
        elif i < len(old) and old[i] == 1:
            found.append(([i], []))
            i += 1
        elif j < len(new) and new[j] == 1:
            found.append(([], [j]))
            j += 1
        else:
            break
    return found, (i, j)


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
