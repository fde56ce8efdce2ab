"""Sums of products of small integers are computed in float32, which has them exactly.

    reduce.add (a * b): int32   →   reduce.add (cast (reduce.add (a * b: float32)): int32)

A processor adds the product of two floats in one instruction, and of two int32 in several. Each
inner sum stays below 2**24 in magnitude, whatever the order of its terms, so the bits are the same.
"""

from __future__ import annotations

import math

from uopc.ir.builder import alu, fold, movement
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.contraction import repeats_factors

EXACT = 1 << 24  # all integers up to it are float32s
LEAST_TERMS = 64  # of an inner sum: shorter ones gain less than the sums around them cost


def in_floats(u: UOp, value: UOp) -> UOp | None:
    """A sum of products with its terms, or blocks of them, added up in float32; None for one that
    is no contraction, or whose terms may be too large."""
    if u.arg.op != "add" or u.dtype.kind not in ("int", "uint") or u.dtype.bits < 32:
        return None
    if value.op is not Ops.MUL:
        return None
    dims = shapes.shape(value)
    if not all([isinstance(dims[a], int) for a in u.arg.axes]) or not repeats_factors(value):
        return None
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


def _is_view(u: UOp) -> bool:
    return u.op.movement or u.op is Ops.INDEX


def _largest(factor: UOp) -> int:
    """The greatest magnitude of a factor; views repeat its elements, and pad them with zeros."""
    while _is_view(factor):
        factor = factor.src[0]
    return max([int(abs(n)) for n in bounds.bounds(factor)])


def _as_float(value: UOp) -> UOp:
    """The same numbers as float32, converted below views."""
    views = []
    while _is_view(value):
        views.append(value)
        value = value.src[0]
    made = fold.cast(value, dtypes.float32)
    for v in reversed(views):
        made = intern(v.op, made.dtype, (made, *v.src[1:]), v.arg)
    return made


def _in_blocks(u: UOp, made: UOp, axis: int, pieces: int) -> UOp:
    """The sum over blocks of an axis, in the dtype of u, of the sums in each block."""
    dims = shapes.shape(made)
    cut = movement.reshape(made, (*dims[:axis], pieces, dims[axis] // pieces, *dims[axis + 1 :]))
    axes = tuple([a + (a >= axis) for a in u.arg.axes])
    inner = fold.cast(intern(Ops.REDUCE, made.dtype, (cut,), ReduceArg("add", axes)), u.dtype)
    outer = axis - sum([a < axis for a in u.arg.axes])
    return intern(Ops.REDUCE, u.dtype, (inner,), ReduceArg("add", (outer,)))
