"""An axis resized where a size is free: the place of a new element is a quotient of sizes.

All is arithmetic of integers, so a place between two elements is exact: `above // below` is the
element before the place, and `above % below` is its distance from there.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from uopc.errors import UserError
from uopc.ir.builder import alu, leaves
from uopc.ir.builder.fold import cast
from uopc.ir.builder.operands import as_dim
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.ir.index.dims import dim_uop, maximum
from uopc.tensor import indexing
from uopc.tensor.reductions import along

# The element nearest to above / below, by the roundings of `resize`.
_NEAREST: Final[dict[str, Callable[[UOp, UOp], UOp]]] = {
    "floor": lambda above, below: above // below,
    "ceil": lambda above, below: -(-above // below),
    "round_prefer_floor": lambda above, below: -((below - above * 2) // (below * 2)),
    "round_prefer_ceil": lambda above, below: (above * 2 + below) // (below * 2),
}  # fmt: skip


# Different fractions with divisors up to this are different numbers of float32.
_SIMPLE: Final = 1 << 12


class FreeAxis(NamedTuple):
    """An axis that is resized from `size` to `length` elements, times `wide` / `narrow`."""

    size: Dim
    length: Dim
    wide: Dim
    narrow: Dim

    @staticmethod
    def to_length(size: Dim, length: Dim) -> FreeAxis:
        return FreeAxis(size, length, length, size)

    @staticmethod
    def by_scale(size: Dim, scale: float) -> FreeAxis:
        exact, simple = Fraction(scale), Fraction(scale).limit_denominator(_SIMPLE)
        if np.float32(float(simple)) == np.float32(scale):  # 0.6 is meant to be 3 / 5
            exact = simple
        wide, narrow = exact.numerator, exact.denominator
        return FreeAxis(size, as_dim(size * wide // narrow), wide, narrow)


def nearest(x: UOp, axis: int, a: FreeAxis, coordinates: str, rounding: str) -> UOp:
    """Take for each new element one of the elements of x."""
    index = _NEAREST[rounding](*_place(a, coordinates))
    return indexing.take(x, _inside(index, a.size), axis)


def mean(
    x: UOp, axis: int, a: FreeAxis, coordinates: str, reach: int, shrunk: float,
    weigh: Callable[[UOp], UOp], excluded: bool,
) -> UOp:  # fmt: skip
    """Add up the elements of x around each place, times the weights of their distances."""
    above, below = _place(a, coordinates)
    first = -int(reach // shrunk) + 1 - (reach % shrunk > 0)
    before, rest = above // below, _number(above % below, x.dtype) / _number(below, x.dtype)
    parts, weights = [], []
    for tap in range(first, 2 * reach - first):
        index = before + tap
        weight = weigh(abs(rest - tap) * shrunk)
        if excluded:
            exists = (index >= 0) & (index < a.size)
            weight = alu.where(exists, weight, leaves.const(x.dtype, 0))
        weights.append(weight)
        taken = indexing.take(x, _inside(index, a.size), axis)
        parts.append(taken * along(weight, len(shapes.shape(x)) - 1 - axis))
    total = functools.reduce(operator.add, parts)
    if not excluded and shrunk == 1.0:
        return total
    whole = functools.reduce(operator.add, weights)
    return total / along(whole, len(shapes.shape(x)) - 1 - axis)


def _number(index: UOp, t: DType) -> UOp:
    return cast(index, t)


def _inside(index: UOp, size: Dim) -> UOp:
    """The nearest of the elements that exist."""
    return cast(index.maximum(0).minimum(dim_uop(size) - 1), dtypes.int64)


def _place(a: FreeAxis, coordinates: str) -> tuple[UOp, UOp]:
    """The place of each new element among the old: a dividend, and a divisor above 0."""
    i, wide, narrow = leaves.iota(a.length), dim_uop(a.wide), dim_uop(a.narrow)
    centre = (i * 2 + 1) * narrow  # of 2 * wide
    if coordinates == "asymmetric":
        return i * narrow, wide
    if coordinates == "align_corners":
        steps = a.size * wide - narrow  # of `narrow`
        return i * (dim_uop(a.size) - 1) * narrow, dim_uop(maximum(steps, 1))
    if coordinates == "pytorch_half_pixel":
        above = centre - wide
        alone = dim_uop(a.length) < 2
        return alu.where(alone, leaves.const(dtypes.index, 0), above), wide * 2
    if coordinates == "tf_half_pixel_for_nn":  # an axis that keeps its size keeps its elements
        kept = dim_uop(a.wide).eq(dim_uop(a.narrow))
        return alu.where(kept, centre - wide, centre), wide * 2
    named = {
        "half_pixel": centre - wide,
        "half_pixel_symmetric": centre - wide + a.size * wide - a.length * narrow,
    }
    if coordinates not in named:
        raise UserError(f"resize: {coordinates} needs a size that is a number")
    return named[coordinates], wide * 2
