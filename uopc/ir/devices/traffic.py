"""The traffic of an exchange: senders, receivers, and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from uopc.ir.core import bounds
from uopc.ir.core.uop import UOp


class ExchangeMoves(Protocol):
    """The fields of `ExchangeArg` for senders and receivers."""

    @property
    def parts(self) -> int: ...
    @property
    def shift(self) -> int: ...
    @property
    def mirror(self) -> bool: ...
    @property
    def wrap(self) -> bool: ...


def source(moves: ExchangeMoves, place: int) -> int | None:
    """The place, in its group, of the device that sends to `place` in a PERMUTE_RANKS; None without
    one."""
    return _at(moves, place, -moves.shift)


def target(moves: ExchangeMoves, place: int) -> int | None:
    """The place, in its group, of the device that receives from `place`; None without one."""
    return _at(moves, place, moves.shift)


def _at(moves: ExchangeMoves, place: int, shift: int) -> int | None:
    found = moves.parts - 1 - place if moves.mirror else place + shift
    if moves.wrap:
        return found % moves.parts
    return found if 0 <= found < moves.parts else None


def reason(bucket: Sequence[UOp]) -> str:
    """The joined reasons of the exchanges of one launch."""
    several = f", {len(bucket)} values" if len(bucket) > 1 else ""
    return "; ".join(dict.fromkeys([u.arg.reason for u in bucket])) + several


def moved(exchange: UOp, *others: UOp) -> int:
    """The least bytes that a device sends in simultaneous exchanges of one kind, by any algorithm
    that balances the load."""
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
