"""The facts of a kernel that a schedule reads: accesses, strides, lengths, costs."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import NamedTuple

from uopc.forks import cached_property
from uopc.ir.builder import index_maps
from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, values
from uopc.passes.analysis import thresholds
from uopc.passes.analysis.loops import kernel_axes, kernel_nodes
from uopc.passes.analysis.op_costs import LOAD, STORE, expansion


class Access(NamedTuple):
    """One INDEX of storage, `written` where a STORE uses it."""

    node: UOp
    flat: UOp
    written: bool
    gate: UOp | None

    def stride(self, r: UOp) -> int | None:
        """The elements it moves by per step of a range; None where it is not affine."""
        terms = affine.form(self.flat)[1]
        nonlinear = any(m is not r and r in ranges.ranges(m) for m in terms)
        return None if nonlinear else terms.get(r, 0)


class KernelFacts:
    """The nodes of a kernel, its ranges, accesses and reduces, in order."""

    def __init__(self, kernel: UOp) -> None:
        self.order = list(walk.order(kernel))
        self.axes = kernel_axes(kernel)
        found = kernel_nodes(kernel)
        targets = {u.src[0] for u in found.stores}
        self.accesses = [
            Access(u, flat, u in targets, gate)
            for u in self.order
            if u.op is Ops.INDEX and len(u.src) == 2
            for flat, gate in [index_maps.ungated(u.src[1])]
        ]
        self.written = [a for a in self.accesses if a.written]
        self.read = [a for a in self.accesses if not a.written]
        self.reduces, self.comparisons = found.reduces, found.comparisons
        self.outputs = [r for r in self.axes if not any(r in u.src[1:] for u in self.reduces)]

    @cached_property
    def sizes(self) -> dict[frozenset[UOp], int]:
        """The approximate number of nodes in the same ranges, functions expanded."""
        found: dict[frozenset[UOp], int] = {}
        for u in self.order:
            around = ranges.ranges(u)
            found[around] = found.get(around, 0) + expansion(u)
        return found

    def expanded_size(self, inside: UOp | None = None, whole: Container[UOp] = ()) -> int:
        """The approximate number of nodes of the kernel, or inside of one range, with functions
        and copies expanded, including the copies of `whole` ranges."""
        total = 0
        for around, copies in self.sizes.items():
            if inside is not None and inside not in around:
                continue
            for r in around:
                if r.arg.kind in ("upcast", "unroll") or r in whole:
                    copies *= length_of(r) or 1
            total += copies
        return total

    @cached_property
    def _arithmetic(self) -> dict[UOp, float]:
        found: dict[UOp, float] = {}
        for u in filter(is_arithmetic, self.order):
            for r in ranges.ranges(u):
                found[r] = found.get(r, 0.0) + u.op.cost
        return found

    def arithmetic(self, r: UOp) -> float:
        """The cost of the operations on elements in a loop."""
        return self._arithmetic.get(r, 0.0)

    def is_dear(self, r: UOp) -> bool:
        """True if the arithmetic in a loop costs more than storing its result and loading it."""
        return self.arithmetic(r) > LOAD + STORE

    @property
    def element_bits(self) -> int:
        """The bits of the widest element that the kernel computes with or accesses."""
        bits = [u.dtype.bits for u in self.order if is_arithmetic(u) and u.dtype.kind != "bool"]
        return max([*bits, *[a.node.dtype.itemsize * 8 for a in self.accesses]], default=32)

    def inside(self, r: UOp) -> list[Access]:
        return [a for a in self.accesses if r in ranges.ranges(a.node)]

    @cached_property
    def _reads(self) -> set[tuple[UOp, UOp]]:
        """The storage and the index of each read."""
        return {(a.node.src[0], a.flat) for a in self.read}

    def side_by_side(self, a: Access) -> int:
        """The elements that an iteration reads one beside the other from a read on: a word's."""
        n = 1
        while (a.node.src[0], affine.plus(a.flat, n)) in self._reads:
            n += 1
        return n

    def written_along(self) -> list[UOp]:
        """The output loops whose neighbouring iterations write neighbours, the innermost first."""
        return [r for r in reversed(self.outputs) if any(a.stride(r) == 1 for a in self.written)]


@memo_last
def facts(kernel: UOp) -> KernelFacts:
    """The facts of a kernel; those of the latest kernel are cached."""
    return KernelFacts(kernel)


def length_of(r: UOp) -> int | None:
    """The number of iterations of a loop where it runs at all; None where it is not known."""
    return values.length(r.src[0])


def longest_of(r: UOp) -> int | None:
    """`length_of`; of a thread's chunk, which has one of two lengths, the longer one."""
    return values.greatest(r.src[0])


def shorter_of(r: UOp) -> int:
    """The shorter one of the two lengths of a thread's chunk; 0 for any other loop."""
    found = values.cases(r.src[0])
    return 0 if found is None else min(found)


def lane_cost(accesses: list[Access], r: UOp, lanes: int) -> float:
    """Memory operations per vector of r: 1 for neighbours, else 1 per lane; twice for a store."""
    return float(sum((1 + a.written) * (1 if a.stride(r) in (0, 1) else lanes) for a in accesses))


def is_ordered(storage: UOp) -> bool:
    """True for an array whose order the program may choose."""
    return storage.op is Ops.PARAM and storage.arg.order == ()


def is_plain(value: UOp) -> bool:
    """True if a value is an element of an array, read without a guard."""
    return value.op is Ops.INDEX and index_maps.ungated(value.src[1])[1] is None


def is_far_constant(value: UOp) -> bool:
    """True for an element, read without a guard, of an array whose order the program may choose and
    that takes half of the nearest cache or more."""
    if not is_plain(value) or not is_ordered(value.src[0]):
        return False
    size: int = math.prod(value.src[0].arg.dims) * value.dtype.itemsize
    return size >= thresholds.FAR_CONSTANT


def is_arithmetic(u: UOp) -> bool:
    """True if a node computes with elements, not with indices."""
    return u.op.is_alu and u.dtype.scalar is not dtypes.index
