"""Nodes of loops: ranges, the ENDs that close them, and what a REDUCE begins with and combines."""

from __future__ import annotations

from uopc.ir.builder import alu, leaves
from uopc.ir.core import dtypes, ranges, semantics
from uopc.ir.core.args import AxisKind, RangeArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop


def make_range(end: UOp | int, axis: tuple[int, ...], kind: AxisKind) -> UOp:
    """A RANGE. Ranges that replace one with axis A have the axes (*A, 0), (*A, 1), …"""
    return intern(Ops.RANGE, dtypes.index, (dim_uop(end),), RangeArg(axis, kind))


def ended(effect: UOp, *loops: UOp) -> UOp:
    """The effect in these loops: an END, or the effect itself where there are none."""
    return intern(Ops.END, dtypes.void, (effect, *loops)) if loops else effect


def is_overwritten(u: UOp, r: UOp) -> bool:
    """True if u is a STORE to the same element in every iteration of r, such as the accumulator of
    a hand-written kernel. Copies of the body side by side would mix its values."""
    if u.op is not Ops.STORE or r not in ranges.ranges(u):
        return False
    return not any(r in ranges.ranges(i) for i in before_effects(u.src[0]).src[1:])


def identity(reduce: UOp) -> UOp:
    """The constant that a REDUCE begins with."""
    return leaves.const(reduce.dtype, semantics.reduce_identity(reduce.arg.op, reduce.dtype))


def combined(op: Op, values: list[UOp]) -> UOp:
    """All values combined by a binary op, in pairs; an extreme takes equal values once."""
    if op in (Ops.MAX, Ops.MIN):
        values = list(dict.fromkeys(values))
    while len(values) > 1:
        pairs = [alu.alu(a, op, b) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(values) - len(values) % 2 :]
    return values[0]
