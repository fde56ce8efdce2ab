"""Replace PRIMITIVEs by their values, each with separate storage.

    solve(a, x)                  call lu (buffer 7, a, x)
    the same with y for x        call lu (buffer 7, a, y)   →   call lu (buffer 8, a, y)

A PRIMITIVE is a value, so a graph may repeat it on other operands: in the body of a loop and after
the loop, say. The storage that its kernels write is no part of the value. Remade nodes name the
BUFFER of the first nodes, so two of them would overwrite each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.calls import is_length
from uopc.ir.core.ops import Ops
from uopc.ir.core.storage import base
from uopc.ir.core.uop import UOp, intern

_CLOSED = (Ops.PRIMITIVE, Ops.FUNCTION, *walk.CALLED)
_New = Callable[[UOp, Any], UOp]  # from a BUFFER and the effects that fill it to other storage


def without_primitives(root: UOp) -> UOp:
    """Replace each PRIMITIVE of the graph by its value."""
    ops = walk.ops(root)
    if Ops.PRIMITIVE not in ops:
        return root
    if Ops.BUFFER not in ops:
        return rebuild.rewritten(root, lambda u, src: src[0] if u.op is Ops.PRIMITIVE else None)
    nodes = walk.nodes(root)
    first: dict[UOp, Any] = {}  # BUFFER -> who fills it first
    slots = itertools.count(1 + max([u.arg.slot for u in nodes if u.op is Ops.BUFFER]))
    made: dict[Any, UOp] = {}  # who fills a BUFFER that has an owner -> another BUFFER

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.PRIMITIVE:
            return None
        own = {}
        for b, effects in _filled(u).items():
            owner = b, u.arg.name, u.src[1:], effects
            if first.setdefault(b, owner) != owner:
                if owner not in made:
                    arg = replace(b.arg, slot=next(slots))
                    made[owner] = intern(Ops.BUFFER, b.dtype, b.src, arg)
                own[b] = made[owner]
        return rebuild.rebuild(src[0], {s: s for s in src[1:]} | own) if own else src[0]

    return rebuild.rewritten(root, change)


def _filled(u: UOp) -> dict[UOp, tuple[UOp, ...]]:
    """The BUFFERs that a PRIMITIVE fills itself, with the first effects that fill each. A size that
    the graph computes is not its own."""
    operands = set(u.src[1:])

    def is_own(v: UOp) -> bool:
        return v not in operands and v.op not in _CLOSED and not is_length(v)

    inside = walk.toposort(u.src[0], is_own)
    found: dict[UOp, tuple[UOp, ...]] = {}
    for v in inside:
        if (v.op is Ops.CALL or v.op is Ops.STORE) and v not in operands:
            for s in v.src[1:] if v.op is Ops.CALL else v.src[:1]:
                b = base(s)
                if b.op is Ops.BUFFER:
                    found[b] = (*found.get(b, ()), v)
    return found
