"""PREPACK: constant arrays that a loop reads are stored in blocks of its iterations.

    for i: for k: s += w[i, k]   →   for i: for k: s += w[i // n, k, i % n]

The program makes the new array once. A tile of n iterations then reads one stream of neighbours in
place of n streams, or a panel of columns without a copy of it. The loop must count a dimension of
the array alone, or be a thread's chunk of a dimension: each thread then reads an area of its own.
If chunks have two lengths, each must begin at a block.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from uopc.ir.builder import index_maps, rebuild
from uopc.ir.core import ranges
from uopc.ir.core.data import blocks
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, values
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.nest import nest_of
from uopc.passes.analysis.loops import make_range
from uopc.passes.optimize.opts.legality import Refused, check_amount, known_length


def prepack(kernel: UOp, r: UOp, n: int) -> UOp:
    """Store the constants that r reads in blocks of n iterations of r."""
    check_amount(n, 2)
    found = values.cases(r.src[0])
    lengths = (known_length(r),) * 2 if found is None else found
    reads: dict[UOp, list[Access]] = {}
    for a in nest_of(kernel).read:
        if a.storage.op is Ops.PARAM and a.storage.arg.order == ():
            reads.setdefault(a.storage, []).append(a)
    mapping: dict[UOp, UOp] = {}
    for param, accesses in reads.items():
        mapping |= _blocked(param, accesses, r, lengths, n)
    if not mapping:
        raise Refused("no dimension of a constant array is indexed by the loop alone")
    return rebuild.rebuild(kernel, mapping)


def _blocked(
    param: UOp, reads: list[Access], r: UOp, lengths: tuple[int, int], n: int
) -> dict[UOp, UOp]:  # fmt: skip
    """Map the reads of an array to reads in blocks; empty if the array stays as it is. `lengths`:
    of the loop in all threads' chunks but the last, and in the last chunk."""
    indices, steps = [a.flat for a in reads], reads[0].form[1]
    inner, (length, last) = steps.get(r, 0), lengths
    beside, value = _chunks(steps, length * inner), r
    if length != last:  # all chunks count one dimension, and each begins at a block
        if beside is None or length % n:
            return {}
        value = affine.add(affine.scaled(beside, length), r)
        length = length * (known_length(beside) - 1) + last
        r, beside = make_range(length, r.arg.axis, "loop"), None
        indices = [_counted(flat, value, r, inner) for flat in indices]
    chunks = 1 if beside is None else known_length(beside)
    (count,) = param.arg.dims
    outer = count // (chunks * length * inner) if inner > 0 else 0
    order = (outer, chunks, length, inner, n)
    as_it_is = inner == 1 and (outer == 1 or (chunks == 1 and length <= n))
    if as_it_is or math.prod(order[:4]) != count:
        return {}
    arg = dataclasses.replace(param.arg, dims=(blocks.size(order),), order=order)
    stored = intern(Ops.PARAM, param.dtype, (), arg, param.tag)
    block, rest = affine.divmod_(value, affine.const(n))
    made = {}
    for a, flat in zip(reads, indices):
        high, within = affine.divmod_(flat, affine.const(inner))
        around, alone = affine.divmod_(high, affine.const(length))
        around, chunk = affine.divmod_(around, affine.const(chunks))
        if alone is not r or (chunks > 1 and chunk is not beside):
            return {}
        if value is not r and not ranges.ranges(value).isdisjoint(ranges.ranges(high)):
            return {}
        place = affine.add(affine.scaled(chunk, -(-length // n)), block)
        row = affine.add(affine.scaled(place, outer), around)
        step = affine.add(affine.scaled(row, inner), within)
        guard = index_maps.true() if a.gate is None else a.gate
        index = index_maps.gated((affine.add(affine.scaled(step, n), rest),), guard)
        u = a.node
        made[u] = intern(Ops.INDEX, u.dtype, (stored, *index), u.arg, u.tag)
    return made


def _counted(flat: UOp, value: UOp, r: UOp, step: int) -> UOp:
    """The index with `value` replaced by the range r, in steps of `step` elements."""
    return affine.add(affine.sub(flat, affine.scaled(value, step)), affine.scaled(r, step))


def _chunks(steps: Mapping[UOp, int], step: int) -> UOp | None:
    """The loop over threads whose chunks of the packed loop lie next to each other, `step` elements
    each: a thread then reads nothing but its chunk."""
    moved = [q for q, n in steps.items() if n == step and q.op is Ops.RANGE]
    return moved[0] if len(moved) == 1 and moved[0].arg.kind == "thread" else None
