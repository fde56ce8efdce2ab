"""Windows along a dimension of a symbolic size that is cut: each device gets the rows beside its
own ones from its neighbours.

Where a part may have fewer rows than a window reaches, the rows of some devices further on follow.
"""

from __future__ import annotations

import dataclasses

from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import bounds, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Axes
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop, uop_dim
from uopc.passes.partition.exchanges import Exchanges
from uopc.passes.partition.layout import Value, without_cuts
from uopc.passes.partition.slots import Slot, gap

# Devices on each side that send rows, before the whole dimension is gathered: see
# docs/lab/llvm_effort.md.
MOST_HOPS = 4


class Halo:
    """Makes windows along one dimension of a value."""

    def __init__(self, exchanges: Exchanges, v: Value, d: int) -> None:
        self.exchanges, self.sizes, self.v, self.d = exchanges, exchanges.sizes, v, d
        self.axes: Axes = v.spec[d]
        self.n, self.parts = v.dims[d], exchanges.mesh.parts(v.spec[d])
        self.first = dim_uop(self.sizes.most(self.n, self.axes))

    def window(self, s: Slot) -> Value:
        """The window, with zeros outside of the dimension."""
        v, d = self.v, self.d
        place = self.sizes.place(self.axes)
        new = dim_uop(self.sizes.most(s.size, self.axes))
        begin = affine.plus(affine.mul(place, new), s.begin)
        reach = self._reach(s)
        if reach is not None and max(map(self._hops, reach)) <= MOST_HOPS:
            around = self._around(*reach)
            begin = affine.plus(affine.sub(begin, affine.mul(place, self.first)), reach[0])
        else:
            every = dataclasses.replace(v, partial=())
            target = without_cuts(v.spec, d)
            around = self.exchanges.reshard(every, target, "a window that reaches far").local
        axes = () if s.size == 1 else self.axes
        local = self._rows(around, begin if axes else s.begin, self.sizes.size(s.size, axes))
        made = v.with_axis(d, axes, local)
        return dataclasses.replace(made, dims=(*v.dims[:d], s.size, *v.dims[d + 1 :]))

    def _reach(self, s: Slot) -> tuple[int, int] | None:
        """The most rows before and after its own rows that a device needs, if these are few."""
        low, high = gap(self.n, s.size)
        times = [self.sizes.times(n, self.axes) for n in (self.n, s.size)]
        if low != high or s.size == 1 or None in times:
            return None
        # By so much more elements, at least and at most, the new parts are longer. Each part has
        # fewer than `times` elements more than the least number of equal parts would have.
        least, most, own, new = 0, 0, *[t or 1 for t in times]
        if s.size is not self.n:
            least = min(0, int(low) // self.parts) - own + 1
            most = max(0, -(-int(low) // self.parts)) + new - 1
        return max(0, -s.begin - least * (self.parts - 1)), max(0, s.begin + most * self.parts)

    def _hops(self, rows: int) -> int:
        """The number of neighbours on one side that together have `rows` rows at least."""
        least = max(1, int(bounds.bounds(self.first)[0]))
        return min(self.parts - 1, -(-rows // least))

    def _around(self, left: int, right: int) -> UOp:
        """The rows of this device, with `left` rows before and `right` rows after."""
        pieces = [self.v.local]
        if left:
            pieces.insert(0, self._beside(left, -1))
        if right:
            pieces.append(self._beside(right, 1))
        return movement.cat(*pieces, axis=self.d) if len(pieces) > 1 else self.v.local

    def _beside(self, rows: int, side: int) -> UOp:
        """`rows` rows of the devices on one side: each device sends zeros except for its own
        rows."""
        found: UOp | None = None
        for hop in range(self._hops(rows), 0, -1):
            begin = affine.scaled(self.first, hop if side < 0 else 1 - hop)
            send = self._rows(self.v.local, affine.plus(begin, -rows if side < 0 else 0), rows)
            got = self.exchanges.exchange(
                Ops.PERMUTE_RANKS, self.axes, send, "rows of a neighbour", shift=-side * hop
            )
            if found is None:
                found = got
                continue
            # The rows up to this device's ones, counted from the side on which the reader is.
            near = affine.scaled(self.first, hop)
            place = leaves.iota(rows)
            if side < 0:
                inside = alu.binary(Ops.CMPLE, affine.sub(affine.const(rows), near), place)
            else:
                inside = alu.binary(Ops.CMPLT, place, near)
            dims = shapes.shape(got)
            row = movement.reshape(inside, (rows, *[1] * (len(dims) - 1 - self.d)))
            found = fold.select(row, got, found)
        assert found is not None
        return found

    def _rows(self, x: UOp, begin: shapes.Dim, size: shapes.Dim) -> UOp:
        dims = shapes.shape(x)
        begins: list[shapes.Dim] = [0] * len(dims)
        begins[self.d] = uop_dim(begin)
        return movement.window(x, begins, (*dims[: self.d], size, *dims[self.d + 1 :]))
