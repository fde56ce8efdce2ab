"""Expand a function once per operand types, and copy the nodes at every further use.

A sine is 150 nodes, and building them (folding, types, shapes) takes 1.5 ms. The result depends on
the operands' types alone. Of a kernel with very many uses, each is an APPLY instead:

    240 sines of %x    →    %r = apply function sin, %x    (3 nodes for each, not 36)

The passes and LLVM then change and compile the function once. No vector register survives a call,
so few uses stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from uopc.ir.core import dtypes, walk
from uopc.ir.core.arena import compile_scoped
from uopc.ir.core.args import FunctionArg, NumberArg
from uopc.ir.core.calls import function_body
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_shape

Function = Callable[..., "UOp"]
Nodes = tuple["UOp", ...]
# docs/lab/llvm_effort.md has the figures behind these two.
MOST_COPIED = 4096  # nodes of all copies of a function in a kernel
SHORTEST = 24  # nodes of a function that is called: a call takes as long as some seven


class Use(NamedTuple):
    """The uses of a function on operands of some type in a kernel: its name there, and how many."""

    name: str
    often: int


# An expansion: the operands, then the nodes that depend on them, sources first, the result last.
_bodies: dict[object, Nodes] = compile_scoped({})
_functions: dict[object, UOp] = compile_scoped({})


def applied(function: Function, src: Nodes, use: Use, **options: bool) -> UOp:
    """`function(*src, **options)`, copied from the expansion for operands of these types; an APPLY
    of the expansion if a kernel would have too many copies."""
    if any([s.op is Ops.CONST for s in src]) or len(set(src)) < len(src):
        return function(*src, **options)  # something may fold
    key = function, tuple([s.dtype for s in src]), tuple(options.items())
    body = _bodies.get(key)
    if body is None:
        body = _bodies[key] = _expanded(function, [s.dtype for s in src], options)
    operands, nodes = body[: len(src)], body[len(src) :]
    if len(nodes) < SHORTEST or use.often * len(nodes) <= MOST_COPIED:
        return _copied(nodes, dict(zip(operands, src)))
    if key not in _functions:
        _functions[key] = _function(use.name, operands, nodes)
    made = intern(Ops.APPLY, nodes[-1].dtype, (_functions[key], *src))
    set_shape(made, ())
    return made


def _expanded(function: Function, types: list[DType], options: dict[str, bool]) -> Nodes:
    # No other NUMBER has a negative slot.
    operands = [intern(Ops.NUMBER, t, (), NumberArg(-1 - i)) for i, t in enumerate(types)]
    depends = dict.fromkeys(operands)
    for u in walk.toposort(function(*operands, **options)):
        if not depends.keys().isdisjoint(u.src):
            depends[u] = None
    return tuple(depends)


def _copied(nodes: Iterable[UOp], made: dict[UOp, UOp]) -> UOp:
    """The last of some nodes, all of them copied on replaced sources, which `made` gets."""
    copy = None
    for u in nodes:
        copy = intern(u.op, u.dtype, tuple([made.get(s, s) for s in u.src]), u.arg, u.tag)
        set_shape(copy, ())
        made[u] = copy
    assert copy is not None
    return copy


def _function(name: str, operands: Nodes, nodes: Nodes) -> UOp:
    """An expansion as a FUNCTION, with the FUNCTIONs that it applies in place."""
    made = {
        s: intern(Ops.NUMBER, s.dtype, (), NumberArg(i)) for i, s in enumerate(operands)
    }
    for u in nodes:
        if u.op is not Ops.APPLY:
            _copied((u,), made)
            continue
        inner = function_body(u.src[0])
        given = {s: made[u.src[1 + s.arg.slot]] for s in inner if s.op is Ops.NUMBER}
        made[u] = _copied([s for s in inner if s.op is not Ops.NUMBER], given)
    return intern(Ops.FUNCTION, dtypes.void, (made[nodes[-1]],), FunctionArg(name))
