"""Places for intermediates in one arena: memory is used again once nobody reads it any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # a cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """A block of `nbytes`, alive from launch `first` to launch `last`, both included."""

    nbytes: int
    first: int
    last: int


def plan(blocks: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each block, and the size of the arena. Blocks alive together do not overlap.

    Greedy by size (as in Pisarchyk and Lee, 2020): large blocks first, each in the lowest gap
    that fits among the placed blocks alive at the same time.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first, i)):
        block = blocks[i]
        size = -(-block.nbytes // ALIGNMENT) * ALIGNMENT
        alive = sorted(
            (offsets[j], blocks[j].nbytes)
            for j in placed
            if blocks[j].first <= block.last and block.first <= blocks[j].last
        )
        at = 0
        for start, nbytes in alive:
            if at + size <= start:
                break
            at = max(at, -(-(start + nbytes) // ALIGNMENT) * ALIGNMENT)
        offsets[i] = at
        placed.append(i)
        total = max(total, at + size)
    return offsets, total
