"""The sums of a reduce in a local tile, so that its loop can be outside of the loops over outputs.

    for j: y[j] = sum(x[r] * w[r, j] for r)
    →  for f: t[f] = 0; for r: for s: t[s] = t[s] + x[r] * w[r, s]; for j: y[j] = t[j]

What the reduce reads is then walked in the order in which it lies in memory, once and a row at a
time, where the sums would otherwise hold it to a few columns of every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir.builder import alu as build
from uopc.ir.builder import index_maps as indexing
from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes, semantics
from uopc.ir.core.args import BufferArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op, Ops
from uopc.passes.analysis.loops import kernel_axes, make_range
from uopc.passes.optimize.opts.legality import Refused, check_free
from uopc.passes.optimize.opts.packing import MOST_BYTES, check_ahead

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def reduce_out(kernel: UOp, r: UOp, n: int) -> UOp:
    """Move the loop of a reduce outside of output loop n, and of those inside of that one."""
    closers = [u for u in analysis.order(kernel) if u.op is Ops.REDUCE and r in u.src[1:]]
    if len(closers) != 1:
        raise Refused("the range is not that of one reduce")
    axes = kernel_axes(kernel)
    if not 0 <= n < len(axes) or axes[n] in closers[0].src[1:]:
        raise Refused(f"there is no output loop {n}")
    reduce, outer = closers[0], axes[n]
    around = analysis.ranges(reduce)
    if outer not in around or outer.arg.kind != "loop":
        raise Refused(f"the reduce is not in loop {n}")
    inside = [q for q in around if q.arg.kind not in ("thread", "loop") or not _before(q, outer)]
    if any(q.arg.kind != "loop" for q in inside):
        raise Refused("copies of the loop would share the tile")
    inside.sort(key=lambda q: (q.arg.axis, q.seq))
    for q in (r, *inside):
        check_free(kernel, q)
    check_ahead(kernel, reduce.src[0])
    return remake.rebuild(kernel, {reduce: _moved(kernel, reduce, r, inside)})


def _before(q: UOp, outer: UOp) -> bool:
    return bool(q.arg.axis < outer.arg.axis)


def _moved(kernel: UOp, reduce: UOp, r: UOp, inside: list[UOp]) -> UOp:
    """The element of the tile that stands for the reduce, after the loops that fill it."""
    dims = tuple([analysis.bounds(q.src[0])[1] for q in inside])
    size = 1
    for d in dims:
        size *= d
    if size * reduce.dtype.itemsize > MOST_BYTES:
        raise Refused(f"a tile of {size} elements is too large")
    number = sum(u.op is Ops.BUFFER for u in analysis.order(kernel))
    tile = intern(Ops.BUFFER, reduce.dtype, (), BufferArg(number, (size,), space="local"))
    nest = 1 + max(q.arg.axis[0] for q in kernel_axes(kernel))  # after all loops there are
    outer = tuple([q for q in analysis.ranges(reduce) if q not in inside])
    empty = _filled(tile, dims, _copied(inside, (nest,)), _identity(reduce, outer))
    rows = make_range(r.src[0], (nest + 1, 0), "loop")
    columns = _copied(inside, (nest + 1,))
    begun = intern(Ops.AFTER, tile.dtype, (tile, empty, rows))
    term = remake.rebuild(reduce.src[0], {r: rows, **dict(zip(inside, columns))})
    others = tuple([q for q in reduce.src[1:] if q is not r])
    if others:
        term = intern(Ops.REDUCE, reduce.dtype, (term, *others), reduce.arg)
    so_far = intern(Ops.INDEX, tile.dtype, (begun, indexing.flat_index(dims, columns)))
    added = build.alu(so_far, Op.by_name(reduce.arg.op), term)
    summed = _filled(begun, dims, columns, added, rows)
    ready = intern(Ops.AFTER, tile.dtype, (tile, summed))
    return intern(Ops.INDEX, tile.dtype, (ready, indexing.flat_index(dims, inside)))


def _copied(loops: list[UOp], nest: tuple[int, ...]) -> list[UOp]:
    """Loops as long as others, at another place in the nest."""
    return [make_range(q.src[0], (*nest, 1 + i), "loop") for i, q in enumerate(loops)]


def _identity(reduce: UOp, outer: tuple[UOp, ...]) -> UOp:
    """What sums begin with, anew in each iteration of the loops around them."""
    t = reduce.dtype
    value = build.const(t, semantics.reduce_identity(reduce.arg.op, t))
    return intern(Ops.AFTER, t, (value, *outer)) if outer else value


def _filled(tile: UOp, dims: tuple[int, ...], loops: list[UOp], value: UOp, *outer: UOp) -> UOp:
    """The loops that store a value to each element of the tile."""
    target = intern(Ops.INDEX, value.dtype, (tile, indexing.flat_index(dims, loops)))
    store = intern(Ops.STORE, dtypes.void, (target, value))
    return intern(Ops.END, dtypes.void, (store, *outer, *loops))
