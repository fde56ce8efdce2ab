"""The loops of a kernel: which there are, what closes them, and how an Opt counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import AxisKind, RangeArg
from uopc.ir.core.node import intern, kept
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


_COMPARISONS = frozenset((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE))


def make_range(end: UOp, axis: tuple[int, ...], kind: AxisKind) -> UOp:
    return intern(Ops.RANGE, dtypes.index, (end,), RangeArg(axis, kind))


class Parts(NamedTuple):
    """What the legality of a transformation is read from, found in one walk."""

    stores: list[UOp]
    reduces: list[UOp]
    ends: list[UOp]
    ranges: list[UOp]
    comparisons: list[UOp]  # of indices
    nests: set[frozenset[UOp]]  # the loops that nodes are inside of


@kept
def parts(kernel: UOp) -> Parts:
    """The parts of a kernel."""
    found = Parts([], [], [], [], [], set())
    lists = {
        Ops.STORE: found.stores, Ops.REDUCE: found.reduces, Ops.END: found.ends,
        Ops.RANGE: found.ranges,
    }  # fmt: skip
    enter = found.nests.add
    for u in analysis.order(kernel):
        op = u.op
        if op in lists:
            lists[op].append(u)
        elif op in _COMPARISONS and u.src[0].dtype.scalar is dtypes.index:
            found.comparisons.append(u)
        enter(u._ranges or analysis.ranges(u))
    return found


@kept
def kernel_axes(kernel: UOp) -> list[UOp]:
    """The ranges an Opt can name, by position: output loops first, then reduce loops, by axis."""
    p = parts(kernel)
    found = {r: None for u in (*p.reduces, *p.ends) for r in analysis.closed_ranges(u)}
    return sorted(found, key=by_axis)


def by_axis(r: UOp) -> tuple[bool, tuple[int, ...]]:
    """What ranges are sorted by: output loops first, then reduce loops, by axis."""
    return r.arg.kind in ("reduce", "unroll", "group", "grouptop"), r.arg.axis


def closers(kernel: UOp, r: UOp) -> list[UOp]:
    """The REDUCEs and ENDs that close the range."""
    p = parts(kernel)
    return [u for u in (*p.reduces, *p.ends) if r in u.src[1:]]


def is_reduce(kernel: UOp, r: UOp) -> bool:
    """Whether REDUCEs close the range."""
    return any(r in u.src[1:] for u in parts(kernel).reduces)


def is_overwritten(u: UOp, r: UOp) -> bool:
    """Whether every iteration of r stores to the place of the one before: the accumulator of a
    kernel written by hand, say. Copies of the body side by side would mix their values."""
    if u.op is not Ops.STORE or r not in analysis.ranges(u):
        return False
    place = before_effects(u.src[0])
    return not any(r in analysis.ranges(i) for i in place.src[1:])
