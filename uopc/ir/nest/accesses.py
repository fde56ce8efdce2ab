"""The accesses of a kernel: storage, elements and loops.

    for i < 8: for j < 64: y[64·i + j] = x[j]      strides of y: i 64, j 1; of x: j 1

An index has one flat component, or a component for each axis of its storage. The strides of an
index with several components depend on the order of the storage's axes, innermost last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from uopc.ir.builder import index_maps
from uopc.ir.core import bounds, ranges, shapes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects
from uopc.ir.core.uop import UOp
from uopc.ir.forks import cached_property
from uopc.ir.index import affine, monomials
from uopc.ir.nest.loops import trips

Order = tuple[int, ...]  # the axes of storage, the innermost last
Strides = dict[UOp, "int | None"]  # of each loop, in elements; None where it is not affine


class Access:
    """An INDEX of storage. A `user` that is a STORE writes the element; any other node reads it.

    The access moves with `loops`: the iterations of any other loop access the same element. `gate`:
    the condition for the access, as far as the index contains it.
    """

    def __init__(
        self, node: UOp, user: UOp | None = None, known: dict[UOp, UOp] | None = None
    ) -> None:
        """`known`: as for `before_effects`."""
        self.node, self.user, self._known = node, node if user is None else user, known
        self.loops = ranges.ranges(node)
        self.index: index_maps.Index = ()
        self.gate: UOp | None = None
        for s in node.src[1:]:
            component, gate = index_maps.ungated(s)
            self.index = (*self.index, component)
            if gate is not None:
                self.gate = gate if self.gate is None else index_maps.both(self.gate, gate)

    @property
    def written(self) -> bool:
        """True for an element that a STORE writes."""
        return self.user.op is Ops.STORE

    @property
    def flat(self) -> UOp:
        """The single component of a flat index."""
        (flat,) = self.index
        return flat

    @property
    def form(self) -> affine.Form:
        """The constant and the terms of a flat index."""
        return affine.form(self.flat)

    @property
    def row(self) -> tuple[UOp, DType, UOp | None, frozenset[tuple[UOp, int]]]:
        """A key that is equal for flat accesses with a constant distance and the same guard."""
        return self.node.src[0], self.node.dtype, self.gate, frozenset(self.form[1].items())

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.node.dtype.itemsize

    @cached_property
    def storage(self) -> UOp:
        """The storage, without the effects that the access comes after."""
        return before_effects(self.node.src[0], self._known)

    @cached_property
    def dims(self) -> list[int]:
        """The greatest lengths of the axes of the storage."""
        return [bounds.max_dim(d) for d in shapes.shape(self.storage)]

    @cached_property
    def steps(self) -> list[Strides]:
        """The growth of each component of the index with the loops that it depends on."""
        return [steps_of(affine.form(x)[1]) for x in self.index]

    def stride(self, r: UOp) -> int | None:
        """The elements by which a flat index moves per step of a loop; None if the step varies."""
        (steps,) = self.steps
        return steps.get(r, 0)

    def strides(self, order: Order) -> Strides:
        """The elements by which an index moves per step of each loop, in storage of this order."""
        if order not in self._strides:
            found: Strides = {}
            size = 1
            for axis in reversed(order):
                for r, k in self.steps[axis].items():
                    before = found.get(r, 0)
                    found[r] = None if k is None or before is None else before + k * size
                size *= self.dims[axis]
            self._strides[order] = found
        return self._strides[order]

    @cached_property
    def _strides(self) -> dict[Order, Strides]:
        return {}

    @cached_property
    def elements(self) -> int:
        """An upper bound of the number of different elements that all iterations access."""
        return min(trips(self.loops), math.prod(self.dims))

    def footprint(self, loops: Iterable[UOp]) -> int:
        """An upper bound of the bytes that the iterations of some loops access, by vectors or
        elements."""
        return self.node.dtype.lanes * self.itemsize * trips(self.loops.intersection(loops))


def steps_of(terms: monomials.Terms) -> Strides:
    """The growth of a sum of terms with each step of the loops that it depends on."""
    found: Strides = {}
    for m, k in terms.items():
        for r in ranges.ranges(m):
            found[r] = k if m is r and r not in found else None
    return found


def is_plain(value: UOp) -> bool:
    """True if a value is an element of an array, read without a guard."""
    return value.op is Ops.INDEX and index_maps.ungated(value.src[1])[1] is None
