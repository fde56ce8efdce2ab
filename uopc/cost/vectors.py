"""References as vectors: which lanes are neighbours, and what loads and stores of lanes become."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from uopc.cost.machine import MachineFacts
from uopc.ir.nest.outline import Dim, Reference

_MOST_PLACES = 2048  # of copies that are counted one by one
_MOST_APART = 4  # elements between lanes that full loads and shuffles bring
_MOST_RUNS = 4  # of neighbours, which loads and shuffles bring
_LEAST_ROWS = 4  # of a block that is read by rows and transposed


class Gather(NamedTuple):
    """Loads of so many bytes and shuffles that bring lanes together."""

    nbytes: float
    loads: float
    shuffles: float


def product(dims: Iterable[Dim]) -> int:
    """The combinations of some lanes or copies."""
    return math.prod([int(d.length) for d in dims])


def moving(dims: Iterable[Dim]) -> list[Dim]:
    """The dimensions along which a reference moves."""
    return [d for d in dims if d.stride != 0]


def is_dense(lanes: Iterable[Dim]) -> bool:
    """True for lanes that are neighbours."""
    step = 1
    for d in sorted(lanes, key=lambda d: abs(d.stride or 0)):
        if d.stride != step:
            return False
        step *= int(d.length)
    return True


def is_transposed(r: Reference) -> bool:
    """True if copies read the neighbours of each lane: a block is read by rows and transposed."""
    return any(abs(d.stride or 0) == 1 and d.length >= _LEAST_ROWS for d in r.copies)


def pieces(lanes: int, bits: int, m: MachineFacts) -> int:
    """The instructions that load or store neighbours: full vectors, and powers of two."""
    full, rest = divmod(lanes, max(1, m.vector_bits // bits))
    return full + rest.bit_count()


def distinct(r: Reference) -> int:
    """The different places that the copies of a reference touch."""
    copies = moving(r.copies)
    total = product(copies) * len(r.offsets)
    strides = [d.stride for d in copies if d.stride is not None]
    if len(strides) < len(copies) or total > _MOST_PLACES:
        return total
    places = set(r.offsets)
    for d, stride in zip(copies, strides):
        places = {p + stride * i for p in places for i in range(int(d.length))}
    return len(places)


def gather(r: Reference, count: int, registers: int, m: MachineFacts) -> Gather | None:
    """The loads and shuffles of lanes that are no neighbours; None for lanes one by one."""
    lanes, full = moving(r.lanes), float(m.vector_bytes)
    apart = abs(lanes[0].stride or 0) if len(lanes) == 1 else 0
    if apart == 1:  # backwards
        return Gather(full, registers, registers)
    if is_transposed(r):
        of_a_vector = min(product(lanes), m.vector_bits // (8 * r.item))
        return Gather(full, registers, registers * math.log2(max(2, of_a_vector)))
    if 0 < apart <= _MOST_APART and not r.masked:  # every second, third, fourth
        return Gather(full, registers * apart, registers * (2 * apart - 2))
    spread = r.spread
    if spread is None or spread.runs > _MOST_RUNS:
        return None
    loads: float = count * spread.runs
    if spread.runs == 1:
        loads *= max(1.0, math.ceil(spread.span * r.item / full))
    return Gather(min(full, max(16, spread.elements * r.item / spread.runs)), loads, loads)


def rows_beside(r: Reference) -> tuple[int, float]:
    """Of stored copies: the elements of a run of neighbours, and the number of such runs."""
    step, rows = product(moving(r.lanes)), 1.0
    for d in sorted(moving(r.copies), key=lambda d: abs(d.stride or 1 << 40)):
        if d.stride == step:
            step *= int(d.length)
        else:
            rows *= d.length
    return step, rows


def gaps(offsets: list[int]) -> list[int]:
    """The distances between neighbours of sorted offsets."""
    return [y - x for x, y in itertools.pairwise(sorted(offsets))]
