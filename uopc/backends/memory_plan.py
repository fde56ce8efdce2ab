"""Offsets of intermediates in one arena, where memory is reused after its last read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64  # a cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """A block of `nbytes` that is alive from launch `first` to launch `last`, inclusive."""

    nbytes: int
    first: int
    last: int


class _Timeline:
    """The blocks by lifetime: a segment tree over the launches.

    A lifetime covers a few nodes of the tree. Two lifetimes overlap where they share a node, or
    where a node of one is above a node of the other.
    """

    def __init__(self, launches: int) -> None:
        self._leaves = 1 << max(0, launches - 1).bit_length()
        self._here: dict[int, list[int]] = {}
        self._below: dict[int, list[int]] = {}

    def _nodes(self, block: Lifetime) -> tuple[list[int], set[int]]:
        """The nodes that a lifetime covers, and those above them."""
        left, right = block.first + self._leaves, block.last + self._leaves + 1
        nodes: list[int] = []
        while left < right:
            if left & 1:
                nodes.append(left)
                left += 1
            if right & 1:
                right -= 1
                nodes.append(right)
            left, right = left >> 1, right >> 1
        above: set[int] = set()
        for node in nodes:
            node >>= 1
            while node and node not in above:
                above.add(node)
                node >>= 1
        return nodes, above

    def add(self, number: int, block: Lifetime) -> None:
        nodes, above = self._nodes(block)
        for node in nodes:
            self._here.setdefault(node, []).append(number)
        for node in above:
            self._below.setdefault(node, []).append(number)

    def meeting(self, block: Lifetime) -> set[int]:
        """The blocks whose lifetimes overlap this one's."""
        nodes, above = self._nodes(block)
        found: set[int] = set()
        for node in nodes:
            found.update(self._here.get(node, ()), self._below.get(node, ()))
        for node in above:
            found.update(self._here.get(node, ()))
        return found


def plan(blocks: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The offset of each block, and the size of the arena. Live blocks do not overlap.

    Greedy by size (as in Pisarchyk and Lee, 2020): large blocks first, each in the lowest gap
    that fits among the placed blocks alive at the same time.
    """
    offsets = [0] * len(blocks)
    placed = _Timeline(1 + max([block.last for block in blocks], default=0))
    total = 0
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first, i)):
        block = blocks[i]
        size = -(-block.nbytes // ALIGNMENT) * ALIGNMENT
        alive = sorted([(offsets[j], blocks[j].nbytes) for j in placed.meeting(block)])
        at = 0
        for start, nbytes in alive:
            if at + size <= start:
                break
            at = max(at, -(-(start + nbytes) // ALIGNMENT) * ALIGNMENT)
        offsets[i] = at
        placed.add(i, block)
        total = max(total, at + size)
    return offsets, total
