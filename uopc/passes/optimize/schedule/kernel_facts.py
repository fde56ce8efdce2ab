"""What the heuristic reads of a kernel: its accesses, strides, reduces, and guards."""

from __future__ import annotations

import functools
from collections.abc import Container
from typing import NamedTuple

from uopc.ir.builder import index_maps as indexing
from uopc.ir.core import bounds, dtypes, ranges, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.loops import kernel_axes, parts
from uopc.passes.analysis.op_costs import expansion


class Access(NamedTuple):
    """One INDEX: by how many elements it moves per step of a range; None where it is not affine."""

    node: UOp
    flat: UOp
    written: bool
    gate: UOp | None

    def stride(self, r: UOp) -> int | None:
        step = 0
        for m, k in affine.form(self.flat)[1].items():
            if m is r:
                step = k
            elif r in ranges.ranges(m):
                return None
        return step


class KernelFacts:
    """What the heuristic looks at."""

    def __init__(self, kernel: UOp) -> None:
        self.order = list(walk.order(kernel))
        self.axes = kernel_axes(kernel)
        found = parts(kernel)
        targets = {u.src[0] for u in found.stores}
        self.accesses = [
            Access(u, flat, u in targets, gate)
            for u in self.order
            if u.op is Ops.INDEX and len(u.src) == 2
            for flat, gate in [indexing.ungated(u.src[1])]
        ]
        self.reduces, self.comparisons = found.reduces, found.comparisons
        self.outputs = [r for r in self.axes if not any(r in u.src[1:] for u in self.reduces)]

    @functools.cached_property
    def sizes(self) -> dict[frozenset[UOp], int]:
        """About how many nodes stand in the same ranges, functions spelled out."""
        found: dict[frozenset[UOp], int] = {}
        for u in self.order:
            around = ranges.ranges(u)
            found[around] = found.get(around, 0) + expansion(u)
        return found

    def inside(self, r: UOp) -> list[Access]:
        return [a for a in self.accesses if r in ranges.ranges(a.node)]

    def position(self, r: UOp) -> int:
        return self.axes.index(r)


@memo_last
def facts(kernel: UOp) -> KernelFacts:
    """What there is to know of a kernel, kept as long as it is the last one asked about."""
    return KernelFacts(kernel)


def length_of(r: UOp) -> int | None:
    end = r.src[0]
    return end.arg if end.op is Ops.CONST else None


def most_of(r: UOp) -> int:
    """How often a loop turns, at most, and 1 where it does not."""
    longest: int = bounds.bounds(r.src[0])[1]
    return max(1, longest)


def lane_cost(accesses: list[Access], r: UOp, lanes: int) -> float:
    """Memory operations per vector if r has the lanes: one for neighbours, one a lane otherwise."""
    total = 0.0
    for a in accesses:
        stride = a.stride(r)
        unit = 1.0 if stride in (0, 1) else float(lanes)
        total += unit * (2.0 if a.written else 1.0)
    return total


def element_bits(k: KernelFacts) -> int:
    """The widest element that is computed with; a kernel that only moves counts what it moves."""
    bits = [u.dtype.bits for u in k.order if u.op.is_alu and u.dtype.scalar is not dtypes.index
            and u.dtype.kind != "bool"]  # fmt: skip
    bits += [a.node.dtype.itemsize * 8 for a in k.accesses]
    return max(bits, default=32)


def fitting(lanes: int, length: int | None) -> int:
    """The greatest power of two of lanes that the loop fills at least once."""
    while length is not None and lanes > max(length, 1):
        lanes //= 2
    return lanes


def expanded_size(k: KernelFacts, inside: UOp | None = None, whole: Container[UOp] = ()) -> int:
    """About how many nodes the kernel (or what is inside one of its ranges) has once functions,
    its copies, and those of the ranges that will be `whole`, are spelled out."""
    total = 0
    for around, copies in k.sizes.items():
        if inside is not None and inside not in around:
            continue
        for r in around:
            if r.arg.kind in ("upcast", "unroll") or r in whole:
                copies *= length_of(r) or 1
        total += copies
    return total


def guard_cuts(k: KernelFacts, r: UOp) -> list[int]:
    """Where to cut a loop so that comparisons of it with constants hold in the middle part.

    A comparison Σ < c holds for every value of its other terms on one side of a bound of r: from
    there on it folds away. Where it does so for the lesser part of the loop only (a triangle), a
    cut serves nothing. One Σ = c of r alone holds in one iteration.
    """
    length = bounds.bounds(r.src[0])[0]  # at least
    cuts: set[int] = set()
    for u in k.comparisons:
        if u.op is Ops.CMPLE or r not in ranges.ranges(u):
            continue
        constant, terms = affine.form(affine.sub(*u.src))  # holds where this is negative
        step = terms.get(r, 0)
        rest = affine.build(constant, {m: f for m, f in terms.items() if m is not r})
        if not step or r in ranges.ranges(rest):
            continue
        if u.op is not Ops.CMPLT:
            if rest.op is Ops.CONST and -rest.arg % step == 0:
                cuts |= {at for at in (-rest.arg // step, -rest.arg // step + 1) if 0 < at < length}
            continue
        room = -bounds.bounds(rest)[1]  # holds where step·r < room
        at = -(-room // step) if step > 0 else (-room) // -step + 1
        folds = at if step > 0 else length - at
        varies = bounds.bounds(rest)[0] < bounds.bounds(rest)[1]
        if 0 < at < length and (2 * folds >= length or not varies):
            cuts.add(at)
    return sorted(cuts)
