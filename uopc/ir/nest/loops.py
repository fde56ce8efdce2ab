"""The lengths of loops, and their order."""

from __future__ import annotations

import math
from collections.abc import Iterable

from uopc.ir.core import bounds, ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import closed, values
from uopc.ir.index.dims import typical


def length_of(r: UOp) -> int | None:
    """The number of iterations of a loop, if the loop runs at all; None if unknown."""
    return values.length(r.src[0])


def longest_of(r: UOp) -> int | None:
    """The length of a loop; for a thread's chunk with two possible lengths, the longer length."""
    return values.greatest(r.src[0])


def shorter_of(r: UOp) -> int:
    """The shorter of the two lengths of a thread's chunk; 0 for any other loop."""
    found = values.cases(r.src[0])
    return 0 if found is None else min(found)


def is_free(r: UOp) -> bool:
    """True if the length of a loop depends on a size that a call brings."""
    return any([u.op is Ops.VARIABLE for u in walk.toposort(r.src[0])])


def most_of(r: UOp) -> int:
    """The greatest length of a loop, at least 1."""
    longest: int = bounds.bounds(r.src[0])[1]
    return max(1, longest)


def likely_of(r: UOp) -> int:
    """The length of a loop that a cost assumes: a typical one if a call decides it, at least 1."""
    if is_free(r) and not ranges.ranges(r.src[0]) and closed.is_closed(r.src[0]):
        return max(1, typical(r.src[0]))
    return most_of(r)


def trips(loops: Iterable[UOp]) -> int:
    """The greatest number of runs of a body in these loops."""
    return math.prod(map(most_of, loops))


def by_axis(r: UOp) -> tuple[bool, tuple[int, ...]]:
    """The sort key of ranges: output loops first, then reduce loops, each by axis."""
    return r.arg.kind in ("reduce", "unroll", "group", "grouptop"), r.arg.axis
