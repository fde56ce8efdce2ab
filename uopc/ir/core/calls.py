"""Walks that stay in one graph: the body of a CALL is a graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from uopc.ir.core import walk
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp


def operands(u: UOp) -> tuple[UOp, ...]:
    """The sources in the same graph: all but the body of a CALL or an APPLY."""
    return u.src[1:] if u.op is Ops.CALL or u.op is Ops.APPLY else u.src


def outside_bodies(u: UOp) -> list[UOp]:
    """The sources outside of all bodies: those of the loops of PRIMITIVEs are closed, too."""
    return [s for s in operands(u) if s.op is not Ops.FUNCTION]


def applied(kernel: UOp) -> list[UOp]:
    """The FUNCTIONs that APPLYs of a kernel use, in order."""
    if Ops.APPLY not in walk.ops(kernel):
        return []
    return list(dict.fromkeys([u.src[0] for u in walk.order(kernel) if u.op is Ops.APPLY]))


def function_body(function: UOp) -> list[UOp]:
    """The nodes of the value of a kernel's FUNCTION, sources first: arithmetic alone."""
    return list(walk.toposort(function.src[0]))


def params(body: UOp) -> list[UOp]:
    """The PARAMs of a FUNCTION, without those of bodies inside of it."""
    return [u for u in graph_order(body.src, outside_bodies) if u.op is Ops.PARAM]


def written_slot(value: UOp) -> int | None:
    """The slot of the PARAM that an output of a FUNCTION is, after writes; None for a new value."""
    param = value
    while param.op is Ops.AFTER:
        param = param.src[0]
    if param is value or param.op is not Ops.PARAM or param.arg.slot < 0:
        return None
    return int(param.arg.slot)


def written_argument(u: UOp) -> UOp | None:
    """The argument of a FUNCTION's call that a GETTUPLE is, after writes of the body to it. None
    for any other node: it is a value of its own."""
    if u.op is not Ops.GETTUPLE or u.src[0].op is not Ops.CALL:
        return None
    function, *args = u.src[0].src
    if function.arg.repeats:
        return None
    slot = written_slot(function.src[u.arg])
    return None if slot is None else args[slot]


def exchanges_of(body: UOp) -> list[UOp]:
    """The STOREs of exchanges that the body of a CALL is, if it is no kernel: one, or a bucket of
    several that happen at once, each in place."""
    if body.op is not Ops.SINK:
        return []
    stores = [s for s in body.src if s.op is Ops.STORE and s.src[1].op in GroupOp.Exchange]
    return stores if len(stores) == len(body.src) else []


def graph_order(
    roots: Iterable[UOp],
    sources: Callable[[UOp], Sequence[UOp]] = operands,
    stop: Callable[[UOp], bool] = lambda u: False,
) -> list[UOp]:
    """Every node below the roots, sources first; the walk goes no deeper where `stop` holds."""
    done: dict[UOp, None] = {}
    for root in roots:
        stack: list[tuple[UOp, bool]] = [(root, False)]
        while stack:
            u, ready = stack.pop()
            if u in done:
                continue
            if ready or stop(u):
                done[u] = None
                continue
            stack.append((u, True))
            stack.extend([(s, False) for s in reversed(sources(u)) if s not in done])
    return list(done)
