"""The loops whose iterations must keep their order: one touches an element that another one writes.

    for i < 7: o[i + 1] = o[i] + x[i]        for i < 64: bins[k[i]] = bins[k[i]] + 1

Kernels that the scheduler made have no such loops: only a user writes them.
"""

from __future__ import annotations

import itertools
import math

from uopc.ir.core import bounds, ranges, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.intervals import Interval
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import awaited, before_effects, storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, closed, monomials
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.loops import by_axis
from uopc.ir.nest.nest import nest_of
from uopc.ir.symbolic.conditions import constraints_of
from uopc.passes.analysis.loops import is_overwritten


def is_ordered(kernel: UOp, r: UOp, own_storage: bool = False) -> bool:
    """True if an iteration of the range may touch an element that another iteration writes:
    iterations may then not change places or run at the same time. With `own_storage`, iterations
    that run at the same time have BUFFERs of their own, so a BUFFER that each iteration fills
    before reading does not count."""
    own = _filled_first(kernel, r) if own_storage else frozenset()
    stored = [u for u in nest_of(kernel).stores if storage_root(u.src[0]) not in own]
    if any(is_overwritten(u, r) for u in stored):
        return True
    return any(
        r in target.loops and r in access.loops and not _never_meet(target, access, r)
        for target, access in _meetings(kernel)
        if target.storage not in own
    )


def _filled_first(kernel: UOp, r: UOp) -> frozenset[UOp]:
    """The BUFFERs of which each iteration of r reads only places that it stored to before."""
    found = {u for u in walk.order(kernel) if u.op is Ops.BUFFER}
    for a in nest_of(kernel).read if found else ():
        if not _comes_after_store(a.node, r):
            found.discard(a.storage)
    return frozenset(found)


def _comes_after_store(access: UOp, r: UOp) -> bool:
    """True if an AFTER below the access has a STORE to the same place, in the same iteration."""
    return any(
        e.op is Ops.STORE and r in ranges.ranges(e)
        and before_effects(e.src[0]).src[1:] == access.src[1:]
        for e in awaited(access.src[0])
    )  # fmt: skip


@memo
def _meetings(kernel: UOp) -> list[tuple[Access, Access]]:
    """The accesses of STOREs, each with one whose elements it may overwrite: one that is read or
    that another STORE has, or its own where iterations may store to one element."""
    targets: dict[UOp, list[Access]] = {}
    for u in nest_of(kernel).stores:
        target = Access(before_effects(u.src[0]), u)
        targets.setdefault(target.storage, []).append(target)
    pairs = [(t, a) for a in nest_of(kernel).used for t in targets.get(a.storage, ())]
    for storage, stored in targets.items():
        if storage.op is Ops.PARAM:
            both = itertools.combinations(stored, 2)  # parts of one loop have loops of their own
            pairs += [(t, u) for t, u in both if t.loops == u.loops]
    found = [pair for pair in pairs if _may_meet(*pair)]
    scattered = [(t, t) for same in targets.values() for t in same if _is_scattered(t)]
    return found + scattered


def _may_meet(target: Access, access: Access) -> bool:
    """False if all elements of one access lie before all elements of the other."""
    (low, high), (first, last) = bounds.bounds(target.flat), bounds.bounds(access.flat)
    return bool(low <= last and first <= high)


def _is_scattered(target: Access) -> bool:
    """True if the index is more than a sum of loops: a value that was read, a quotient. A quotient
    of sizes is the same in all iterations, as a size is."""
    return any(
        f.op not in (Ops.RANGE, Ops.VARIABLE, Ops.CONST, Ops.SPECIAL, Ops.LANES)
        and not closed.is_closed(f)
        for m in target.form[1] for f in monomials.factors(m)
    )  # fmt: skip


def _never_meet(target: Access, access: Access, r: UOp) -> bool:
    """True if two iterations of r never meet: the step of r exceeds the range of all shorter steps,
    and the entire range of r is below all longer steps. Loops around r are fixed."""
    (first, one), (second, two) = target.form, access.form
    # A value that was read, or a quotient, may depend on r too: its bounds are what counts.
    moving = [m for m in one if r in monomials.factors(m)]
    if len(moving) != 1 or moving != [m for m in two if r in monomials.factors(m)]:
        return False
    m, k = moving[0], one[moving[0]]
    factors = monomials.factors(m)
    others = [x for x in factors if x is not r]
    if k != two[m] or len(others) + 1 != len(factors) or any(map(ranges.ranges, others)):
        return False
    still = {x for x, f in one.items() if two.get(x) == f and _stands_still(x, r)} | {m}
    inside = [{x: f for x, f in terms.items() if x not in still} for terms in (one, two)]
    if not others:
        small = [{x: f for x, f in terms.items() if abs(f) < abs(k)} for terms in inside]
        wide = math.gcd(*[f for t, s in zip(inside, small) for x, f in t.items() if x not in s])
        low, high = bounds.bounds(affine.build(first, small[0]))
        begin, end = bounds.bounds(affine.build(second, small[1]))
        most = max(high - begin, end - low)
        span = abs(k) * bounds.bounds(r)[1] + most
        if wide and span >= wide:  # as of a loop that grew, and has a guard
            parts = [(first, {m: k, **small[0]}), (second, {m: k, **small[1]})]
            (low, high), (begin, end) = map(_guarded, (target, access), parts)
            span = max(high - begin, end - low)
        if most < abs(k) and (not wide or span < wide):
            return True
    step = affine.scaled(monomials.product(others) if others else affine.const(1), abs(k))
    rests = [affine.build(first, inside[0]), affine.build(second, inside[1])]
    low = min([bounds.bounds(x)[0] for x in rests])
    if low == -math.inf:
        return False
    ends = [affine.plus(affine.upper(x), 1 - int(low)) for x in rests]
    return all(affine.at_most(end, step) for end in ends)


def _guarded(access: Access, part: affine.Form) -> Interval:
    """The least and greatest value of a part of an index where the guard of the access holds."""
    constant, terms = part
    low, high = affine.interval(constant, terms)
    conditions = [] if access.gate is None else walk.flatten(access.gate)
    for bounded, (_, most) in constraints_of(conditions).items():
        added, seen = affine.form(bounded)
        m, k = next(iter(seen.items()))
        times = terms.get(m, 0) // k
        if times > 0:
            rest = dict(terms)
            affine.accumulate(rest, seen, -times)
            high = min(high, times * (most - added) + affine.interval(constant, rest)[1])
    return low, high


def _stands_still(m: UOp, r: UOp) -> bool:
    """True if a term is the same in all iterations of r: it has only loops around r in it."""
    if any(not by_axis(q) < by_axis(r) for q in ranges.ranges(m)):
        return False
    return not any(u.op is Ops.INDEX for u in walk.toposort(m))
