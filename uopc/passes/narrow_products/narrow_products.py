"""Add up products of narrow numbers in words, or in float32, as the processor does it fastest.

Before (tensor)                             After (tensor)
  %1 = param x : i8[4, 1, 64]                 %1 = param x : i8[4, 1, 64]
  %2 = cast %1 : i32[4, 1, 64]                %2 = cast %1 : i32[4, 1, 64]
  %3 = param y : i8[1, 3, 64]                 %3 = cast %2 : f32[4, 1, 64]
  %4 = cast %3 : i32[1, 3, 64]                %4 = param y : i8[1, 3, 64]
  %5 = mul %2, %4 : i32[4, 3, 64]             %5 = cast %4 : i32[1, 3, 64]
  %6 = reduce.add %5 axes=(2,) : i32[4, 3]    %6 = cast %5 : f32[1, 3, 64]
  sink %6                                     %7 = mul %3, %6 : f32[4, 3, 64]
                                              %8 = reduce.add %7 axes=(2,) : f32[4, 3]
                                              %9 = cast %8 : i32[4, 3]
                                              sink %9

A processor adds the product of two floats in one instruction, and of two int32 in several; a dot
product adds those of a whole word. `_forms` lists the sums that change. Those of integers keep
their bits. Those of bfloat16 add up products that are exact in float32 in an order that the
processor chooses, which takes subnormal numbers for 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from uopc.ir.builder import alu, fold, movement, rebuild
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.user_opts import free_reduces
from uopc.passes.contract import Context
from uopc.passes.narrow_products import words
from uopc.passes.narrow_products.byte_products import in_bytes

EXACT = 1 << 24  # all integers up to it are float32s
LEAST_TERMS = 64  # of an inner sum: shorter ones gain less than the sums around them cost
PAIR = 2  # bfloat16 in a word
# From a REDUCE and its new products to the sum that replaces it; None for products of another kind.
Form = Callable[[UOp, UOp], "UOp | None"]


def narrow_products(graph: UOp, context: Context) -> UOp:
    """One walk, sources first."""
    forms = _forms(context)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if not words.contracts(u, src[0]):
            return None
        return next((made for form in forms if (made := form(u, src[0])) is not None), None)

    return rebuild.rewritten(graph, change, outside_kernels=True, only=free_reduces(graph))


def _forms(context: Context) -> list[Form]:
    """The ways to add up products that a machine has, the fastest one first."""
    table = (
        # factors of 8 bits, 4 in a word: integers, or floats that are such integers times scales
        (in_bytes, context.has_dot4),
        # integers whose sums, or those of blocks, are exact in float32
        (in_floats, True),
        # factors of 16 bits, 2 in a word: bfloat16
        (in_pairs, context.has_dot2),
    )
    return [form for form, is_there in table if is_there]


def in_floats(u: UOp, value: UOp) -> UOp | None:
    """A sum of integers with its terms, or blocks of them, added up in float32; None where the
    terms may be too large. Each inner sum stays below 2**24, whatever the order of its terms."""
    if u.dtype.kind not in ("int", "uint") or u.dtype.bits < 32:
        return None
    dims = shapes.shape(value)
    largest = math.prod([_largest(s) for s in value.src])
    most, terms = EXACT // max(1, largest), math.prod([dims[a] for a in u.arg.axes])
    if terms < 2:
        return None
    made = alu.alu(_as_float(value.src[0]), Ops.MUL, _as_float(value.src[1]))
    if terms <= most:
        return fold.cast(intern(Ops.REDUCE, made.dtype, (made,), u.arg), u.dtype)
    for axis in u.arg.axes:
        pieces = next((p for p in range(1, dims[axis] + 1)
                       if dims[axis] % p == 0 and terms // p <= most), None)  # fmt: skip
        if pieces is not None and terms // pieces >= LEAST_TERMS:
            return _in_blocks(u, made, axis, pieces)
    return None


def _largest(factor: UOp) -> int:
    """The greatest magnitude of a factor; views repeat its elements, and pad them with zeros."""
    base, _ = words.below_views(factor)
    return max([int(abs(n)) for n in bounds.bounds(base)])


def _as_float(value: UOp) -> UOp:
    """The same numbers as float32, converted below views."""
    base, views = words.below_views(value)
    return words.viewed(fold.cast(base, dtypes.float32), views)


def _in_blocks(u: UOp, made: UOp, axis: int, pieces: int) -> UOp:
    """The sum over blocks of an axis, in the dtype of u, of the sums in each block."""
    dims = shapes.shape(made)
    cut = movement.reshape(made, (*dims[:axis], pieces, dims[axis] // pieces, *dims[axis + 1 :]))
    axes = tuple([a + (a >= axis) for a in u.arg.axes])
    inner = fold.cast(intern(Ops.REDUCE, made.dtype, (cut,), ReduceArg("add", axes)), u.dtype)
    outer = axis - sum([a < axis for a in u.arg.axes])
    return intern(Ops.REDUCE, u.dtype, (inner,), ReduceArg("add", (outer,)))


def in_pairs(u: UOp, value: UOp) -> UOp | None:
    """A sum of products of bfloat16 in float32 as one of DOT2s; None for another. A word has two
    neighbours along an axis of the sum, which grows to an even length with zeros."""
    dims = shapes.shape(value)
    factors = [_bfloats(s, len(dims)) for s in value.src] if u.dtype is dtypes.float32 else [None]
    if None in factors or math.prod([dims[k] for k in u.arg.axes]) < words.LEAST_TERMS:
        return None
    a, b = [f for f in factors if f is not None]
    shared = [k for k in u.arg.axes if shapes.shape(a)[k] == shapes.shape(b)[k]]
    axis = words.axis_of(shared, dims, PAIR)
    return None if axis is None else words.summed(u, Ops.DOT2, dims, axis, a, b)


def _bfloats(factor: UOp, rank: int) -> UOp | None:
    """The bfloat16 that were widened to a factor, with its shape and leading axes of size 1."""
    base, views = words.below_views(factor)
    if base.op is not Ops.CAST or base.src[0].dtype is not dtypes.bfloat16:
        return None
    return words.with_rank(words.viewed(base.src[0], views), rank)
