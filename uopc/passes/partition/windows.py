"""PADs and SHRINKs of a value that is cut: composed first, made when somebody reads them.

`x.pad(1)[:-2]` is a shift by one row, so one row comes from a neighbour:

    out[j] = x[j + begin]   where low ≤ j + begin < high, else 0
"""

from __future__ import annotations

import dataclasses

from uopc.ir.builder import movement
from uopc.ir.builder.alu import binary
from uopc.ir.builder.leaves import const
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.ir.devices.mesh import Axes, part_size
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.partition.exchanges import Exchanges, masked, zero
from uopc.passes.partition.halo import Halo
from uopc.passes.partition.layout import Value, without_cuts
from uopc.passes.partition.slots import Slot


class WindowMaker:
    """Makes windows of values that are cut."""

    def __init__(self, exchanges: Exchanges) -> None:
        self.exchanges, self.mesh = exchanges, exchanges.mesh

    def made(self, v: Value, slots: tuple[Slot, ...]) -> Value:
        """Make the window of a value: neighbours' rows, zeros, and plain movement along uncut
        dimensions."""
        cut = [self.mesh.parts(axes) > 1 for axes in v.spec]
        for d, s in enumerate(slots):
            if cut[d] and not s.is_full(v.dims[d]):
                v = self._along_cut(v, d, s)
            elif s.size == 1:
                v = v.with_axis(d, (), v.local)
        local_dims = shapes.shape(v.local)
        bounds, pads = [], []
        for d, s in enumerate(slots):
            if cut[d] or s.is_full(local_dims[d]):
                bounds.append((0, local_dims[d]))
                pads.append((0, 0))
                continue
            first, last = max(s.low, s.begin), min(s.high, s.begin + s.size)
            if last <= first:  # nothing of it is seen
                bounds.append((0, 0))
                pads.append((0, s.size))
                continue
            bounds.append((first, last))
            pads.append((first - s.begin, s.begin + s.size - last))
        local = movement.pad(movement.shrink(v.local, bounds), pads)
        return dataclasses.replace(v, local=local, dims=tuple([s.size for s in slots]))

    def _along_cut(self, v: Value, d: int, s: Slot) -> Value:
        """The window along one dimension, which is cut."""
        if (s.begin, s.size) == (0, v.dims[d]):
            return self._masked(v, d, s.low, s.high)
        return self._of_cut(v, d, s) if s.is_fixed(v.dims[d]) else self._of_symbolic(v, d, s)

    def _masked(self, v: Value, d: int, low: shapes.Dim, high: shapes.Dim) -> Value:
        """Zeros outside of low … high - 1 of a dimension that is cut."""
        rows = self.exchanges.rows(v.dims[d], v.spec[d])
        keep = binary(Ops.AND, binary(Ops.CMPLE, low, rows), binary(Ops.CMPLT, rows, high))
        return dataclasses.replace(v, local=masked(v.local, keep, d, const(v.local.dtype, 0)))

    def _of_cut(self, v: Value, d: int, s: Slot) -> Value:
        axes, n = v.spec[d], v.dims[d]
        parts, sizes = self.mesh.parts(axes), self.exchanges.sizes
        size, new = sizes.size(n, axes), sizes.size(s.size, axes)
        if s.size == 1:
            return self._one_row(v, d, s.begin if s.low <= s.begin < s.high else -1)
        if new != size:
            return self._through_whole(v, d, s)
        made = self._shifted(v, d, s)
        hidden = s.low > max(0, s.begin) or s.high < min(n, s.begin + s.size)
        if hidden or n % parts:
            made = self._masked(made, d, max(s.low, 0) - s.begin, min(s.high, n) - s.begin)
        return made

    def _of_symbolic(self, v: Value, d: int, s: Slot) -> Value:
        """A window of a symbolic size, or along a dimension that has one."""
        made = Halo(self.exchanges, v, d).window(s)
        n, end = v.dims[d], s.begin + s.size
        if s.low in (0, s.begin) and s.high in (n, end):
            return made
        low, high = [affine.plus(dim_uop(bound), -s.begin) for bound in (s.low, s.high)]
        return self._masked(made, d, low, high)

    def _one_row(self, v: Value, d: int, at: int) -> Value:
        """A single row, on every device; -1: zeros."""
        dims = shapes.shape(v.local)
        if at < 0:
            row = zero(v.local, (*dims[:d], 1, *dims[d + 1 :]))
        else:
            row = self._rows(v.local, d, at % dims[d], at % dims[d] + 1)
            row = self.exchanges.exchange(
                Ops.BROADCAST, v.spec[d], row, "one row for all", root=at // dims[d]
            )
        made = v.with_axis(d, (), row)
        return dataclasses.replace(made, dims=(*v.dims[:d], 1, *v.dims[d + 1 :]))

    def _shifted(self, v: Value, d: int, s: Slot) -> Value:
        local = self._later(v, d, s.begin)
        return dataclasses.replace(v, local=local, dims=(*v.dims[:d], s.size, *v.dims[d + 1 :]))

    def turned(self, v: Value, d: int, begin: int) -> Value:
        """The rows from `begin` on, then those before, of a dimension in even parts."""
        return dataclasses.replace(v, local=self._later(v, d, begin, wrap=True))

    def _later(self, v: Value, d: int, begin: int, wrap: bool = False) -> UOp:
        """Parts of the same size, `begin` rows later: rows of the device `hop` places on, and of
        the next device."""
        size = shapes.shape(v.local)[d]
        hop, rest = divmod(begin, size)
        local = self._from(v, d, hop, rest, size, wrap)
        if rest:
            local = movement.cat(local, self._from(v, d, hop + 1, 0, rest, wrap), axis=d)
        return local

    def _from(
        self, v: Value, d: int, hop: int, begin: int, end: int, wrap: bool = False
    ) -> UOp:  # fmt: skip
        """Rows of the device `hop` places on; zeros if there is none, or with `wrap` the rows of
        the first device after the last."""
        part, count = self._rows(v.local, d, begin, end), self.mesh.parts(v.spec[d])
        shift = -hop % count if wrap else -hop
        if shift == 0:
            return part
        if abs(shift) >= count:
            return zero(part, shapes.shape(part))
        return self.exchanges.exchange(
            Ops.PERMUTE_RANKS, v.spec[d], part, "rows of a neighbour", shift=shift, wrap=wrap
        )

    def _rows(self, x: UOp, d: int, begin: int, end: int) -> UOp:
        dims = shapes.shape(x)
        return movement.shrink(x, [(begin, end) if i == d else (0, n) for i, n in enumerate(dims)])

    def _place(self, axes: Axes, size: int) -> UOp:
        """The begin of this device's part, of parts of one size."""
        return affine.scaled(self.exchanges.sizes.place(axes), size)

    def _through_whole(self, v: Value, d: int, s: Slot) -> Value:
        """Parts of another size: rows of one neighbour on each side if these suffice, else the
        entire dimension."""
        axes, n = v.spec[d], v.dims[d]
        parts = self.mesh.parts(axes)
        size, new = part_size(n, parts), part_size(s.size, parts)
        step = new - size  # a device's window begins so much later in its own part than the last
        low = min(0, s.begin, s.begin + step * (parts - 1))
        high = max(0, s.begin + step, s.begin + step * parts)
        if -low <= size and high <= size and n % parts == 0:
            pieces = [self._from(v, d, -1, size + low, size)] if low else []
            pieces.append(v.local)
            if high:
                pieces.append(self._from(v, d, 1, 0, high))
            around = movement.cat(*pieces, axis=d) if len(pieces) > 1 else v.local
            begin = affine.plus(self._place(axes, step), s.begin - low)
        else:
            every = self.exchanges.reshard(
                dataclasses.replace(v, partial=()), without_cuts(v.spec, d),
                "a window that reaches far",
            )  # fmt: skip
            before, after = max(0, -s.begin), max(0, s.begin + new * parts - n)
            widths = [(before, after) if i == d else (0, 0) for i in range(len(v.dims))]
            around = movement.pad(every.local, widths)
            begin = affine.plus(self._place(axes, new), s.begin + before)
        dims = shapes.shape(around)
        begins: list[shapes.Dim] = [0] * len(dims)
        begins[d] = begin
        local = movement.window(around, begins, (*dims[:d], new, *dims[d + 1 :]))
        made = dataclasses.replace(v, local=local, dims=(*v.dims[:d], s.size, *v.dims[d + 1 :]))
        if s.low > max(0, s.begin) or s.high < min(n, s.begin + s.size):
            made = self._masked(made, d, s.low - s.begin, s.high - s.begin)
        return made
