"""The loop nests of a program: what each reads and writes, and how far apart, in a given order.

An order lists the axes of an array as storage has them, the innermost last. The stride of a loop in
an array depends on the order; which axis the loop counts does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uopc.forks import cached_property
from uopc.ir.builder import index_maps
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.nest.contractions import Contraction, find_contraction
from uopc.ir.nest.loops import most_of, trips

Order = tuple[int, ...]
Strides = dict[UOp, "int | None"]  # of each loop, in elements; None where it is not affine


class Access:
    """An INDEX of the array `root`, which `order` may rearrange."""

    def __init__(self, node: UOp, root: UOp) -> None:
        self.node, self.root = node, root
        self.around = ranges.ranges(node)
        self.is_plain = index_maps.ungated(node.src[1])[1] is None if len(node.src) > 1 else True
        self.steps = [_steps(index_maps.ungated(x)[0]) for x in node.src[1:]]
        self.dims = [bounds.max_dim(d) for d in shapes.shape(root)]
        self._known: dict[Order, Strides] = {}

    @property
    def is_constant(self) -> bool:
        """True for a constant, which a kernel may have in the order that it reads."""
        return self.root.op is Ops.DATA

    @cached_property
    def elements(self) -> int:
        """The elements that are read, each once, at most."""
        return min(trips(self.around), math.prod(self.dims))

    def strides(self, order: Order) -> Strides:
        """The stride of each loop that the index moves with."""
        found = self._known.get(order)
        if found is None:
            found = self._known[order] = {}
            size = 1
            for axis in reversed(order):
                for r, k in self.steps[axis].items():
                    before = found.get(r, 0)
                    found[r] = None if k is None or before is None else before + k * size
                size *= self.dims[axis]
        return found


def _steps(index: UOp) -> Strides:
    """The growth of a component of an index with each loop."""
    found: Strides = {}
    for m, k in affine.form(index)[1].items():
        for r in ranges.ranges(m):
            found[r] = k if m is r and r not in found else None
    return found


class Nest:
    """A closed store: its loops, what it reads and writes, and its sums."""

    def __init__(self, effect: UOp, known: dict[UOp, UOp]) -> None:
        """`known`: as for `before_effects`."""
        self.effect = effect
        self.nodes = _nodes_of(effect)
        self.loops = [r for r in ranges.closed_ranges(effect) if most_of(r) > 1]
        self.stores = [u for u in self.nodes if u.op is Ops.STORE]
        targets = {u.src[0] for u in self.stores}
        self.written: list[Access] = []
        self.read: list[Access] = []
        for u in self.nodes:
            if u.op is Ops.INDEX:
                access = Access(u, before_effects(u.src[0], known))
                (self.written if u in targets else self.read).append(access)
        self.reduces = [u for u in self.nodes if u.op is Ops.REDUCE]
        self.sums = _contractions(self.reduces)
        self._factors: dict[UOp, list[Access]] = {}

    @property
    def is_simple(self) -> bool:
        """True if costs are known: one store of whole elements, and no reduce in another one."""
        whole = all([len(a.steps) == len(a.dims) for a in (*self.read, *self.written)])
        return whole and len(self.stores) == 1 and not _is_nested(self.nodes)

    @property
    def roots(self) -> list[UOp]:
        """The arrays that are read, each once."""
        return list(dict.fromkeys([a.root for a in self.read]))

    def read_by(self, factor: UOp) -> list[Access]:
        """The accesses of a factor of a sum."""
        if factor not in self._factors:
            below = _nodes_of(factor)
            self._factors[factor] = [x for x in self.read if x.node in below]
        return self._factors[factor]

    def splits(self, x: Access, axis: int) -> bool:
        """True if the loops that count an axis have another part in a sum than those of the last
        axis have: they are summed, or only one factor moves with them."""
        last = len(x.dims) - 1
        return any([_parts(c, x.steps[axis]) != _parts(c, x.steps[last]) for c in self.sums])

    @cached_property
    def arithmetic(self) -> list[tuple[float, frozenset[UOp]]]:
        """The cost of the operations on elements in the same loops."""
        found: dict[frozenset[UOp], float] = {}
        for u in self.nodes:
            if u.op.is_alu and u.dtype.scalar is not dtypes.index:
                around = ranges.ranges(u)
                found[around] = found.get(around, 0.0) + u.op.cost
        return [(cost, around) for around, cost in found.items()]


def _nodes_of(root: UOp) -> dict[UOp, None]:
    """The nodes of a closed store or a value, sources first, down to the storage that it reads."""
    return walk.toposort(root, gate=lambda u: u is root or not _is_version(u))


def _is_version(u: UOp) -> bool:
    """True for storage of the program, after effects or not."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u.op.is_storage and not (u.op is Ops.BUFFER and u.arg.space != "global")


def _contractions(reduces: Iterable[UOp]) -> list[Contraction]:
    """The sums of products, if all reduces are that."""
    found = [find_contraction(u, guarded=True) for u in reduces]
    return [c for c in found if c is not None] if None not in found else []


def _parts(c: Contraction, loops: Iterable[UOp]) -> set[tuple[bool, ...]]:
    """The parts of loops in a sum: rows, columns, or what is summed."""
    return {(r in c.rows, r in c.columns, r in c.reduce.src[1:]) for r in loops}


def _is_nested(nodes: Iterable[UOp]) -> bool:
    """True if some reduce is computed from another one; nodes are given sources first."""
    above: set[UOp] = set()
    for u in nodes:
        if not above.isdisjoint(u.src):
            if u.op is Ops.REDUCE:
                return True
            above.add(u)
        elif u.op is Ops.REDUCE:
            above.add(u)
    return False
