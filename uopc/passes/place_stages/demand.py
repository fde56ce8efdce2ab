"""A read of a value while storage is chosen: where it is wanted, and how often."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds, dtypes, ranges, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.passes.analysis.op_costs import CROSSED_BYTES, MOST_CHOICES


class Demand:
    """A read of a value: for which stored value, at which index, inside which loops, and in which
    share of their iterations (a PAD or a CAT reads its source in some only); `gathered` if the
    index is read from storage. Nothing of it changes."""

    __slots__ = ("_around", "_iterations", "gathered", "index", "key", "loops", "reader", "share")

    def __init__(
        self, reader: UOp, index: Index, loops: tuple[UOp, ...], share: float = 1.0,
        gathered: bool = False,
    ) -> None:  # fmt: skip
        self.key = reader, index  # reads that are equal in these are one
        self.reader, self.index, self.loops = reader, index, loops
        self.share, self.gathered = share, gathered
        self._around: tuple[UOp, ...] | None = None
        self._iterations = -1.0

    @property
    def around(self) -> tuple[UOp, ...]:
        """The loops a value at this index is computed in: to the innermost that it uses."""
        if self._around is None:
            used = [ranges.ranges(x) for x in self.index]
            end = len(self.loops)
            while end and not any([self.loops[end - 1] in inner for inner in used]):
                end -= 1
            self._around = self.loops[:end]
        return self._around

    @property
    def evaluations(self) -> float:
        """How often an element is computed for this read, at most."""
        if self._iterations < 0:
            self._iterations = product(self.around)
        return self.share * self._iterations

    @property
    def evaluations_once_nested(self) -> float:
        """The same, once `choose_nesting` has moved the loops that the index does not use inside
        of the others, as it does where little is written."""
        target = self.reader.src[0] if self.reader.op is Ops.STORE else self.reader
        written = count(shapes.shape(target)) * target.dtype.itemsize
        if written > CROSSED_BYTES or self.in_reduce:
            return self.evaluations
        used = set().union(*[ranges.ranges(x) for x in self.index])
        return self.share * product(tuple([r for r in self.around if r in used]))

    @property
    def in_reduce(self) -> bool:
        """Whether a value at this index is computed in the loop of a reduce."""
        return any([r.arg.kind == "reduce" for r in self.around])

    def moved(self, index: Index, loops: tuple[UOp, ...], share: float = 1.0) -> Demand:
        """The read that this one makes of a source."""
        if index is self.index and loops is self.loops and share == 1.0:
            return self
        return Demand(self.reader, index, loops, self.share * share, self.gathered)

    def chosen(self, at: UOp, share: float) -> float:
        """The share of the iterations of this read that compute a part of a value, `at` saying
        which part: a loop is cut, or copied, where it reaches another. Where a quotient of loops
        says which, there are no more than so many copies; other parts are computed in each."""
        if all([m.op is Ops.RANGE for m in affine.form(at)[1]]):
            return share
        return max(share, min(1.0, 1.0 / (MOST_CHOICES * self.share)))

    def shares_nothing(self, again: bool) -> bool:
        """Whether each read computes alone what loops of the value itself would compute once: at
        gathered places, or `again` for each iteration of a reduce."""
        return self.gathered or (again and self.in_reduce)


def distinct_evaluations(demands: Sequence[Demand], elements: float) -> float:
    """How many of the evaluations no register tile can share: at each place as many as there are
    elements, at most, and at places that lie a constant apart, as those of a step and its partner
    in a sort, together. What other places have in common is not known."""
    together: dict[tuple[object, ...], dict[tuple[int, ...], float]] = {}
    for d in demands:
        forms = [affine.form(x) for x in d.index]
        places = together.setdefault((d.reader, *[frozenset(t.items()) for _, t in forms]), {})
        offsets = tuple([c for c, _ in forms])
        places[offsets] = places.get(offsets, 0.0) + d.evaluations_once_nested
    return max([sum([min(elements, n) for n in places.values()]) for places in together.values()])


def product(loops: tuple[UOp, ...]) -> float:
    """How many iterations some loops have together, at most."""
    total = 1.0
    for r in loops:
        total *= bounds.max_dim(r.src[0])
    return total


def part(s: UOp, u: UOp) -> float:
    """How much of `u` the elements of its source are."""
    return count(shapes.shape(s)) / max(1, count(shapes.shape(u)))


def count(dims: shapes.Shape) -> int:
    """How many elements a shape has, at most."""
    total = 1
    for d in dims:
        total *= bounds.max_dim(d)
    return total


def closed_index(s: UOp, index: Index) -> UOp:
    """What an index operand is worth at an index, as far as its ranges go."""
    if s.op is Ops.IOTA:
        return index[0]
    return intern(Ops.INDEX, dtypes.index, (s, *index))
