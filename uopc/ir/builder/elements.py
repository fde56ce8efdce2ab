"""The elements of values with shapes: the scalar expression at an index.

Values are lowered by memo on (node, index, guard). Movement ops change the index only, so no
producer is substituted into a consumer, and a value read twice at one index is one node. A guard
is the condition under which the access happens (PAD, parts of a CAT).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Generator, Iterator

from uopc.errors import InvalidIR
from uopc.ir.builder import alu, fold, index_maps, leaves
from uopc.ir.builder.index_maps import Index
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.arena import memo
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import standing_for
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare
from uopc.ir.index.dims import dim_uop

# Guards that an element is read under, before all others become that it exists.
MOST_GUARDS = 4

Key = tuple["UOp", Index, "UOp"]
Needs = Generator[list[Key], list["UOp"], "UOp"]


class Elements:
    """The elements of values: a memo, and axes for the ranges of reduces.

    A subclass defines the read of storage.
    """

    def __init__(self, axes: Iterator[int] | None = None) -> None:
        self.memo: dict[Key, UOp] = {}
        self.guards: dict[tuple[UOp, Index], dict[UOp, UOp]] = {}
        self.axes = itertools.count(1) if axes is None else axes

    def lower(self, root: Key) -> UOp:
        """The scalar value of a node at an index."""
        return walk.computed(root, self.step, self.memo)

    def step(self, key: Key) -> UOp | Needs:
        """The lowered value of a node, or a generator that first yields the keys that it needs."""
        u, index, guard = key
        op = u.op
        if guard is not index_maps.true():
            weaker = self._weaker(u, index, guard)
            if weaker is not guard:
                return self._as((u, index, weaker))
        if op.is_alu or op is Ops.CAST:
            return self.elementwise(u, index, guard)
        if op is Ops.CONST or op is Ops.VARIABLE or op is Ops.INVALID:
            return u
        if op is Ops.STAGE or op.is_storage or op is Ops.AFTER:
            return self.read(u, index, guard)
        if op.movement:
            return self._move(u, index, guard)
        if op is Ops.REDUCE:
            return self.reduced(u, index, guard)
        if op is Ops.IOTA:
            return index[0]
        if op is Ops.INDEX:
            return self.gathered(u, index, guard)
        if op in (Ops.STACK, Ops.CAT):
            return self._select(u, index, guard)
        if op is not Ops.BITCAST:
            raise InvalidIR(f"{op!r} is not a value at tensor level")
        if u.dtype.itemsize != u.src[0].dtype.itemsize:
            return self._resized(u, index, guard)
        return self.elementwise(u, index, guard)

    def _weaker(self, u: UOp, index: Index, guard: UOp) -> UOp:
        """A guard for the read of an element in place of this guard.

        A chain of CATs reads an element on many paths, each under other conditions. A guard only
        keeps accesses inside of storage, and every path implies that the element exists. So after a
        few guards, all other paths share one: that the element exists.
        """
        known = self.guards.setdefault((u, index), {})
        found = known.get(guard)
        if found is None:
            found = known[guard] = guard if len(known) < MOST_GUARDS else _exists(u, index)
        return found

    def _as(self, key: Key) -> Needs:
        return (yield [key])[0]

    def elementwise(self, u: UOp, index: Index, guard: UOp) -> Needs:
        keys = [(s, index_maps.broadcast_index(index, shapes.shape(s)), guard) for s in u.src]
        src = tuple((yield keys))
        bits = u.op is Ops.BITCAST
        return standing_for(u, _bitcast(src[0], u.dtype) if bits else remake(u, src))

    def read(self, u: UOp, index: Index, guard: UOp) -> UOp | Needs:
        """The element of storage or of a STAGE, with or without effects before."""
        raise InvalidIR(f"{u.op!r} is not a value")

    def _move(self, u: UOp, index: Index, guard: UOp) -> Needs:
        mapped, more = index_maps.source_index(u, index)
        if more is None:
            return (yield [(u.src[0], mapped, guard)])[0]
        if more.op is Ops.CONST and not more.arg:
            return leaves.const(u.dtype, 0)
        inside = (yield [(u.src[0], mapped, index_maps.both(guard, more))])[0]
        return alu.where(more, inside, leaves.const(u.dtype, 0))

    def reduced(self, u: UOp, index: Index, guard: UOp) -> Needs:
        inner, ranges = index_maps.reduce_index(u, index, self.axes)
        value, _ = valid_part((yield [(u.src[0], inner, guard)])[0])
        arg = type(u.arg)(u.arg.op)
        return intern(Ops.REDUCE, u.dtype, (value, *ranges), arg)

    def gathered(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """x[i, j, …]: the indices are values; an INVALID index reads nothing.

        An index read under another guard is another index. So all guards but the first read the
        indices wherever the element exists: a chain of n gathers then reads n indices, not 2^n.
        """
        at, rest = index_maps.gather_index(u, index)
        first = next(iter(self.guards.get((u, index), ())), guard)
        there = guard if guard in (first, index_maps.true()) else _exists(u, index)
        keys = [(s, index_maps.broadcast_index(at, shapes.shape(s)), there) for s in u.src[1:]]
        chosen, valid = index_maps.plain_index(tuple((yield keys)), index_maps.true())
        inside = (yield [(u.src[0], (*chosen, *rest), index_maps.both(guard, valid))])[0]
        return alu.where(valid, inside, leaves.const(u.dtype, 0))

    def _resized(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """The element of a BITCAST to another size: a part of a source element, or several
        elements."""
        source, target = u.src[0].dtype, u.dtype
        bits = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
        a, b = bits[source.itemsize], bits[target.itemsize]
        indices = index_maps.resized_indices(u, index)
        if target.itemsize < source.itemsize:
            value = (yield [(u.src[0], indices[0], guard)])[0]
            n = affine.const(source.itemsize // target.itemsize)
            rest = affine.divmod_(index[-1], n)[1]
            shift = fold.cast(affine.mul(rest, affine.const(8 * target.itemsize)), a)
            low = alu.alu(_bitcast(value, a), Ops.SHR, shift)
            return _bitcast(fold.cast(low, b), target)
        values = yield [(u.src[0], x, guard) for x in indices]
        wide = [fold.cast(_bitcast(v, a), b) for v in values]
        shifted = [alu.alu(w, Ops.SHL, 8 * source.itemsize * i) for i, w in enumerate(wide)]
        return _bitcast(functools.reduce(lambda x, y: alu.alu(x, Ops.OR, y), shifted), target)

    def _select(self, u: UOp, index: Index, guard: UOp) -> Needs:
        """The element of a STACK or CAT: read the part that contains the index."""
        axis, parts = index_maps.cut_in_parts(u)
        at = index[axis]
        chosen: list[tuple[UOp, Key]] = []
        for s, begin, length in parts:
            moved = affine.sub(at, dim_uop(begin))
            after = compare.less(affine.const(-1), moved)
            before = compare.less(at, dim_uop(begin + length))
            inside = index_maps.both(after, before)
            if not (inside.op is Ops.CONST and not inside.arg):
                if length == 1:  # its one element is there wherever the index is
                    moved, inside = affine.const(0), index_maps.true()
                inner = () if u.op is Ops.STACK else (moved,)
                inner = (*index[:axis], *inner, *index[axis + 1 :])
                chosen.append((before, (s, inner, index_maps.both(guard, inside))))
        if not chosen:  # all parts are empty
            return leaves.const(u.dtype, 0)
        values = yield [key for _, key in chosen]
        result = values[-1]
        for (before, _), value in reversed(list(zip(chosen[:-1], values[:-1]))):
            result = alu.where(before, value, result)
        return result


@memo
def _exists(u: UOp, index: Index) -> UOp:
    """The condition that an index is inside of a value."""
    found = index_maps.true()
    for x, d in zip(index, shapes.shape(u)):
        after, before = compare.less(affine.const(-1), x), compare.less(x, dim_uop(d))
        found = index_maps.both(found, index_maps.both(after, before))
    return found


def _bitcast(value: UOp, t: DType) -> UOp:
    """The bits of a scalar as another dtype of the same size; INVALID where the value is INVALID.
    """
    plain, valid = valid_part(value)
    if plain.op is Ops.INVALID:
        return intern(Ops.INVALID, t)
    made = plain if plain.dtype is t else intern(Ops.BITCAST, t, (plain,))
    return index_maps.gated((made,), valid)[0]


def valid_part(u: UOp) -> tuple[UOp, UOp]:
    """A value without its INVALID part, and the condition under which it is valid."""
    if u.op is Ops.INVALID:
        return u, leaves.const(dtypes.bool_, False)
    if u.op is Ops.WHERE and u.src[2].op is Ops.INVALID:
        return u.src[1], u.src[0]
    return u, index_maps.true()
