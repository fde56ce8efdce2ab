"""Branches that do not wait for each other are tested at once.

    if any of %a: …   if any of %b: …   →   if any of (%a or %b): (if any of %a: …  if any of %b: …)

What few elements need (`seldom`) stands under a branch: a test on the usual way, and a border that
LLVM moves computations across where they are better left. A Jacobian's 15 sines have two tests then
and not 15, between blocks of straight code.

Branches are joined that are closed by REDUCEs alone, stand in the same loops, and have the same
number of branches and the same other loops below them: so none waits for another, neither itself
nor by way of a loop that both use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import RangeArg
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.passes.decompose.cold_branch import is_branch

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

MOST = 16  # that are joined: what they may change is kept until the last of them has been tested
Groups = Mapping["UOp", tuple["UOp", ...]]


def joined_branches(kernel: UOp) -> UOp:
    """A kernel of the vector level with its branches in groups."""
    if sum([u.op is Ops.RANGE and is_branch(u) for u in analysis.order(kernel)]) < 2:
        return kernel
    below = _Below(kernel)
    groups = _groups(below)
    if not groups:
        return kernel
    made: dict[UOp, UOp] = {}  # what is not the same any more
    around: dict[UOp, UOp] = {}  # branch -> the branch around its group
    # What a group waits for has fewer branches below it.
    for u in sorted(below.branches, key=below.branches.__getitem__):
        src = tuple([made.get(s, s) for s in u.src])
        if u in groups:
            if u not in around:
                _open(groups[u], made, around)
            continue
        if u.op is Ops.REDUCE and u.src[1] in around:
            src = (src[0], around[u.src[1]], src[1])
        if src != u.src:
            made[u] = intern(u.op, u.dtype, src, u.arg, u.tag)
    return made[kernel]


class _Below:
    """What is below each node of a kernel, sources first."""

    def __init__(self, kernel: UOp) -> None:
        self.branches: dict[UOp, int] = {}  # how many, one after the other
        self.loops: dict[UOp, frozenset[UOp]] = {}  # that are closed, branches left out
        self.closers: dict[UOp, list[UOp]] = {}
        for u in analysis.order(kernel):
            self.branches[u] = max([self.branches[s] for s in u.src], default=0)
            self.branches[u] += u.op is Ops.RANGE and is_branch(u)
            closed = analysis.closed_ranges(u)
            for r in closed:
                self.closers.setdefault(r, []).append(u)
            self.loops[u] = self._loops(u, [r for r in closed if not is_branch(r)])

    def _loops(self, u: UOp, closed: list[UOp]) -> frozenset[UOp]:
        found = frozenset(closed)
        for s in u.src:
            more = self.loops[s]
            if more is not found and not more <= found:  # equal sets are mostly one object
                found = more if found <= more else found | more
        return found


def _groups(below: _Below) -> Groups:
    """The members of a branch's group, of two and more."""
    alike: dict[object, list[UOp]] = {}
    for r, closers in below.closers.items():
        if _may_move(r, closers, below):
            key = below.branches[r], below.loops[r], r.arg, analysis.ranges(r.src[0])
            alike.setdefault(key, []).append(r)
    groups: dict[UOp, tuple[UOp, ...]] = {}
    for members in alike.values():
        size = -(-len(members) // -(-len(members) // MOST))
        for i in range(0, len(members), size):
            part = tuple(members[i : i + size])
            groups |= dict.fromkeys(part if len(part) > 1 else (), part)
    return groups


def _may_move(r: UOp, closers: Iterable[UOp], below: _Below) -> bool:
    """A branch with room for one around it, which waits for nothing but its test."""
    outside = [q.arg.axis[0] for q in analysis.ranges(r.src[0])]
    return (
        is_branch(r)
        and r.src[0].op is Ops.CAST
        and len(r.arg.axis) == 1
        and r.arg.axis[0] - 1 > max(outside, default=-1)
        and all([u.op is Ops.REDUCE and len(u.src) == 2 for u in closers])
        and all([below.branches[u] == below.branches[r] for u in closers])
        and all([below.loops[u] == below.loops[r] for u in closers])
    )


def _open(members: tuple[UOp, ...], made: dict[UOp, UOp], around: dict[UOp, UOp]) -> None:
    """Make the branch around some, and them inside of it."""
    tests = [made.get(r.src[0].src[0], r.src[0].src[0]) for r in members]
    any_of = tests[0]
    for t in tests[1:]:
        any_of = _either(any_of, t)
    axis = (members[0].arg.axis[0] - 1,)
    outer = intern(Ops.RANGE, dtypes.index, (any_of.cast(dtypes.index),), RangeArg(axis, "reduce"))
    for r, test in zip(members, tests, strict=True):
        inside = _inside(test, outer).cast(dtypes.index)
        around[r], made[r] = outer, intern(Ops.RANGE, dtypes.index, (inside,), r.arg)


def _either(a: UOp, b: UOp) -> UOp:
    """a or b; what any lane of two vectors says, any lane of one does."""
    if a.op is b.op is Ops.HREDUCE and a.src[0].dtype is b.src[0].dtype:
        lanes = intern(Ops.OR, a.src[0].dtype, (a.src[0], b.src[0]))
        return intern(Ops.HREDUCE, dtypes.bool_, (lanes,), "add")
    return intern(Ops.OR, dtypes.bool_, (a, b))


def _inside(test: UOp, outer: UOp) -> UOp:
    """A test that is made again, from the lanes where there are some, in the branch around it."""
    if test.op is Ops.HREDUCE:
        return intern(Ops.HREDUCE, test.dtype, (_inside(test.src[0], outer),), test.arg)
    return intern(Ops.AFTER, test.dtype, (test, outer))
