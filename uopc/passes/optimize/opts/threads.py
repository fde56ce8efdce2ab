"""Ranges of a kernel handed to blocks and threads: the Opts GRID, LOCAL, GROUP and GROUPTOP.

As in `range_tiling.py`, each gives a kernel that computes the same numbers, or raises `Refused`.
A range of kind global is a place in the grid, one of kind local, group or grouptop in the block.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from uopc.ir.builder import rebuild as remake
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.args import AxisKind
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.index import affine
from uopc.passes.analysis.loops import make_range
from uopc.passes.analysis.shared_tiles import filled_together, loops_around
from uopc.passes.optimize.opts.legality import Refused, check_free, check_unordered, replaced

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp

# Kinds of ranges that threads of one block share, the fastest first.
THREADS = ("warp", "group", "local", "grouptop")
# Threads that share a reduce; those that are no neighbours read each other's values one by one.
MOST_GROUP, MOST_APART = 1024, 32
_OUTER, _INNER, _GUARD = 0, 1, 2


def grid(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  a dimension of the grid: its iterations run in blocks of their own."""
    if n:
        raise Refused("a whole range becomes a dimension of the grid: the amount is 0")
    _check_output(kernel, r)
    if analysis.ranges(r.src[0]):
        raise Refused("its length differs from iteration to iteration")
    if any(u.op is not Ops.END or r not in u.src[1:] for u in kernel.src):
        raise Refused("the range is not around the whole kernel")
    made = make_range(r.src[0], r.arg.axis, "global")
    return replaced(kernel, r, made, (made,))


def local(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + thread, the neighbours in the threads of a block; where n does not divide
    r, the last ones stand behind a branch."""
    check_free(kernel, r)
    _check_output(kernel, r)
    if n < 1:
        raise Refused(f"the amount {n} is too small")
    whole, rest = affine.divmod_(r.src[0], affine.const(n))
    exact = rest.op is Ops.CONST and rest.arg == 0
    if not exact:
        _check_no_sharing(kernel, r)
        whole = affine.floordiv(affine.plus(r.src[0], n - 1), affine.const(n))
    axis = r.arg.axis
    inner = make_range(affine.const(n), (*axis, _INNER), "local")
    value: UOp = inner
    closed: tuple[UOp, ...] = (inner,)
    if not (whole.op is Ops.CONST and whole.arg == 1):
        outer = make_range(whole, (*axis, _OUTER), "loop")
        value, closed = affine.add(affine.mul(outer, affine.const(n)), inner), (outer, inner)
    if not exact:
        inside = intern(Ops.CMPLT, dtypes.bool_, (value, r.src[0])).cast(dtypes.index)
        guard = make_range(inside, (*axis, _GUARD), "loop")
        value, closed = affine.add(value, guard), (*closed, guard)
    return replaced(kernel, r, value, closed)


def group(kernel: UOp, r: UOp, n: int) -> UOp:
    """A reduce over r  →  threads have every n-th value each, neighbours the neighbours, and
    combine what they got. All of them have the result."""
    return _shared(kernel, r, n, "group")


def group_top(kernel: UOp, r: UOp, n: int) -> UOp:
    """The same with threads that are far from each other: neighbours are of another loop."""
    return _shared(kernel, r, n, "grouptop")


def _shared(kernel: UOp, r: UOp, n: int, kind: AxisKind) -> UOp:
    check_free(kernel, r)
    order = analysis.order(kernel)
    closers = [u for u in order if u.op in (Ops.REDUCE, Ops.END) and r in u.src[1:]]
    if any(u.op is Ops.END for u in closers):
        raise Refused("only a reduce can be shared; use LOCAL")
    most = MOST_APART if kind == "grouptop" else MOST_GROUP
    if n < 2 or n & (n - 1) or n > most:
        raise Refused(f"the amount {n} is not a power of two from 2 to {most}")
    for q in set().union(*[analysis.ranges(u) for u in closers]):
        if q.arg.kind.startswith("group"):
            raise Refused("a reduce around it is shared among threads already")
        if any(p.arg.kind in THREADS for p in analysis.ranges(q.src[0])):
            raise Refused("a loop around it has another length in other threads")
    axis = r.arg.axis
    thread = make_range(affine.const(n), (*axis, _INNER), kind)
    left = affine.sub(affine.plus(r.src[0], n - 1), thread)
    outer = make_range(affine.floordiv(left, affine.const(n)), (*axis, _OUTER), "reduce")
    value = affine.add(affine.mul(outer, affine.const(n)), thread)
    return _nested(replaced(kernel, r, value, (outer, thread)))


def _nested(kernel: UOp) -> UOp:
    """Each REDUCE over shared ranges and others as two: what a thread does, and what all do."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        shared = [r for r in analysis.closed_ranges(u) if r.arg.kind.startswith("group")]
        if u.op is not Ops.REDUCE or not shared or len(shared) == len(src) - 1:
            return None
        own = [s for s, old in zip(src[1:], u.src[1:]) if old not in shared]
        inner = intern(Ops.REDUCE, u.dtype, (src[0], *own), u.arg)
        return intern(Ops.REDUCE, u.dtype, (inner, *shared), u.arg)

    return remake.rewritten(kernel, change)


def _check_output(kernel: UOp, r: UOp) -> None:
    order = analysis.order(kernel)
    if r not in _filling(order) and any(_is_private(u) and r in analysis.ranges(u) for u in order):
        raise Refused("it goes over storage that each thread has for itself")
    if any(u.op is Ops.REDUCE and r in u.src[1:] for u in order):
        raise Refused("only an output loop can be handed to blocks and threads; use GROUP")
    check_unordered(kernel, r)


def pipeline(kernel: UOp, r: UOp, n: int) -> UOp:
    """Tiles that are filled in r are filled n - 1 iterations ahead, in n stages."""
    length = r.src[0]
    if n < 2 or length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the loop needs a known length of at least {n}, and {n} at least 2")
    tiles = {t: end for t, end in filled_together(analysis.order(kernel)).items()
             if loops_around(end)[-1:] == (r,)}  # fmt: skip
    if not tiles:
        raise Refused("threads fill no tile in the loop")
    made = {t: t.replace(arg=dataclasses.replace(t.arg, stages=n)) for t in tiles}
    return remake.rebuild(kernel, made)


def _filling(order: Iterable[UOp]) -> set[UOp]:
    """The loops that fill a tile for all threads of the block: no range of threads is around."""
    found: set[UOp] = set()
    for u in order:
        if u.op is Ops.AFTER and u.src[0].op is Ops.BUFFER:
            for end in u.src[1:]:
                around = analysis.ranges(end)
                if not any(q.arg.kind in THREADS or _differs(q) for q in around):
                    found |= set(analysis.closed_ranges(end))
    return found


def _differs(r: UOp) -> bool:
    """Whether a loop has another length in other threads."""
    return any(q.arg.kind in THREADS for q in analysis.ranges(r.src[0]))


def _is_private(u: UOp) -> bool:
    """An element of a BUFFER of the kernel."""
    return u.op is Ops.INDEX and storage_root(u).op is Ops.BUFFER


def _check_no_sharing(kernel: UOp, r: UOp) -> None:
    """Refused where threads wait for each other inside of r: a branch would leave some behind."""
    closers = [u for u in analysis.order(kernel) if u.op is Ops.REDUCE]
    closed = itertools.chain.from_iterable(
        analysis.closed_ranges(u) for u in closers if r in analysis.ranges(u)
    )
    if any(q.arg.kind.startswith("group") for q in closed):
        raise Refused("the amount must divide a range in which threads share a reduce")
