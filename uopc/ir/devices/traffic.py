"""The bytes that an exchange moves."""

from __future__ import annotations

import math

from uopc.ir.core import bounds, shapes
from uopc.ir.core.uop import UOp


def moved(exchange: UOp) -> int:
    """The least bytes that a device sends, by any algorithm that balances the load."""
    sent = exchange.src[0]
    n: int = math.prod(map(bounds.max_dim, shapes.shape(sent)), start=sent.dtype.itemsize)
    p: int = exchange.arg.parts
    match exchange.op.name:
        case "allreduce":
            return 2 * n * (p - 1) // p
        case "reduce_scatter" | "alltoall":
            return n * (p - 1) // p
        case "allgather":
            return n * (p - 1)
        case _:
            return n
