"""Scalar expressions as Python would write them: `((n*4)+r0)`.

Variables, parameters and ranges appear by name; every operator is in parentheses. Movement,
reductions and effects have no such form, nor do expressions that sharing makes too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from uopc.ir.core import walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.ir.text.literals import write_string

Pieces = tuple[Any, ...]  # str | UOp


def infix(u: UOp, limit: int = 1_000_000) -> str | None:
    """The expression, or None when there is none of at most `limit` characters."""
    pieces: dict[UOp, Pieces] = {}
    length: dict[UOp, int] = {}
    for s in walk.toposort(u, lambda s: s.op not in _LEAVES):
        parts = _pieces(s)
        total = None if parts is None else _length(parts, length)
        if parts is not None and total is not None and total <= limit:
            pieces[s], length[s] = parts, total
    if u not in pieces:
        return None
    out: list[str] = []
    stack: list[Any] = [u]
    while stack:
        p = stack.pop()
        if type(p) is str:
            out.append(p)
        else:
            stack.extend(reversed(pieces[p]))
    return "".join(out)


def _length(parts: Pieces, length: dict[UOp, int]) -> int | None:
    """Characters of the parts together; None when one of them has no infix form."""
    total = 0
    for p in parts:
        known = len(p) if type(p) is str else length.get(p)
        if known is None:
            return None
        total += known
    return total


def range_name(u: UOp) -> str:
    """`r0`, or `r0_1` for the second part of a split range."""
    return "r" + "_".join(map(str, u.arg.axis)).replace("-", "m")


_LEAVES: dict[Op, Callable[[UOp], str]] = {
    Ops.RANGE: range_name,
    Ops.SPECIAL: lambda u: write_string(u.arg),
    Ops.VARIABLE: lambda u: write_string(u.arg.name),
    Ops.PARAM: lambda u: write_string(u.arg.name),
    Ops.INVALID: lambda u: "invalid",
    Ops.CONST: lambda u: _constant(u.arg),
}


def _constant(value: Any) -> str:
    if type(value) is tuple:
        return "{" + ",".join(map(str, value)) + "}"
    return str(value)


def _listed(nodes: Iterable[UOp], separator: str) -> Pieces:
    out: list[Any] = []
    for s in nodes:
        out += [separator, s] if out else [s]
    return tuple(out)


def _pieces(u: UOp) -> Pieces | None:
    """The text of a node around its operands; None when it has no infix form."""
    op, src = u.op, u.src
    if op in _LEAVES:
        return (_LEAVES[op](u),)
    if op is Ops.WHERE:
        return ("(", src[1], " if ", src[0], " else ", src[2], ")")
    if op is Ops.NEG:
        return ("(not " if u.dtype.kind == "bool" else "(-", src[0], ")")
    if op.is_alu:
        if op.symbol is not None and len(src) == 2:
            return ("(", src[0], op.symbol, src[1], ")")
        return (f"{op.name}(", *_listed(src, ", "), ")")
    if op is Ops.CAST:
        return (f"{u.dtype.name}(", src[0], ")")
    if op is Ops.BITCAST:
        return ("bitcast(", src[0], f", {u.dtype.name})")
    return _access_pieces(u)


def _access_pieces(u: UOp) -> Pieces | None:
    op, src = u.op, u.src
    if op is Ops.INDEX:
        return (src[0], "[", *_listed(src[1:], ", "), "]")
    if op is Ops.LOAD:
        return (src[0],) if len(src) == 1 else ("(", src[0], " if ", src[1], " else 0)")
    if op is Ops.AFTER:
        return (src[0],)
    if op is Ops.BIND:
        return ("bind(", src[0], ", ", src[1], ")")
    if op is Ops.STACK:
        return ("{", *_listed(src, ","), "}")
    return None
