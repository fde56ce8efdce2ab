"""The layout of a value from those of its operands: one function for each shape rule.

On a mesh x:2 · y:4, with `a` cut as (x, –) and `b` as (–, y), – for a dimension that is whole:

    a + b                    (x, y)       both parts are cut further, and nothing moves
    a.sum(0)                 (–), partial: the sums over x are combined by the first reader
    a.permute(1, 0)          (–, x)
    a.pad(…), a[1:]          a Window, made when it is read: rows of neighbours

Where operands disagree, the layout that moves the fewest bytes is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from uopc.errors import Unsupported, UserError
from uopc.ir.builder import alu, fold, leaves, movement, rebuild
from uopc.ir.core import bounds, dtypes, semantics, shapes
from uopc.ir.core.args import ReduceArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import base, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.ir.devices.mesh import Spec, show, used_axes
from uopc.passes.partition.exchanges import PINNED, Exchanges, masked
from uopc.passes.partition.groups import walked
from uopc.passes.partition.layout import (
    Value,
    aligned,
    changed,
    of_operand,
    without_cut,
    without_cuts,
)
from uopc.passes.partition.loops import LoopMaker
from uopc.passes.partition.readers import before_reduce
from uopc.passes.partition.reshapes import Reshapes
from uopc.passes.partition.slots import AwaitedWindow, Slot, composed, full_slots
from uopc.passes.partition.windows import WindowMaker

# Sums of sums and maxima of maxima are combined once, later.
_KEPT = {
    Ops.ADD: "add", Ops.SUB: "add", Ops.NEG: "add", Ops.MAX: "max", Ops.MIN: "min"
}  # fmt: skip


class Rules:
    """The values of a graph on one device, sources first. `effects`: of a STORE, CALL or bundle
    of them, the same of this device. `in_specs`: the layouts of PARAMs, by name, or by slot in the
    body of a loop. `taken`: the layouts that readers ask of REDUCEs."""

    def __init__(
        self, exchanges: Exchanges, readers: Counter[UOp], in_specs: Mapping[Any, Spec],
        taken: Mapping[UOp, Spec], loops: LoopMaker,
    ) -> None:  # fmt: skip
        self.loops, self.results = loops, dict[UOp, list[Value]]()  # of calls that repeat
        self.exchanges, self.mesh, self.sizes = exchanges, exchanges.mesh, exchanges.sizes
        self.windows, self.reshapes = WindowMaker(exchanges), Reshapes(exchanges)
        self.readers, self.in_specs, self.taken = readers, in_specs, taken
        self.values: dict[UOp, Value | AwaitedWindow] = {}
        self.effects: dict[UOp, UOp] = {}
        self._made: dict[AwaitedWindow, Value] = {}

    def add(self, u: UOp) -> None:
        """Partition one node. UserError or Unsupported if it cannot be."""
        self.exchanges.now = u
        if u.op is Ops.CALL and u.src[0].op is Ops.FUNCTION:
            self.results[u] = self.loops.results(self, u)
        elif u.op is Ops.GETTUPLE:
            self.values[u] = self.results[u.src[0]][u.arg]
        elif u.dtype is dtypes.void:
            self.effects[u] = self._effect(u)
        elif u.op is Ops.AFTER:
            self.values[u] = self._after(u)
        elif u.op.shape in RULES:
            self.values[u] = RULES[u.op.shape](self, u)
        else:
            raise Unsupported(f"compile: {u.op.name} has no layout on a mesh{made_at(u)}")

    def of_body(self, readers: Counter[UOp], in_specs: Mapping[int, Spec]) -> Rules:
        """The values of the body of a loop, none so far."""
        return Rules(self.exchanges, readers, in_specs, {}, self.loops)

    def value(self, u: UOp) -> Value:
        """The value of a node, made if it is only a window so far."""
        v = self.values[u]
        if isinstance(v, Value):
            return v
        if v not in self._made:
            base = self.value(v.base)
            if base.partial and (
                self.readers[v.base] > 1 or any([op != "add" for _, op in base.partial])
            ):
                base = self.exchanges.combined(base, "read through a window")
            self._made[v] = self.windows.made(base, v.slots)
        return self._made[v]

    def combined(self, u: UOp, reason: str) -> Value:
        """The value of a node, not partial."""
        return self.exchanges.combined(self.value(u), reason)

    # ------------------------------------------------------------ leaves and marks
    def _leaf(self, u: UOp) -> Value:
        key = (u.arg.name or u.arg.slot) if u.op is Ops.PARAM else None
        if key not in self.in_specs:
            return without_cut(u)
        spec, dims = self.in_specs[key], shapes.shape(u)
        return Value(leaves.with_dims(u, self.sizes.dims(dims, spec)), dims, spec)

    def _first(self, u: UOp) -> Value | AwaitedWindow:
        if u.op is Ops.SHARD:
            spec = self.mesh.spec(u.arg.spec, shapes.shape(u), "shard")
            return self.exchanges.reshard(self.value(u.src[0]), spec, PINNED)
        if u.op in (Ops.CAST, Ops.CONTIGUOUS, Ops.COPY):
            v = self.combined(u.src[0], f"operand of {u.op.name}")
            return dataclasses.replace(v, local=rebuild.remake(u, (v.local,)))
        raise Unsupported(f"compile: {u.op.name} has no layout on a mesh{made_at(u)}")

    # ------------------------------------------------------------ elementwise
    def _broadcast(self, u: UOp) -> Value:
        operands = [self.value(s) for s in u.src]
        dims = shapes.shape(u)
        kept = self._kept(u, operands, dims) or self._scaled(u, operands, dims)
        if kept is not None:
            return kept
        reason = f"operand of {u.op.name}"
        spec = self.common(operands, dims)
        src = tuple([
            self.exchanges.reshard(v, of_operand(spec, v.dims, dims), reason).local
            for v in operands
        ])  # fmt: skip
        made = rebuild.remake(u, src)
        if u.op is Ops.WHERE and fold.is_partial(made):
            return Value(made, dims, spec)
        return Value(leaves.spread(made, self.sizes.dims(dims, spec)), dims, spec)

    def _kept(self, u: UOp, operands: list[Value], dims: shapes.Shape) -> Value | None:
        """Sums of partial sums stay partial."""
        first, op = operands[0], _KEPT.get(u.op)
        if op is None or not first.partial or any([o != op for _, o in first.partial]):
            return None
        for v in operands:
            if v.partial != first.partial or v.spec != first.spec or v.dims != dims:
                return None
        local = rebuild.remake(u, tuple([v.local for v in operands]))
        return dataclasses.replace(first, local=local)

    def _scaled(self, u: UOp, operands: list[Value], dims: shapes.Shape) -> Value | None:
        """A partial sum that nobody else reads stays partial when a constant makes it smaller:
        then no part overflows that the sum does not."""
        if u.op not in (Ops.MUL, Ops.FDIV):
            return None
        for i in (0, 1) if u.op is Ops.MUL else (0,):
            v, s, by = operands[i], u.src[i], base(u.src[1 - i])
            if not v.partial or any([o != "add" for _, o in v.partial]):
                continue
            if self.readers[s] > 1 or by.op is not Ops.CONST or v.dims != dims:
                continue
            smaller = abs(by.arg) <= 1 if u.op is Ops.MUL else 1 <= abs(by.arg) < math.inf
            if not smaller and u.dtype.is_float:
                continue
            spec = of_operand(v.spec, operands[1 - i].dims, dims)
            scale = self.exchanges.reshard(operands[1 - i], spec, "").local
            src = (v.local, scale) if i == 0 else (scale, v.local)
            return dataclasses.replace(v, local=rebuild.remake(u, src))
        return None

    def common(self, operands: list[Value], dims: shapes.Shape) -> Spec:
        """The layout in which operands meet: what moves least; of equals, the most cut."""
        specs = [aligned(v.spec, v.dims, dims) for v in operands]
        candidates: dict[Spec, None] = {}
        for first in range(len(specs)):
            joined: Spec = ((),) * len(dims)
            for spec in (specs[first], *specs[:first], *specs[first + 1 :]):
                for d, axes in enumerate(spec):
                    if axes and not joined[d] and not used_axes(joined) & set(axes):
                        joined = changed(joined, d, axes)
            candidates[joined] = None
        if len(candidates) == 1:
            return next(iter(candidates))

        def moved(spec: Spec) -> tuple[float, int]:
            costs = [
                self.exchanges.cost(v, of_operand(spec, v.dims, dims)) for v in operands
            ]  # fmt: skip
            return sum(costs), math.prod(map(bounds.max_dim, self.sizes.dims(dims, spec)))

        return min(candidates, key=moved)

    def _bitcast(self, u: UOp) -> Value:
        v = self.combined(u.src[0], "operand of bitcast")
        if u.dtype.itemsize != v.local.dtype.itemsize and v.spec[-1]:
            spec = without_cuts(v.spec, len(v.spec) - 1)
            v = self.exchanges.reshard(v, spec, "bitcast to another size")
        return Value(rebuild.remake(u, (v.local,)), shapes.shape(u), v.spec)

    # ------------------------------------------------------------ movement
    def _moved(self, u: UOp) -> Value:
        """The operand of a movement op; a partial value that others read is combined first."""
        v = self.value(u.src[0])
        if v.partial and self.readers[u.src[0]] > 1:
            return self.exchanges.combined(v, f"read by {u.op.name} and others")
        return v

    def _reshape(self, u: UOp) -> Value:
        return self.reshapes.made(self._moved(u), shapes.shape(u))

    def _permute(self, u: UOp) -> Value:
        v = self._moved(u)
        local = movement.permute(v.local, u.arg)
        return Value(local, shapes.shape(u), tuple([v.spec[i] for i in u.arg]), v.partial)

    def _expand(self, u: UOp) -> Value:
        v, new = self.combined(u.src[0], "operand of expand"), shapes.shape(u)
        shift = len(new) - len(v.dims)
        own = shapes.shape(v.local)
        local = tuple([
            n if i < shift or v.dims[i - shift] == 1 else own[i - shift] for i, n in enumerate(new)
        ])  # fmt: skip
        return Value(movement.expand(v.local, local), new, (*[()] * shift, *v.spec))

    def _flip(self, u: UOp) -> Value:
        v = self._moved(u)
        for d in u.arg:
            axes = v.spec[d]
            if axes and self.sizes.is_even(v.dims[d], axes):
                got = self.exchanges.exchange(
                    Ops.PERMUTE_RANKS, axes, v.local, "flip", mirror=True
                )  # fmt: skip
                v = dataclasses.replace(v, local=got)
            elif axes:
                v = self.exchanges.reshard(v, without_cuts(v.spec, d), "flip of uneven parts")
        return dataclasses.replace(v, local=movement.flip(v.local, u.arg))

    def _window(self, u: UOp) -> Value | AwaitedWindow:
        v = self.values[u.src[0]]
        if isinstance(v, AwaitedWindow):
            made = composed(u, v.base, v.slots)
        else:
            made = composed(u, u.src[0], full_slots(v.dims))
        if made is not None and self._is_composed(made):
            return made
        return self._symbolic_window(u)

    def _is_composed(self, window: AwaitedWindow) -> bool:
        """True if windows one after the other may become one: their sizes are numbers, or all of a
        dimension is shown, or it is cut. (Of a symbol one may have no elements.)"""
        v = self.value(window.base)
        return all([
            s.is_fixed(n) or s.is_full(n) or self.mesh.parts(axes) > 1
            for s, n, axes in zip(window.slots, v.dims, v.spec)
        ])  # fmt: skip

    def _symbolic_window(self, u: UOp) -> Value:
        """A window at a computed place, or of a symbolic size that is whole."""
        v = self._moved(u)
        begins, sizes = shapes.window(u)
        inner, outer = (v.dims, sizes) if u.op is Ops.PAD else (sizes, v.dims)
        moved = [d for d in range(len(v.dims)) if begins[d] != 0 or inner[d] != outer[d]]
        if any([v.spec[d] for d in moved]):
            spec = without_cuts(v.spec, *moved)
            v = self.exchanges.reshard(v, spec, "window at a computed place")
        own = shapes.shape(v.local)
        size = tuple([own[d] if v.spec[d] else n for d, n in enumerate(sizes)])
        arg, symbolic = leaves.split_dims((*begins, *size))
        local = intern(u.op, u.dtype, (v.local, *symbolic), arg)
        return Value(local, shapes.shape(u), v.spec, v.partial)

    # ------------------------------------------------------------ several values
    def _stack(self, u: UOp) -> Value:
        parts, spec = self._joined(u, shapes.shape(u)[1:])
        return Value(rebuild.remake(u, parts), shapes.shape(u), ((), *spec))

    def _cat(self, u: UOp) -> Value:
        turned = self._turned(u)
        if turned is not None:
            return turned
        parts, spec = self._joined(u, shapes.shape(u), u.arg)
        return Value(rebuild.remake(u, parts), shapes.shape(u), spec)

    def _turned(self, u: UOp) -> Value | None:
        """cat x[k:], x[:k] along a dimension that is cut in even parts: rows of other devices."""
        found, d = [self.values[s] for s in u.src], u.arg
        first = found[0]
        if not isinstance(first, AwaitedWindow) or not all([s.is_fixed(0) for s in first.slots]):
            return None
        begin, base = first.slots[d].begin, first.base
        dims = shapes.shape(base)
        full, n = full_slots(dims), dims[d]
        wanted = [
            AwaitedWindow(base, (*full[:d], slot, *full[d + 1 :]))
            for slot in (Slot(begin, n - begin, 0, n), Slot(0, begin, 0, n))
        ]  # fmt: skip
        axes = self.value(base).spec[d]
        if found != wanted or not axes or not self.sizes.is_even(n, axes):
            return None
        return self.windows.turned(self.combined(base, "read through a window"), d, begin)

    def _joined(
        self, u: UOp, dims: shapes.Shape, axis: int = -1
    ) -> tuple[tuple[UOp, ...], Spec]:
        """The parts in one layout, which is whole along the axis on which they are joined."""
        reason = f"part of a {u.op.name}"
        values = [self.combined(s, reason) for s in u.src]
        spec = self.common(values, values[0].dims if axis < 0 else dims)
        if axis >= 0:
            spec = changed(spec, axis, ())
        return tuple([self.exchanges.reshard(v, spec, reason).local for v in values]), spec

    # ------------------------------------------------------------ reduces
    def _reduce(self, u: UOp) -> Value:
        v, op = self.value(u.src[0]), u.arg.op
        if any([o != op for _, o in v.partial]):
            v = self.exchanges.combined(v, f"operand of {op}")
        if u in self.taken and not v.partial and not used_axes(v.spec):
            v = self.exchanges.reshard(v, before_reduce(u, self.taken[u]), "")  # moves nothing
        local, partial = v.local, dict(v.partial)
        for d in u.arg.axes:
            axes = v.spec[d]
            if not axes:
                continue
            if self.sizes.has_padding(v.dims[d], axes):
                rows = self.exchanges.rows(v.dims[d], axes)
                keep = alu.binary(Ops.CMPLT, rows, v.dims[d])
                nothing = semantics.reduce_identity(op, local.dtype)
                local = masked(local, keep, d, leaves.const(local.dtype, nothing))
            partial |= dict.fromkeys(axes, op)
        spec = tuple([a for d, a in enumerate(v.spec) if d not in u.arg.axes])
        made = intern(Ops.REDUCE, u.dtype, (local,), ReduceArg(op, u.arg.axes))
        return Value(made, shapes.shape(u), spec, tuple(sorted(partial.items())))

    def _accumulate(self, u: UOp) -> Value:
        """Totals along an axis that is cut are those of the device's part, and of all before it."""
        v, op, (d,) = self.combined(u.src[0], "operand of running totals"), u.arg.op, u.arg.axes
        found, axes = intern(Ops.ACCUMULATE, u.dtype, (v.local,), u.arg), v.spec[d]
        parts, dims = self.mesh.parts(axes), shapes.shape(v.local)
        if parts > 1:
            own = intern(Ops.REDUCE, u.dtype, (v.local,), ReduceArg(op, (d,)))
            every = self.exchanges.exchange(Ops.ALLGATHER, axes, own, "totals of the parts before")
            before = alu.binary(Ops.CMPLT, leaves.iota(parts), self.sizes.place(axes))
            nothing = leaves.const(u.dtype, semantics.reduce_identity(op, u.dtype))
            every = masked(every, before, 0, nothing)
            total = intern(Ops.REDUCE, u.dtype, (every,), ReduceArg(op, (0,)))
            total = movement.reshape(total, (*dims[:d], 1, *dims[d + 1 :]))
            found = alu.binary(Op.by_name(op), movement.expand(total, dims), found)
        return Value(found, shapes.shape(u), v.spec)

    # ------------------------------------------------------------ gathers
    def _index(self, u: UOp) -> Value:
        """Axes of the table that are only walked along keep their cut; of another cut axis, what
        is elsewhere reads 0, and the parts are summed."""
        table = self.combined(u.src[0], "table of an index")
        indices = [self.combined(s, "index") for s in u.src[1:]]
        count, out = len(indices), shapes.shape(u)
        if not count:
            return table
        block = len(out) - (len(table.dims) - count)
        spec = self.common(indices, out[:block])
        local: list[UOp | None] = [None] * count
        for d in range(count):
            axes = table.spec[d]
            at = walked(u.src[1 + d], table.dims[d], block) if axes else None
            if at is None or spec[at] not in ((), axes):
                continue
            if used_axes(changed(spec, at, ())) & set(axes):
                continue
            spec = changed(spec, at, axes)
            n = shapes.shape(table.local)[d]
            local[d] = movement.reshape(leaves.iota(n), (n, *[1] * (block - 1 - at)))
        clash = [
            d for d, axes in enumerate(table.spec)
            if set(axes) & used_axes(spec) and not (d < count and local[d] is not None)
        ]  # fmt: skip
        if clash:
            reason = "table and indices are cut along one mesh axis"
            table = self.exchanges.reshard(table, without_cuts(table.spec, *clash), reason)
        partial: dict[str, str] = {}
        for d, v in enumerate(indices):
            if local[d] is None:
                own = of_operand(spec, v.dims, out[:block])
                local[d] = self._local_index(self.exchanges.reshard(v, own, "index"), table, d)
                partial |= dict.fromkeys(table.spec[d], "add")
        made = rebuild.remake(u, (table.local, *[i for i in local if i is not None]))
        layout = (*spec, *table.spec[count:])
        return Value(made, out, layout, tuple(sorted(partial.items())))

    def _local_index(self, index: Value, table: Value, d: int) -> UOp:
        """The index into this device's part of the table; INVALID for an element elsewhere."""
        axes = table.spec[d]
        if self.mesh.parts(axes) == 1:
            return index.local
        size = shapes.shape(table.local)[d]
        i = alu.binary(Ops.SUB, index.local, self.sizes.begin(table.dims[d], axes))
        inside = alu.binary(
            Ops.AND, alu.binary(Ops.CMPLE, 0, i), alu.binary(Ops.CMPLT, i, size)
        )  # fmt: skip
        return fold.select(inside, i, intern(Ops.INVALID, i.dtype))

    # ------------------------------------------------------------ effects
    def _after(self, u: UOp) -> Value:
        v = self.value(u.src[0])
        src = (v.local, *[self.effects[e] for e in u.src[1:]])
        return dataclasses.replace(v, local=intern(Ops.AFTER, u.dtype, src, u.arg, u.tag))

    def _effect(self, u: UOp) -> UOp:
        if u.op is Ops.STORE:
            return self._store(u)
        if u.op is Ops.GROUP or u.op is Ops.NOOP:
            src = tuple([self.effects.get(s) or self.combined(s, "").local for s in u.src])
            return intern(u.op, u.dtype, src, u.arg, u.tag)
        if u.op is Ops.CALL:
            return self._call(u)
        raise Unsupported(f"compile: {u.op.name} has no layout on a mesh{made_at(u)}")

    def _store(self, u: UOp) -> UOp:
        """The value comes to the layout of the target."""
        target = self.value(u.src[0])
        root = _root(u.src[0])
        cut = self.value(root).spec
        written = storage_root(target.local)
        if written.op is not root.op or used_axes(target.spec) != used_axes(cut):
            raise UserError(
                f"a store must not write a part of a dimension that is cut as {show(cut)}:"
                f" store to the whole array, or to a part of another dimension{made_at(u)}"
            )
        dims = shapes.shape(u.src[0])
        src = [target.local]
        for s in u.src[1:]:
            v = self.value(s)
            spec = of_operand(target.spec, v.dims, dims)
            src.append(self.exchanges.reshard(v, spec, "value of a store").local)
        return intern(Ops.STORE, u.dtype, tuple(src), u.arg, u.tag)

    def _call(self, u: UOp) -> UOp:
        """A kernel takes whole arrays; each device runs it."""
        args = []
        for s in u.src[1:]:
            if s.dtype is dtypes.void:
                raise Unsupported(
                    f"compile: a call with {s.op.name} is not supported on a mesh{made_at(u)}"
                )
            v = self.value(s)
            root = storage_root(s)
            if used_axes(v.spec) and root.op is Ops.PARAM and root.arg.name:
                raise UserError(
                    f"a kernel takes whole arrays, but {root.arg.name} is cut as"
                    f" {show(v.spec)}: pass .shard(uopc.P()){made_at(u)}"
                )
            args.append(self.exchanges.whole(v, "argument of a kernel").local)
        return intern(Ops.CALL, u.dtype, (u.src[0], *args), u.arg, u.tag)


def _root(view: UOp) -> UOp:
    """The storage, or the value, under a view, AFTERs and SHARDs."""
    view = storage_root(view)
    while view.op is Ops.SHARD:
        view = storage_root(view.src[0])
    return view


RULES: dict[str, Callable[[Rules, UOp], Value | AwaitedWindow]] = {
    "scalar": Rules._leaf,
    "iota": Rules._leaf,
    "storage": Rules._leaf,
    "first": Rules._first,
    "broadcast": Rules._broadcast,
    "bitcast": Rules._bitcast,
    "reshape": Rules._reshape,
    "permute": Rules._permute,
    "expand": Rules._expand,
    "flip": Rules._flip,
    "window": Rules._window,
    "stack": Rules._stack,
    "cat": Rules._cat,
    "reduce": Rules._reduce,
    "accumulate": Rules._accumulate,
    "index": Rules._index,
}
