"""Exchanges between devices, and how a value comes from one layout to another by the cheapest.

    layout of the value              wanted                       what moves
    whole                            cut                          nothing: each takes its part
    sums of parts, to be added up    whole                        ALLREDUCE
    sums of parts, to be added up    cut along the same axes      REDUCE_SCATTER
    cut along dimension d            cut along dimension e        ALLTOALL
    cut                              whole, or cut less           ALLGATHER

`reshard` takes these steps in the order combine, cut, move, gather, cut: what is smaller by then
moves less.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from uopc.errors import UserError
from uopc.ir.builder import alu, fold, leaves, movement
from uopc.ir.core import bounds, shapes
from uopc.ir.core.args import ExchangeArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.devices import traffic
from uopc.ir.devices.mesh import Axes, Spec, show, used_axes
from uopc.ir.devices.part_sizes import PartSizes
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop
from uopc.passes.partition.layout import Value, changed, without_cuts
from uopc.passes.partition.ordered import ordered

# With `explicit`, what the user asked for by a spec may move as much as it needs.
PINNED, OUTPUT = "pinned", "output"
COSTLY = frozenset((Ops.ALLGATHER, Ops.ALLTOALL))


class Exchanges:
    """Makes the exchanges of one graph. `now` is the user's node that is partitioned."""

    def __init__(self, sizes: PartSizes, explicit: bool) -> None:
        self.sizes, self.mesh, self.explicit = sizes, sizes.mesh, explicit
        self.now: UOp | None = None
        self._resharded: dict[tuple[Value, Spec], Value] = {}

    # ------------------------------------------------------------ places
    def rows(self, n: shapes.Dim, axes: Axes) -> UOp:
        """The places in a whole dimension of the elements that this device has of it."""
        own = leaves.iota(self.sizes.size(n, axes))
        return alu.binary(Ops.ADD, own, self.sizes.begin(n, axes))

    # ------------------------------------------------------------ exchanges
    def exchange(self, row: Op, axes: Axes, send: UOp, reason: str, **fields: Any) -> UOp:
        """The value that this device gets. UserError if it moves much, and `explicit` asks for
        that."""
        arg = ExchangeArg(axes, self.mesh.parts(axes), reason=reason, **fields)
        if arg.parts == 1:
            return _alone(row, send, arg)
        made = intern(row, send.dtype, (send,), arg)
        if made.origin is None and self.now is not None:
            set_origin(made, self.now.origin)
        if self.explicit and row in COSTLY and reason not in (PINNED, OUTPUT):
            line = "" if self.now is None else made_at(self.now)
            raise UserError(
                f"explicit: {reason}: {row.name} over {', '.join(axes)} moves {traffic.moved(made)}"
                f" bytes a device: use .shard() on an operand{line}"
            )
        return made

    def reshard(self, v: Value, spec: Spec, reason: str) -> Value:
        """The value in another layout, combined."""
        if v.spec == spec and not v.partial:
            return v
        key = v, spec
        found = self._resharded.get(key)
        if found is None:
            found = self._resharded[key] = self._reshard(v, spec, reason)
        return found

    def combined(self, v: Value, reason: str) -> Value:
        """The value where it is, combined."""
        return self.reshard(v, v.spec, reason)

    def whole(self, v: Value, reason: str) -> Value:
        """The whole value on every device."""
        return self.reshard(v, without_cuts(v.spec), reason)

    def _reshard(self, v: Value, spec: Spec, reason: str) -> Value:
        for op in sorted({op for _, op in v.partial}):
            axes = self._combined_over(v, op)
            v = self._combine(v, axes, op, spec, reason)
        v = self._cut(v, spec)
        v = self._moved_cuts(v, spec, reason)
        for d, (have, want) in enumerate(zip(v.spec, spec)):
            if have and have != want:
                keep = have[: len(want)] == want and self._nests(v.dims[d], want, have)
                v = self._gathered(v, d, want if keep else (), reason)
        v = self._cut(v, spec)
        if v.spec != spec:
            raise UserError(f"no exchange turns {show(v.spec)} into {show(spec)}")
        return v

    def _combined_over(self, v: Value, op: str) -> Axes:
        """The mesh axes over which a value is still to be combined by an op."""
        return tuple([a for a in self.mesh.axis_names if (a, op) in v.partial])

    def _cut(self, v: Value, spec: Spec) -> Value:
        """Cut a value that is complete on every device. Moves no bytes."""
        for d, (have, want) in enumerate(zip(v.spec, spec)):
            more = want[len(have) :]
            if not more or want[: len(have)] != have:
                continue
            if used_axes(changed(v.spec, d, ())) & set(more):
                continue
            if not self._nests(v.dims[d], have, want):
                continue
            dims, size = shapes.shape(v.local), self.sizes.size(v.dims[d], want)
            begins: list[shapes.Dim] = [0] * len(dims)
            begins[d] = self.sizes.begin(v.dims[d], want)
            if have:
                begins[d] = affine.mul(self.sizes.place(more), dim_uop(size))
            sizes = (*dims[:d], size, *dims[d + 1 :])
            v = v.with_axis(d, want, movement.window(v.local, begins, sizes))
        return v

    def _combine(self, v: Value, axes: Axes, op: str, spec: Spec, reason: str) -> Value:
        """Parts of a result combined: scattered where the target is cut along these axes."""
        rest = tuple([x for x in v.partial if x[0] not in axes])
        parts = self.mesh.parts(axes)
        if parts == 1:
            return dataclasses.replace(v, partial=rest)
        send, op, decoded = ordered(v.local, op)
        for d, (have, want) in enumerate(zip(v.spec, spec)):
            if want[len(have) :] != axes or want[: len(have)] != have:
                continue
            if not self._nests(v.dims[d], have, want):
                continue
            packed = split_first(send, d, parts, self.sizes.most(v.dims[d], want))
            got = decoded(self.exchange(Ops.REDUCE_SCATTER, axes, packed, reason, op=op))
            got = first(got, d, self.sizes.size(v.dims[d], want))
            return dataclasses.replace(v.with_axis(d, want, got), partial=rest)
        got = decoded(self.exchange(Ops.ALLREDUCE, axes, send, reason, op=op))
        return dataclasses.replace(v, local=got, partial=rest)

    def _gathered(self, v: Value, d: int, keep: Axes, reason: str) -> Value:
        """Gather dimension d along all axes but `keep`: each device also gets the parts of the
        devices along these axes."""
        axes = v.spec[d][len(keep) :]
        send = filled(v.local, d, self.sizes.most(v.dims[d], v.spec[d]))
        got = self.exchange(Ops.ALLGATHER, axes, send, reason)
        return v.with_axis(d, keep, join_first(got, d, self.sizes.size(v.dims[d], keep)))

    def _nests(self, n: shapes.Dim, few: Axes, more: Axes) -> bool:
        """True if parts of a dimension along some axes are parts of those along fewer."""
        return not few or (self.sizes.is_even(n, few) and self.sizes.is_even(n, more))

    def _moved_cuts(self, v: Value, spec: Spec, reason: str) -> Value:
        """Cuts that move from one dimension to another."""
        for d, (have, want) in enumerate(zip(v.spec, spec)):
            if not have or want:
                continue
            for e, (there, wanted) in enumerate(zip(v.spec, spec)):
                if e == d or there or wanted != have:
                    continue
                send = filled(v.local, d, self.sizes.most(v.dims[d], have))
                size = self.sizes.most(v.dims[e], have)
                send = split_first(send, e, self.mesh.parts(have), size)
                got = self.exchange(Ops.ALLTOALL, have, send, reason)
                local = join_first(got, d, v.dims[d])
                local = first(local, e, self.sizes.size(v.dims[e], have))
                v = v.with_axis(d, (), local).with_axis(e, have, local)
                break
        return v

    def cost(self, v: Value, spec: Spec) -> float:
        """The bytes that each device sends to bring a value to a layout."""
        own = map(bounds.max_dim, self.sizes.dims(v.dims, v.spec))
        nbytes: float = math.prod(own) * v.local.dtype.itemsize
        total, have = 0.0, v.spec
        for op in {op for _, op in v.partial}:
            axes = self._combined_over(v, op)
            parts = self.mesh.parts(axes)
            scattered = any([w[len(h) :] == axes for h, w in zip(have, spec)])
            total += nbytes * (parts - 1) / parts * (1 if scattered else 2)
            nbytes = nbytes / parts if scattered else nbytes
        for d, want in enumerate(spec):
            if not have[d] or want[: len(have[d])] == have[d]:
                continue
            parts = self.mesh.parts(have[d])
            to = [e for e in range(len(spec)) if e != d and not have[e] and spec[e] == have[d]]
            if to and not want:
                total += nbytes * (parts - 1) / parts
            else:
                total += nbytes * (parts - 1)
                nbytes *= parts
        return total


def _alone(row: Op, send: UOp, arg: ExchangeArg) -> UOp:
    """The result of an exchange with nobody."""
    dims = shapes.shape(send)
    if row is Ops.ALLGATHER:
        return movement.reshape(send, (1, *dims))
    return zero(send, dims) if row is Ops.PERMUTE_RANKS and traffic.source(arg, 0) is None else send


def split_first(x: UOp, d: int, parts: int, size: shapes.Dim) -> UOp:
    """Dimension d in parts of one size (zeros fill the last one): the new first dimension."""
    dims = shapes.shape(x)
    x = filled(x, d, parts * size)
    x = movement.reshape(x, (*dims[:d], parts, size, *dims[d + 1 :]))
    return movement.permute(x, (d, *[i for i in range(len(dims) + 1) if i != d]))


def join_first(x: UOp, d: int, n: Any) -> UOp:
    """The parts of the first dimension one after the other along d, which has n elements."""
    parts, *rest = shapes.shape(x)
    order = [*range(1, d + 1), 0, *range(d + 1, len(rest) + 1)]
    joined = (*rest[:d], parts * rest[d], *rest[d + 1 :])
    return first(movement.reshape(movement.permute(x, order), joined), d, n)


def filled(x: UOp, d: int, n: Any) -> UOp:
    """Zeros up to n elements along d."""
    dims = shapes.shape(x)
    if dims[d] == n:
        return x
    return movement.pad(x, [(0, n - dims[d] if i == d else 0) for i in range(len(dims))])


def first(x: UOp, d: int, n: Any) -> UOp:
    """The first n elements along d."""
    dims = shapes.shape(x)
    return movement.window(x, [0] * len(dims), (*dims[:d], n, *dims[d + 1 :]))


def zero(x: UOp, dims: shapes.Shape) -> UOp:
    """Zeros of the dtype of x."""
    return leaves.full(leaves.const(x.dtype, 0), dims)


def masked(x: UOp, keep: UOp, d: int, other: UOp) -> UOp:
    """x where a row of bools along dimension d holds, else a scalar."""
    dims = shapes.shape(x)
    row = movement.reshape(keep, (dims[d], *[1] * (len(dims) - 1 - d)))
    return fold.select(row, x, leaves.full(other, dims))
