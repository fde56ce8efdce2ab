"""Results that may take the memory of a value that their kernel reads, element by element.

    for i < n: out[i] = f(x[i], …)        out may lie where x lies, if nobody reads x afterwards

No element may be read once it is written. A linear kernel keeps to that if each element is written
once, and each read of x stands before the store to the same element: with its index, in its loops.
Opts may change the first (a tile at an edge does the elements of its neighbour again), so the
stores are counted: where every element of the result is written, and there are as many writes as
elements, each is written once.

Only floats lie so: a launch that is timed runs many times, each time on what it wrote. That must
not touch memory elsewhere, and no address relies on what a float may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from uopc.ir.builder import rebuild
from uopc.ir.core import bounds, ranges, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.storage import storage_root
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine, monomials
from uopc.ir.index.dims import dim_uop
from uopc.ir.nest.accesses import Access
from uopc.ir.nest.nest import nest_of

# The slots of a result and of the value whose memory it may take.
Pair: TypeAlias = tuple[int, int]
# The loops and branches around a statement, outermost first, each with the number of times that it
# runs its body.
_Around: TypeAlias = tuple[tuple[UOp, UOp], ...]
_MOST_COUNTED = 1 << 12  # iterations of a loop whose inner loops depend on it


def pairs(kernel: UOp, linear: UOp) -> tuple[Pair, ...]:
    """The results of a kernel, each with the values that it may overwrite. `kernel`: as it was
    split, without Opts; `linear`: the same kernel in linear form."""
    candidates = _read_where_written(kernel)
    if not candidates:
        return ()
    uses = _Uses(linear)
    return tuple([
        (result, value) for result, value in candidates
        if result in uses.stores and value in uses.loads
        and _is_read_before(uses, result, value) and _is_written_once(uses, result)
    ])  # fmt: skip


def _read_where_written(kernel: UOp) -> list[Pair]:
    """The results whose elements a kernel writes once each, and the floats of the same dtype that
    it reads at the index of that store."""
    found: list[Pair] = []
    nest = nest_of(kernel)
    often = Counter([storage_root(u.src[0]) for u in nest.stores])
    for written in nest.written:
        node, result = written.node, written.storage
        once = often[result] == 1 and len(written.user.src) == 2
        if not once or not result.dtype.is_float or not _counts_all(written):
            continue
        found += [
            (result.arg.slot, a.storage.arg.slot) for a in nest.accesses
            if a.node.src[0].op is Ops.PARAM and a is not written
            and a.index == written.index and a.gate is None and a.node.dtype is node.dtype
        ]  # fmt: skip
    return found


def _counts_all(a: Access) -> bool:
    """True if an index counts through all elements of an argument, as that of nested loops does."""
    if a.node.src[0].op is not Ops.PARAM or len(a.index) != 1 or a.gate is not None:
        return False
    constant, terms = a.form
    left, step = dict(terms), affine.const(1)
    while left:
        found = [(m, r) for m in left if (r := _loop_of(m, left[m], step)) is not None]
        if not found:
            return False
        del left[found[0][0]]
        step = affine.mul(step, found[0][1].src[0])
    return constant == 0 and step is _element_count(a.storage)


def _loop_of(monomial: UOp, scale: int, step: UOp) -> UOp | None:
    """The range that a monomial counts in steps of this size, if it does."""
    atoms = monomials.factors(monomial)
    for r in atoms:
        if r.op is Ops.RANGE and not ranges.ranges(r.src[0]):
            others = [x for x in atoms if x is not r]
            whole = monomials.product(others) if others else affine.const(1)
            if affine.scaled(whole, scale) is step:
                return r
    return None


def _element_count(storage: UOp) -> UOp:
    """The number of elements."""
    return _normal_count(dim_uop(shapes.size(shapes.shape(storage))))


class _Uses:
    """The uses of a linear kernel's PARAMs by slot: PARAMs that are only stored to or only loaded,
    with their statements, the statements' places in the list, and the loops around."""

    def __init__(self, linear: UOp) -> None:
        self.params = {int(u.arg.slot): u for u in linear.src if u.op is Ops.PARAM}
        self.place: dict[UOp, int] = {}
        self.around: dict[UOp, _Around] = {}
        found: dict[Op, dict[UOp, list[UOp]]] = {Ops.STORE: {}, Ops.LOAD: {}}
        mixed: set[UOp] = set()
        around: _Around = ()
        for i, u in enumerate(linear.src):
            if u.op is Ops.RANGE or u.op is Ops.IF:
                around = (*around, (u, u.src[0]))
            elif u.op is Ops.END or u.op is Ops.ENDIF:
                around = around[:-1]
            for s in u.src:
                if s.op is not Ops.INDEX or s.src[0].op is not Ops.PARAM:
                    # An address under an effect, or storage without an index.
                    if u.op is not Ops.INDEX and s.op in (Ops.INDEX, Ops.AFTER, Ops.PARAM):
                        mixed.add(storage_root(s))
                elif _is_plain(u, s):
                    found[u.op].setdefault(s.src[0], []).append(u)
                    self.place[u], self.around[u] = i, around
                else:
                    mixed.add(s.src[0])
        stores, loads = found[Ops.STORE], found[Ops.LOAD]
        mixed |= stores.keys() & loads.keys()
        # Threads of a GPU are no loops, and it has loads of its own for what no kernel writes.
        if any([u.op is Ops.SPECIAL for u in linear.src]):
            mixed |= set(self.params.values())
        self.stores = {int(p.arg.slot): every for p, every in stores.items() if p not in mixed}
        self.loads = {int(p.arg.slot): every for p, every in loads.items() if p not in mixed}


def _is_plain(u: UOp, address: UOp) -> bool:
    """True for a LOAD, or a STORE, of neighbours at an address: all of them, and in the cache."""
    if len(address.src) != 2 or address.src[1].dtype.lanes > 1:
        return False
    if u.op is Ops.LOAD:
        return len(u.src) == 1
    stored = u.op is Ops.STORE and len(u.src) == 2 and u.arg != "stream"
    return stored and u.src[0] is address and u.src[1] is not address


def _lanes(u: UOp) -> int:
    """The neighbours that a LOAD reads, or a STORE writes."""
    value = u if u.op is Ops.LOAD else u.src[1]
    return max(u.src[0].dtype.lanes, value.dtype.lanes)


def _is_read_before(uses: _Uses, result: int, value: int) -> bool:
    """True if each load of the value stands before the store of the same elements of the result, in
    all of its loops."""
    stores = {(u.src[0].src[1], _lanes(u)): u for u in uses.stores[result]}
    for load in uses.loads[value]:
        store = stores.get((load.src[0].src[1], _lanes(load)))
        if store is None or uses.place[load] > uses.place[store]:
            return False
        loops = [r for r, _ in uses.around[store] if r.op is Ops.RANGE]
        if loops != [r for r, _ in uses.around[load] if r.op is Ops.RANGE][: len(loops)]:
            return False
    return True


def _is_written_once(uses: _Uses, result: int) -> bool:
    """True if there are as many writes to the result as it has elements."""
    lanes: dict[_Around, int] = {}
    for u in uses.stores[result]:
        around = uses.around[u]
        lanes[around] = lanes.get(around, 0) + _lanes(u)
    total = affine.const(0)
    for around, n in lanes.items():
        times = _times(around)
        if times is None:
            return False
        total = affine.add(total, affine.scaled(times, n))
    return total is _element_count(uses.params[result])


def _times(around: _Around) -> UOp | None:
    """The number of times that a statement runs, or None if it is not known."""
    if not around:
        return affine.const(1)
    (first, size), inner = around[0], around[1:]
    low, high = bounds.bounds(size)
    if first.op is Ops.IF:
        return None if low != high else _times(inner) if low else affine.const(0)
    if not any([first in ranges.ranges(s) for _, s in inner]):
        times = _times(inner)
        return None if times is None else affine.mul(_normal_count(size), times)
    if low != high or high > _MOST_COUNTED:
        return None
    total = affine.const(0)
    still = {r: r for r, _ in inner if r.op is Ops.RANGE}
    for i in range(int(high)):
        known = {**still, first: affine.const(i)}
        times = _times(tuple([(r, rebuild.rebuild(s, known)) for r, s in inner]))
        if times is None:
            return None
        total = affine.add(total, times)
    return total


def _normal_count(size: UOp) -> UOp:
    """A count in normal form."""
    low, high = bounds.bounds(size)
    return affine.const(int(low)) if low == high else affine.build(*affine.form(size))


def overwriting(args: Sequence[UOp], found: Sequence[Pair]) -> list[tuple[UOp, UOp]]:
    """The storage of each pair in a call: whole, and passed once."""
    roots = [storage_root(a) for a in args]
    return [
        (args[result], args[value]) for result, value in found
        if args[result] is roots[result] and args[value] is roots[value]
        and roots.count(args[result]) == roots.count(args[value]) == 1
    ]  # fmt: skip
