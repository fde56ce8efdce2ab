"""The bytes that an exchange moves."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.core import bounds
from uopc.ir.core.uop import UOp


def reason(bucket: Sequence[UOp]) -> str:
    """Why exchanges happen that are one launch."""
    several = f", {len(bucket)} values" if len(bucket) > 1 else ""
    return "; ".join(dict.fromkeys([u.arg.reason for u in bucket])) + several


def moved(exchange: UOp, *others: UOp) -> int:
    """The least bytes that a device sends, by any algorithm that balances the load, in exchanges
    of one kind that happen at once."""
    n, p = sum([bounds.most_bytes(u.src[0]) for u in (exchange, *others)]), int(exchange.arg.parts)
    match exchange.op.name:
        case "allreduce":
            return 2 * n * (p - 1) // p
        case "reduce_scatter" | "alltoall":
            return n * (p - 1) // p
        case "allgather":
            return n * (p - 1)
        case _:
            return n
