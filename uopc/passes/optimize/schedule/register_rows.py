"""The part of the heuristic for register tiles of reduces that are no contraction: rows beside the
lanes, that use again what the reduces read."""

from __future__ import annotations

from uopc.ir.core import ranges
from uopc.ir.core.uop import UOp
from uopc.passes.optimize.schedule import thresholds as machine
from uopc.passes.optimize.schedule.kernel_facts import KernelFacts, fitting, length_of, most_of
from uopc.passes.optimize.schedule.scheduler import Chooser


def register_tile(
    k: KernelFacts, output: UOp | None, reduces: list[UOp], lanes: int
) -> tuple[UOp | None, int]:
    """The row loop of a register tile around a reduce loop, and its width in vectors."""
    if output is None:
        return None, 1
    looped = [
        u
        for u in k.reduces
        if output in ranges.ranges(u)
        and any(q.arg.kind == "reduce" and q not in reduces for q in u.src[1:])
    ]
    if not looped:
        return None, 1
    length = length_of(output)
    width = fitting(lanes, length)
    vectors = (
        machine.TILE_VECTORS if length is None else fitting(machine.TILE_VECTORS, length // width)
    )
    return _row_loop(k, output, looped), vectors


def rows_inside(chooser: Chooser, k: KernelFacts, row: UOp, output: UOp) -> tuple[UOp, UOp]:
    """Columns outside, rows inside, where what the columns read leaves the cache between rows.

    The row and column loops as they are afterwards."""
    shared = [a for a in k.inside(output) if row not in ranges.ranges(a.node) and not a.written]
    footprint = 0.0
    for a in shared:
        size = float(a.node.dtype.itemsize)
        for r in ranges.ranges(a.node):
            size *= most_of(r)
        footprint += size
    if footprint > chooser.context.target.l2_bytes / 4 and row.arg.axis < output.arg.axis:
        axes = chooser.axes
        if chooser.attempt("SWAP", row, axes.index(output)):
            found = {r.arg.axis: r for r in chooser.axes}
            return found[output.arg.axis], found[row.arg.axis]
    return row, output


def _row_loop(k: KernelFacts, r: UOp, reduces: list[UOp]) -> UOp | None:
    """Another output loop over which an operand of the reduce is used again."""
    for q in reversed(k.outputs):
        if q is r or q.arg.kind != "loop" or (length_of(q) or 2) < 2:
            continue
        if any(q in ranges.ranges(u) for u in reduces) and any(
            q not in ranges.ranges(a.node) for u in reduces for a in k.inside(u.src[1])
        ):
            return q
    return None
