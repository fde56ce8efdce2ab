"""Matrix products, built of movement ops, a multiplication and a reduce.

Products of float16, bfloat16 and fp8 accumulate in float32 and are rounded once to their dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from uopc.errors import UserError
from uopc.ir.builder import alu, movement, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import show
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp

T = TypeVar("T")


def product_sum(x: UOp, y: UOp, axes: tuple[int, ...]) -> UOp:
    """Σ x·y over the axes of the common shape."""
    wide = dtypes.accumulator(x.dtype) if x.dtype.is_float else x.dtype
    product = alu.alu(cast(x, wide), Ops.MUL, cast(y, wide))
    return cast(movement.reduce(product, "add", axes), x.dtype)


def matmul(a: Operand, b: Operand) -> UOp:
    """The matrix product as numpy.matmul, of vectors, matrices, and batches that broadcast."""
    x, y = operands.paired(a, b, "matmul")
    left, right = shapes.shape(x), shapes.shape(y)
    if not left or not right:
        raise UserError("matmul: scalars have no rows; use *")
    depth = right[-2] if len(right) > 1 else right[0]
    if left[-1] != depth:
        columns, rows = show((left[-1],))[1:-1], show((depth,))[1:-1]
        sizes = f"the left has {columns} columns, the right {rows} rows"
        text = f"matmul: {show(left)} @ {show(right)}: {sizes}"
        raise shapes.SizesDiffer(text, [(left[-1], depth)])
    shapes.broadcast([left[:-2], right[:-2]], "matmul")
    if len(right) > 1:  # both as (…, i, j, k), the missing axes of size 1
        rank = len(right)
        y = movement.permute(y, (*range(rank - 2), rank - 1, rank - 2))
        x = movement.reshape(x, (*left[:-1], 1, depth))
        if len(left) > 1:
            y = movement.reshape(y, (*right[:-2], 1, right[-1], depth))
    last = max(len(shapes.shape(x)), len(shapes.shape(y))) - 1
    return product_sum(x, y, (last,))


def by_squares(base: T, n: int, multiply: Callable[[T, T], T]) -> T:
    """The n-th power by repeated squares, for n of 1 or more."""
    while not n & 1:
        base, n = multiply(base, base), n >> 1
    found = base
    while n := n >> 1:
        base = multiply(base, base)
        found = multiply(found, base) if n & 1 else found
    return found
