"""Reshapes of a value that is cut: which dimensions keep their cut, and what moves where none can.

A reshape keeps the cut of a dimension if each device's elements are one run of all elements before
and after it. On 4 devices, with 8 rows cut along them:

    (8, 6) → (48,)     each device has 12 elements in a row: nothing moves
    (8, 6) → (2, 24)   a device has half a row: the rows are gathered first
"""

from __future__ import annotations

from uopc.ir.builder import movement
from uopc.ir.core import shapes
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Spec, used_axes
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.partition.exchanges import Exchanges
from uopc.passes.partition.groups import groups
from uopc.passes.partition.layout import Value, changed, without_cuts


class Reshapes:
    """Makes reshapes of values that are cut."""

    def __init__(self, exchanges: Exchanges) -> None:
        self.exchanges, self.mesh, self.sizes = exchanges, exchanges.mesh, exchanges.sizes

    def made(self, v: Value, new: shapes.Shape) -> Value:
        """The value in another shape. Dimensions that hold the same elements are one question."""
        spec: Spec = ((),) * len(new)
        if used_axes(v.spec):
            for olds, news in groups(v.dims, new):
                v, spec = self._kept_or_moved(v, new, olds, news, spec)
        local = movement.reshape(v.local, self.sizes.dims(new, spec))
        return Value(local, new, spec, v.partial)

    def _kept_or_moved(
        self, v: Value, new: shapes.Shape, olds: list[int], news: list[int], spec: Spec
    ) -> tuple[Value, Spec]:
        """Dimensions that hold the same elements: the major ones keep their cut if all divide."""
        cut = [d for d in olds if v.spec[d] and v.dims[d] != 1]  # of 1, by one device
        if not cut:
            return v, spec
        kept = self._in_order(v, olds, new, news, spec)
        if kept is not None:
            return v, kept
        axes, reason = v.spec[cut[0]], "reshape across the parts"
        wide, to = [d for d in olds if v.dims[d] != 1], [d for d in news if new[d] != 1]
        runs = [self._run([v.dims[d] for d in wide], axes), self._run([new[d] for d in to], axes)]
        if len(cut) > 1 or not to or runs[0] != runs[1]:
            return self.exchanges.reshard(v, without_cuts(v.spec, *olds), reason), spec
        if cut[0] != wide[0]:  # cut along the major dimension instead
            moved = changed(changed(v.spec, cut[0], ()), wide[0], axes)
            v = self.exchanges.reshard(v, moved, reason)
        return v, changed(spec, to[0], axes)

    def _run(self, dims: list[shapes.Dim], axes: tuple[str, ...]) -> list[UOp]:
        """The elements of the first part, and of that of this device, of an array that is cut along
        its first dimension: each is one run of elements."""
        if not dims:
            return []
        inner = dim_uop(shapes.size(tuple(dims[1:])))
        sizes = self.sizes.most(dims[0], axes), self.sizes.size(dims[0], axes)
        return [affine.mul(dim_uop(n), inner) for n in sizes]

    def _in_order(
        self, v: Value, olds: list[int], new: shapes.Shape, news: list[int], spec: Spec
    ) -> Spec | None:
        """The spec if each part is one run of elements, in the order of the mesh axes, before and
        after: all dimensions before the last one that is cut have one element in a part."""
        wide = [d for d in olds if v.dims[d] != 1]
        last = max([i for i, d in enumerate(wide) if v.spec[d]])
        for d in wide[:last]:
            if v.dims[d] != self.mesh.parts(v.spec[d]):
                return None
        if not self.sizes.is_even(v.dims[wide[last]], v.spec[wide[last]]):
            return None
        left = tuple([a for d in wide for a in v.spec[d]])
        for d in news:
            if self.sizes.is_even(new[d], left):
                return changed(spec, d, left)
            some = [k for k in range(len(left)) if new[d] == self.mesh.parts(left[:k])]
            if not some:
                return None
            spec, left = changed(spec, d, left[: some[-1]]), left[some[-1] :]
        return None
