"""Values that derivatives treat as one function: `primitive`.

    asin(x)  →  primitive(polynomials of x, x, name=asin): its derivative is 1 / sqrt(1 - x^2)

A compile uses the value and drops the rest.
"""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.core import ranges
from uopc.ir.core.args import PrimitiveArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def primitive(value: UOp, name: str, *operands: UOp, details: tuple[int, ...] = ()) -> UOp:
    """Mark the value as the function `name` of the operands and of the integers `details`.

    `derivatives/primitives.py` has the rules of the functions, also for batches. Constants, and
    values inside of a kernel's loops, are returned unmarked.
    """
    if leaves.constant_in(value) is not None or ranges.ranges(value):
        return value
    arg = PrimitiveArg(name, details)
    return leaves.located(intern(Ops.PRIMITIVE, value.dtype, (value, *operands), arg))
