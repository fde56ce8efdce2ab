"""Values on each device along a mesh axis become one value for all, with the axis in front.

    psum(x) over m, x → xs (4, n):    allreduce x  →  the sum of xs along its first dimension

An exchange becomes a reduce, a permutation or a window of that dimension. Pass partition turns
these back into exchanges if the dimension is cut; on one device they give the same result. A loop
whose body exchanges becomes a loop over the values of all devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from uopc.derivatives import batch, effects
from uopc.derivatives import functions as seeds
from uopc.derivatives.rule import operands
from uopc.derivatives.scan_rule import ScanParts
from uopc.derivatives.values import Value
from uopc.ir.builder import alu, leaves, movement, rebuild
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.args import ReduceArg, ReduceOp, ShardArg
from uopc.ir.core.ops import GroupOp, Op, Ops
from uopc.ir.core.uop import UOp, intern, set_origin
from uopc.ir.records import dataclass
from uopc.tensor.loops import bodies, scan


class OnAxis(NamedTuple):
    """A value; `varies`: True if it has the mesh axis as its first dimension, False if it is the
    same on all devices along the axis."""

    value: UOp
    varies: bool


@dataclass(frozen=True)
class SizedAxis:
    """A mesh axis and its size."""

    name: str
    size: int


def along(outputs: Sequence[UOp], batched: batch.Batch, axis: SizedAxis) -> list[OnAxis]:
    """The outputs for all devices along an axis, without exchanges over it. The keys of `batched`
    are replaced by values that have the axis in front."""
    outputs, inputs = effects.pure(outputs, list(batched))
    done: dict[UOp, UOp] = dict(zip(inputs, batched.values()))
    alone: dict[UOp, UOp] = {}  # by node that does not vary, its new value
    for u in calls.graph_order(outputs, _outside_bodies, stop=done.__contains__):
        if u not in done:
            _add(u, axis, done, alone)
    return [
        OnAxis(done[u], True) if u in done else OnAxis(alone.get(u, u), False) for u in outputs
    ]  # fmt: skip


def _outside_bodies(u: UOp) -> list[UOp]:
    """The operands of a node, without the bodies of loops."""
    return [s for s in operands(u) if s.op is not Ops.FUNCTION]


def _add(u: UOp, axis: SizedAxis, done: dict[UOp, UOp], alone: dict[UOp, UOp]) -> None:
    if u.op is Ops.PRIMITIVE and u.arg.name == "scan" and _exchanges(u.src[1]):
        found = _looped(u, axis, done, alone)
        (done if found.varies else alone)[u] = found.value
        return
    own = _renewed(u, alone)
    if u.op in GroupOp.Exchange and u.arg.axes == (axis.name,):
        found = RULES[u.op](own, axis, done.get(own.src[0]))
        (done if found.varies else alone)[u] = found.value
        return
    if any([s in done for s in operands(own)]):
        done[u] = made = _on_all(own, axis, done)
        if own is not u:
            done[own] = made
        if u.op is Ops.SHARD:
            set_origin(made, u.origin)
    if own is not u:
        alone[u] = own


def _renewed(u: UOp, alone: dict[UOp, UOp]) -> UOp:
    """Remake a node on the new values of its sources."""
    changed = [s for s in operands(u) if s in alone]
    if not changed:
        return u
    src = tuple([alone.get(s, s) for s in u.src])
    if u.op is Ops.PRIMITIVE:
        src = (rebuild.rebuild(u.src[0], {s: alone[s] for s in changed}), *src[1:])
    made = rebuild.remake(u, src)
    set_origin(made, made.origin or u.origin)
    return made


def _on_all(u: UOp, axis: SizedAxis, done: batch.Batch) -> UOp:
    """Compute a node for all devices along the axis, which cuts the new dimension of layouts."""
    if u.op is Ops.SHARD:
        arg = ShardArg(((axis.name,), *u.arg.spec))
        return intern(u.op, u.dtype, (done[u.src[0]],), arg)
    if u.op in GroupOp.Exchange:
        return _over_another(u, done[u.src[0]])
    return batch.batched_node(u, axis.size, done)


def _over_another(u: UOp, x: UOp) -> UOp:
    """Exchange over another axis, for all devices along this axis."""
    if u.op in (Ops.REDUCE_SCATTER, Ops.ALLTOALL):  # their operand has the parts in front
        x = movement.swapped(x)
    made = intern(u.op, u.dtype, (x,), u.arg)
    return movement.swapped(made) if u.op in (Ops.ALLGATHER, Ops.ALLTOALL) else made


# ---------------------------------------------------------------- loops
def _exchanges(body: UOp) -> bool:
    """True if the body of a loop, or of a loop inside it, has exchanges."""
    return any([u.op in GroupOp.Exchange for u in calls.graph_order(body.src, calls.operands)])


def _looped(u: UOp, axis: SizedAxis, done: dict[UOp, UOp], alone: dict[UOp, UOp]) -> OnAxis:
    """A result of a loop whose body exchanges."""
    given = tuple([done[s] if s in done else alone.get(s, s) for s in u.src[2:]])
    varying = tuple([s in done for s in u.src[2:]])
    found = _loop_along((0, *u.arg.details[1:]), u.src[1:], given, varying, axis)
    return found[int(u.arg.details[0])]


@functools.lru_cache(maxsize=4)  # the results of a loop are requested one at a time
def _loop_along(
    details: tuple[int, ...], own: tuple[UOp, ...], given: tuple[UOp, ...],
    varying: tuple[bool, ...], axis: SizedAxis,
) -> list[OnAxis]:  # fmt: skip
    """The results of a loop for all devices. A carried value varies if its first value does, or if
    the body computes it from values that vary."""
    one, all_ = ScanParts(details, own), ScanParts(details, (own[0], *given))
    n, m = one.count, one.count + len(one.xs)
    end = m + len(one.constants)
    carried, elements = one.seeds()
    constants = [seeds.seed(k) for k in one.constants]
    outputs = one.outputs(carried, elements, constants)
    known = dict(zip(constants, all_.constants))
    varies = {i for i in range(n) if varying[i]}
    while True:
        batched = {c: k for c, k, b in zip(constants, all_.constants, varying[m:end]) if b}
        batched |= {
            s: seeds.seed_of(s.dtype, (axis.size, *shapes.shape(s)))
            for i, s in enumerate((*carried, *elements))
            if (i in varies if i < n else varying[i])
        }  # fmt: skip
        found = along(outputs, batched, axis)
        more = {i for i in range(n) if found[i].varies} - varies
        if not more:
            break
        varies |= more
    values = [
        movement.repeated(f.value, axis.size) if i in varies and not f.varies else f.value
        for i, f in enumerate(found)
    ]
    root = intern(Ops.TUPLE, dtypes.void, tuple(values))
    values = list(rebuild.rebuild(root, known).src)  # constants that are the same on all devices
    arguments = [batched.get(s, s) for s in (*carried, *elements)]
    body, taken = bodies.closed(values, arguments)
    first = [
        movement.repeated(k, axis.size) if i in varies and not varying[i] else k
        for i, k in enumerate(all_.first)
    ]
    xs = [movement.swapped(x) if b else x for x, b in zip(all_.xs, varying[n:m])]
    made = scan.scan(body, first, xs, taken, one.length, one.way)
    return [
        *[OnAxis(v, i in varies) for i, v in enumerate(made[:n])],
        *[OnAxis(movement.swapped(v) if f.varies else v, f.varies)
          for v, f in zip(made[n:], found[n:])],
    ]  # fmt: skip


# ---------------------------------------------------------------- exchanges
def _reduced(x: UOp, op: ReduceOp) -> UOp:
    return intern(Ops.REDUCE, x.dtype, (x,), ReduceArg(op, (0,)))


def _of_equal(x: UOp, op: str, n: int) -> UOp:
    """Combine n equal values."""
    return alu.binary(Ops.MUL, x, leaves.const_like(x, n)) if op == "add" else x


def _of_all(u: UOp, axis: SizedAxis, x: Value) -> UOp:
    """Stack the values of all devices; repeat a value that is the same on all."""
    return movement.repeated(u.src[0], axis.size) if x is None else x


def _allreduce(u: UOp, axis: SizedAxis, x: Value) -> OnAxis:
    if x is None:
        return OnAxis(_of_equal(u.src[0], u.arg.op, axis.size), False)
    return OnAxis(_reduced(x, u.arg.op), False)


def _allgather(u: UOp, axis: SizedAxis, x: Value) -> OnAxis:
    return OnAxis(_of_all(u, axis, x), False)


def _reduce_scatter(u: UOp, axis: SizedAxis, x: Value) -> OnAxis:
    """Sum (devices, parts, …) over devices; part i belongs to device i."""
    if x is None:
        return OnAxis(_of_equal(u.src[0], u.arg.op, axis.size), True)
    return OnAxis(_reduced(x, u.arg.op), True)


def _alltoall(u: UOp, axis: SizedAxis, x: Value) -> OnAxis:
    """Swap the devices and parts of (devices, parts, …)."""
    return OnAxis(movement.swapped(_of_all(u, axis, x)), True)


def _permute_ranks(u: UOp, axis: SizedAxis, x: Value) -> OnAxis:
    every = _of_all(u, axis, x)
    n, s = axis.size, u.arg.shift
    rest = shapes.shape(every)[1:]
    if u.arg.wrap:
        return OnAxis(movement.cat(_rows(every, n - s % n, n), _rows(every, 0, n - s % n)), True)
    kept = _rows(every, max(0, -s), min(n, n - s))
    return OnAxis(movement.pad(kept, [(max(0, s), max(0, -s)), *[(0, 0) for _ in rest]]), True)


def _rows(x: UOp, begin: int, end: int) -> UOp:
    return movement.shrink(x, [(begin, end), *[(0, d) for d in shapes.shape(x)[1:]]])


RULES: dict[Op, Callable[[UOp, SizedAxis, Value], OnAxis]] = {
    Ops.ALLREDUCE: _allreduce,
    Ops.ALLGATHER: _allgather,
    Ops.REDUCE_SCATTER: _reduce_scatter,
    Ops.ALLTOALL: _alltoall,
    Ops.PERMUTE_RANKS: _permute_ranks,
}
