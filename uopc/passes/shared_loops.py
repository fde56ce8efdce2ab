"""Reduces that read the same places in loops of their own, put into one loop.

    a = sum(x[i, r] for r); b = max(x[i, q] for q)  →  one loop over r with two accumulators

Nothing is computed in another order; what both read is read once. Neither may need the other's
result, and both must stand in the same outer loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uopc.ir import analysis, remake
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp

Loops = tuple["UOp", ...]


def with_shared_loops(kernel: UOp) -> UOp:
    """The kernel with a loop for each set of reduces that read the same places."""
    while True:
        groups = _groups(kernel)
        found = _pair(kernel, groups) if len(groups) > 1 else None
        if found is None:
            return kernel
        kept, gone = found
        kernel = remake.rebuild(kernel, dict(zip(gone, kept)))


def _groups(kernel: UOp) -> dict[Loops, list[UOp]]:
    """The reduces by the loops that they close; only of loops that nothing else closes."""
    found: dict[Loops, list[UOp]] = {}
    others: list[UOp] = []
    for u in analysis.order(kernel):
        closed = tuple(sorted(analysis.closed_ranges(u), key=lambda r: r.arg.axis))
        if u.op is Ops.REDUCE and len(closed) == len(u.src) - 1:
            found.setdefault(closed, []).append(u)
        else:
            others += closed
    counted: dict[UOp, int] = {}
    for r in [*others, *[r for loops in found for r in loops]]:
        counted[r] = counted.get(r, 0) + 1
    return {
        loops: members
        for loops, members in found.items()
        if all(counted[r] == 1 and r.arg.kind == "reduce" for r in loops)
        and not any(analysis.ranges(r.src[0]) for r in loops)
    }


def _pair(kernel: UOp, groups: dict[Loops, list[UOp]]) -> tuple[Loops, Loops] | None:
    """Loops, and others that can be the same, if there are any."""
    needs = _needs(kernel, groups)
    numbered = list(groups.items())
    for i, (gone, members) in enumerate(numbered):
        for j, (kept, first) in enumerate(numbered[:i]):
            alike = [a.src[0] for a in kept] == [b.src[0] for b in gone]
            apart = not (needs[i] >> j & 1) and not (needs[j] >> i & 1)
            if not alike or not apart or _around(first) != _around(members):
                continue
            if _reads_same(kept, first, gone, members):
                return kept, gone
    return None


def _around(members: list[UOp]) -> frozenset[UOp]:
    """The loops around a group of reduces."""
    return frozenset().union(*[analysis.ranges(u) for u in members])


def _needs(kernel: UOp, groups: dict[Loops, list[UOp]]) -> list[int]:
    """For each group, a bit for each group whose results it is computed from."""
    number = {u: i for i, members in enumerate(groups.values()) for u in members}
    below: dict[UOp, int] = {}
    needs = [0] * len(groups)
    for u in analysis.order(kernel):
        mask = 0
        for s in u.src:
            mask |= below[s]
        if u in number:
            needs[number[u]] |= mask
            mask |= 1 << number[u]
        below[u] = mask
    return needs


def _reads_same(kept: Loops, first: list[UOp], gone: Loops, members: list[UOp]) -> bool:
    """Whether both groups read some places, one in each iteration of all loops around them."""
    loops = _around(first).union(kept)
    known = {u for m in first for u in analysis.order(m.src[0]) if u.op is Ops.INDEX}
    names = dict(zip(gone, kept))
    for m in members:
        for u in analysis.order(m.src[0]):
            if u.op is Ops.INDEX and analysis.ranges(u).issuperset(gone):
                renamed = remake.rebuild(u, names)
                if renamed in known and analysis.ranges(renamed).issuperset(loops):
                    return True
    return False
