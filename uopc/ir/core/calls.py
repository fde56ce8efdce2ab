"""Walks that stay in one graph: the body of a CALL is a graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp


def operands(u: UOp) -> tuple[UOp, ...]:
    """The sources in the same graph: all but the body of a CALL."""
    return u.src[1:] if u.op is Ops.CALL else u.src


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
