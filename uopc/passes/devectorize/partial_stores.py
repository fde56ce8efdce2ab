"""Stores of the first lanes of a vector, in pieces without a mask.

    store x[i : i + 8], v if lane < 6
    →  store x[i : i + 4], v[0:4];  store x[i + 4 : i + 6], v[4:6]

On a machine without mask registers, a masked store takes 20 cycles; a masked load costs as much as
any other load.
"""

from __future__ import annotations

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def store_chunks(gates: list[UOp]) -> list[tuple[int, int]] | None:
    """The first lane and the length of each piece, the widest first. None where the gates of the
    lanes are not known, or hold for other lanes than the first ones."""
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
