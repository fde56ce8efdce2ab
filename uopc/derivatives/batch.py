"""Batches: a graph on many values at once, each along a new first dimension.

    y = a @ x, x → xs (n, k):    the nodes that depend on x get the dimension, the others stay
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from uopc.derivatives import effects, primitives
from uopc.derivatives.rule import OfBody, operands
from uopc.derivatives.values import Value, fit, front_aligned
from uopc.errors import Unsupported
from uopc.ir.builder import leaves, movement
from uopc.ir.builder.rebuild import remake
from uopc.ir.core import calls, dtypes, shapes
from uopc.ir.core.args import ShardArg
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern
from uopc.tensor import functions

Batch = Mapping[UOp, UOp]  # by node, its value for the whole batch


def mapped(outputs: Sequence[UOp], batched: Batch) -> list[UOp]:
    """The outputs along a new first dimension, with the keys of `batched` replaced by values that
    have this dimension. An output that depends on no key is repeated."""
    n = shapes.shape(next(iter(batched.values())))[0]
    found = dependent(outputs, batched)
    return [movement.repeated(u, n) if v is None else v for u, v in zip(outputs, found)]


def dependent(outputs: Sequence[UOp], batched: Batch) -> list[Value]:
    """`mapped`, with None for an output that depends on none of the keys."""
    n = shapes.shape(next(iter(batched.values())))[0]
    outputs, inputs = effects.pure(outputs, list(batched))
    batched = dict(zip(inputs, batched.values()))
    done: dict[UOp, UOp] = dict(batched)
    order = calls.graph_order(outputs, operands, stop=done.__contains__)
    _check_lengths([u for u in order if calls.is_length(u)], batched)
    for u in order:
        if u not in done and any([s in done for s in operands(u)]):
            done[u] = batched_node(u, n, done)
    return [done.get(u) for u in outputs]


def _check_lengths(lengths: Sequence[UOp], batched: Batch) -> None:
    """Unsupported for a length that would be another one in each element of the batch."""
    for u in lengths:
        if not batched.keys().isdisjoint(calls.graph_order([u.src[1]], operands)):
            raise Unsupported(
                f"vmap: the length {u.src[0].arg.name} depends on values of the batch, so that its"
                f" elements would differ in shape: keep a mask, or loop over them{made_at(u)}"
            )


def _aligned(u: UOp, done: Batch, rank: int) -> UOp:
    """Put the batch of an operand in front of `rank` dimensions."""
    return front_aligned(done[u], rank) if u in done else u


def batched_node(u: UOp, n: Dim, done: Batch) -> UOp:
    """The value of a node for the whole batch, from the batched values of its operands."""
    dims = shapes.shape(u)
    if u.op.is_alu or u.op is Ops.CAST:
        made = remake(u, tuple([_aligned(s, done, len(dims)) for s in u.src]))
        return fit(made, (n, *dims))
    if u.op is Ops.PRIMITIVE:
        given = [done.get(s, s) for s in u.src[1:]]
        which = [s in done for s in u.src[1:]]
        return fit(primitives.rule_of(u).apply_batch(u, given, which, n), (n, *dims))
    if u.op in (Ops.CALL, Ops.TUPLE):
        return u
    rule = RULES.get(u.op)
    if rule is None:
        raise Unsupported(f"vmap: {u.op.name} is not supported{made_at(u)}")
    return rule(u, n, done)


# ---------------------------------------------------------------- movement
def _reshape(u: UOp, n: Dim, done: Batch) -> UOp:
    return movement.reshape(done[u.src[0]], (n, *shapes.shape(u)))


def _expand(u: UOp, n: Dim, done: Batch) -> UOp:
    dims = shapes.shape(u)
    return movement.expand(_aligned(u.src[0], done, len(dims)), (n, *dims))


def _permute(u: UOp, n: Dim, done: Batch) -> UOp:
    return movement.permute(done[u.src[0]], (0, *[i + 1 for i in u.arg]))


def _flip(u: UOp, n: Dim, done: Batch) -> UOp:
    return movement.flip(done[u.src[0]], tuple([i + 1 for i in u.arg]))


def _shrink(u: UOp, n: Dim, done: Batch) -> UOp:
    begins, sizes = shapes.window(u)
    return movement.window(done[u.src[0]], (0, *begins), (n, *sizes))


def _pad(u: UOp, n: Dim, done: Batch) -> UOp:
    begins, sizes = shapes.window(u)
    inner = shapes.shape(u.src[0])
    widths = [(b, s - b - d) for b, s, d in zip(begins, sizes, inner)]
    return movement.pad(done[u.src[0]], [(0, 0), *widths])


def _batch_concatenation(u: UOp, n: Dim, done: Batch) -> UOp:
    parts = [done[s] if s in done else movement.repeated(s, n) for s in u.src]
    if u.op is Ops.STACK:
        return movement.stack(*parts, axis=1)
    return movement.cat(*parts, axis=u.arg + 1)


def _along_axes(u: UOp, n: Dim, done: Batch) -> UOp:
    """Shift the axes of a REDUCE or ACCUMULATE by one."""
    arg = replace(u.arg, axes=tuple([i + 1 for i in u.arg.axes]))
    return leaves.located(intern(u.op, u.dtype, (done[u.src[0]],), arg))


def _index(u: UOp, n: Dim, done: Batch) -> UOp:
    a, indices = u.src[0], u.src[1:]
    rank = max([len(shapes.shape(i)) for i in indices], default=0)
    moved = [_aligned(i, done, rank) for i in indices]
    if a not in done:
        found = movement.index(a, *moved)
        return fit(found, (n, *shapes.shape(u)))
    if not indices:
        return done[a]
    first = movement.reshape(leaves.iota(n), (n, *(1,) * rank))
    return movement.index(done[a], first, *moved)


def _again(u: UOp, n: Dim, done: Batch) -> UOp:
    """Apply the op unchanged: extra leading dimensions do not alter its meaning."""
    return leaves.located(intern(u.op, u.dtype, (done[u.src[0]], *u.src[1:]), u.arg))


def _contiguous(u: UOp, n: Dim, done: Batch) -> UOp:
    return done[u.src[0]].contiguous()


def _shard(u: UOp, n: Dim, done: Batch) -> UOp:
    """Leave the new dimension uncut."""
    arg = ShardArg(((), *u.arg.spec))
    return leaves.located(intern(u.op, u.dtype, (done[u.src[0]],), arg))


def _bitcast(u: UOp, n: Dim, done: Batch) -> UOp:
    a = done[u.src[0]]
    if not shapes.shape(u.src[0]):
        a = movement.reshape(a, (n, 1))
    return movement.reshape(intern(Ops.BITCAST, u.dtype, (a,)), (n, *shapes.shape(u)))


# ---------------------------------------------------------------- functions
_known: weakref.WeakKeyDictionary[UOp, dict[Any, UOp]] = weakref.WeakKeyDictionary()


def _gettuple(u: UOp, n: Dim, done: Batch) -> UOp:
    source = u.src[0]
    if source.op is Ops.TUPLE:
        s = source.src[u.arg]
        return done[s] if s in done else movement.repeated(s, n)
    body, *args = source.src
    if body.op is not Ops.FUNCTION:
        raise Unsupported(f"vmap: a kernel written by hand is not supported{made_at(source)}")
    which = tuple([i for i, a in enumerate(args) if a in done])
    known = _known.setdefault(body, {})
    if (which, n) not in known:
        slots = {p.arg.slot: p for p in calls.params(body)}
        batched = {
            slots[i]: functions.param(i, done[args[i]]) for i in which if i in slots
        }
        outputs = (
            mapped(body.src, batched) if batched
            else [movement.repeated(o, n) for o in body.src]
        )  # fmt: skip
        known[which, n] = intern(Ops.FUNCTION, dtypes.void, tuple(outputs), body.arg)
    results = functions.call(known[which, n], *[done.get(a, a) for a in args])
    return results[int(u.arg)]


RULES: dict[Op, Callable[[UOp, Dim, Batch], UOp]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.FLIP: _flip,
    Ops.SHRINK: _shrink,
    Ops.PAD: _pad,
    Ops.STACK: _batch_concatenation,
    Ops.CAT: _batch_concatenation,
    Ops.REDUCE: _along_axes,
    Ops.ACCUMULATE: _along_axes,
    Ops.INDEX: _index,
    Ops.GETTUPLE: _gettuple,
    Ops.BITCAST: _bitcast,
    Ops.CONTIGUOUS: _contiguous,
    Ops.SHARD: _shard,
    **dict.fromkeys((Ops.DETACH, Ops.COPY, Ops.STAGE, Ops.CONTIGUOUS_BACKWARD), _again),
}

OfBody.mapped = staticmethod(mapped)
