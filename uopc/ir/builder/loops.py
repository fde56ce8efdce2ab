"""Loops for the shaped values of a kernel written by hand.

    o.store(x * 2)              for i: for j: o[i, j] = x[i, j] * 2
    o[i].store((x + y)[i])      o[i] = x[i] + y[i]
    a STAGE, space local        for j: t[j] = its value; readers read t
    a STAGE of x[i, j] over j   for j: t[j] = x[i, j]; its own loop, whoever else has a range j
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from uopc.errors import UserError
from uopc.ir.builder import alu, fold, index_maps, leaves
from uopc.ir.builder.elements import Elements, Key, Needs, valid_part
from uopc.ir.builder.index_maps import Index
from uopc.ir.builder.rebuild import rebuild, remake, renamed_ranges, rewritten
from uopc.ir.builder.turns import in_each_turn
from uopc.ir.core import bounds, dtypes, ranges, shapes, walk
from uopc.ir.core.args import BufferArg, RangeArg
from uopc.ir.core.level_of import is_shaped
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import awaited, before_effects, storage_root
from uopc.ir.core.trace import made_at, standing_for
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine
from uopc.ir.index.dims import dim_uop

_SAME = frozenset((Ops.DETACH, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD))
_ORDER = frozenset((Ops.END, Ops.GROUP, Ops.BARRIER, Ops.COMMIT))  # of effects
_NOTHING = (Ops.GROUP, Ops.NOOP)
_COPIED = ("upcast", "unroll", "lane")  # kinds of ranges whose iterations stand side by side


def with_loops(kernel: UOp) -> UOp:
    """Add a loop for each axis of a shaped value, and let each iteration read and write again; the
    kernel itself if nothing changes.

    UserError, with the line, if the target of a store is no storage, or if the stored value reads
    other elements of the target. InvalidIR for a node that is no value of a kernel.
    """
    if not is_shaped(kernel):
        return in_each_turn(kernel)
    return _HandLoops(in_each_turn(_with_own_ranges(kernel))).made()


def _with_own_ranges(kernel: UOp) -> UOp:
    """Give each STAGE its own ranges, because its readers may use the ranges that it names."""
    order = walk.order(kernel)
    if not any([u.op is Ops.STAGE and len(u.src) > 1 for u in order]):
        return kernel
    first = 1 + max([u.arg.axis[0] for u in order if u.op is Ops.RANGE])
    numbers = itertools.count()

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.STAGE:
            return None
        named = sorted(src[1:], key=lambda r: r.arg.axis)
        own = renamed_ranges({r: (first, next(numbers)) for r in named})
        return intern(u.op, u.dtype, (rebuild(src[0], own), *[own[r] for r in src[1:]]), u.arg)

    return rewritten(kernel, change)


class _HandLoops(Elements):
    """The loops of one kernel. `done` maps effects, ranges and STAGEs to their replacements."""

    def __init__(self, kernel: UOp) -> None:
        self.order = list(walk.toposort(kernel))
        axes = [u.arg.axis[0] for u in self.order if u.op is Ops.RANGE]
        self.first = 1 + max(axes, default=-1)
        super().__init__(itertools.count(self.first + 1))
        self.kernel = kernel
        self.numbers = itertools.count()
        slots = [u.arg.slot for u in self.order if u.op is Ops.BUFFER]
        self.slots = itertools.count(1 + max(slots, default=-1))
        self.done: dict[UOp, UOp] = {}
        self.copies: dict[UOp, tuple[UOp, ...]] = {}  # of a STAGE: the ranges that become copies

    def made(self) -> UOp:
        """The kernel with loops."""
        for u in self.order[:-1]:
            if u.op is Ops.STORE:
                self.done[u] = self._store(u)
            elif u.op is Ops.RANGE:
                self.done[u] = self._range(u)
            elif u.op is Ops.STAGE:
                self.done[u] = self._stage(u)
            elif u.op in _ORDER:
                self.done[u] = self._effect(u)
        roots = [e for e in self._effects(self.kernel.src) if e.src or e.op not in _NOTHING]
        return intern(Ops.SINK, dtypes.void, tuple(roots), self.kernel.arg)

    # ------------------------------------------------------------ effects
    def _effects(self, effects: Sequence[UOp]) -> list[UOp]:
        """The replacements of effects and ranges. An AFTER stands for the effects that it names."""
        found: list[UOp] = []
        for e in effects:
            found += self._named(e) if e.op is Ops.AFTER else [self.done.get(e, e)]
        return list(dict.fromkeys(found))

    def _named(self, after: UOp) -> list[UOp]:
        """The effects of nested AFTERs, without effects below other effects."""
        below: dict[UOp, None] = {}
        found: list[UOp] = []
        for e in awaited(after):
            if e.op is not Ops.RANGE and e not in below:
                found[:0] = self._effects((e,))
                walk.toposort(e, done=below)
        return found

    def _range(self, u: UOp) -> UOp:
        """A range of dtype index, for a range of any integer dtype."""
        end = _as_index(self.lower((u.src[0], (), index_maps.true())))
        return intern(Ops.RANGE, dtypes.index, (end, *self._effects(u.src[1:])), u.arg, u.tag)

    def _effect(self, u: UOp) -> UOp:
        """Rebuild an END or a bundle of effects. The END of one shaped store closes the store's
        loops too."""
        src = self._effects(u.src)
        if u.op is Ops.END:
            effects = self._effects(u.src[:1])
            body = effects[0] if len(effects) == 1 else intern(Ops.GROUP, u.dtype, tuple(effects))
            if not body.src:
                return body
            inside = body.src[1:] if u.src[0].op is Ops.STORE and body.op is Ops.END else ()
            src = [body.src[0] if inside else body, *inside, *self._effects(u.src[1:])]
        return standing_for(u, intern(u.op, u.dtype, tuple(src), u.arg, u.tag))

    def _loop_index(self, dims: shapes.Shape) -> tuple[Index, tuple[UOp, ...]]:
        """An index over a shape, and its ranges inside the user's loops: one per axis longer than
        1."""
        index: list[UOp] = []
        for d in dims:
            arg = RangeArg((self.first, next(self.numbers)))
            loop = intern(Ops.RANGE, dtypes.index, (dim_uop(d),), arg)
            index.append(affine.const(0) if d == 1 else loop)
        return tuple(index), tuple([x for x in index if x.op is Ops.RANGE])

    def _store(self, u: UOp) -> UOp:
        """The STORE of each element, inside an END of its loops."""
        target, value, *gates = u.src
        dims = shapes.shape(target)
        if 0 in dims:
            return intern(Ops.GROUP, dtypes.void)
        index, loops = self._loop_index(dims)
        address = self.lower((target, index, index_maps.true()))
        if address.op is not Ops.INDEX or not before_effects(address.src[0]).op.is_storage:
            problem = f"store: the target is {target.op!r}, expected a view of storage"
            raise UserError(problem + made_at(u))
        _, guard = index_maps.plain_index(address.src[1:], index_maps.true())
        keys: list[Key] = []
        for s in (value, *gates):
            keys.append((s, index_maps.broadcast_index(index, shapes.shape(s)), guard))
        element, *conditions = [self.lower(k) for k in keys]
        element, valid = valid_part(element)
        if loops:
            _check_own_target(u, address, element)
        place = index_maps.gated(address.src[1:], valid)
        address = intern(Ops.INDEX, address.dtype, (address.src[0], *place))
        store = intern(Ops.STORE, dtypes.void, (address, element, *conditions), u.arg, u.tag)
        standing_for(u, store)
        return standing_for(u, intern(Ops.END, dtypes.void, (store, *loops))) if loops else store

    def _stage(self, u: UOp) -> UOp:
        """A new buffer, filled where all ranges of the value are open: AFTER(BUFFER, END).
        Interleaved copies of a body get a part of the buffer each."""
        dims = shapes.shape(u)
        most = tuple([bounds.max_dim(d) for d in dims])
        if u.arg.space == "global":
            problem = "stage: the space of a STAGE in a kernel must be local or reg"
            raise UserError(problem + made_at(u))
        named = self._effects(u.src[1:])
        index, loops = self._loop_index(dims[len(named) :])
        loops = (*named, *loops)
        value = self.lower((u.src[0], index, index_maps.true()))
        inside = ranges.ranges(value).difference(loops)
        copies = sorted([r for r in inside if r.arg.kind in _COPIED], key=lambda r: r.arg.axis)
        most = (*[bounds.max_dim(r.src[0]) for r in copies], *most)
        arg = BufferArg(next(self.slots), most, u.arg.device, u.arg.space)
        buffer = intern(Ops.BUFFER, u.dtype, (), arg)
        if 0 in dims:
            return buffer
        self.copies[u] = tuple(copies)
        address = intern(Ops.INDEX, u.dtype, (buffer, *copies, *named, *index))
        effect = standing_for(u, intern(Ops.STORE, dtypes.void, (address, value)))
        if loops:
            effect = intern(Ops.END, dtypes.void, (effect, *loops))
        return intern(Ops.AFTER, u.dtype, (buffer, effect))

    # ------------------------------------------------------------ values
    def step(self, key: Key) -> UOp | Needs:
        u, index, guard = key
        op = u.op
        if op is Ops.RANGE:
            return fold.cast(self.done[u], u.dtype)
        if op is Ops.SPECIAL or op is Ops.NUMBER or op is Ops.LANES:
            return u
        if op is Ops.INDEX or op is Ops.AFTER or op.movement or op.is_storage or op is Ops.STAGE:
            root = storage_root(u)
            if root.op.is_storage or root.op is Ops.STAGE:
                return self._address(u, index, guard)
        if op in _SAME:
            return self._same(u, index, guard)
        if op is Ops.AFTER:
            return self._later(u, index, guard)
        if op is Ops.LOAD:
            return self._load(u, index, guard)
        if op is Ops.SHAPED_WMMA:
            return self._product(u, index, guard)
        if not op.is_alu and op not in _BY_ELEMENT and not op.movement:
            return self._scalar(u, guard)
        return super().step(key)

    def _same(self, u: UOp, index: Index, guard: UOp) -> Needs:
        return (yield [(u.src[0], index, guard)])[0]

    def _later(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """A value after effects."""
        value = (yield [(u.src[0], index, guard)])[0]
        return intern(Ops.AFTER, value.dtype, (value, *self._effects(u.src[1:])))

    def _product(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """A product of tiles for each element of its operands' shape."""
        keys: list[Key] = []
        for s in u.src[:2]:
            keys.append((s, index_maps.broadcast_index(index, shapes.shape(s)), guard))
        return standing_for(u, remake(u, (*(yield keys), *self._effects(u.src[2:]))))

    def _scalar(self, u: UOp, guard: UOp) -> Needs:
        """A node whose operands are scalars."""
        if any([shapes.shape(s) for s in u.src]):
            problem = f"{u.op.name}: its operands in a kernel must be scalars"
            raise UserError(problem + made_at(u))
        return standing_for(u, remake(u, tuple((yield [(s, (), guard) for s in u.src]))))

    def _load(self, u: UOp, index: Index, guard: UOp) -> Needs:
        keys = [(s, index_maps.broadcast_index(index, shapes.shape(s)), guard) for s in u.src]
        value, *gates = yield keys
        if value.op is Ops.INDEX:
            return standing_for(u, intern(Ops.LOAD, u.dtype, (value, *gates), u.arg, u.tag))
        return alu.where(gates[0], value, leaves.const(u.dtype, 0)) if gates else value

    def _address(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """An INDEX of the storage under a view, after the effects on the way."""
        effects: list[tuple[UOp, ...]] = []
        view = u
        while not u.op.is_storage and u.op is not Ops.STAGE:
            if u.op is Ops.INDEX:
                at, rest = index_maps.gather_index(u, index)
                keys: list[Key] = []
                for s in u.src[1:]:
                    keys.append((s, index_maps.broadcast_index(at, shapes.shape(s)), guard))
                given = tuple([_as_index(x) for x in (yield keys)])
                chosen, guard = index_maps.plain_index(given, guard)
                index = (*chosen, *rest)
            elif u.op is Ops.AFTER:
                effects.append(u.src[1:])
            else:
                index, more = index_maps.source_index(u, index)
                guard = guard if more is None else index_maps.both(guard, more)
            u = u.src[0]
        storage = self.done.get(u, u)
        for found in reversed(effects):
            storage = intern(Ops.AFTER, u.dtype, (storage, *self._effects(found)))
        plain = index if shapes.shape(u) else ()  # a scalar may be indexed by 0
        plain = (*self.copies.get(u, ()), *plain)
        made = intern(Ops.INDEX, u.dtype, (storage, *index_maps.gated(plain, guard)))
        return standing_for(view, made)

    def reduced(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """Reduce over axes, each of which becomes a range, and over the user's ranges."""
        inner, made = index_maps.reduce_index(u, index, self.axes)
        value = (yield [(u.src[0], inner, guard)])[0]
        value = valid_part(value)[0] if made else value
        closed = (*made, *self._effects(u.src[1:]))
        arg = type(u.arg)(u.arg.op)
        return standing_for(u, intern(Ops.REDUCE, u.dtype, (value, *closed), arg))


def _as_index(x: UOp) -> UOp:
    """An integer as dtype index."""
    return x if x.op is Ops.INVALID else fold.cast(x, dtypes.index)


_BY_ELEMENT = frozenset((
    Ops.CONST, Ops.VARIABLE, Ops.INVALID, Ops.CAST, Ops.BITCAST, Ops.REDUCE, Ops.IOTA, Ops.INDEX,
    Ops.STACK, Ops.CAT,
))  # fmt: skip


def _check_own_target(u: UOp, address: UOp, value: UOp) -> None:
    """UserError if the value reads an element of the target that another iteration writes."""
    storage = before_effects(address.src[0])
    dims = shapes.shape(storage)
    written, _ = index_maps.plain_index(address.src[1:], index_maps.true())
    for read in walk.toposort(value):
        if read.op is not Ops.INDEX or before_effects(read.src[0]) is not storage:
            continue
        index, _ = index_maps.plain_index(read.src[1:], index_maps.true())
        low, high = bounds.bounds(index_maps.flat_index(dims, index))
        first, last = bounds.bounds(index_maps.flat_index(dims, written))
        if index != written and low <= last and first <= high:
            name = storage.arg.name if storage.op is Ops.PARAM else "its target"
            raise UserError(
                f"store: the value reads elements of {name} that the store overwrites;"
                f" store it elsewhere first, or write the loops yourself{made_at(u)}"
            )
