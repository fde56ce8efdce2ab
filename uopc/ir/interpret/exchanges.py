"""The meaning of exchanges: the result on each device of a group, from all devices' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from uopc.errors import InvalidIR
from uopc.ir.builder import leaves, movement
from uopc.ir.core import shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.dtypes import DType
from uopc.ir.core.evaluate import Array, fold
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices import traffic
from uopc.ir.devices.mesh import Mesh


class Exchanged(traffic.ExchangeMoves, Protocol):
    """The fields of `ExchangeArg` that define the result."""

    @property
    def axes(self) -> tuple[str, ...]: ...
    @property
    def op(self) -> str: ...
    @property
    def root(self) -> int: ...


def over_mesh(
    kind: str, arg: Exchanged, dtype: DType, mesh: Mesh, given: Sequence[Array]
) -> list[Array]:
    """The result of an exchange on each device of a mesh, given every device's input. `kind`: of
    the op."""
    if mesh.parts(arg.axes) != arg.parts:
        raise InvalidIR(f"{kind}: {arg.parts} parts on a mesh of {mesh.shape}")
    got: list[Array] = [np.empty(0)] * len(given)
    for group in mesh.groups(arg.axes):
        for rank, array in zip(group, in_group(kind, arg, dtype, [given[r] for r in group])):
            got[rank] = array
    return got


def in_group(kind: str, arg: Exchanged, dtype: DType, given: Sequence[Array]) -> list[Array]:
    """The result of an exchange on each device of one group, in the order of its parts."""
    p = len(given)
    match kind:
        case "allreduce":
            return [fold(arg.op, np.stack(given), (0,), dtype)] * p
        case "reduce_scatter":
            return list(fold(arg.op, np.stack(given), (0,), dtype))
        case "allgather":
            return [np.stack(given)] * p
        case "alltoall":
            return [np.stack([g[i] for g in given]) for i in range(p)]
        case "broadcast":
            return [given[arg.root]] * p
        case "permute_ranks":
            nothing = np.zeros_like(given[0])
            sources = [traffic.source(arg, i) for i in range(p)]
            return [nothing if i is None else given[i] for i in sources]
    raise InvalidIR(f"{kind!r} is not an exchange")


def as_values(exchange: UOp, sent: Sequence[UOp], places: Sequence[str | None]) -> list[UOp]:
    """The results of an exchange as nodes of a graph, one per device."""
    p, every = len(sent), movement.stack(*sent)
    match exchange.op.name:
        case "allreduce":
            return [_reduced(exchange, every)] * p
        case "reduce_scatter":
            total = _reduced(exchange, every)
            return [movement.row(total, i) for i in range(p)]
        case "allgather":
            return [every] * p
        case "alltoall":
            return [movement.row(every, i, axis=1) for i in range(p)]
        case "broadcast":
            return [sent[exchange.arg.root]] * p
        case "permute_ranks":
            nothing = leaves.full(leaves.const(exchange.dtype, 0), shapes.shape(exchange))
            sources = [traffic.source(exchange.arg, i) for i in range(p)]
            return [nothing if i is None else sent[i] for i in sources]
    raise InvalidIR(f"{exchange.op!r} is not an exchange")


def _reduced(exchange: UOp, every: UOp) -> UOp:
    return intern(Ops.REDUCE, every.dtype, (every,), ReduceArg(exchange.arg.op, (0,)))
