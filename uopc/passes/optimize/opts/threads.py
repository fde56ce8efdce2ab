"""GRID, LOCAL, GROUP, GROUPTOP, PIPELINE: ranges of a kernel for the blocks and threads of a GPU.

A range of kind global is a dimension of the grid; one of kind local, group or grouptop, of the
block.
"""

from __future__ import annotations

import dataclasses

from uopc.ir.builder import fold, rebuild
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.args import AxisKind
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.loops import closers, kernel_nodes, make_range, reduces_over
from uopc.passes.analysis.shared_tiles import THREADS, filled_together, loops_around
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused
from uopc.passes.optimize.opts.strip_mining import Strip, quotient_up, strip, stripped

# The most threads that share a reduce, by kind. Threads that are far apart read each other's values
# one by one.
MOST_THREADS = {"group": 1024, "grouptop": 32}


def grid(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  a dimension of the grid: each iteration runs in a block of its own. Nests beside each
    other get blocks of their own, unless blocks would have to wait for each other."""
    legality.check_no_amount(n)
    _check_output(kernel, r)
    if ranges.ranges(r.src[0]):
        raise Refused("its length differs from iteration to iteration")
    _check_outermost(kernel, r)
    made = make_range(r.src[0], r.arg.axis, "global")
    return stripped(kernel, Strip(r, made, (made,)))


def local(kernel: UOp, r: UOp, n: int) -> UOp:
    """r  →  outer·n + thread, neighbours in neighbouring threads of a block. If n does not divide
    r, a loop of 0 or 1 iterations skips the missing ones."""
    legality.check_free(kernel, r)
    _check_output(kernel, r)
    _check_not_shared(kernel, r)
    legality.check_amount(n)
    length = r.src[0]
    if affine.is_multiple(length, n):
        return stripped(kernel, strip(r, n, "local"))
    reduces = [u for u in kernel_nodes(kernel).reduces if r in ranges.ranges(u)]
    if any(q.arg.kind.startswith("group") for u in reduces for q in ranges.closed_ranges(u)):
        # A branch would leave behind threads that others wait for.
        raise Refused("the amount must divide a range in which threads share a reduce")
    cut = strip(r, n, "local", quotient_up(length, n))
    inside = fold.cast(intern(Ops.CMPLT, dtypes.bool_, (cut.value, length)), dtypes.index)
    guard = make_range(inside, (*r.arg.axis, 2), "loop")
    return stripped(kernel, Strip(r, affine.add(cut.value, guard), (*cut.loops, guard)))


def group(kernel: UOp, r: UOp, n: int, kind: AxisKind) -> UOp:
    """A reduce over r  →  each of n threads has every n-th value; they combine their results, and
    all get the total. Threads are neighbours; or belong to another loop, for kind grouptop."""
    legality.check_free(kernel, r)
    closing = closers(kernel, r)
    if any(u.op is Ops.END for u in closing):
        raise Refused("only a reduce can be shared; use LOCAL")
    if n < 2 or n & (n - 1) or n > MOST_THREADS[kind]:
        raise Refused(f"the amount {n} is not a power of two from 2 to {MOST_THREADS[kind]}")
    for q in set().union(*[ranges.ranges(u) for u in closing]):
        if q.arg.kind.startswith("group"):
            raise Refused("a reduce around it is shared among threads already")
        if _differs(q):
            raise Refused("a loop around it has another length in other threads")
    thread = make_range(n, (*r.arg.axis, 1), kind)
    left = affine.sub(affine.plus(r.src[0], n - 1), thread)
    outer = make_range(affine.floordiv(left, affine.const(n)), (*r.arg.axis, 0), "reduce")
    value = affine.add(affine.scaled(outer, n), thread)
    return _nested(stripped(kernel, Strip(r, value, (outer, thread))))


def _nested(kernel: UOp) -> UOp:
    """Each REDUCE over shared ranges and others as two: one per thread, one of all threads."""

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        shared = [r for r in ranges.closed_ranges(u) if r.arg.kind.startswith("group")]
        if u.op is not Ops.REDUCE or not shared or len(shared) == len(src) - 1:
            return None
        own = [s for s, old in zip(src[1:], u.src[1:]) if old not in shared]
        inner = intern(Ops.REDUCE, u.dtype, (src[0], *own), u.arg)
        return intern(Ops.REDUCE, u.dtype, (inner, *shared), u.arg)

    return rebuild.rewritten(kernel, change)


def pipeline(kernel: UOp, r: UOp, n: int) -> UOp:
    """Tiles that are filled in r are filled n - 1 iterations ahead, in n stages."""
    length = r.src[0]
    if n < 2 or length.op is not Ops.CONST or length.arg < n:
        raise Refused(f"the loop needs a known length of at least {n}, and {n} at least 2")
    tiles = [t for t, end in filled_together(walk.order(kernel)).items()
             if loops_around(end)[-1:] == (r,)]  # fmt: skip
    if not tiles:
        raise Refused("threads fill no tile in the loop")
    made = {t: t.replace(arg=dataclasses.replace(t.arg, stages=n)) for t in tiles}
    return rebuild.rebuild(kernel, made)


def _check_outermost(kernel: UOp, r: UOp) -> None:
    """Refused unless r is outermost: in the whole kernel, or in a nest beside others, if no block
    waits for another one or reads storage that another one fills."""
    if all(u.op is Ops.END and r in u.src[1:] for u in kernel.src):
        return
    effects = list(kernel.src)
    while effects:
        u = effects.pop()
        if u.op is Ops.END and r in u.src[1:]:
            break
        if u.op is Ops.GROUP:
            effects += u.src
        elif u.op is Ops.END and all(q.arg.kind == "global" for q in u.src[1:]):
            effects.append(u.src[0])
    else:
        raise Refused("the range is not the outermost one of a nest")
    if any(u.op is Ops.BUFFER for u in walk.order(kernel)):
        raise Refused("the kernel fills storage of a block, and the range is not around all of it")
    legality.check_not_read(kernel, kernel_nodes(kernel).stores)


def _check_output(kernel: UOp, r: UOp) -> None:
    if r not in _fill_loops(kernel) and any(
        u.op is Ops.INDEX and storage_root(u).op is Ops.BUFFER and r in ranges.ranges(u)
        for u in walk.order(kernel)
    ):
        raise Refused("it goes over storage that each thread has for itself")
    if reduces_over(kernel, r):
        raise Refused("only an output loop can be handed to blocks and threads; use GROUP")
    legality.check_unordered(kernel, r)
    legality.check_parallel(kernel, legality.loops_to(kernel, r))


def _check_not_shared(kernel: UOp, r: UOp) -> None:
    """Refused if code of the nest outside of r reads storage that the iterations of r write, or the
    other way round: a thread would read what another one may not have written yet."""
    if r in _fill_loops(kernel):
        return
    for nest in kernel.src:
        order = walk.toposort(nest)
        written = {(storage_root(u.src[0]), r in ranges.ranges(u.src[0]))
                   for u in order if u.op is Ops.STORE}  # fmt: skip
        for s in {s for u in order for s in (u.src[1:] if u.op is Ops.STORE else u.src)}:
            if s.op is not Ops.INDEX or storage_root(s).op is not Ops.PARAM:
                continue
            if (storage_root(s), r not in ranges.ranges(s)) in written:
                raise Refused("code outside of it shares storage with its iterations")


def _fill_loops(kernel: UOp) -> set[UOp]:
    """The loops that fill a tile for all threads of the block: no range of threads is around."""
    found: set[UOp] = set()
    for u in walk.order(kernel):
        if u.op is Ops.AFTER and u.src[0].op is Ops.BUFFER:
            for end in u.src[1:]:
                if not any(q.arg.kind in THREADS or _differs(q) for q in ranges.ranges(end)):
                    found |= set(ranges.closed_ranges(end))
    return found


def _differs(r: UOp) -> bool:
    """True if a loop has another length in other threads."""
    return any(q.arg.kind in THREADS for q in ranges.ranges(r.src[0]))
