"""Offsets of intermediates in one arena, where memory is reused after its last read.

This is the plan of numbers; `memory_expressions.py` adds blocks whose sizes a call decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from uopc.ir.records import dataclass

if TYPE_CHECKING:  # programs with known sizes need no expressions
    from uopc.ir.index.polynomials import Polynomial

ALIGNMENT = 64  # a cache line, and the widest vector
# A processor compares a load with the stores before it by the last 12 bits of their addresses. If
# an array that is written lies up to AHEAD bytes ahead of one that is read, by those bits, loads
# wait for stores to other places: up to four times the time (docs/lab/schedule.md). So arrays of
# LARGE bytes begin at pages of the arena, and the place of a large result is chosen.
PAGE = 4096
AHEAD = 256
LARGE = 1 << 16


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of the alignment that is at least `nbytes`."""
    return -(-nbytes // alignment) * alignment


def is_ahead(address: int, others: Iterable[int]) -> bool:
    """True if stores from an address on delay loads from one of the others on."""
    return any([0 < (address - other) % PAGE < AHEAD for other in others])


@dataclass(frozen=True)
class Lifetime:
    """A block of `nbytes` that is alive from launch `first` to launch `last`, inclusive. Where a
    call decides its size, `nbytes` is what is typical, `bound` holds for all calls, and the block
    begins at a multiple of `alignment`."""

    nbytes: int
    first: int
    last: int
    bound: Polynomial | None = None
    alignment: int = ALIGNMENT


class Timeline:
    """The placed blocks by launch.

    A block overlaps those that begin in its lifetime, and those that are alive when it begins. A
    segment tree over the launches has the latter: a lifetime covers a few of its nodes.
    """

    def __init__(self, blocks: Sequence[Lifetime]) -> None:
        self._blocks = blocks
        self._by_first = sorted(range(len(blocks)), key=lambda i: blocks[i].first)
        self._firsts = [blocks[i].first for i in self._by_first]
        self._leaves = 1 << max([block.last for block in blocks], default=0).bit_length()
        self._covering: dict[int, list[int]] = {}  # by node
        self._placed: set[int] = set()

    def add(self, number: int) -> None:
        self._placed.add(number)
        left = self._blocks[number].first + self._leaves
        right = self._blocks[number].last + self._leaves + 1
        while left < right:
            if left & 1:
                self._covering.setdefault(left, []).append(number)
            if right & 1:
                self._covering.setdefault(right - 1, []).append(number)
            left, right = (left + 1) >> 1, right >> 1

    def overlapping(self, number: int) -> list[int]:
        """The placed blocks whose lifetimes overlap this one's."""
        block = self._blocks[number]
        begin, end = bisect_right(self._firsts, block.first), bisect_right(self._firsts, block.last)
        found = [i for i in self._by_first[begin:end] if i in self._placed]
        node = block.first + self._leaves
        while node:
            found += self._covering.get(node, ())
            node >>= 1
        return found


def plan(blocks: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The offset of each block, and the size of the arena. Live blocks do not overlap.

    Greedy by size (as in Pisarchyk and Lee, 2020): large blocks first, each in the lowest gap
    that fits among the placed blocks alive at the same time.
    """
    offsets = [0] * len(blocks)
    placed = Timeline(blocks)
    total = 0
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].nbytes, blocks[i].first, i)):
        block = blocks[i]
        size = aligned(block.nbytes)
        alignment = PAGE if size >= LARGE else ALIGNMENT
        alive = sorted([(offsets[j], blocks[j].nbytes) for j in placed.overlapping(i)])
        at = 0
        for start, nbytes in alive:
            if at + size <= start:
                break
            at = max(at, aligned(start + nbytes, alignment))
        offsets[i] = at
        placed.add(i)
        total = max(total, at + size)
    return offsets, total
