"""Sums of products of bfloat16 in float32 are sums of DOT2s, where the machine has it.

    reduce.add (cast a * cast b): float32   →   reduce.add (dot2 (words of a) (words of b))

A word holds two neighbours along an axis of the sum, which grows to an even length with zeros. Each
product is exact in float32; sums round as those of float32 do, in an order that the processor
chooses, and it takes subnormal numbers for 0.
"""

from __future__ import annotations

import math

from uopc.ir.builder import movement
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.contraction import repeats_factors
from uopc.passes.canonicalize import words

PAIR = 2


def in_pairs(u: UOp, value: UOp) -> UOp | None:
    """A sum of products as one of DOT2s; None for one that is no contraction of bfloat16."""
    if u.arg.op != "add" or u.dtype is not dtypes.float32 or value.op is not Ops.MUL:
        return None
    dims = shapes.shape(value)
    factors = [_narrow(s, len(dims)) for s in value.src]
    if None in factors or not repeats_factors(value):
        return None
    if not all([isinstance(dims[k], int) for k in u.arg.axes]):
        return None
    a, b = [f for f in factors if f is not None]
    shared = [k for k in u.arg.axes if shapes.shape(a)[k] == shapes.shape(b)[k]]
    axis = words.axis_of(shared, dims, PAIR)
    if axis is None or math.prod([dims[k] for k in u.arg.axes]) < words.LEAST_TERMS:
        return None
    return words.summed(u, Ops.DOT2, dims, axis, a, b)


def _narrow(factor: UOp, rank: int) -> UOp | None:
    """The bfloat16 that were widened to a factor, with its shape and leading axes of size 1."""
    views = []
    while factor.op.movement or factor.op is Ops.INDEX:
        views.append(factor)
        factor = factor.src[0]
    if factor.op is not Ops.CAST or factor.src[0].dtype is not dtypes.bfloat16:
        return None
    value = factor.src[0]
    for v in reversed(views):
        value = intern(v.op, value.dtype, (value, *v.src[1:]), v.arg)
    own = shapes.shape(value)
    return movement.reshape(value, (*[1] * (rank - len(own)), *own))
