"""Demand: a read of a value, with its index, its loops, and how often it computes an element."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, ranges, shapes
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.op_costs import CROSSED_BYTES, MOST_CHOICES


class Demand:
    """A read of a value for the stored value `reader`, at an index, inside loops. Immutable.

    `share`: the share of the iterations that read (a PAD or a CAT reads a source in some of them).
    `gathered`: the index is read from storage. `tile`: the time that a tile saves for the
    contraction whose operand is read, if its kernel has no other reduce. `parts`: the number of
    further parts of CATs, between the reader and this value, among which the reader chooses.
    """

    def __init__(
        self, reader: UOp, index: Index, loops: tuple[UOp, ...], share: float = 1.0,
        gathered: bool = False, tile: float = 0.0, parts: int = 0,
    ) -> None:  # fmt: skip
        self.key = reader, index  # reads with equal keys are one read
        self.reader, self.index, self.loops = reader, index, loops
        self.share, self.gathered, self.tile, self.parts = share, gathered, tile, parts
        used = [ranges.ranges(x) for x in index]
        end = len(loops)
        while end and not any([loops[end - 1] in inner for inner in used]):
            end -= 1
        # The loops in which a value at this index is computed: down to the innermost it uses.
        self.around = loops[:end]

    @property
    def evaluations(self) -> float:
        """The number of times that this read computes an element, at most."""
        return self.share * iterations(self.around)

    @property
    def evaluations_once_nested(self) -> float:
        """The same after loop interchange, which moves loops that the index does not use to the
        inside where the kernel writes little."""
        target = self.reader.src[0] if self.reader.op is Ops.STORE else self.reader
        written = most_elements(shapes.shape(target)) * target.dtype.itemsize
        if written > CROSSED_BYTES or self.in_reduce:
            return self.evaluations
        return self.evaluations_apart

    @property
    def evaluations_apart(self) -> float:
        """The evaluations that no register tile shares: a tile has the elements of loops that the
        index does not use at hand, but not those of a window that moves with its loops."""
        used = set().union(*[ranges.ranges(x) for x in self.index])
        return self.share * iterations([r for r in self.around if r in used])

    @property
    def in_reduce(self) -> bool:
        """True if a value at this index is computed inside the loop of a reduce."""
        return any([r.arg.kind == "reduce" for r in self.around])

    def moved(
        self, index: Index, loops: tuple[UOp, ...], share: float = 1.0, parts: int = 0,
        tile: float | None = None, gathered: bool = False,
    ) -> Demand:  # fmt: skip
        """The read that this one makes of a source, which is one of so many more parts."""
        kept = index is self.index and loops is self.loops and share == 1.0
        if kept and not parts and tile is None and not gathered:
            return self
        return Demand(
            self.reader, index, loops, self.share * share, self.gathered or gathered,
            self.tile if tile is None else tile, self.parts + parts,
        )  # fmt: skip

    @property
    def moves_with_loops(self) -> bool:
        """True if the index changes with a loop that is no reduce's: each row has its own value."""
        return any([r.arg.kind != "reduce" for x in self.index for r in ranges.ranges(x)])

    @property
    def is_affine(self) -> bool:
        """True if the index is a sum of multiples of loops, without quotients and gathers."""
        return all([m.op is Ops.RANGE for x in self.index for m in affine.form(x)[1]])

    @property
    def keeps_loops(self) -> bool:
        """True if all iterations read, at an index that moves with them: they are the value's."""
        return self.share == 1.0 and self.is_affine

    def computes_apart(self, at: UOp) -> bool:
        """True if elements of several parts at one place are computed apart, where `at` selects the
        part: by a quotient, or with the loop of a reduce in each part. A loop over the parts alone
        becomes copies that share their work."""
        if at.op is not Ops.RANGE:
            return at.op is not Ops.CONST
        return at.arg.kind != "reduce" and self.in_reduce

    def chosen(self, at: UOp, share: float) -> float:
        """The share of the iterations that compute one part of a value; `at` selects the part. A
        loop is cut, or copied, between parts. If a quotient of loops selects the part, there are at
        most MOST_CHOICES copies, and each copy computes the other parts as well."""
        if all([m.op is Ops.RANGE for m in affine.form(at)[1]]):
            return share
        return max(share, 1.0 / max(1.0, MOST_CHOICES * self.share))


def evaluations_apart(demands: Sequence[Demand], elements: float, cheap: bool) -> float:
    """The number of evaluations, of a value of so many elements, that no register tile or loop nest
    shares. Neighbours at one quotient are one evaluation. A kernel keeps elements that several of
    its loops read, so of its reads at different indices those of one count. Indices a constant
    apart, like those of a step and its partner in a sort, and those of several kernels add up,
    unless the value is so cheap that it is computed as fast as it is loaded."""
    total = max if cheap else sum
    readers: dict[UOp, dict[tuple[object, ...], dict[tuple[int, ...], float]]] = {}
    for d in demands:
        forms = [affine.form(x) for x in d.index]
        alike = readers.setdefault(d.reader, {})
        numbers = alike.setdefault(tuple([frozenset(t.items()) for _, t in forms]), {})
        offsets = tuple([c for c, _ in forms])
        once = d.evaluations_apart if d.is_affine else min(d.evaluations_apart, elements)
        numbers[offsets] = numbers.get(offsets, 0.0) + once
    return total([max([total(n.values()) for n in alike.values()]) for alike in readers.values()])


def iterations(loops: Collection[UOp]) -> float:
    """The number of iterations of nested loops, at most."""
    return math.prod([bounds.max_dim(r.src[0]) for r in loops], start=1.0)


def share_of(s: UOp, u: UOp) -> float:
    """The share of the elements of `u` that come from its source `s`."""
    return most_elements(shapes.shape(s)) / max(1.0, most_elements(shapes.shape(u)))
