"""Transposed reads: square blocks, read along their rows and turned over in registers."""

from __future__ import annotations

from uopc.ir.core.uop import UOp
from uopc.passes.analysis.lanes import chunk
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, fitting, length_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


def crossed(k: KernelFacts, output: UOp | None) -> UOp | None:
    """The output loop along which a read has neighbours where it has none along `output`, which
    gets the lanes: a transposed read, whose copies read the columns of blocks."""
    if output is None:
        return None
    for a in k.accesses:
        step = 0 if a.written else a.stride(output)
        if step is None or -1 <= step <= 1:
            continue
        least = chunk(a.node.dtype)
        for q in k.outputs:
            if q is not output and q.arg.kind == "loop" and a.stride(q) == 1:
                return q if (length_of(q) or 0) >= least <= (length_of(output) or 0) else None
    return None


def copy_crossed(s: Scheduler, output: UOp | None, lanes: int) -> UOp | None:
    """Blocks of both loops of a transposed read, and as many copies of the other loop as there are
    lanes; the loop in place of `output`. None where no read is transposed."""
    k = s.facts
    other = crossed(k, output) if k.expanded_size() * lanes <= thresholds.MOST_COPIES else None
    if output is None or other is None:
        return None
    if output.arg.axis < other.arg.axis:
        other, output = s.swapped(other, output)
    other, output = _blocked(s, other, output)
    for q in s.family(other):
        copy(s, q, lanes)
    return output


def _blocked(s: Scheduler, outer: UOp, inner: UOp) -> tuple[UOp, UOp]:
    """The loops over a block of two loops, inside of the loops over blocks."""
    n = thresholds.CROSSED_BLOCK
    if any((length_of(r) or 1) % n or length_of(r) == n for r in (outer, inner)):
        return outer, inner
    if not s.attempt("TILE", outer, n) or not s.attempt("TILE", inner, n):
        return outer, inner
    return s.swapped(s.inner(outer), s.outer(inner))[0], s.inner(inner)


def copy(s: Scheduler, r: UOp, n: int) -> None:
    """Copies of the body for n iterations; for the rest half as many, and so on."""
    rest: UOp | None = r
    while rest is not None and n > 1:
        n = fitting(n, length_of(rest))
        s.widen(rest, "UPCAST", n)
        rest = s.part(rest, 1)
        rest = rest if rest is not None and rest.arg.kind == "loop" else None
