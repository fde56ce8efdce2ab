"""Give exchanges storage: each is a call that takes what is sent and writes what arrives.

Before (tensor), mesh=m:2
    %1 = param x : f32[4]
    %2 = mul %1, 2.0:f32 : f32[4]
    %3 = allreduce %2 axes=(m,) parts=2 op=add : f32[4]
    sink %3
After (tensor)
    // kernel allreduce_m
      %1 = param "" slot=0 : f32[4]
      %2 = allreduce %1 axes=(m,) parts=2 op=add : f32[4]
      %3 = store %1, %2
      %4 = sink %3 name=allreduce_m
    // program
    %5 = buffer slot=0 : f32[4]
    %6 = param x : f32[4]
    %7 = mul %6, 2.0:f32 : f32[4]
    %8 = store %5, %7
    %9 = after %5, %8 : f32[4]
    %10 = call %4, %9  // allreduce_m
    %11 = after %5, %10 : f32[4]
    sink %11

What is sent is stored. If nobody else reads it, an ALLREDUCE or BROADCAST is in place. ALLREDUCEs
in place that combine in one way, and of which none waits for another, are one call: a bucket, whose
buffers the planner puts side by side. Where exchanges run beside launches, a bucket is done once it
has some bytes, those first that wait for the fewest steps: it starts before the next one is ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from uopc.ir.builder import kernel, leaves, rebuild
from uopc.ir.builder.programs import Slots
from uopc.ir.core import bounds, dtypes, shapes, walk
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.passes.contract import Context

_IN_PLACE = frozenset((Ops.ALLREDUCE, Ops.BROADCAST))


def place_exchanges(graph: UOp, context: Context) -> UOp:
    """The graph with a CALL for each exchange, or bucket of them."""
    slots, done = Slots(graph), dict[UOp, UOp]()
    limit = 0 if context.sharding is None else context.sharding.bucket
    for bucket, in_place in _buckets(walk.nodes(graph), limit):
        storages = [leaves.buffer(slots(), u.dtype, shapes.shape(u)) for u in bucket]
        given = [rebuild.rebuild_more(u.src[0], done) for u in bucket]
        if in_place:
            stored = [kernel.after(b, kernel.store(b, v)) for b, v in zip(storages, given)]
            call = _call(bucket, stored, 0)
        else:
            sent = intern(Ops.CONTIGUOUS, bucket[0].dtype, (given[0],))
            call = _call(bucket, (storages[0], sent), 1)
        set_origin(call, bucket[0].origin)
        for u, storage in zip(bucket, storages):
            done[u] = kernel.after(storage, call)
            set_origin(done[u], u.origin)
    return rebuild.rebuild_more(graph, done)


def _buckets(order: Sequence[UOp], limit: int) -> list[tuple[list[UOp], bool]]:
    """The exchanges that happen at once, and whether each works in place, in dependency order. An
    exchange that waits for a write to an argument is a bucket of its own: launches before that
    write may read the results of other exchanges. `limit`: the bytes that complete a bucket, or
    0."""
    readers = Counter([s for u in order for s in u.src])
    depth: dict[UOp, int] = {}
    effects: set[UOp] = set()
    found: dict[Hashable, list[UOp]] = {}
    places: dict[UOp, bool] = {}
    for u in order:
        below = max([depth.get(s, 0) for s in u.src], default=0)  # a kernel's own are not listed
        is_exchange = u.op in GroupOp.Exchange
        depth[u] = below + is_exchange
        if u.op is Ops.AFTER or not effects.isdisjoint(u.src):
            effects.add(u)
        if not is_exchange:
            continue
        sent = u.src[0]
        alone = readers[sent] == 1 and u.op in _IN_PLACE and sent.op is not Ops.CONTIGUOUS
        places[u] = alone and not sent.op.is_storage
        fixed = all([isinstance(d, int) for d in shapes.shape(u)])
        own: Hashable = u
        if places[u] and fixed and u.op is Ops.ALLREDUCE and u not in effects:
            own = u.arg.axes, u.arg.op, u.dtype
        found.setdefault((depth[u], own), []).append(u)
    buckets = list(found.values())
    if limit:
        steps = _steps(order)
        buckets = [part for b in buckets for part in _done_in_parts(b, limit, steps)]
    buckets.sort(key=lambda b: depth[b[0]])
    return [(b, places[b[0]]) for b in buckets]


def _steps(order: Sequence[UOp]) -> dict[UOp, int]:
    """The length of the longest chain of nodes that ends in each."""
    found: dict[UOp, int] = {}
    for u in order:
        found[u] = 1 + max([found.get(s, 0) for s in u.src], default=0)
    return found


def _done_in_parts(bucket: list[UOp], limit: int, steps: Mapping[UOp, int]) -> list[list[UOp]]:
    """Split a bucket into several, each the smallest with at least `limit` bytes."""
    parts: list[list[UOp]] = []
    nbytes = limit
    for u in sorted(bucket, key=lambda u: steps[u]):
        if nbytes >= limit:
            parts.append([])
            nbytes = 0
        parts[-1].append(u)
        nbytes += bounds.most_bytes(u)
    return parts


def _call(bucket: Sequence[UOp], args: Sequence[UOp], sent: int) -> UOp:
    """The call of a kernel that is nothing but exchanges: each stores to its slot what the slot
    `sent` places on gives."""
    params = [leaves.param(slot, a.dtype, shapes.shape(a)) for slot, a in enumerate(args)]
    stores = [
        kernel.store(params[i], intern(u.op, u.dtype, (params[i + sent],), u.arg))
        for i, u in enumerate(bucket)
    ]  # fmt: skip
    first = bucket[0]
    sink = kernel.sink(*stores, name=f"{first.op.name}_{'_'.join(first.arg.axes)}")
    return intern(Ops.CALL, dtypes.void, (sink, *args))
