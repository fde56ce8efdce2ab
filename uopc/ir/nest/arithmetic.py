"""Operations on elements: which nodes are operations, the nodes and the cycles of each."""

from __future__ import annotations

from uopc.ir.core import dtypes
from uopc.ir.core.ops import Chain, Ops
from uopc.ir.core.uop import UOp

MULTIPLICATIONS = frozenset((Ops.MUL, Ops.MULACC))
DIVISIONS = frozenset((Ops.FDIV, Ops.RECIPROCAL, Ops.SQRT))
LATENCY, SPILL = 4.0, 1.4  # cycles of a multiply-add, and of a value without a register
# Fewest sums of a loop whose chains hide each other's latency, of two multiply-adds a cycle.
SIDE_BY_SIDE = 8


def is_arithmetic(u: UOp) -> bool:
    """True if a node computes with elements, not with indices."""
    return u.op.is_alu and u.dtype.scalar is not dtypes.index


def expansion(u: UOp) -> int:
    """The number of nodes that `decompose` makes of a node."""
    bits = u.dtype.bits
    known = bits in (32, 64) or u.dtype.is_float  # narrow floats are computed in float32
    return u.op.expansion[bits == 64] if known else 1


def latency(u: UOp) -> int:
    """Cycles until the result of a node can be used."""
    if u.dtype.is_float or u.op is Ops.LOAD:
        return u.op.latency
    return min(1, u.op.latency)


def is_function(u: UOp) -> bool:
    """True for a function of floats that `decompose` expresses by a chain of operations."""
    return u.op.chain is not None and u.dtype.is_float


def is_shared(sums: int, copies: int, registers: int) -> bool:
    """True if the copies of a sum of products are added to one accumulator: `sums` beside each
    other hide their latency, or waiting is cheaper than to spill, and there are too few registers
    for all copies."""
    spilled = max(0.0, sums * copies - registers)
    waits = LATENCY * copies
    return 2 * sums * copies >= registers and waits <= sums * copies / 2 + SPILL * spilled


def is_chained(sums: int) -> bool:
    """True if the products of a sum that no loop carries are added one after the other, not in
    pairs: half as many sums as a loop needs hide their latency, since those of the next iteration
    begin before."""
    return 2 * sums >= SIDE_BY_SIDE


def chain(u: UOp) -> Chain:
    """A node as operations; a function as `decompose` expresses it."""
    if u.op.chain is not None and is_function(u):
        return u.op.chain[u.dtype.bits == 64]
    cycles = latency(u)
    return Chain(int(cycles > 0), int(u.op in MULTIPLICATIONS), int(u.op in DIVISIONS), cycles)
