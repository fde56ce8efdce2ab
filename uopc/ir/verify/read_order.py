"""The check that no kernel reads an element both before and after a store to it.

    before = o[i];  s = o[i].store(1.0);  after = o.after(s)[i];  before + after

A read sees the stores below it. Nothing puts a read that a store neither sees nor needs before that
store, so where another read sees the store as well, the values would depend on chance.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator

from uopc.errors import InvalidIR
from uopc.ir.builder import index_maps
from uopc.ir.builder.index_maps import Index
from uopc.ir.core import bounds
from uopc.ir.core.calls import graph_order, operands
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import before_effects, storage_root
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp
from uopc.ir.index import affine
from uopc.ir.symbolic import simplify

Read = tuple[UOp, UOp]  # the node that uses an element, and its address


def verify_read_order(kernel: UOp) -> None:
    """InvalidIR when a kernel with loops, as a user wrote it, reads an element before and after a
    store to it; the message names both reads and their lines."""
    for u, problem in _reads_of_two_versions(graph_order([kernel])):
        raise InvalidIR(f"{problem}{made_at(u)}")


def _reads_of_two_versions(nodes: list[UOp]) -> Iterator[tuple[UOp, str]]:
    """A read that sees a store, and the problem: another one, of the same element, does not."""
    stores: dict[UOp, list[UOp]] = {}  # storage -> STOREs
    for u in nodes:
        if u.op is Ops.STORE:
            stores.setdefault(storage_root(u.src[0]), []).append(u)
    versions = {u.src[0] for u in nodes if u.op is Ops.AFTER}
    if not any(storage_root(v) in stores for v in versions):
        return
    reads: dict[UOp, dict[Read, None]] = {}  # storage -> its reads
    for u in nodes:
        for place, s in enumerate(operands(u)):
            plain = place == 0 and u.op in (Ops.STORE, Ops.INDEX, Ops.AFTER)
            if not plain and before_effects(s).op is Ops.INDEX and storage_root(s) in stores:
                reads.setdefault(storage_root(s), {})[u, s] = None
    marked = [s for found in stores.values() for s in found]
    marked += [u for found in reads.values() for u, _ in found]
    bit = {u: 1 << i for i, u in enumerate(dict.fromkeys(marked))}
    below: dict[UOp, int] = {}
    for u in nodes:
        below[u] = functools.reduce(operator.or_, [below[s] for s in operands(u)], bit.get(u, 0))
    for storage, found in reads.items():
        for store in stores[storage]:
            seeing = [s for _, s in found if below[s] & bit[store]]
            others = [
                s for u, s in found
                if not below[s] & bit[store] and not below[store] & bit[u]
            ]  # fmt: skip
            target = store.src[0]
            for after, before in itertools.product(seeing, others):
                if _may_meet(before, target) and _may_meet(after, target):
                    yield after, _problem(before, after, store)


def _problem(before: UOp, after: UOp, store: UOp) -> str:
    return (
        f"one kernel reads {_text(before)} before and {_text(after)} after a store to "
        f"{_text(store.src[0])}; use the value that is stored, or two kernels{made_at(before)}"
    )


def _text(address: UOp) -> str:
    storage = storage_root(address)
    name = getattr(storage.arg, "name", "") or f"{storage.op.name.lower()} {storage.arg.slot}"
    index = _index(address)
    return f"{name}[{'…' if index is None else ', '.join([x.render() for x in index])}]"


def _may_meet(a: UOp, b: UOp) -> bool:
    """False if two addresses differ in each iteration, or their guards exclude each other."""
    one, two = _index(a), _index(b)
    if one is None or two is None or len(one) != len(two):
        return True
    one, guard = index_maps.plain_index(one, index_maps.true())
    two, other = index_maps.plain_index(two, index_maps.true())
    both = simplify.simplify(index_maps.both(guard, other))
    if both.op is Ops.CONST and not both.arg:
        return False
    for x, y in zip(one, two):
        low, high = bounds.bounds(affine.sub(x, y))
        if low > 0 or high < 0:
            return False
    return True


def _index(address: UOp) -> Index | None:
    """The index of an address; None if it is more than one INDEX into storage."""
    u = before_effects(address)
    storage = before_effects(u.src[0])
    return u.src[1:] if storage.op.is_storage else None
