"""Rebuilding a graph with some nodes replaced: constants fold, index arithmetic stays normal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from uopc.ir import affine, analysis, build, dtypes, trace
from uopc.ir.node import intern
from uopc.ir.ops import Ops

if TYPE_CHECKING:
    from uopc.ir.uop import UOp


def remake(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources, as the builders would make it."""
    op = u.op
    if op.is_alu and op is not Ops.WHERE:
        if op in affine.OPS and all([s.dtype.scalar is dtypes.index for s in src]):
            return build.spread(affine.OPS[op](*src), src)
        folded = build.fold(op, src)
        if folded is not None:
            return folded
        lanes = max([s.dtype.lanes for s in src])
        return intern(op, u.dtype.vec(lanes), src, u.arg, u.tag)
    if op is Ops.WHERE:
        return build.where(*src)
    if op is Ops.CAST:
        return build.cast(src[0], u.dtype)
    return intern(op, u.dtype, src, u.arg, u.tag)


def as_written(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` on other sources, with sums of indices as they stand: once a quotient is spelled out, its
    users share it, where a normal form would look through it and add up its parts for each."""
    if u.op in affine.OPS and all([s.dtype.scalar is dtypes.index for s in src]):
        return intern(u.op, u.dtype, src, u.arg, u.tag)
    return remake(u, src)


def rebuild(root: UOp, mapping: Mapping[UOp, UOp]) -> UOp:
    """`root` with every key of the mapping replaced; what lies below a key is not visited."""
    done: dict[UOp, UOp] = dict(mapping)
    for u in analysis.toposort(root, gate=lambda n: n not in mapping):
        if u in done:
            continue
        src = tuple([done[s] for s in u.src])
        made = u if src == u.src else remake(u, src)
        if made is not u and made.origin is None:
            made.origin = u.origin
        done[u] = made
    return done[root]


def rewritten(
    root: UOp,
    change: Callable[[UOp, tuple[UOp, ...]], UOp | None],
    gate: Callable[[UOp], bool] | None = None,
    renew: Callable[[UOp, tuple[UOp, ...]], UOp] = remake,
) -> UOp:
    """One walk, sources first: `change(u, new sources)` gives the new node, or None to keep it.

    What lies below a node that the gate refuses stays as it is; what is kept on other sources is
    made by `renew`. A listener is told of the changes.
    """
    done: dict[UOp, UOp] = {}
    listener, step = trace.current_listener(), trace.Step(change)
    for u in analysis.order(root) if gate is None else analysis.toposort(root, gate):
        src = u.src if gate is not None and not gate(u) else tuple([done[s] for s in u.src])
        made = change(u, src)
        if made is None:
            made = u if src == u.src else renew(u, src)
        elif listener is not None and made is not u:
            listener(trace.Fired("walk", step, u, made))
        if made is not u and made.origin is None:
            made.origin = u.origin
        done[u] = made
    return done[root]
