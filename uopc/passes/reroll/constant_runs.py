"""Constant arrays of a few runs of equal values, where they decide what is computed.

    y = x.sin() * [0, 0, 0, 1, 1, 0, 0, 0]   →   y = x.sin() * cat(zeros(3), ones(2), zeros(3))

With exact zeros (`fast_zeros`) the product is 0 in the runs of zeros, whatever x is, so that no
sine is computed there; and a sum with -inf is -inf. A selection takes one branch in each run. The
elements of an array are known at run time only, those of a run to all passes. Arrays of other
operations, and those of many runs, stay as they are.
"""

from __future__ import annotations

import math

import numpy as np

from uopc.ir.builder import fold, leaves, movement, rebuild
from uopc.ir.core import walk
from uopc.ir.core.evaluate import Array
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.passes.reroll.constant_folding import Constants, array_node

# The most runs of an array: each may become a loop of its own.
MOST_RUNS = 8
# The least elements of all runs for each of them: shorter loops gain less than they cost.
RUN_LENGTH = 8
# The least share of the elements that exact zeros decide.
DECIDED = 0.25
# The element that decides the result of an operation with exact zeros, whatever its other operand
# is; any element of a condition does.
_DECIDES = {Ops.MUL: 0.0, Ops.ADD: -math.inf, Ops.WHERE: None}


def with_runs(graph: UOp) -> UOp:
    """The graph with runs in place of constant arrays that decide what is computed."""
    if Ops.DATA not in walk.ops(graph):
        return graph
    nodes, constants = walk.nodes(graph), Constants()
    operations = {u for u in nodes if _decides(u) and u.tag is None}
    for u in nodes if operations else ():
        constants.note(u)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        asked = 1 if u.op is Ops.WHERE else 2
        made = tuple([_in_runs(s, constants, _DECIDES[u.op]) for s in src[:asked]]) + src[asked:]
        return None if made == src else rebuild.remake(u, made)

    if not operations:
        return graph
    return rebuild.rewritten(graph, change, outside_kernels=True, only=operations)


def _decides(u: UOp) -> bool:
    """True for an operation whose result one operand may decide alone."""
    return u.op in _DECIDES and (u.op is Ops.WHERE or u.arg == fold.FAST)


def _in_runs(u: UOp, constants: Constants, deciding: float | None) -> UOp:
    """A constant array that was moved, converted or compared, in runs; any other value as it is."""
    data, order = u, []
    while data.op.movement or data.op is Ops.CAST:
        order.append(data)
        data = data.src[0]
    if data in constants.constant and data.src and Ops.DATA in walk.ops(data):
        data = array_node(constants.array(data), data.dtype)
    if data.op is not Ops.DATA or not isinstance(data.arg.array, np.ndarray):
        return u
    made = _runs(data, deciding)
    if made is None:
        return u
    for v in reversed(order):
        made = rebuild.remake(v, (made, *v.src[1:]))
    return made


def _runs(data: UOp, deciding: float | None) -> UOp | None:
    """A constant array in runs, if these are few and enough of them decide the result."""
    array = data.arg.array
    if not array.ndim or array.size < RUN_LENGTH:
        return None
    if _changes(array.reshape(-1, array.shape[-1])[0]) >= MOST_RUNS:  # most arrays, at a glance
        return None
    bits = np.ascontiguousarray(array).view(f"V{array.itemsize}")
    count = _count_runs(bits)
    if count > MOST_RUNS or array.size < RUN_LENGTH * count:
        return None
    decided = array.size if deciding is None else np.count_nonzero(array == deciding)
    if decided < DECIDED * array.size:
        return None
    return _made(data, array, bits)


def _changes(along: Array) -> int:
    """The number of elements of a vector that differ from the one before."""
    bits = np.ascontiguousarray(along).view(f"V{along.itemsize}")
    return int(np.count_nonzero(bits[1:] != bits[:-1]))


def _starts(bits: Array) -> list[int]:
    """The places along the first axis at which a run of equal parts begins."""
    flat = bits.reshape(len(bits), -1)
    return [0, *(np.flatnonzero((flat[1:] != flat[:-1]).any(1)) + 1).tolist()]


def _count_runs(bits: Array) -> int:
    """The number of runs of an array, those of equal parts counted once."""
    if bits.ndim == 0:
        return 1
    starts = _starts(bits)
    if len(starts) > MOST_RUNS:
        return len(starts)
    return sum([_count_runs(bits[at]) for at in starts])


def _made(data: UOp, array: Array, bits: Array) -> UOp | None:
    """An array as a CAT of its runs along the first axis; None for a NaN with a payload."""
    if array.ndim == 0:
        return leaves.const_of_bits(data.dtype, array)
    ends = [*_starts(bits), len(array)]
    parts = []
    for begin, end in zip(ends[:-1], ends[1:]):
        part = _made(data, array[begin], bits[begin])
        if part is None:
            return None
        dims = array.shape[1:]
        parts.append(movement.expand(movement.reshape(part, (1, *dims)), (end - begin, *dims)))
    return parts[0] if len(parts) == 1 else movement.cat(*parts, axis=0)
