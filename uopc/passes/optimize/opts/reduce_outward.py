"""REDUCE_OUT: interchange of a reduce with loops over outputs; its accumulators become a tile.

    for j: y[j] = sum(x[r] * w[r, j] for r)
    →  for f: t[f] = 0; for r: for s: t[s] = t[s] + x[r] * w[r, s]; for j: y[j] = t[j]

The operands are then read once, a row at a time, in memory order. Without the Opt the reduce,
inside of the output loops, reads a few columns of every row.
"""

from __future__ import annotations

from dataclasses import replace

from uopc.ir.builder import alu, rebuild
from uopc.ir.core import bounds, ranges
from uopc.ir.core.data.blocks import LINE
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.serialize import content
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import identity, make_range
from uopc.passes.optimize.opts.legality import Refused, check_ahead, check_free, only_reduce
from uopc.passes.optimize.opts.local_tile import local_tile, next_nest


def reduce_out(kernel: UOp, r: UOp, n: int) -> UOp:
    """Move the loop of a reduce outside of output loop n and of all loops inside of loop n."""
    reduce = only_reduce(kernel, r)
    axes = nest_of(kernel).axes
    if not 0 <= n < len(axes) or axes[n] in reduce.src[1:]:
        raise Refused(f"there is no output loop {n}")
    outer = axes[n]
    around = sorted(ranges.ranges(reduce), key=lambda q: (q.arg.axis, content(q)))
    if outer not in around or outer.arg.kind != "loop":
        raise Refused(f"the reduce is not in loop {n}")
    inside = [q for q in around
              if q.arg.kind not in ("thread", "loop") or q.arg.axis >= outer.arg.axis]  # fmt: skip
    if any(q.arg.kind != "loop" for q in inside):
        raise Refused("copies of the loop would share the tile")
    for q in (r, *inside):
        check_free(kernel, q)
    check_ahead(kernel, reduce.src[0])
    return rebuild.rebuild(kernel, {reduce: _moved(kernel, reduce, r, inside)})


def _moved(kernel: UOp, reduce: UOp, r: UOp, inside: list[UOp]) -> UOp:
    """Replace the reduce by an element of a tile, which loops fill before."""
    dims = [int(bounds.bounds(q.src[0])[1]) for q in inside]
    line = LINE // reduce.dtype.itemsize
    if len(dims) > 1 and dims[-1] > line:  # each row begins at a cache line
        dims[-1] = -(-dims[-1] // line) * line
    tile = local_tile(kernel, reduce.dtype, dims)
    nest = next_nest(kernel)

    def loops(nest: int) -> list[UOp]:
        return [make_range(q.src[0], (nest, 1 + i), "loop") for i, q in enumerate(inside)]

    outer = [q for q in ranges.ranges(reduce) if q not in inside]
    begin = identity(reduce)
    if outer:  # anew in each iteration of the loops around
        begin = intern(Ops.AFTER, begin.dtype, (begin, *sorted(outer, key=lambda q: q.arg.axis)))
    empty = tile.fill(loops(nest), begin)
    rows, columns = make_range(r.src[0], (nest + 1, 0), "loop"), loops(nest + 1)
    term = rebuild.rebuild(reduce.src[0], {r: rows, **dict(zip(inside, columns))})
    others = tuple([q for q in reduce.src[1:] if q is not r])
    if others:
        term = intern(Ops.REDUCE, reduce.dtype, (term, *others), reduce.arg)
    begun = replace(empty, effects=(*empty.effects, rows))
    added = alu.alu(begun.at(columns), Op.by_name(reduce.arg.op), term)
    return begun.fill(columns, added, rows).at(inside)
