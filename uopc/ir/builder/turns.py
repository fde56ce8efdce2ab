"""The turns of a hand-written loop: each turn runs the reads and writes of its statements again.

    o[i].store(o[i] + x[i, j]).end(i, j)    # o[i] names no j, yet each turn of j adds to it

A node of a graph stands in the loops that it depends on, and `o[i]` alone does not depend on j: it
would be read once, before that loop. So a store comes after the loops that END closes around it.
Storage comes after the loops of its reader in which a store writes it: `o.after(j)[i]`, which users
write themselves without an END. The same holds for the length of a loop if an outer loop writes its
operands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from uopc.ir.builder.rebuild import rebuild, remake, rewritten
from uopc.ir.core import ranges, walk
from uopc.ir.core.calls import graph_order, operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.core.trace import standing_for
from uopc.ir.core.uop import UOp, intern

Loops = frozenset[UOp]
_BUNDLES = frozenset((Ops.END, Ops.SINK, Ops.GROUP, Ops.BARRIER, Ops.COMMIT, Ops.AFTER))


def in_each_turn(kernel: UOp) -> UOp:
    """Make stores and reads depend on the loops that repeat them; the kernel itself if they already
    do."""
    if Ops.END not in walk.ops(kernel):
        return kernel
    while (longer := _with_a_length_read_again(kernel)) is not kernel:
        kernel = longer
    around = _loops_around_stores(kernel)
    written = _written(around)
    made: defaultdict[Loops, dict[UOp, UOp]] = defaultdict(dict)

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u not in around:
            return None

        def again(v: UOp, given: Sequence[UOp]) -> list[UOp]:
            if v.op is Ops.AFTER:  # the statements that the target comes after
                return list(given)
            return [_read_again(s, around[u], written, made[around[u]]) for s in given]

        rest = again(u, src[1:])
        storage, view = src[0], list[tuple[UOp, list[UOp]]]()
        while storage.src and not before_effects(storage).op.is_storage:
            view.append((storage, again(storage, storage.src[1:])))
            storage = storage.src[0]
        values = [src[0], *rest, *[s for _, place in view for s in place]]
        target = _after(storage, around[u].difference(*map(ranges.ranges, values)))
        for v, place in reversed(view):
            parts = (target, *place)
            target = v if parts == v.src else standing_for(v, remake(v, parts))
        parts = (target, *rest)
        return None if parts == src else standing_for(u, remake(u, parts))

    return rewritten(kernel, change)


def _with_a_length_read_again(kernel: UOp) -> UOp:
    """Make the length of one more loop depend on the loops around it that write its operands; the
    kernel itself if there is no such loop."""
    reading = [r for r in walk.nodes(kernel) if r.op is Ops.RANGE and _reads(r.src[0])]
    if not reading:
        return kernel
    outer = _loops_around_loops(kernel)
    written = _written(_loops_around_stores(kernel))
    for r in sorted(reading, key=lambda r: len(outer[r])):
        length = _read_again(r.src[0], outer[r], written, {})
        if length is not r.src[0]:
            return rebuild(kernel, {r: standing_for(r, remake(r, (length, *r.src[1:])))})
    return kernel


def _reads(length: UOp) -> bool:
    return length.op is not Ops.CONST and Ops.INDEX in walk.ops(length)


def _written(around: Mapping[UOp, Loops]) -> Mapping[UOp, Loops]:
    """The loops that write each storage."""
    written: defaultdict[UOp, Loops] = defaultdict(frozenset)
    for store, loops in around.items():
        written[storage_root(store.src[0])] |= loops
    return written


def _loops_around_loops(kernel: UOp) -> Mapping[UOp, Loops]:
    """The loops around each loop that an END closes: loops of outer ENDs, and loops of lower axes
    of the same END."""
    closed: defaultdict[UOp, Loops] = defaultdict(frozenset)
    outer: defaultdict[UOp, Loops] = defaultdict(frozenset)
    for u in reversed(list(walk.order(kernel))):  # users first
        if u.op in _BUNDLES:
            own = ranges.closed_ranges(u)
            for r in own:
                outer[r] |= closed[u].union([o for o in own if o.arg.axis < r.arg.axis])
            for s in u.src:
                if s.op is not Ops.RANGE:
                    closed[s] |= closed[u].union(own)
    return outer


def _loops_around_stores(kernel: UOp) -> dict[UOp, Loops]:
    """The loops in which each STORE stands: the loops that it depends on, and the loops that an END
    closes over it."""
    closed: defaultdict[UOp, Loops] = defaultdict(frozenset)
    stores: dict[UOp, Loops] = {}
    for u in reversed(list(walk.order(kernel))):  # users first
        if u.op in _BUNDLES:
            loops = closed[u].union(ranges.closed_ranges(u))
            for s in u.src if loops else ():
                if s.op is not Ops.RANGE:
                    closed[s] |= loops
        elif u.op is Ops.STORE:
            stores[u] = ranges.ranges(u).union(*map(ranges.ranges, closed[u]))
    return stores


def _read_again(
    value: UOp, around: Loops, written: Mapping[UOp, Loops], made: dict[UOp, UOp]
) -> UOp:
    """Read the value of a store again in some loops: storage comes after the loops in which it is
    written. `made` keeps the answers of these loops, because many stores share their values."""
    for u in graph_order([value], _operands_read, made.__contains__):
        if u in made:
            continue
        src = u.src if u.op is Ops.RANGE else tuple([made.get(s, s) for s in u.src])
        if u.op is Ops.AFTER:
            src = (src[0], *u.src[1:])
        else:
            known = ranges.ranges(u) if u.op is Ops.INDEX else frozenset()
            src = tuple([_read_after_loops(s, around - known, written) for s in src])
        made[u] = u if src == u.src else standing_for(u, remake(u, src))
    return _read_after_loops(made[value], around, written)


def _read_after_loops(u: UOp, around: Loops, written: Mapping[UOp, Loops]) -> UOp:
    """An operand, after the loops that write it if it is storage."""
    storage = before_effects(u) if u.op is Ops.AFTER or u.op.is_storage else u
    loops = written.get(storage, frozenset()) & around
    return _after(u, loops - ranges.ranges(u)) if loops else u


def _operands_read(u: UOp) -> Sequence[UOp]:
    """The operands that a node reads itself. Effects that it comes after are separate statements,
    and the length of a loop is read before the loop."""
    return () if u.op is Ops.RANGE else u.src[:1] if u.op is Ops.AFTER else operands(u)


def _after(storage: UOp, loops: Loops) -> UOp:
    """The storage after loops that it did not depend on."""
    if not loops:
        return storage
    found = sorted(loops, key=lambda r: r.arg.axis)
    return intern(Ops.AFTER, storage.dtype, (storage, *found))
