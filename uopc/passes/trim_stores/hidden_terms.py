"""Terms behind a mask add 0, or NaN, to a sum of weights times values: a search finds which.

    for i: for c: y[i, c] = Σ_j w[i, j] · v[j, c]                  where w[i, j] is 0 for j > i
    →  for c: last[c] = max_j where(0 · v[j, c] is NaN, j, -1)
       for i: for c: y[i, c] = i < last[c] ? NaN : Σ_j where(j <= i, w[i, j] · v[j, c], 0)

A product with 0 is NaN if the value is infinite or NaN, so a search for the last such value, which
reads each value once, says which results are NaN. Weights are those of a softmax: behind the mask e
to the power of -inf, which is 0, or NaN if the greatest number of the row is infinite or NaN; then
all weights of the row are NaN, those before the mask, too.
"""

from __future__ import annotations

from uopc.ir.builder import fold, leaves, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import uop_dim
from uopc.ir.records import dataclass
from uopc.passes.trim_stores.conditions import Conditions


@dataclass(frozen=True)
class HiddenBound:
    """The bound of a sum's hidden terms: those from `end` on, or those before `end`."""

    end: UOp
    from_end: bool


def bounds_of(conditions: Conditions, r: UOp) -> list[HiddenBound] | None:
    """The conditions of a sum over r as bounds, if each row has a term inside of them all."""
    found = []
    for terms, constant in conditions.items():
        rest = {m: k for m, k in terms if m is not r}
        step = dict(terms).get(r, 0)
        if abs(step) != 1 or any([r in ranges.ranges(m) for m in rest]):
            return None
        place = affine.build(constant, rest)  # ±r + place < 0
        found.append(HiddenBound(affine.scaled(place, -1), True) if step > 0
                     else HiddenBound(affine.plus(place, 1), False))  # fmt: skip
    first = [affine.const(0), *[b.end for b in found if not b.from_end]]
    end = [r.src[0], *[b.end for b in found if b.from_end]]
    least = min([bounds.bounds(affine.sub(e, f))[0] for e in end for f in first])
    return found if least > 0 else None


def are_weights(u: UOp, mask: UOp, r: UOp) -> bool:
    """True if a factor of a term over r is a weight of a softmax of a masked value: where it is NaN
    behind the mask, all weights of its row are."""
    while u.op is Ops.CAST and u.src[0].dtype.is_float:
        u = u.src[0]
    if u.op is Ops.MUL:
        for e, q in (u.src, u.src[::-1]):
            if q.op is Ops.RECIPROCAL:
                return _is_exponential(e, mask, r) and _combines(q.src[0], "add", e, r)
    if u.op is Ops.FDIV:
        return _is_exponential(u.src[0], mask, r) and _combines(u.src[1], "add", u.src[0], r)
    return _is_exponential(u, mask, r)


def _is_exponential(u: UOp, mask: UOp, r: UOp) -> bool:
    """True for e to the power of a masked value minus the greatest one of the row."""
    if u.op is not Ops.EXP or u.src[0].op is not Ops.SUB or u.src[0].src[0] is not mask:
        return False
    return _combines(u.src[0].src[1], "max", mask, r)


def _combines(u: UOp, op: str, value: UOp, r: UOp) -> bool:
    """True for the reduce of a value over a loop like r."""
    if u.op is not Ops.REDUCE or u.arg.op != op or len(u.src) != 2:
        return False
    stored = walk.toposort(value, gate=lambda v: v.op is not Ops.AFTER)  # has loops of its own
    kept = {v: v for v in stored if v.op is Ops.AFTER}
    q = u.src[1]
    return q.src[0] is r.src[0] and rebuild.rebuild(value, {**kept, r: q}) is u.src[0]


# ---------------------------------------------------------------- the values
def has_places(v: UOp, r: UOp) -> bool:
    """True for a value of storage, without a sum, for which a buffer has a place at each iteration
    of the other loops: there are such loops, and no loop decides their lengths."""
    order = walk.toposort(v, gate=lambda u: u.op is not Ops.INDEX)
    around = ranges.ranges(v)
    plain = all([q.arg.kind == "loop" or q is r for q in around])
    known = not any([ranges.ranges(q.src[0]) for q in around])
    return plain and known and len(around) > 1 and not any([u.op is Ops.REDUCE for u in order])


def is_lost(v: UOp, r: UOp, bound: HiddenBound, slot: int) -> UOp:
    """The node that is true where a value behind the bound is infinite or NaN, with the loops that
    store the last such place of each column in a buffer of this slot."""
    most = max([max(-low, high) for low, high in map(bounds.bounds, (r.src[0], bound.end))])
    t = dtypes.int32 if most < 1 << 31 else dtypes.int64
    none = leaves.const(t, -1) if bound.from_end else fold.cast(r.src[0], t)
    zero = leaves.const(v.dtype, 0)
    no_number = fold.combine(Ops.CMPNE, (fold.combine(Ops.MUL, (v, zero)), zero))
    place = fold.select(no_number, fold.cast(r, t), none)
    last = intern(Ops.REDUCE, t, (place, r), ReduceArg("max" if bound.from_end else "min"))
    loops = tuple(sorted(ranges.ranges(v) - {r}, key=lambda q: q.arg.axis))
    dims = tuple([uop_dim(q.src[0]) for q in loops])
    buffer = leaves.buffer(slot, t, dims, device=_device(v))
    store = intern(Ops.STORE, dtypes.void, (intern(Ops.INDEX, t, (buffer, *loops)), last))
    filled = intern(Ops.AFTER, t, (buffer, intern(Ops.END, dtypes.void, (store, *loops))))
    known, end = intern(Ops.INDEX, t, (filled, *loops)), fold.cast(bound.end, t)
    if bound.from_end:
        return fold.combine(Ops.CMPLE, (end, known))
    return fold.combine(Ops.CMPLT, (known, end))


def _device(v: UOp) -> str:
    """The device of the storage that a value is read from."""
    roots = [storage_root(u.src[0]) for u in walk.toposort(v) if u.op is Ops.INDEX]
    return next((r.arg.device for r in roots if r.op is not Ops.DATA), "")
