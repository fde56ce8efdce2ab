"""The costs of lanes, and constants whose order is free."""

from __future__ import annotations

import math

from uopc.cost.machine import MachineFacts
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.nest.accesses import Access, is_plain
from uopc.ir.nest.nest import Nest
from uopc.passes.analysis.op_costs import LOAD, STORE


def is_dear(k: Nest, r: UOp) -> bool:
    """True if a loop's arithmetic costs more than storing and loading its result."""
    return k.arithmetic(r) > LOAD + STORE


def lane_cost(accesses: list[Access], r: UOp, lanes: int) -> float:
    """Memory operations per vector of r: 1 for neighbours, else 1 per lane; twice for a store."""
    return float(sum((1 + a.written) * (1 if a.stride(r) in (0, 1) else lanes) for a in accesses))


def has_free_order(storage: UOp) -> bool:
    """True for an array whose order the program may choose."""
    return storage.op is Ops.PARAM and storage.arg.order == ()


def is_far_constant(value: UOp, machine: MachineFacts) -> bool:
    """True if a value is an unguarded element of an array whose order the program may choose, and
    the array takes at least half of the nearest cache."""
    if not is_plain(value) or not has_free_order(value.src[0]):
        return False
    size: int = math.prod(value.src[0].arg.dims) * value.dtype.itemsize
    return size >= machine.caches[0].nbytes // 2
