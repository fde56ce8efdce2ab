"""The loops of a kernel: their ranges, the nodes that close them, and their numbers in Opts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from uopc.ir.builder import alu, leaves
from uopc.ir.core import bounds, dtypes, ranges, semantics, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.args import AxisKind, RangeArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop

_COMPARISONS = frozenset((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE))


def make_range(end: UOp | int, axis: tuple[int, ...], kind: AxisKind) -> UOp:
    """A RANGE. Ranges that replace one with axis A have the axes (*A, 0), (*A, 1), …"""
    return intern(Ops.RANGE, dtypes.index, (dim_uop(end),), RangeArg(axis, kind))


def ended(effect: UOp, *loops: UOp) -> UOp:
    """The effect in these loops: an END, or the effect itself where there are none."""
    return intern(Ops.END, dtypes.void, (effect, *loops)) if loops else effect


class KernelNodes(NamedTuple):
    """The nodes of a kernel that decide the legality of an Opt, found in one walk."""

    stores: list[UOp]
    reduces: list[UOp]
    ends: list[UOp]
    ranges: list[UOp]
    comparisons: list[UOp]  # of indices
    nests: set[frozenset[UOp]]  # of each node, the loops around it
    around_vectors: set[UOp]  # the loops around values that are vectors, as a kernel may be given


@memo_last
def kernel_nodes(kernel: UOp) -> KernelNodes:
    """The nodes of a kernel by their kind."""
    found = KernelNodes([], [], [], [], [], set(), set())
    lists = {
        Ops.STORE: found.stores, Ops.REDUCE: found.reduces, Ops.END: found.ends,
        Ops.RANGE: found.ranges,
    }  # fmt: skip
    enter = found.nests.add
    for u in walk.order(kernel):
        op = u.op
        if op in lists:
            lists[op].append(u)
        elif op in _COMPARISONS and u.src[0].dtype.scalar is dtypes.index:
            found.comparisons.append(u)
        enter(u._ranges or ranges.ranges(u))
        if u.dtype.lanes > 1:
            found.around_vectors.update(ranges.ranges(u))
    return found


@memo_last
def kernel_axes(kernel: UOp) -> list[UOp]:
    """The ranges that an Opt can name, by number: output loops first, then reduce loops."""
    p = kernel_nodes(kernel)
    found = {r: None for u in (*p.reduces, *p.ends) for r in ranges.closed_ranges(u)}
    return sorted(found, key=by_axis)


def by_axis(r: UOp) -> tuple[bool, tuple[int, ...]]:
    """The sort key of ranges: output loops first, then reduce loops, each by axis."""
    return r.arg.kind in ("reduce", "unroll", "group", "grouptop"), r.arg.axis


def most_of(r: UOp) -> int:
    """The greatest length of a loop, at least 1."""
    longest: int = bounds.bounds(r.src[0])[1]
    return max(1, longest)


def trips(loops: Iterable[UOp]) -> int:
    """The most often that a body runs in these loops."""
    return math.prod(map(most_of, loops))


def closers(kernel: UOp, r: UOp) -> list[UOp]:
    """The REDUCEs and ENDs that close the range."""
    p = kernel_nodes(kernel)
    return [u for u in (*p.reduces, *p.ends) if r in u.src[1:]]


def reduces_over(kernel: UOp, r: UOp) -> list[UOp]:
    """The REDUCEs that close the range."""
    return [u for u in kernel_nodes(kernel).reduces if r in u.src[1:]]


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
    """All values combined by a binary op, in pairs."""
    while len(values) > 1:
        pairs = [alu.alu(a, op, b) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(values) - len(values) % 2 :]
    return values[0]
