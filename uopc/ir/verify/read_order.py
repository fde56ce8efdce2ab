"""Check that a kernel orders each read before or after a store to the same element.

    before = o[i];  s = o[i].store(1.0);  after = o.after(s)[i]

A read sees the stores below it, and comes before the stores above it. Nothing else orders a read
and a store in one iteration of their loops, so the value of an unordered read would depend on
chance.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.builder.loops import with_loops
from uopc.ir.core import ranges, walk
from uopc.ir.core.arena import memo_last
from uopc.ir.core.calls import graph_order, operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine

Read = tuple[UOp, UOp]  # the node that uses an element, and its address


def verify_read_order(kernel: UOp) -> None:
    """InvalidIR, with the lines of both, if `unordered_reads` finds a read and a store."""
    for u, problem in unordered_reads(kernel):
        raise InvalidIR(f"{problem}{made_at(u)}")


@memo_last
def unordered_reads(kernel: UOp) -> list[tuple[UOp, str]]:
    """The reads of a kernel that may come before or after a store to their element, each with the
    problem. Empty at level linear, because the list is the order."""
    return [] if kernel.op is Ops.LINEAR else list(_unordered(with_loops(kernel)))


def _unordered(kernel: UOp) -> Iterator[tuple[UOp, str]]:
    nodes = graph_order([kernel])
    stores, reads = _accesses(nodes)
    if not reads:
        return
    marked = [s for storage in reads for s in stores[storage]]
    marked += [user for found in reads.values() for user, _ in found]
    bit = {u: 1 << i for i, u in enumerate(dict.fromkeys(marked))}
    below = walk.marks_below(nodes, bit, operands)
    for storage, found in reads.items():
        for store in stores[storage]:
            seeing = [r for r in found if below[r[1]] & bit[store]]
            for read in found:
                user, address = read
                if below[address] & bit[store] or below[store] & bit[user]:
                    continue  # the read is after the store, or before it
                own = storage.op is Ops.BUFFER and _beside(user, store)
                if not own and _may_meet(read, store):
                    after = next((at for u, at in seeing if _may_meet((u, at), store)), None)
                    yield _problem(address, after, store)


def _accesses(nodes: list[UOp]) -> tuple[dict[UOp, list[UOp]], dict[UOp, list[Read]]]:
    """The STOREs to each storage, and the reads of storage with STOREs."""
    stores: dict[UOp, list[UOp]] = {}
    for u in nodes:
        if u.op is Ops.STORE:
            stores.setdefault(storage_root(u.src[0]), []).append(u)
    reads: dict[UOp, list[Read]] = {}
    for read in dict.fromkeys([(u, s) for u in nodes for s in _addresses_read(u)]):
        if (storage := storage_root(read[1])) in stores:
            reads.setdefault(storage, []).append(read)
    return stores, reads


def _addresses_read(u: UOp) -> list[UOp]:
    """The operands of a node that are addresses of elements it reads."""
    first = u.op in (Ops.STORE, Ops.INDEX, Ops.AFTER)  # the first operand is an address, or storage
    return [s for s in operands(u)[first:] if before_effects(s).op is Ops.INDEX]


def _beside(a: UOp, b: UOp) -> bool:
    """True if each value is in a loop that does not contain the other value: such as parts of a cut
    loop, which use one register in turn."""
    one, two = ranges.ranges(a), ranges.ranges(b)
    return not one <= two and not two <= one


def _problem(read: UOp, after: UOp | None, store: UOp) -> tuple[UOp, str]:
    target = _text(store.src[0])
    if after is not None:
        return after, (
            f"one kernel reads {_text(read)} before and {_text(after)} after a store to {target}; "
            f"use the value that is stored, or two kernels{made_at(read)}"
        )
    name = target.partition("[")[0]
    return read, (
        f"nothing says whether {_text(read)} is read before or after the store to {target}; read "
        f"{name}.after(the store), or store to {name}.after(what uses the read){made_at(store)}"
    )


def _text(address: UOp) -> str:
    storage = storage_root(address)
    name = getattr(storage.arg, "name", "") or f"{storage.op.name.lower()} {storage.arg.slot}"
    index = _index(address)
    return f"{name}[{'…' if index is None else ', '.join([x.render() for x in index])}]"


def _may_meet(read: Read, store: UOp) -> bool:
    """False if two addresses differ in each iteration, or their guards exclude each other."""
    one, two = _index(read[1]), _index(store.src[0])
    if one is None or two is None or len(one) != len(two):
        return True
    gates = [*(read[0].src[1:] if read[0].op is Ops.LOAD else ()), *store.src[2:]]
    guard = functools.reduce(index_maps.both, gates, index_maps.true())
    from uopc.ir.symbolic import simplify  # few kernels read what they store

    one, guard = index_maps.plain_index(one, guard)
    two, guard = index_maps.plain_index(two, guard)
    guard = simplify.simplify(guard)
    if guard.op is Ops.CONST and not guard.arg:
        return False
    return not any([_is_below(x, y) or _is_below(y, x) for x, y in zip(one, two)])


def _is_below(a: UOp, b: UOp) -> bool:
    """True if bounds prove a < b, including bounds of ranges with symbolic ends."""
    constant, terms = affine.form(affine.sub(b, a))
    parts = [affine.scaled(m, abs(f)) for m, f in terms.items()]
    taken = [p for p, f in zip(parts, terms.values()) if f < 0]
    added = [p for p, f in zip(parts, terms.values()) if f > 0]
    low, high = (functools.reduce(affine.add, found, affine.const(0)) for found in (taken, added))
    return affine.at_most(affine.plus(low, 1), affine.plus(high, constant))


def _index(address: UOp) -> Index | None:
    """The index of an address, () for a scalar; None for several nested INDEX nodes."""
    u = before_effects(address)
    if u.op.is_storage:
        return ()
    storage = before_effects(u.src[0])
    return u.src[1:] if storage.op.is_storage else None
