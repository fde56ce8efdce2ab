"""Transposed reads: square blocks, read along their rows and turned over in registers."""

from __future__ import annotations

from uopc.ir.core.uop import UOp
from uopc.passes.analysis.lanes import chunk
from uopc.passes.optimize.schedule import thresholds
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, fitting, length_of
from uopc.passes.optimize.schedule.scheduler import Scheduler


def crossed(k: KernelFacts, output: UOp | None) -> UOp | None:
    """The output loop along which a read has neighbours that it lacks along `output`."""
    if output is None:
        return None
    for a in k.read:
        step = a.stride(output)
        if step is None or -1 <= step <= 1:
            continue
        least = chunk(a.node.dtype)
        for q in k.outputs:
            if q is not output and q.arg.kind == "loop" and a.stride(q) == 1:
                return q if (length_of(q) or 0) >= least <= (length_of(output) or 0) else None
    return None


def copy_crossed(s: Scheduler, output: UOp | None, lanes: int) -> UOp | None:
    """Blocks and copies of the loops of a transposed read; the loop in place of `output`."""
    k = s.facts
    other = crossed(k, output) if k.expanded_size() * lanes <= thresholds.MOST_COPIES else None
    if output is None or other is None:
        return None
    if output.arg.axis < other.arg.axis:
        other, output = s.swapped(other, output)
    n = thresholds.CROSSED_BLOCK
    blocks = all((length_of(r) or 1) % n == 0 and length_of(r) != n for r in (other, output))
    if blocks and s.attempt("TILE", other, n) and s.attempt("TILE", output, n):
        other, output = s.swapped(s.inner(other), s.outer(output))[0], s.inner(output)
    for q in s.family(other):
        copy_all(s, q, lanes)
    return output


def copy_all(s: Scheduler, r: UOp, n: int) -> None:
    """Copies of the body for n iterations; for the rest half as many, and so on."""
    rest: UOp | None = r
    while rest is not None and rest.arg.kind == "loop" and n > 1:
        n = fitting(n, length_of(rest))
        s.widen(rest, "UPCAST", n)
        rest = s.part(rest, 1)
