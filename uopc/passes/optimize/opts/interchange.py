"""SWAP: two output loops change places in the nest.

    for i: for j: f(i, j)   →   for j: for i: f(i, j)
"""

from __future__ import annotations

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.ir.nest.loops import by_axis
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts.legality import Refused, check_parallel, loops_to


def other_loop(kernel: UOp, r: UOp, n: int, do: str) -> UOp:
    """Output loop number n, which is closed together with r. `do` ends the message of a refusal."""
    axes = nest_of(kernel).axes
    if not 0 <= n < len(axes) or axes[n] is r:
        raise Refused(f"{n} must be the number of another range")
    q = axes[n]
    if not (q.arg.kind == r.arg.kind == "loop"):
        raise Refused(f"only output loops {do}")
    if any([(r in u.src[1:]) != (q in u.src[1:]) for u in nest_of(kernel).ends]):
        raise Refused("the ranges are not closed together")
    return q


def swap(kernel: UOp, r: UOp, n: int) -> UOp:
    """Exchange the places of r and output loop number n in the nest."""
    q = other_loop(kernel, r, n, "change places")
    if r in ranges.ranges(q.src[0]) or q in ranges.ranges(r.src[0]):
        raise Refused("one range depends on the other")
    for moved, axis in ((r, q.arg.axis), (q, r.arg.axis)):
        inside = [u for u in nest_of(kernel).ranges if moved in ranges.ranges(u.src[0])]
        if any(u.arg.kind != "loop" or u.arg.axis < axis for u in inside):
            raise Refused("a third range depends on one of the two ranges")
        if any(p.arg.axis > axis for p in ranges.ranges(moved.src[0])):
            raise Refused("the length of a range depends on a loop that would be inside the range")
    inner, outer = loops_to(kernel, max(r, q, key=by_axis)), min(r, q, key=by_axis)
    check_parallel(kernel, [p for p in inner[1:] if p.arg.axis >= outer.arg.axis])
    a, b = make_range(r.src[0], q.arg.axis, "loop"), make_range(q.src[0], r.arg.axis, "loop")
    return rebuild.rebuild(kernel, {r: a, q: b})
