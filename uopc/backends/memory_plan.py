"""Offsets of intermediates in one arena, where memory is reused after its last read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64  # a cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """A block of `nbytes` that is alive from launch `first` to launch `last`, inclusive."""

    nbytes: int
    first: int
    last: int


def plan(blocks: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The offset of each block, and the size of the arena. Live blocks do not overlap.

    Greedy by size (as in Pisarchyk and Lee, 2020): large blocks first, each in the lowest gap
    that fits among the placed blocks alive at the same time.
    """
    offsets = [0] * len(blocks)
    total = 0
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first, i))
    first = np.array([blocks[i].first for i in order])
    last = np.array([blocks[i].last for i in order])
    for placed, i in enumerate(order):
        block = blocks[i]
        size = -(-block.nbytes // ALIGNMENT) * ALIGNMENT
        alive = np.flatnonzero((first[:placed] <= block.last) & (last[:placed] >= block.first))
        at = 0
        for start, nbytes in sorted([(offsets[order[j]], blocks[order[j]].nbytes) for j in alive]):
            if at + size <= start:
                break
            at = max(at, -(-(start + nbytes) // ALIGNMENT) * ALIGNMENT)
        offsets[i] = at
        total = max(total, at + size)
    return offsets, total
