"""The conditions of the Opts that hand a loop to the blocks and threads of a GPU.

A range of kind global is a dimension of the grid. A range of kind local, group or grouptop is a
dimension of the block.
"""

from __future__ import annotations

from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.nest.nest import Nest, nest_of
from uopc.passes.analysis.shared_tiles import THREADS
from uopc.passes.optimize.opts import legality
from uopc.passes.optimize.opts.legality import Refused


def check_shared_reduce(kernel: UOp, r: UOp) -> None:
    """Refused unless threads can share the reduces over the range."""
    closing = nest_of(kernel).closers(r)
    if any(u.op is Ops.END for u in closing):
        raise Refused("only a reduce can be shared; use LOCAL")
    for q in set().union(*[ranges.ranges(u) for u in closing]):
        if q.arg.kind.startswith("group"):
            raise Refused("a reduce around the range is shared among threads already")
        if _differs(q):
            raise Refused("the length of a loop around the range differs between threads")


def check_block(kernel: UOp, r: UOp) -> None:
    """Refused unless the iterations of the range can be blocks of a grid. Adjacent nests get blocks
    of their own, unless blocks would have to wait for each other."""
    _check_separate(kernel, r)
    if ranges.ranges(r.src[0]):
        raise Refused("the length of the range differs between iterations of another loop")
    if not all(u.op is Ops.END and r in u.src[1:] for u in kernel.src):
        _check_outermost_of_nest(kernel, r)


def _check_outermost_of_nest(kernel: UOp, r: UOp) -> None:
    """Refused unless r is outermost in its nest, and no block waits for another nest's block or
    reads storage that another block fills."""
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
        raise Refused("the range must be the outermost range of a nest")
    if any(u.op is Ops.BUFFER for u in walk.order(kernel)):
        raise Refused(
            "the kernel fills storage of a block, so the range must be around the whole kernel"
        )
    legality.check_not_read(kernel, nest_of(kernel).stores)


def check_thread(kernel: UOp, r: UOp) -> None:
    """Refused unless the iterations of the range can be threads of a block. Code outside of the
    range may share no storage with the iterations: a thread could read an element before another
    thread writes the element."""
    _check_separate(kernel, r)
    if r in _fill_loops(kernel):
        return
    for nest in [Nest(walk.toposort(effect)) for effect in kernel.src]:
        targets = [u.src[0] for u in nest.stores]
        written = {(storage_root(u), r in ranges.ranges(u)) for u in targets}
        read = [(a.storage, r not in a.loops) for a in nest.used]
        if any(root.op is Ops.PARAM and (root, outside) in written for root, outside in read):
            raise Refused("code outside the range shares storage with the iterations of the range")


def check_no_barrier(kernel: UOp, r: UOp) -> None:
    """Refused if threads wait for each other inside of the range: a branch would skip the barrier
    in some threads, and the others would wait forever."""
    reduces = [u for u in nest_of(kernel).reduces if r in ranges.ranges(u)]
    if any(q.arg.kind.startswith("group") for u in reduces for q in ranges.closed_ranges(u)):
        raise Refused("the amount must divide a range in which threads share a reduce")


def _check_separate(kernel: UOp, r: UOp) -> None:
    """Refused if the iterations of an output loop cannot run at the same time."""
    inside = [a.storage for a in nest_of(kernel).inside(r)]
    if r not in _fill_loops(kernel) and any(u.op is Ops.BUFFER for u in inside):
        raise Refused("the range indexes storage that each thread has for itself")
    legality.check_unordered(kernel, r)
    legality.check_parallel(kernel, legality.loops_to(kernel, r))


def _fill_loops(kernel: UOp) -> set[UOp]:
    """The loops that fill a tile for all threads of the block: no thread range is around them."""
    found: set[UOp] = set()
    for u in walk.order(kernel):
        if u.op is Ops.AFTER and u.src[0].op is Ops.BUFFER:
            for end in u.src[1:]:
                if not any(q.arg.kind in THREADS or _differs(q) for q in ranges.ranges(end)):
                    found |= set(ranges.closed_ranges(end))
    return found


def _differs(r: UOp) -> bool:
    """True if the length of a loop differs between threads."""
    return any(q.arg.kind in THREADS for q in ranges.ranges(r.src[0]))
