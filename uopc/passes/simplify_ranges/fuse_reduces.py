"""Loop fusion of reduces that read the same elements in loops of their own.

    a = sum(x[i, r] for r); b = max(x[i, q] for q)  →  one loop over r with two accumulators

The order of computation stays, and elements that both read are read once. Neither may need the
other's result, and both must be in the same outer loops.
"""

from __future__ import annotations

from collections import Counter

from uopc.ir.builder import rebuild
from uopc.ir.core import ranges, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp

Loops = tuple["UOp", ...]
Nest = tuple[frozenset["UOp"], tuple["UOp", ...]]  # the loops around, the lengths of a group's own


def with_shared_loops(kernel: UOp) -> UOp:
    """The kernel with one loop per set of reduces that read the same elements."""
    while True:  # one pass per depth of nested loops
        names = _same_loops(kernel)
        if not names:
            return kernel
        kernel = rebuild.rebuild(kernel, names)


def _same_loops(kernel: UOp) -> dict[UOp, UOp]:
    """Loops of reduces -> the earlier loops that replace them."""
    groups = _groups(kernel)
    if len(groups) < 2:
        return {}
    # Bits of groups: those that a group's loop is computed from, and those that run in the loop.
    needs, together = _needs(kernel, groups), [1 << i for i in range(len(groups))]
    standard: dict[Nest, Loops] = {}
    readers: dict[tuple[Nest, UOp], dict[int, None]] = {}  # the first groups that read an element
    names: dict[UOp, UOp] = {}
    firsts = list(groups)
    for number, (loops, members) in enumerate(groups.items()):
        nest = _around(members), tuple([r.src[0] for r in loops])
        reads = [(nest, u) for u in _reads(members, loops, standard.setdefault(nest, loops))]
        known = sorted({first for read in reads for first in readers.get(read, ())})
        known = [f for f in known if not needs[f] >> number & 1]
        first = next((f for f in known if not needs[number] & together[f]), number)
        if first != number:  # a group that waits for one waits for both
            together[first] |= 1 << number
            both, needs[first] = together[first], needs[first] | needs[number]
            needs = [n | needs[first] | both if n & both else n for n in needs]
            names.update(zip(loops, firsts[first]))
        for read in reads:
            readers.setdefault(read, {})[first] = None
    return names


def _groups(kernel: UOp) -> dict[Loops, list[UOp]]:
    """The reduces by the loops that they close; only loops that nothing else closes."""
    found: dict[Loops, list[UOp]] = {}
    others: list[UOp] = []
    for u in walk.order(kernel):
        closed = tuple(sorted(ranges.closed_ranges(u), key=lambda r: r.arg.axis))
        if u.op is Ops.REDUCE and len(closed) == len(u.src) - 1:
            found.setdefault(closed, []).append(u)
        else:
            others += closed
    counted = Counter([*others, *[r for loops in found for r in loops]])
    return {
        loops: members
        for loops, members in found.items()
        if all(counted[r] == 1 and r.arg.kind == "reduce" for r in loops)
        and not any(ranges.ranges(r.src[0]) for r in loops)
    }


def _around(members: list[UOp]) -> frozenset[UOp]:
    """The loops around a group of reduces."""
    return frozenset().union(*[ranges.ranges(u) for u in members])


def _needs(kernel: UOp, groups: dict[Loops, list[UOp]]) -> list[int]:
    """Per group, the bits of the groups whose results it is computed from."""
    number = {u: i for i, members in enumerate(groups.values()) for u in members}
    below: dict[UOp, int] = {}
    needs = [0] * len(groups)
    for u in walk.order(kernel):
        mask = 0
        for s in u.src:
            mask |= below[s]
        if u in number:
            needs[number[u]] |= mask
            mask |= 1 << number[u]
        below[u] = mask
    # A group of several waits for the needs of each member, and so does all that needs the group.
    for i, members in enumerate(groups.values()):
        if len(members) > 1:
            needs = [n | needs[i] if n >> i & 1 else n for n in needs]
    return needs


def _reads(members: list[UOp], loops: Loops, names: Loops) -> dict[UOp, None]:
    """The INDEXes that differ in each iteration of all loops, with the loops renamed."""
    every = _around(members).union(loops)
    renamed = dict(zip(loops, names))
    return {
        rebuild.rebuild(u, renamed): None
        for m in members
        for u in walk.toposort(m.src[0], lambda n: not ranges.ranges(n).isdisjoint(loops))
        if u.op is Ops.INDEX and ranges.ranges(u).issuperset(every)
    }
