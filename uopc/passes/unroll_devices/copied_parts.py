"""Exchanges in one process: copies from device to device, and sums of what arrives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import traffic

_COMBINE = {"add": Ops.ADD, "mul": Ops.MUL, "max": Ops.MAX, "min": Ops.MIN}
# From so many bytes on, each of three or more devices combines a share, and gets the others' ones:
# for four devices half of the copies, and one more wait for all.
LEAST_SHARED = 1 << 16

To = Callable[[int, int, UOp], UOp]  # (to, from, value): a value of one device on another


def in_group(exchange: UOp, sent: Sequence[UOp], places: Sequence[str | None]) -> list[UOp]:
    """The value that each device of a group gets, from those sent. `places`: the devices."""
    given, p, arg = [_stored(v) for v in sent], len(sent), exchange.arg

    def to(i: int, j: int, value: UOp) -> UOp:
        place = places[i]
        if place is None or place == places[j]:
            return value
        return intern(Ops.COPY, value.dtype, (value,), place)

    def rows(i: int) -> list[UOp]:
        """Row i of what each device sends, on device i."""
        return [to(i, j, movement.row(v, i)) for j, v in enumerate(given)]

    match exchange.op.name:
        case "allreduce":
            return _allreduced(arg.op, given, to)
        case "reduce_scatter":
            return [combined(arg.op, rows(i)) for i in range(p)]
        case "allgather":
            return [movement.stack(*[to(i, j, v) for j, v in enumerate(given)]) for i in range(p)]
        case "alltoall":
            return [movement.stack(*rows(i)) for i in range(p)]
        case "broadcast":
            return [to(i, arg.root, given[arg.root]) for i in range(p)]
    sources = [traffic.source(arg, i) for i in range(p)]
    return [
        _zeros_like(given[i]) if j is None else to(i, j, given[j])
        for i, j in enumerate(sources)
    ]


def _zeros_like(x: UOp) -> UOp:
    return leaves.full(leaves.const(x.dtype, 0), shapes.shape(x))


def combined(op: str, values: Sequence[UOp]) -> UOp:
    """Values combined in their order; narrow floats are rounded once."""
    dtype = values[0].dtype
    narrow = dtype.is_float and dtype.bits < 32
    wide = [fold.cast(v, dtypes.float32) for v in values] if narrow else values
    found = functools.reduce(lambda a, b: alu.alu(a, _COMBINE[op], b), wide)
    return fold.cast(found, dtype) if narrow else found


def _allreduced(op: str, given: Sequence[UOp], to: To) -> list[UOp]:
    """Each device combines everything, or its share, which the others get then."""
    p, dims = len(given), shapes.shape(given[0])
    count = shapes.size(dims)
    small = not isinstance(count, int) or count * given[0].dtype.itemsize < LEAST_SHARED
    if p < 3 or small:
        return [combined(op, [to(i, j, v) for j, v in enumerate(given)]) for i in range(p)]
    begins = [i * count // p for i in range(p + 1)]
    flat = [movement.reshape(v, (count,)) for v in given]
    shares = []
    for i in range(p):
        own = [movement.shrink(v, ((begins[i], begins[i + 1]),)) for v in flat]
        shares.append(_stored(combined(op, [to(i, j, v) for j, v in enumerate(own)])))
    every = [movement.cat(*[to(i, j, v) for j, v in enumerate(shares)]) for i in range(p)]
    return [movement.reshape(v, dims) for v in every]


def _stored(value: UOp) -> UOp:
    """A value in storage, from which it is copied."""
    root = storage_root(value)
    if root.op.is_storage or root.op is Ops.COPY:
        return value
    return intern(Ops.CONTIGUOUS, value.dtype, (value,))
