"""Sizes that a graph computes: each becomes a variable, whose value is an output of the graph.

Before (tensor)                             After (tensor)
  %4 = bind %count, %3 : index                %5 = bind %count, %3 : index
  %5 = shrink %2, %4 : f32[%4]                %6 = shrink %2, %count : f32[%count]
  sink %5                                     sink %5, %6

The values come first, in an order in which each depends on earlier ones alone. Two values that are
bound to variables of one name get variables of different names: count, count_1.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from uopc.errors import InvalidIR, Unsupported
from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.calls import is_length
from uopc.ir.core.ops import Ops
from uopc.ir.core.trace import made_at
from uopc.ir.core.uop import UOp, intern, set_origin


def lengths_of(sink: UOp) -> list[UOp]:
    """The BINDs of the lengths of a SINK or TUPLE, which come first."""
    return list(itertools.takewhile(is_length, sink.src))


def with_variables(sink: UOp) -> UOp:
    """The SINK of outputs with variables in place of the sizes that the graph computes, and their
    values before the outputs. Unsupported for a size that the body of a loop computes."""
    nodes = walk.order(sink)
    found = [u for u in nodes if is_length(u)]
    if not found or len(found) == len(lengths_of(sink)):
        return sink
    _check_outside(found)
    free = [s for u in nodes if not is_length(u) for s in u.src if s.op is Ops.VARIABLE]
    taken = {str(v.arg.name) for v in free}
    values: dict[tuple[UOp, UOp], UOp] = {}  # a variable, and its value -> the new variable

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if not is_length(u):
            return None
        key = u.src[0], src[1]
        if key not in values:
            values[key] = _named_apart(u.src[0], taken)
        return values[key]

    rewritten = rebuild.rewritten(sink, change)
    binds = [intern(Ops.BIND, v.dtype, (v, value)) for (_, value), v in values.items()]
    for made, u in zip(binds, found):
        set_origin(made, made.origin or u.origin)
    return intern(sink.op, dtypes.void, (*binds, *rewritten.src), sink.arg)


def _named_apart(variable: UOp, taken: set[str]) -> UOp:
    """The variable under a name that no other has."""
    name = str(variable.arg.name)
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    free = next(n for n in names if n not in taken)
    taken.add(free)
    arg = replace(variable.arg, name=free, computed=True)
    return intern(Ops.VARIABLE, variable.dtype, (), arg)


def _check_outside(found: list[UOp]) -> None:
    for u in found:
        if shapes.shape(u.src[1]):
            raise InvalidIR(f"bind: the value has the shape {shapes.show(shapes.shape(u.src[1]))}")
    bodies = walk.CALLED | {Ops.FUNCTION}
    for u in found:
        below = walk.toposort(u.src[1], gate=lambda v: v.op not in bodies)
        if any([p.op is Ops.PARAM and p.arg.slot >= 0 for p in below]):
            raise Unsupported(
                f"the length {u.src[0].arg.name} is computed in the body of a loop or a function,"
                f" where sizes must be known: compute it outside{made_at(u)}"
            )
