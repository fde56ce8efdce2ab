"""Demand: a read of a value, with its index, its loops, and the number of evaluations."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, ranges, shapes
from uopc.ir.core.bounds import most_elements
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.passes.analysis.op_costs import CROSSED_BYTES, MOST_CHOICES


class Demand:
    """A read of a value for the stored value `reader`, at an index, inside loops. Immutable.

    `share`: the share of the iterations that read (a PAD or a CAT reads a source in some
    iterations). `gathered`: the index is read from storage. `tile`: the time that a tile saves if
    the value is an operand of a contraction and the kernel has no other reduce. `parts`: the number
    of further CAT parts, between reader and value, among which the reader chooses. `packed`: the
    value is part of a factor of products, which a tile computes once and uses often.
    """

    def __init__(
        self, reader: UOp, index: Index, loops: tuple[UOp, ...], share: float = 1.0,
        gathered: bool = False, tile: float = 0.0, parts: int = 0, packed: bool = False,
    ) -> None:  # fmt: skip
        self.key = reader, index  # reads with equal keys are one read
        self.reader, self.index, self.loops = reader, index, loops
        self.share, self.gathered, self.tile, self.parts = share, gathered, tile, parts
        self.packed = packed
        used = [ranges.ranges(x) for x in index]
        end = len(loops)
        while end and not any([loops[end - 1] in inner for inner in used]):
            end -= 1
        # The loops in which a value at this index is computed: down to the innermost it uses.
        self.around = loops[:end]

    @property
    def target(self) -> UOp:
        """The storage that the reader writes, or the reader itself."""
        return self.reader.src[0] if self.reader.op is Ops.STORE else self.reader

    @property
    def evaluations(self) -> float:
        """The most times that this read computes an element."""
        return self.share * iterations(self.around)

    @property
    def evaluations_once_nested(self) -> float:
        """The evaluations after loop interchange. If the kernel writes little, it moves loops that
        the index does not use to the inside."""
        written = most_elements(shapes.shape(self.target)) * self.target.dtype.itemsize
        if written > CROSSED_BYTES or self.in_reduce:
            return self.evaluations
        return self.evaluations_apart

    @property
    def evaluations_apart(self) -> float:
        """The evaluations without register reuse: loops that the index does not use are free, loops
        of a moving window count fully."""
        used = set().union(*[ranges.ranges(x) for x in self.index])
        return self.share * iterations([r for r in self.around if r in used])

    @property
    def in_reduce(self) -> bool:
        """True if a value at this index is computed inside the loop of a reduce."""
        return any([r.arg.kind == "reduce" for r in self.around])

    def moved(
        self, index: Index, loops: tuple[UOp, ...], share: float = 1.0, parts: int = 0,
        tile: float | None = None, gathered: bool = False, packed: bool | None = None,
    ) -> Demand:  # fmt: skip
        """This read, passed on to a source that has `parts` more parts of a CAT beside it."""
        kept = index is self.index and loops is self.loops and share == 1.0
        if kept and not parts and tile is None and not gathered:
            return self
        return Demand(
            self.reader, index, loops, self.share * share, self.gathered or gathered,
            self.tile if tile is None else tile, self.parts + parts,
            self.packed if packed is None else packed,
        )  # fmt: skip

    @property
    def moves_with_loops(self) -> bool:
        """True if the index changes with a loop of no reduce: each row has its own value."""
        return any([r.arg.kind != "reduce" for x in self.index for r in ranges.ranges(x)])

    @property
    def is_affine(self) -> bool:
        """True if the index is a sum of multiples of loops, with no quotient and no gather."""
        return all([m.op is Ops.RANGE for x in self.index for m in affine.form(x)[1]])

    @property
    def is_for_whole_rows(self) -> bool:
        """True if a row of the reader reads one element, which is then computed without vectors."""
        _, loops = index_maps.loop_index(shapes.shape(self.target))
        used = [ranges.ranges(x) for x in self.index]
        return bool(loops) and not self.in_reduce and not any([loops[-1] in r for r in used])

    @property
    def in_windows(self) -> bool:
        """True if neighbouring iterations of several loops may read the same element."""
        return not self.is_affine or any([len(ranges.ranges(x)) > 1 for x in self.index])

    @property
    def keeps_loops(self) -> bool:
        """True if all iterations read, at an affine index: reader and value share loops."""
        return self.share == 1.0 and self.is_affine

    @property
    def reuses(self) -> bool:
        """True if a tile computes each element once: of a factor of products that is no window."""
        return self.packed and self.keeps_loops and not self.in_windows

    def computes_apart(self, at: UOp) -> bool:
        """True if elements of several parts at one place share no work, because `at` selects the
        part by a quotient, or by an output loop around a reduce. In other loops, copies share the
        work."""
        if at.op is not Ops.RANGE:
            return at.op is not Ops.CONST
        return at.arg.kind != "reduce" and self.in_reduce

    def chosen(self, at: UOp, share: float) -> float:
        """The share of the iterations that compute one part of a value; `at` selects the part.
        Loops are cut, or copied, between parts. If a quotient of loops selects the part, there are
        at most MOST_CHOICES copies, and each copy also computes the other parts."""
        if all([m.op is Ops.RANGE for m in affine.form(at)[1]]):
            return share
        return max(share, 1.0 / max(1.0, MOST_CHOICES * self.share))


def evaluations_apart(demands: Sequence[Demand], elements: float, cheap: bool) -> float:
    """The evaluations, of a value of `elements` elements, that no register tile or loop nest
    shares. Neighbours at one quotient count once. A kernel keeps an element that several of its
    loops read, so among reads at different indices only the most frequent counts. Indices a
    constant apart (a step and its partner in a sort) add up, and so do kernels, unless the value is
    `cheap`: as fast to compute as to load."""
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
    """The most iterations of nested loops."""
    return math.prod([bounds.max_dim(r.src[0]) for r in loops], start=1.0)


def share_of(s: UOp, u: UOp) -> float:
    """The share of the elements of `u` that come from its source `s`."""
    return most_elements(shapes.shape(s)) / max(1.0, most_elements(shapes.shape(u)))
