"""The order of a block's threads: which ranges are neighbours, and how many threads there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.passes.analysis.shared_tiles import THREADS

_FASTEST = {"warp": 3, "group": 2, "local": 1, "grouptop": 0}  # neighbouring threads last


def speed(r: UOp) -> tuple[int, tuple[int, ...]]:
    """A key by which the range of neighbouring threads is the last one."""
    return _FASTEST[r.arg.kind], r.arg.axis


def faster_ranges(order: Iterable[UOp]) -> dict[UOp, set[UOp]]:
    """The ranges of threads, the fastest first; with each the faster ones that are around a node
    together with it."""
    found: dict[UOp, set[UOp]] = {}
    for around in dict.fromkeys([ranges.ranges(u) for u in order]):
        chain = sorted([r for r in around if r.arg.kind in THREADS], key=speed, reverse=True)
        for i, r in enumerate(chain):
            found.setdefault(r, set()).update(chain[:i])
    return {r: found[r] for r in sorted(found, key=speed, reverse=True)}


def positions(faster: Mapping[UOp, set[UOp]]) -> dict[UOp, int]:
    """The most ranges of threads that are inside of each one, around one node."""
    position: dict[UOp, int] = {}
    for r, inside in faster.items():
        position[r] = max([position[f] + 1 for f in inside], default=0)
    return position


def extents(position: Mapping[UOp, int]) -> tuple[int, ...] | None:
    """The length of each dimension of a block, the fastest first. None if its ranges are digits of
    one number: the lanes of a warp must be neighbours, the ranges of a dimension equally long."""
    sizes = sorted({(i, ranges.length(r)) for r, i in position.items()})
    if len(sizes) > len(set(position.values())) or any(r.arg.kind == "warp" for r in position):
        return None
    return tuple([size for _, size in sizes])


def steps(faster: Mapping[UOp, set[UOp]]) -> dict[UOp, int]:
    """Of ranges that are digits of a thread's number: the threads per iteration of each."""
    found: dict[UOp, int] = {}
    for r, inside in faster.items():
        found[r] = math.lcm(*[found[f] * ranges.length(f) for f in inside])
    return found


def block_size(order: Iterable[UOp]) -> int:
    """The threads of a block of a kernel; 1 if it has no ranges of threads."""
    faster = faster_ranges(order)
    dimensions = extents(positions(faster))
    if dimensions is None:
        return max([step * ranges.length(r) for r, step in steps(faster).items()])
    return math.prod(dimensions)
