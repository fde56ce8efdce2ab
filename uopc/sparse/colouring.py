"""Colourings: columns of one colour share no row, so a single product gives all their entries.

Greedy, as in Gebremedhin, Manne and Pothen, "What color is your Jacobian?", SIAM Review 47 (2005).
"""

from __future__ import annotations

import numpy as np

from uopc.sparse.sparsity import Places


def columns(row: Places, col: Places, n: int) -> Places:
    """A colour for each of n columns: columns with entries in the same row differ.

    The longest columns come first. The colours in a row are the bits of an integer, so an entry
    costs one operation.
    """
    lists = _by(col, row, n)
    taken: dict[int, int] = {}
    colours = np.zeros(n, np.int64)
    for j in sorted(range(n), key=lambda j: -len(lists[j])):
        used = 0
        for i in lists[j]:
            used |= taken.get(i, 0)
        free = ~used & (used + 1)  # the lowest bit that is 0
        colours[j] = free.bit_length() - 1
        for i in lists[j]:
            taken[i] = taken.get(i, 0) | free
    return colours


def both(row: Places, col: Places, m: int, n: int) -> tuple[Places, Places, Places]:
    """A mask of the entries that row products give, the colours of rows, and the colours of
    columns.

    The densest rows get row products if that saves colours: an arrow of n needs three, not n.
    """
    lengths = np.bincount(row, minlength=m)
    levels = np.unique(lengths)[::-1][:8]
    best: tuple[int, Places, Places, Places] | None = None
    for most in (lengths.max(initial=0) + 1, *levels.tolist()):
        by_row = lengths[row] >= most
        across = columns(row[~by_row], col[~by_row], n)
        down = columns(col[by_row], row[by_row], m)
        count = _count_colours(across, col[~by_row]) + _count_colours(down, row[by_row])
        if best is None or count < best[0]:
            best = count, by_row, down, across
    assert best is not None
    return best[1:]


def star(row: Places, col: Places, n: int) -> Places:
    """A colour for each vertex of a symmetric structure: neighbours differ, and any path of four
    vertices has three colours. So a product shows each entry or its mirror image."""
    near = _by(col[row != col], row[row != col], n)
    colours = np.full(n, -1, np.int64)
    for v in sorted(range(n), key=lambda v: -len(near[v])):
        forbidden = set()
        for w in near[v]:
            mine = int(colours[w])
            forbidden.add(mine)
            for x in near[w]:
                if x == v or colours[x] < 0:
                    continue
                alone = mine >= 0 and not any([y != w and colours[y] == mine for y in near[x]])
                if not alone:
                    forbidden.add(int(colours[x]))
        colour = 0
        while colour in forbidden:
            colour += 1
        colours[v] = colour
    return colours


def _by(major: Places, minor: Places, n: int) -> list[list[int]]:
    """For each major index, the minor indices of its entries."""
    order = np.argsort(major, kind="stable")
    ends = np.cumsum(np.bincount(major, minlength=n))[:-1]
    return [part.tolist() for part in np.split(minor[order], ends)] if n else []


def _count_colours(colours: Places, used: Places) -> int:
    return int(colours[used].max()) + 1 if used.size else 0
