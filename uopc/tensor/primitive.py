"""Values that derivatives take as one function: `primitive`.

    asin(x)  →  primitive(polynomials of x, x, name=asin): its derivative is 1 / sqrt(1 - x^2)

A compile takes the value and forgets the rest.
"""

from __future__ import annotations

from uopc.ir.builder import leaves
from uopc.ir.core import ranges
from uopc.ir.core.args import PrimitiveArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern


def primitive(value: UOp, name: str, *operands: UOp, details: tuple[int, ...] = ()) -> UOp:
    """The value, as the function `name` of the operands, and of integers besides.

    `derivatives/primitives.py` has the rules of the functions, also for batches. Constants, and
    values inside of the loops of a kernel, are given as they are.
    """
    if leaves.constant_in(value) is not None or ranges.ranges(value):
        return value
    arg = PrimitiveArg(name, details)
    return leaves.located(intern(Ops.PRIMITIVE, value.dtype, (value, *operands), arg))
