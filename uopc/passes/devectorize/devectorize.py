"""Make memory accesses explicit: neighbours fold into one vector load or store.

Before (vector)                              After (vector)
  %1 = param "" slot=0 : f32[64]               %1 = param "" slot=0 : f32[64]
  %2 = range 8 axis=0.0.0 kind=loop : index    %2 = range 8 axis=0.0.0 kind=loop : index
  %3 = mul %2, 8 : index                       %3 = mul %2, 8 : index
  %4 = lanes count=8 : indexx8                 %4 = param "" slot=1 : f32[64]
  %5 = add %3, %4 : indexx8                    %5 = load %4[%3]:f32x8 : f32x8
  %6 = param "" slot=1 : f32[64]               %6 = param "" slot=2 : f32[1]
  %7 = param "" slot=2 : f32[1]                %7 = load %6[0] : f32
  %8 = add %6[%5]:f32x8, %7[0] : f32x8         %8 = add %5, %7 : f32x8
  %9 = store %1[%5]:f32x8, %8                  %9 = store %1[%3]:f32x8, %8
  %10 = end %9, %2                             %10 = end %9, %2
  sink %10 name=E_64 opts=(VECTOR(0, 8),)      sink %10 name=E_64 opts=(VECTOR(0, 8),)

The flat index as a sum says what its lanes do, and that decides the accesses of 8 lanes:

    i + lane      one vector                   i                             one scalar, for all
    i - lane      one vector, reversed         i + 9·(lane // 4) + lane % 4  two vectors of 4
    i + 2·lane    two vectors and a shuffle    i + t[lane]                   8 scalars

A guard becomes the access's gate: a mask on a CPU, a branch on a GPU. Indices and gates are taken
apart lane by lane where that is simpler, see `lane`.
"""

from __future__ import annotations

from uopc.ir.builder import fold, index_maps, leaves, rebuild
from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import awaited
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.index import affine
from uopc.passes.analysis.lanes import MOST_STEP, lane_step, splat
from uopc.passes.contract import Context
from uopc.passes.devectorize.partial_stores import store_chunks
from uopc.passes.devectorize.transpose import columns, transposed
from uopc.passes.devectorize.words import with_words
from uopc.target import Target

_MASKED_BITS = 32  # machines without AVX-512 have no masks for elements narrower than this


class _AccessFolder:
    """Rewrites of accesses; lanes of index expressions are taken apart by memo."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.branches = target.gpu is not None  # a gate is a branch, not a mask
        self.lanes: dict[tuple[UOp, int], UOp] = {}
        self.whole: set[UOp] = set()  # vectors that are no simpler lane by lane
        self.transposed: dict[UOp, UOp] = {}  # INDEX -> its value, loaded as part of a block

    def change(self, u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.STORE:
            return self.store(u, src)
        if u.op is Ops.LOAD:
            address, *gate = src
            if not gate:
                return address
            index = index_maps.gated(address.src[1:], *gate)  # `load` makes it a LOAD again
            return intern(Ops.INDEX, address.dtype, (address.src[0], *index))
        if u.op is Ops.TILE_LOAD or (u.op is Ops.INDEX and src[1].op is not Ops.INDEX):
            return None
        if any([s.op is Ops.INDEX for s in src]):
            loaded = tuple([self.load(s) if s.op is Ops.INDEX else s for s in src])
            return loaded[1] if _is_gate(u, loaded) else rebuild.remake(u, loaded)
        if u.op in _WHOLE and src[0].dtype.lanes < u.src[0].dtype.lanes:
            # Its value folded to one number, which is that of each lane.
            return intern(u.op, u.dtype, (splat(src[0], u.src[0].dtype.lanes), *src[1:]), u.arg)
        return src[1] if u.op is Ops.WHERE and _is_gate(u, src) else None

    # ------------------------------------------------------------ loads
    def load(self, u: UOp) -> UOp:
        """The value of an INDEX, as LOADs."""
        if u in self.transposed:
            return self.transposed[u]
        flat, gate = _flat(u)
        lanes = u.dtype.lanes
        if gate is not None and gate.op is Ops.CONST and gate.arg is False:
            return leaves.const(u.dtype.scalar, (0,) * lanes if lanes > 1 else 0)
        alike = gate is None or gate.dtype.lanes == 1  # in all lanes
        step = lane_step(flat) if alike or not self.branches else None
        if lanes == 1 or (step == 0 and alike):
            return _load(u, u.dtype.scalar, flat, gate)
        if step == 1:
            return self.neighbours(u, self.lane(flat, 0), gate)
        if step == -1:
            gate = None if gate is None else _reversed(gate, lanes)
            return _reversed(self.neighbours(u, self.lane(flat, lanes - 1), gate), lanes)
        wide = not self.branches and (alike or u.dtype.bits >= _MASKED_BITS)
        if wide and step and 2 <= step <= MOST_STEP and 2 * len(_covering(lanes, step)) <= lanes:
            return self.strided(u, flat, gate, step)
        if gate is not None and not self.branches and self.lane(gate, 0).op is Ops.LANE:
            return self.gathered(u, flat, gate)
        n, accesses = self.chunks(flat, gate, lanes)
        dtype = u.dtype.scalar.vec(n)
        return intern(Ops.STACK, u.dtype, tuple([_load(u, dtype, *access) for access in accesses]))

    def neighbours(self, u: UOp, first: UOp, gate: UOp | None) -> UOp:
        """As many elements as `u` has lanes, from `first` on. A masked vector is read one register
        at a time: LLVM aborts on a wider one whose upper half is masked off."""
        lanes, register = u.dtype.lanes, self.target.lanes(u.dtype.bits)
        if gate is None or self.branches:
            return _load(u, u.dtype, first, gate)
        if gate.dtype.lanes == 1 or lanes <= register or lanes % register:
            return self.masked(u, u.dtype, first, gate)
        chunks = [
            self.masked(u, u.dtype.scalar.vec(register), affine.plus(first, i),
                        self.slice(gate, i, register))
            for i in range(0, lanes, register)
        ]  # fmt: skip
        return intern(Ops.STACK, u.dtype, tuple(chunks))

    def masked(self, u: UOp, dtype: DType, first: UOp, gate: UOp) -> UOp:
        """A vector under a mask. A vector outside of its storage reads no lane; it begins inside
        instead: masked lanes on an unmapped page do not fault, but are as slow as a fault."""
        first = _first_inside(first, dtype.lanes, shapes.size(shapes.shape(u.src[0])))
        return _load(u, dtype, first, gate)

    def strided(self, u: UOp, flat: UOp, gate: UOp | None, step: int) -> UOp:
        """Read every `step`-th element: load vectors of neighbours, then shuffle. The last vector
        ends with the last element, so no load reads outside of the lanes' span."""
        lanes, first = u.dtype.lanes, self.lane(flat, 0)
        begins = _covering(lanes, step)
        loads = [
            self.neighbours(u, affine.plus(first, b), _spread(gate, lanes, b, step)) for b in begins
        ]
        found, reach = loads[0], lanes
        for n in range(1, len(begins)):
            old = range(lanes) if n > 1 else range(0, lanes * step, step)  # the lanes in `found`
            new = range(lanes - begins[n], lanes * (step + 1), step)
            order = [
                old[i] if i * step < reach else min(new[i], 2 * lanes - 1) for i in range(lanes)
            ]
            found = intern(Ops.SHUFFLE, u.dtype, (found, loads[n]), tuple(order))
            reach = begins[n] + lanes
        return found

    def gathered(self, u: UOp, flat: UOp, gate: UOp) -> UOp:
        """Elements at computed indices: where the gate is false, some element is read and dropped.
        The gate stays one vector, not one condition per load."""
        scalar, lanes, size = u.dtype.scalar, u.dtype.lanes, shapes.size(shapes.shape(u.src[0]))
        narrow = flat.op is Ops.CAST and flat.src[0].dtype.scalar is dtypes.int32
        if narrow and isinstance(size, int) and 0 < size <= 1 << 31:
            # As unsigned numbers, indices outside are too great. The last element takes their
            # place: no mask is needed, and a lane is an address without a conversion.
            unsigned = flat.src[0].bitcast(dtypes.uint32)
            last = intern(Ops.CONST, dtypes.uint32, (), size - 1)
            index = intern(Ops.MIN, dtypes.uint32.vec(flat.dtype.lanes), (unsigned, last))
        else:
            index = gate.where(splat(flat, lanes), affine.const(0))
        flats = [fold.cast(self.lane(index, i), dtypes.index) for i in range(lanes)]
        read = intern(Ops.STACK, u.dtype, tuple([_load(u, scalar, i, None) for i in flats]))
        chosen: UOp = gate.where(read, leaves.const(scalar, 0))
        return chosen

    def row(self, u: UOp, dtype: DType, i: int) -> UOp:
        """The neighbours in memory from lane i of a vector on."""
        flat, gate = index_maps.ungated(u.src[1])
        return _load(u, dtype, self.lane(flat, i), None if gate is None else self.lane(gate, i))

    def has_rows(self, u: UOp) -> bool:
        """True if the guards of single lanes are known without the vector of all guards."""
        gate = index_maps.ungated(u.src[1])[1]
        if gate is None or gate.dtype.lanes == 1:
            return True
        return not self.branches and self.lane(gate, 0).op is not Ops.LANE

    # ------------------------------------------------------------ stores
    def store(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        target, value = src[0], src[1]
        if value.op is Ops.INDEX:
            value = self.load(value)
        flat, gate = _flat(target)
        if len(src) == 3:
            extra = self.load(src[2]) if src[2].op is Ops.INDEX else src[2]
            gate = extra if gate is None else index_maps.both(gate, extra)
        storage = target.src[0]
        lanes = target.dtype.lanes
        if lanes == 1:
            return _store(storage, flat, value, gate, u.arg)
        masked = gate is not None and gate.dtype.lanes > 1
        if lane_step(flat) != 1 or (masked and self.branches):
            n, accesses = self.chunks(flat, gate, lanes)
            stores = [
                _store(storage, at, self.slice(value, i * n, n), gate_i, u.arg)
                for i, (at, gate_i) in enumerate(accesses)
            ]
            return intern(Ops.GROUP, dtypes.void, tuple(stores))
        first, value, chunks = self.lane(flat, 0), splat(value, lanes), None
        if gate is not None and masked and not self.target.has_mask_registers:
            chunks = store_chunks([self.lane(gate, i) for i in range(lanes)])
        if chunks is None:
            return _store(storage, first, value, gate, u.arg)
        stores = [
            _store(storage, affine.plus(first, i), self.slice(value, i, n), None, u.arg)
            for i, n in chunks
        ]
        return intern(Ops.GROUP, dtypes.void, tuple(stores) or _awaited(storage))

    # ------------------------------------------------------------ lanes
    def chunks(
        self, flat: UOp, gate: UOp | None, lanes: int
    ) -> tuple[int, list[tuple[UOp, UOp | None]]]:
        """The largest n such that each aligned group of n lanes is neighbours under one gate, and
        the first index and the gate of each group."""
        n, gates = 1, [None if gate is None else self.lane(gate, i) for i in range(lanes)]
        groups = [(self.lane(flat, i), gates[i]) for i in range(lanes)]
        while len(groups) % 2 == 0 and all(
            second[0] is affine.plus(first[0], n) and second[1] is first[1]
            for first, second in zip(groups[::2], groups[1::2])
        ):
            n, groups = 2 * n, groups[::2]
        return n, groups

    def slice(self, value: UOp, first: int, count: int) -> UOp:
        """Some neighbouring lanes of a value."""
        if value.dtype.lanes in (1, count):
            return splat(value, count)
        if count == 1:
            return self.lane(value, first)
        lanes = tuple(range(first, first + count))
        return intern(Ops.SHUFFLE, value.dtype.scalar.vec(count), (value, value), lanes)

    def lane(self, u: UOp, i: int) -> UOp:
        """Lane i of a value. Simple index arithmetic is recomputed for the lane; other vectors are
        computed once and split."""
        if u.dtype.lanes == 1:
            return u
        stack = [u]
        while stack:
            v = stack[-1]
            if (v, i) in self.lanes:
                stack.pop()
                continue
            if v in self.whole or not _is_arithmetic(v) or any(x in self.whole for x in v.src):
                self.lanes[(v, i)] = _take_lane(v, i)
                stack.pop()
                continue
            missing = [s for s in v.src if s.dtype.lanes > 1 and (s, i) not in self.lanes]
            if missing:
                stack += missing
                continue
            src = tuple([s if s.dtype.lanes == 1 else self.lanes[(s, i)] for s in v.src])
            is_cast = v.op is Ops.CAST
            redone = fold.convert(src[0], v.dtype.scalar) if is_cast else rebuild.remake(v, src)
            if not _is_simple(v, redone, src):
                self.whole.add(v)
                redone = _take_lane(v, i)
            self.lanes[(v, i)] = redone
            stack.pop()
        return self.lanes[(u, i)]


_WHOLE = frozenset((Ops.REDUCE, Ops.HREDUCE, Ops.BITCAST))  # they take all lanes of an operand


def _first_inside(flat: UOp, lanes: int, size: shapes.Dim) -> UOp:
    """The first index of a run of neighbours; 0 if all of them are outside of the storage. Indices
    that were read from memory are assumed to be inside: a comparison of each costs more than the
    reads."""
    if any(u.op in (Ops.LOAD, Ops.INDEX) for u in walk.toposort(flat)):
        return flat
    least, most = bounds.bounds(flat)
    if least <= -lanes:
        flat = (flat <= -lanes).where(0, flat)
    if isinstance(size, int) and most >= size:
        flat = (flat < size).where(flat, 0)
    return flat


def _is_arithmetic(u: UOp) -> bool:
    """Expressions over LANES and scalars that are better computed lane by lane."""
    index_like = u.dtype.scalar is dtypes.index or (
        u.dtype.kind == "bool"
        and all(s.dtype.scalar in (dtypes.index, dtypes.bool_) for s in u.src)
    )
    return index_like and (u.op.is_alu or u.op is Ops.CAST) and u.op is not Ops.LOAD


_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD)


def _is_simple(whole: UOp, lane: UOp, src: tuple[UOp, ...]) -> bool:
    """True if one lane's index arithmetic has lost the divisions that differ from lane to lane, and
    stands on no vector's lane."""
    if lane.op is Ops.CONST:
        return True
    lanes = [s for s, vector in zip(src, whole.src) if vector.dtype.lanes > 1]
    if any((s.src[0] if s.op is Ops.CAST else s).op in (Ops.LANE, Ops.LOAD) for s in lanes):
        return whole.op is Ops.CAST and src[0].op is Ops.LOAD
    if lane.dtype is not dtypes.index:
        return lane.op not in _DIVISIONS
    common = affine.form(whole)[1]
    return all(m.op not in _DIVISIONS or m in common for m in affine.form(lane)[1])


def _is_gate(u: UOp, src: tuple[UOp, ...]) -> bool:
    """True if a WHERE chooses 0 only where its gated load, converted, gives 0 anyway."""
    if u.op is not Ops.WHERE or not _is_zero(src[2]):
        return False
    loaded = src[1]
    while loaded.op is Ops.CAST:
        loaded = loaded.src[0]
    if loaded.op is Ops.LOAD and len(loaded.src) > 1:
        gate = loaded.src[1]
    elif loaded.op is Ops.WHERE and _is_zero(loaded.src[2]):  # as `gathered` makes one
        gate = loaded.src[0]
    else:
        return False
    return src[0] is gate or set(walk.flatten(src[0])) <= set(walk.flatten(gate))


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg == 0 and str(u.arg)[0] != "-"


def _take_lane(u: UOp, i: int) -> UOp:
    if u.op is Ops.LANES:
        return affine.const(i)
    if u.op is Ops.CONST:
        return leaves.const(u.dtype.scalar, u.arg[i] if type(u.arg) is tuple else u.arg)
    if u.op is Ops.STACK:
        number, rest = divmod(i, u.src[0].dtype.lanes)
        part = u.src[number]
        return part if part.dtype.lanes == 1 else _take_lane(part, rest)
    if u.op is Ops.LOAD and len(u.src) == 1 and u.dtype.kind in ("int", "uint"):
        place = u.src[0]  # loading one integer costs less than taking it out of a vector
        return _load(place, u.dtype.scalar, affine.plus(place.src[1], i), None)
    return intern(Ops.LANE, u.dtype.scalar, (u,), i)


def _reversed(value: UOp, lanes: int) -> UOp:
    if value.dtype.lanes == 1:
        return value
    parts = [intern(Ops.LANE, value.dtype.scalar, (value,), i) for i in reversed(range(lanes))]
    return intern(Ops.STACK, value.dtype, tuple(parts))


def _covering(lanes: int, step: int) -> list[int]:
    """The begins of vectors that cover every step-th element; the last one ends with the last."""
    last = (lanes - 1) * (step - 1)
    return [*range(0, last, lanes), last]


def _spread(gate: UOp | None, lanes: int, begin: int, step: int) -> UOp | None:
    """The gate of a vector from element `begin` on: each step-th element has its lane's gate."""
    if gate is None or gate.dtype.lanes == 1:
        return gate
    closed = leaves.const(gate.dtype.scalar, (False,) * lanes)
    order = [at // step if at % step == 0 else lanes for at in range(begin, begin + lanes)]
    return intern(Ops.SHUFFLE, gate.dtype, (gate, closed), tuple(order))


def _gate(gate: UOp | None) -> tuple[UOp, ...]:
    """The gate as a source, unless it is always open."""
    return () if gate is None or bounds.bounds(gate)[0] == 1 else (gate,)


def _flat(address: UOp) -> tuple[UOp, UOp | None]:
    """The flat index of an INDEX, a vector where it has several elements, and its guard."""
    flat, gate = index_maps.ungated(address.src[1])
    lanes = address.dtype.lanes
    if lanes > 1 and address.src[1].dtype.lanes == 1:  # neighbours from there on
        flat = affine.add(flat, intern(Ops.LANES, dtypes.index.vec(lanes), (), lanes))
    return flat, gate


def _load(u: UOp, dtype: DType, flat: UOp, gate: UOp | None) -> UOp:
    """A LOAD of `dtype` (its lanes are neighbours) from the storage of the INDEX `u`."""
    if gate is not None and bounds.bounds(gate)[1] == 0:
        return splat(leaves.const(dtype.scalar, 0), dtype.lanes)
    address = intern(Ops.INDEX, dtype, (u.src[0], flat))
    made = intern(Ops.LOAD, dtype, (address, *_gate(gate)))
    set_origin(made, u.origin)
    return made


def _awaited(storage: UOp) -> tuple[UOp, ...]:
    """The effects before an access. Who waits for a store that is none waits for them."""
    return tuple([e for e in awaited(storage) if e.dtype is dtypes.void])


def _store(storage: UOp, flat: UOp, value: UOp, gate: UOp | None, mode: object) -> UOp:
    if gate is not None and bounds.bounds(gate)[1] == 0:
        return intern(Ops.GROUP, dtypes.void, _awaited(storage))
    address = intern(Ops.INDEX, value.dtype, (storage, flat))
    return intern(Ops.STORE, dtypes.void, (address, value, *_gate(gate)), mode)


def devectorize(kernel: UOp, context: Context) -> UOp:
    """The kernel with a LOAD or STORE for each access; blocks that are transposed go first."""
    memory = _AccessFolder(context.target)
    if not memory.branches:
        kernel = with_words(kernel, memory.lane, memory.has_rows)
    register = 0 if memory.branches else context.target.vector_bits
    for block in columns(kernel, memory.has_rows):
        memory.transposed |= transposed(block, memory.row, register)
    return rebuild.rewritten(kernel, memory.change)
