"""SPLIT and PEEL: index-set splitting, a loop becomes loops that run one after the other.

    for i < 10: f(i)   →   for i < 8: f(i); for i < 2: f(8 + i)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from uopc.ir.builder import alu, rebuild
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.loops import closers, ended, identity, kernel_axes, make_range
from uopc.passes.effects.views import stores_in
from uopc.passes.optimize.opts.legality import Refused, check_amount, check_free

# Suffixes of the axes of a loop's parts, and of a renamed copy of a loop.
_PARTS, _COPY = (0, 1, 3), 2


def split(kernel: UOp, r: UOp, n: int) -> UOp:
    """Split r at the last multiple of n: a first loop that n divides, and the rest."""
    check_amount(n)
    whole = affine.scaled(affine.floordiv(r.src[0], affine.const(n)), n)
    rest = affine.sub(r.src[0], whole)
    if bounds.bounds(rest)[1] == 0:
        raise Refused(f"{n} divides the range: there is no rest")
    if bounds.bounds(whole)[1] == 0:
        raise Refused(f"the range is shorter than {n}")
    return in_parts(kernel, r, [LoopPart(whole), LoopPart(rest)])


def peel(kernel: UOp, r: UOp, n: int) -> UOp:
    """Split r after its first n iterations."""
    if not 0 < n < bounds.bounds(r.src[0])[0]:
        raise Refused(f"the range is not known to have more than {n} iterations, or {n} is below 1")
    return in_parts(kernel, r, [LoopPart(affine.const(n)), LoopPart(affine.plus(r.src[0], -n))])


@dataclass(frozen=True)
class LoopPart:
    """Some iterations of a loop, and the values that are known in them."""

    length: UOp
    known: dict[UOp, UOp] = field(default_factory=dict)


def in_parts(kernel: UOp, r: UOp, parts: list[LoopPart]) -> UOp:
    """The kernel with r as loops that run one after the other, with the given lengths."""
    check_free(kernel, r)
    axis, kind = r.arg.axis, r.arg.kind
    loops = [make_range(p.length, (*axis, i), kind) for i, p in zip(_PARTS, parts)]
    start, values = affine.const(0), []
    for p, loop in zip(parts, loops):
        values.append(affine.add(start, loop))
        start = affine.add(start, p.length)
    number = len(kernel_axes(kernel))  # grows with every split, and so tells the copies apart

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        body, closed = src[0], list(src[1:])
        inner = [
            q for q in closed if q is not r and (u.op is Ops.REDUCE or q.arg.axis > axis
                                                 or q.arg.kind in ("upcast", "unroll", "lane"))
        ]  # fmt: skip
        made = []
        for i, (part, loop, value) in enumerate(zip(parts, loops, values)):
            names = copies(body, r, inner, number + i - 1) if i else {}
            b = rebuild.rebuild(body, {**part.known, r: value, **names})
            made.append((b, (loop, *[names.get(q, q) for q in inner])))
        if u.op is Ops.REDUCE:
            return functools.reduce(functools.partial(_both, u), [_reduced(u, *m) for m in made])
        stored = [m for m in made if not _stores_nothing(m[0])] or made[:1]
        group = intern(Ops.GROUP, dtypes.void, tuple([ended(b, *around) for b, around in stored]))
        outer = [q for q in closed if q is not r and q not in inner]
        return ended(group, *outer)

    return rebuild.rewritten(kernel, change, only=closers(kernel, r))


def _stores_nothing(body: UOp) -> bool:
    """True for stores under a guard that never holds."""
    if body.op is Ops.STORE:
        return any([x.op is Ops.INVALID for x in body.src[0].src[1:]])
    return body.op in (Ops.GROUP, Ops.END) and all(map(_stores_nothing, stores_in(body)))


def _reduced(u: UOp, body: UOp, closed: tuple[UOp, ...]) -> UOp:
    """The REDUCE of a part; its body if that is the identity, or an extremum of equal values."""
    again = u.arg.op in ("max", "min") and all(bounds.bounds(q.src[0])[0] > 0 for q in closed)
    if body is identity(u) or (body.op is Ops.CONST and again):
        return body
    return intern(u.op, u.dtype, (body, *closed), u.arg)


def _both(u: UOp, one: UOp, two: UOp) -> UOp:
    """The REDUCE u of two parts."""
    if one is identity(u):
        return two
    return one if two is identity(u) else alu.alu(one, Op.by_name(u.arg.op), two)


def copies(body: UOp, r: UOp, inner: list[UOp], number: int) -> dict[UOp, UOp]:
    """New ranges for the loops inside of a copied body: each range has one place in the nest."""
    loops = dict.fromkeys(inner)
    for u in walk.toposort(body):
        if u.op in (Ops.END, Ops.REDUCE) and r in ranges.ranges(u):
            loops.update(dict.fromkeys(ranges.closed_ranges(u)))
    return rebuild.renamed_ranges({q: (*q.arg.axis, _COPY, number) for q in loops if q is not r})
