"""Walks that stay in one graph: the body of a CALL is a graph of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from uopc.ir.core import dtypes, walk
from uopc.ir.core.args import VariableArg
from uopc.ir.core.ops import GroupOp, Ops
from uopc.ir.core.uop import UOp, intern


def operands(u: UOp) -> tuple[UOp, ...]:
    """The sources in the same graph: all but the body of a CALL or an APPLY, and the variable of a
    BIND, which is its value."""
    return u.src[1:] if u.op is Ops.CALL or u.op is Ops.APPLY or is_length(u) else u.src


def is_length(u: UOp) -> bool:
    """True for a variable that is bound to a value of the graph: an int64."""
    if u.op is not Ops.BIND or len(u.src) != 2:
        return False
    variable, value = u.src
    is_value = value.dtype is dtypes.int64 and value.op is not Ops.CONST
    return is_value and type(variable.arg) is VariableArg


def outside_bodies(u: UOp) -> list[UOp]:
    """The sources outside of all bodies, also outside of the loops of PRIMITIVEs."""
    return [s for s in operands(u) if s.op is not Ops.FUNCTION]


def applied(kernel: UOp) -> list[UOp]:
    """The FUNCTIONs that APPLYs of a kernel use, in order."""
    listed = kernel.src if kernel.op is Ops.LINEAR else walk.order(kernel)
    return list(dict.fromkeys([u.src[0] for u in listed if u.op is Ops.APPLY]))


def outside_functions(kernel: UOp) -> list[UOp]:
    """The nodes of a kernel, sources first, without FUNCTIONs and their bodies."""
    if Ops.APPLY not in walk.ops(kernel):
        return list(walk.order(kernel))
    found = walk.toposort(kernel, lambda u: u.op is not Ops.FUNCTION)
    return [u for u in found if u.op is not Ops.FUNCTION]


def function_body(function: UOp) -> list[UOp]:
    """The nodes of the value of a kernel's FUNCTION, sources first: arithmetic alone."""
    return list(walk.toposort(function.src[0]))


def function_statements(function: UOp) -> list[UOp]:
    """The nodes of a kernel's FUNCTION in running order; the last node is the value. Nodes that
    only the last operand of a BRANCH needs stand between an IF and its ENDIF, before the BRANCH."""
    body = function_body(function)
    if all([u.op is not Ops.BRANCH for u in body]):
        return body
    blocks: dict[UOp | None, list[UOp]] = {}
    for u, around in _branches_around(body).items():
        blocks.setdefault(around[-1] if around else None, []).append(u)
    made: dict[UOp, UOp] = {}
    out: list[UOp] = []

    def append(u: UOp, src: tuple[UOp, ...]) -> None:
        made[u] = u if src == u.src else intern(u.op, u.dtype, src, u.arg, u.tag)
        out.append(made[u])

    stack = [(body[-1], body[-1], reversed(blocks[None]))]  # BRANCH, its IF, and what stands inside
    while stack:
        branch, opened, block = stack[-1]
        for u in block:
            src = tuple([made.get(s, s) for s in u.src])
            if u.op is Ops.BRANCH:
                out.append(intern(Ops.IF, src[1].dtype, src[1:2], len(out)))
                stack.append((u, out[-1], reversed(blocks.get(u, []))))
                break
            append(u, src)
        else:
            stack.pop()
            if stack:
                out.append(intern(Ops.ENDIF, dtypes.void, (opened,)))
                a, _, b = [made.get(s, s) for s in branch.src]
                append(branch, (a, opened, b))
    return out


def _branches_around(body: Sequence[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """By node, users first: the BRANCHes, outer first, with the node in their last operands only.
    """
    needed: dict[UOp, tuple[UOp, ...]] = {body[-1]: ()}
    for u in reversed(body):
        for i, s in enumerate(u.src):
            around = (*needed[u], u) if u.op is Ops.BRANCH and i == 2 else needed[u]
            if s in needed:
                pairs = itertools.takewhile(lambda p: p[0] is p[1], zip(needed[s], around))
                around = tuple([a for a, _ in pairs])
            needed[s] = around
    return {u: needed[u] for u in reversed(body)}


def params(body: UOp) -> list[UOp]:
    """The PARAMs of a FUNCTION, without PARAMs of bodies inside of it."""
    return [u for u in graph_order(body.src, outside_bodies) if u.op is Ops.PARAM]


def written_slot(value: UOp) -> int | None:
    """The slot of a FUNCTION's output that is a PARAM after writes; None for a new value."""
    param = value
    while param.op is Ops.AFTER:
        param = param.src[0]
    if param is value or param.op is not Ops.PARAM or param.arg.slot < 0:
        return None
    return int(param.arg.slot)


def written_argument(u: UOp) -> UOp | None:
    """The argument of a call that a GETTUPLE returns, written by the FUNCTION's body. None if the
    node is a new value."""
    if u.op is not Ops.GETTUPLE or u.src[0].op is not Ops.CALL:
        return None
    function, *args = u.src[0].src
    if function.arg.repeats:
        return None
    slot = written_slot(function.src[u.arg])
    return None if slot is None else args[slot]


def exchanges_of(body: UOp) -> list[UOp]:
    """The exchanges in the body of a CALL that is no kernel, as STOREs: one exchange, or a bucket
    that happens at once, each in place."""
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
