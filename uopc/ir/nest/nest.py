"""A loop nest: the nodes of a kernel by kind, and the facts that follow from its loops.

    for i < 8: for j < 64: y[64·i + j] = Σ over k < 32 of a[32·i + k] · b[64·k + j]

    axes i, j, k; outputs i, j; accesses y (written), a, b; one reduce, which is a contraction
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from uopc.ir.core import dtypes, ranges, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.index import affine
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.arithmetic import expansion, is_arithmetic
from uopc.ir.nest.contractions import Contraction, find_contraction
from uopc.ir.nest.loops import by_axis, length_of


class Nest:
    """The nodes of a kernel, sources first, and the nodes of each kind."""

    def __init__(self, nodes: Iterable[UOp], known: dict[UOp, UOp] | None = None) -> None:
        """`known`: as for `before_effects`."""
        self.order, self._known = list(nodes), known
        self.stores: list[UOp] = []
        self.reduces: list[UOp] = []
        self.ends: list[UOp] = []
        self.ranges: list[UOp] = []
        self.comparisons: list[UOp] = []  # of indices
        # Of each node the loops around it; of terms their reduce's too, which they need not read.
        self.around: set[frozenset[UOp]] = set()
        self.around_vectors: set[UOp] = set()  # the loops around values that are vectors
        self._indices: list[UOp] = []
        lists = {
            Ops.STORE: self.stores, Ops.REDUCE: self.reduces, Ops.END: self.ends,
            Ops.RANGE: self.ranges, Ops.INDEX: self._indices,
        }  # fmt: skip
        enter = self.around.add
        for u in self.order:
            op = u.op
            if op in lists:
                lists[op].append(u)
            elif op in GroupOp.Comparison and u.src[0].dtype.scalar is dtypes.index:
                self.comparisons.append(u)
            enter(ranges.ranges(u))
            if op is Ops.REDUCE:
                enter(ranges.ranges(u.src[0]).union(ranges.closed_ranges(u)))
            if u.dtype.lanes > 1:
                self.around_vectors.update(ranges.ranges(u))

    # ------------------------------------------------------------ loops
    @cached_property
    def axes(self) -> list[UOp]:
        """The ranges that an Opt can name, by number: output loops first, then reduce loops."""
        found = {r: None for u in (*self.reduces, *self.ends) for r in ranges.closed_ranges(u)}
        return sorted(found, key=by_axis)

    @cached_property
    def outputs(self) -> list[UOp]:
        """The axes that no reduce closes, outer loops first."""
        summed = {r for u in self.reduces for r in u.src[1:]}
        return [r for r in self.axes if r not in summed]

    def closers(self, r: UOp) -> list[UOp]:
        """The REDUCEs and ENDs that close the range."""
        return [u for u in (*self.reduces, *self.ends) if r in u.src[1:]]

    def reduces_over(self, r: UOp) -> list[UOp]:
        """The REDUCEs that close the range."""
        return [u for u in self.reduces if r in u.src[1:]]

    # ------------------------------------------------------------ accesses
    @cached_property
    def accesses(self) -> list[Access]:
        """The accesses to storage: one per element that is read or written."""
        writers = {u.src[0]: u for u in self.stores}
        return [Access(u, writers.get(u), self._known) for u in self._indices]

    @cached_property
    def written(self) -> list[Access]:
        """The accesses by STOREs."""
        return [a for a in self.accesses if a.written]

    @cached_property
    def read(self) -> list[Access]:
        """The accesses by all other nodes."""
        return [a for a in self.accesses if not a.written]

    @cached_property
    def used(self) -> list[Access]:
        """The accesses whose elements are read, including elements that are also written."""
        sources = [u.src[1:] if u.op is Ops.STORE else u.src for u in self.order]
        found = set[UOp]().union(*sources)
        return [a for a in self.accesses if a.node in found]

    def inside(self, r: UOp) -> list[Access]:
        """The accesses that move with a loop."""
        return [a for a in self.accesses if r in a.loops]

    def written_along(self) -> list[UOp]:
        """The output loops whose neighbouring iterations write neighbours, the innermost first."""
        return [r for r in reversed(self.outputs) if any(a.stride(r) == 1 for a in self.written)]

    def neighbours_of(self, a: Access) -> int:
        """The number of neighbouring elements, from a read on, that the same iteration reads."""
        n = 1
        while (a.node.src[0], affine.plus(a.flat, n)) in self._addresses:
            n += 1
        return n

    def read_by(self, value: UOp) -> list[Access]:
        """The reads that a value depends on, without reads by its storage's effects."""
        if value not in self._reads:
            below = _down_to_storage(value)
            self._reads[value] = [a for a in self.read if a.node in below]
        return self._reads[value]

    @cached_property
    def _reads(self) -> dict[UOp, list[Access]]:
        return {}

    @cached_property
    def _addresses(self) -> set[tuple[UOp, UOp]]:
        """The storage and the index of each read."""
        return {(a.node.src[0], a.flat) for a in self.read}

    # ------------------------------------------------------------ contractions
    @cached_property
    def contraction(self) -> Contraction | None:
        """The contraction of a nest with a single, unguarded reduce; None in any other nest."""
        return find_contraction(self.reduces[0]) if len(self.reduces) == 1 else None

    @cached_property
    def contractions(self) -> list[Contraction]:
        """The contractions of all reduces, guarded or not; empty if a reduce is no contraction."""
        found = [find_contraction(u, guarded=True) for u in self.reduces]
        return [c for c in found if c is not None] if None not in found else []

    def tile_of(self, c: Contraction) -> tuple[Contraction, UOp, UOp] | None:
        """A contraction with its factors ordered so that columns write neighbours, its innermost
        row, and its innermost such column; None without a row or a column."""
        along = self.written_along()
        for p in (c, c.transposed()):
            column = next((r for r in along if r in p.columns), None)
            if p.rows and column is not None:
                return p, p.rows[-1], column
        return None

    # ------------------------------------------------------------ work
    @cached_property
    def sizes(self) -> dict[frozenset[UOp], int]:
        """By set of loops: the approximate number of nodes in these loops, with functions expanded.
        """
        found: dict[frozenset[UOp], int] = {}
        for u in self.order:
            around = ranges.ranges(u)
            found[around] = found.get(around, 0) + expansion(u)
        return found

    def expanded_size(self, inside: UOp | None = None, whole: Container[UOp] = ()) -> int:
        """The approximate number of nodes of the kernel, or inside of one range, with functions and
        copies expanded, including copies by the `whole` ranges."""
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
    def costs(self) -> dict[frozenset[UOp], float]:
        """By set of loops: the cost of the operations on elements in these loops."""
        found: dict[frozenset[UOp], float] = {}
        for u in filter(is_arithmetic, self.order):
            around = ranges.ranges(u)
            found[around] = found.get(around, 0.0) + u.op.cost
        return found

    def arithmetic(self, r: UOp) -> float:
        """The cost of the operations on elements in a loop."""
        return sum([cost for around, cost in self.costs.items() if r in around], start=0.0)

    @property
    def element_bits(self) -> int:
        """The bits of the widest element that the kernel computes with or accesses."""
        bits = [u.dtype.bits for u in self.order if is_arithmetic(u) and u.dtype.kind != "bool"]
        return max([*bits, *[a.itemsize * 8 for a in self.accesses]], default=32)


def nest_of_effect(effect: UOp, known: dict[UOp, UOp]) -> Nest:
    """The loop nest of a closed store, without the effects that its storage comes after; `known` as
    for `before_effects`."""
    return Nest(_down_to_storage(effect), known)


def _down_to_storage(root: UOp) -> dict[UOp, None]:
    """The nodes of a closed store or a value, sources first, down to the storage that it reads."""
    return walk.toposort(root, gate=lambda u: u is root or not _is_version(u))


def _is_version(u: UOp) -> bool:
    """True for storage of the program, after effects or not."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u.op.is_storage and not (u.op is Ops.BUFFER and u.arg.space != "global")


@memo_last
def nest_of(kernel: UOp) -> Nest:
    """The loop nest of a kernel; cached for the latest kernel."""
    return Nest(walk.order(kernel))
