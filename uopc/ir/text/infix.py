"""Scalar expressions as Python would write them: `((n*4)+r0)`.

Variables, parameters and ranges appear by name; every operator is in parentheses. Movement,
reductions and effects have no such form; nor have expressions that are too long without sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from uopc.ir.core.constants import float_text
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text.literals import write_string

Tokens = tuple[Any, ...]  # str | UOp


def infix(u: UOp, limit: int = 1_000_000) -> str | None:
    """The expression; None if there is none with at most `limit` characters."""
    out: list[str] = []
    length = 0
    stack: list[Any] = [u]
    while stack:
        t = stack.pop()
        if type(t) is str:
            length += len(t)
            if length > limit:
                return None
            out.append(t)
            continue
        found = _tokens(t)
        if not found:
            return None
        stack.extend(reversed(found))
    return "".join(out)


def _constant(u: UOp) -> str:
    return (
        "{" + ",".join(map(_number_text, u.arg)) + "}"
        if type(u.arg) is tuple
        else _number_text(u.arg)
    )


def _number_text(value: float) -> str:
    return float_text(value) if type(value) is float else str(value)


_LEAVES: dict[Op, Callable[[UOp], str]] = {
    # `r0`, or `r0_1` for the second part of a split range
    Ops.RANGE: lambda u: "r" + "_".join(map(str, u.arg.axis)).replace("-", "m"),
    Ops.SPECIAL: lambda u: write_string(u.arg),
    Ops.VARIABLE: lambda u: write_string(u.arg.name),
    Ops.PARAM: lambda u: write_string(u.arg.name),
    Ops.INVALID: lambda u: "invalid",
    Ops.CONST: _constant,
}


def _listed(nodes: Iterable[UOp], separator: str = ", ") -> Tokens:
    return tuple([t for s in nodes for t in (separator, s)][1:])


def _tokens(u: UOp) -> Tokens:
    """The text of a node around its operands; nothing when it has no infix form."""
    op, src = u.op, u.src
    if op in _LEAVES:
        return (_LEAVES[op](u),)
    if op is Ops.WHERE:
        return ("(", src[1], " if ", src[0], " else ", src[2], ")")
    if op is Ops.NEG:
        return ("(not " if u.dtype.kind == "bool" else "(-", src[0], ")")
    if op.is_alu and op.symbol is not None and len(src) == 2:
        return ("(", src[0], op.symbol, src[1], ")")
    if op is Ops.BIND and src[1].op is not Ops.CONST:
        return src[:1]
    if op.is_alu or op is Ops.BIND:
        return (f"{op.name}(", *_listed(src), ")")
    if op is Ops.CAST:
        return (f"{u.dtype.name}(", src[0], ")")
    if op is Ops.BITCAST:
        return ("bitcast(", src[0], f", {u.dtype.name})")
    if op is Ops.INDEX:
        return (src[0], "[", *_listed(src[1:]), "]")
    if op is Ops.LOAD and len(src) > 1:
        return ("(", src[0], " if ", src[1], " else 0)")
    if op is Ops.STACK:
        return ("{", *_listed(src, ","), "}")
    return src[:1] if op is Ops.LOAD or op is Ops.AFTER else ()
