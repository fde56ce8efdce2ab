"""Clips before a conversion to integers, which saturates, as quantised models have them.

    cast (min (max (f x) 0) 255): u8   →   cast (f x): u8      for a growing f

f is any row of functions that never fall where their operand grows: sums with constants, products
with positive ones, rounding, other clips. NaN stays NaN through all of them, and becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from uopc.ir.builder import fold, rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

# Functions of one operand, or of one and a constant, that never fall where it grows.
_GROWING = frozenset((
    Ops.ROUND, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.MAX,
    Ops.MIN,
))  # fmt: skip


def without_needless_clips(graph: UOp) -> UOp:
    """Remove MAX and MIN by a constant below a conversion to integers, if the conversion saturates
    where they clip. A clip with another reader stays."""
    casts = [u for u in walk.nodes(graph) if u.op is Ops.CAST and _saturates(u)]
    if not casts:
        return graph
    readers = walk.consumers(graph)
    needless = {c for u in casts for c in _clips(u) if _is_needless(u, c, readers)}
    if not needless:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return src[_moving(u)] if u in needless else None

    return rebuild.rewritten(graph, change, outside_kernels=True, only=needless)


def _saturates(u: UOp) -> bool:
    return u.dtype.is_int and u.src[0].dtype.is_float and u.src[0].op in _GROWING


def _moving(u: UOp) -> int:
    """The operand of a growing function that is no constant."""
    return int(len(u.src) == 2 and u.src[0].op is Ops.CONST)


def _growing_operand(u: UOp) -> UOp | None:
    """The operand of a growing function; None for one that is none."""
    if u.op not in _GROWING:
        return None
    x = u.src[_moving(u)]
    if len(u.src) == 1:
        return x
    c = u.src[1 - _moving(u)]
    if c.op is not Ops.CONST or not math.isfinite(c.arg) or c.dtype.bits < 32:
        return None
    if u.op in (Ops.MUL, Ops.FDIV) and c.arg <= 0:
        return None
    return x if u.op not in (Ops.SUB, Ops.FDIV) or c is u.src[1] else None


def _chain(u: UOp) -> list[UOp]:
    """The growing functions below a conversion, the last one first."""
    found, v = [], u.src[0]
    while (below := _growing_operand(v)) is not None:
        found.append(v)
        v = below
    return found


def _clips(u: UOp) -> list[UOp]:
    return [v for v in _chain(u) if v.op in (Ops.MAX, Ops.MIN)]


def _is_needless(cast: UOp, clip: UOp, readers: Mapping[UOp, Mapping[UOp, None]]) -> bool:
    """True if the least, or the greatest, number of a clip becomes that of the integers, and only
    the conversion sees the clip."""
    above = _chain(cast)
    above = above[: above.index(clip)]
    if any([len(readers[v]) > 1 for v in (*above, clip)]):
        return False
    value = clip.src[1 - _moving(clip)]
    for v in reversed(above):
        src = [value if i == _moving(v) else s for i, s in enumerate(v.src)]
        value = rebuild.remake(v, tuple(src))
    made = fold.convert(value, cast.dtype)
    least, most = cast.dtype.bounds
    return made.op is Ops.CONST and made.arg == (least if clip.op is Ops.MAX else most)
