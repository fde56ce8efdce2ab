"""The loops around a value. Cached on the node, never recursive."""

from __future__ import annotations

from uopc.ir.core.bounds import bounds
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, set_ranges
from uopc.ir.core.walk import sweep

NO_RANGES: frozenset[UOp] = frozenset()
_CLOSERS = frozenset((Ops.REDUCE, Ops.END, Ops.STAGE))


def ranges(u: UOp) -> frozenset[UOp]:
    """The loops around a value: the ranges below the value, except ranges closed on the way."""
    if u._ranges is None:
        if None in [s._ranges for s in u.src]:
            return sweep(u, "_ranges", _ranges)  # type: ignore[no-any-return]
        set_ranges(u, _ranges(u))
    return u._ranges  # type: ignore[no-any-return]


def length(r: UOp) -> int:
    """The number of iterations of a range of constant length."""
    return int(r.src[0].arg)


def in_empty_loop(u: UOp) -> bool:
    """True if the value is in a loop that has at most one iteration, and may have none.

    Folding the loop's index to 0 would move an access out of the loop, so the access would happen
    even if the loop is empty.
    """
    return any([_may_be_skipped(r) for r in ranges(u)])


def _may_be_skipped(loop: UOp) -> bool:
    low, high = bounds(loop.src[0])
    return bool(low <= 0 and high <= 1)


def closed_ranges(u: UOp) -> tuple[UOp, ...]:
    """The ranges that a REDUCE, an END or a STAGE closes."""
    if u.op in _CLOSERS:
        return tuple([s for s in u.src[1:] if s.op is Ops.RANGE])
    return ()


def _ranges(u: UOp) -> frozenset[UOp]:
    if u.op is Ops.RANGE:
        return frozenset((u, *(r for s in u.src for r in s._ranges)))
    if not u.src or u.op is Ops.LINEAR:  # a list has its loops in it
        return NO_RANGES
    if len(u.src) == 1:
        return u.src[0]._ranges  # type: ignore[no-any-return]
    out: frozenset[UOp] = u.src[0]._ranges
    for s in u.src[1:]:
        more = s._ranges
        if more is not out and not more <= out:  # equal sets are mostly one object
            out = more if out <= more else out | more
    if u.op in _CLOSERS:
        return out.difference(closed_ranges(u))
    return out
