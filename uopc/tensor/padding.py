"""Padded arrays: with a computed number, or with elements of the array."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.errors import UserError
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import maximum
from uopc.tensor import indexing

MODES = ("edge", "reflect", "symmetric", "wrap")


def filled(a: UOp, widths: Sequence[tuple[Dim, Dim]], number: UOp) -> UOp:
    """Pad `a` by (before, after) elements along each axis with `number`, a scalar of the same
    dtype. UserError for a number with dimensions."""
    if shapes.shape(number):
        got = shapes.show(shapes.shape(number))
        raise UserError(f"pad: the constant must be one number, got the shape {got}")
    if number.op is Ops.CONST:
        return movement.pad(a, widths, number.arg)
    inside = leaves.full(leaves.const(dtypes.bool_, True), shapes.shape(a))
    return alu.where(movement.pad(inside, widths), movement.pad(a, widths), number)


def repeated(a: UOp, axis: int, mode: str, before: Dim, after: Dim) -> UOp:
    """Pad an axis of `a` with its own elements, by NumPy's modes `edge`, `reflect`, `symmetric` and
    `wrap`. Each side is a slice, or if it repeats elements, a gather at computed indices. UserError
    for an axis without elements."""
    n = shapes.shape(a)[axis]
    if before == after == 0:
        return a
    if n == 0:
        raise UserError(f"pad: axis {axis} has no elements to repeat")
    skipped = int(mode == "reflect")  # the end itself
    needed = 1 if mode == "edge" else maximum(before, after) + skipped
    is_symbolic = not all([isinstance(d, int) for d in (n, before, after)])
    if is_symbolic or n < needed:
        return indexing.take(a, fold.cast(_places(mode, n, before, after), dtypes.int64), axis)

    def part(start: int, stop: int, count: int = -1) -> UOp:
        dims = shapes.shape(a)
        window = [(start, stop) if i == axis else (0, d) for i, d in enumerate(dims)]
        wide = [count if i == axis else -1 for i in range(len(dims))]
        return movement.expand(movement.shrink(a, window), wide)

    if mode == "edge":
        sides = [part(0, 1, before), part(n - 1, n, after)]
    elif mode == "wrap":
        sides = [part(n - before, n), part(0, after)]
    else:
        near = part(skipped, skipped + before), part(n - skipped - after, n - skipped)
        sides = [movement.flip(side, axis) for side in near]
    return movement.cat(sides[0], a, sides[1], axis=axis)


def _places(mode: str, n: Dim, before: Dim, after: Dim) -> UOp:
    """For each element of the padded axis, the index of the original element."""
    i: UOp = leaves.iota(before + n + after) - before
    if mode == "edge":
        nearest: UOp = i.maximum(0).minimum(n - 1)
        return nearest
    if mode == "wrap" or n == 1:
        turned: UOp = i % n
        return turned
    most = 2 * n - 1 if mode == "symmetric" else 2 * (n - 1)  # the sum of a place and its image
    around: UOp = i % (most + 1 if mode == "symmetric" else most)
    return around.minimum(most - around)
