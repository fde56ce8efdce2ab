"""Choices between branches in the graph: all are computed, and each value of the result is chosen.

Derivatives take the choice as one function, so that they differentiate each branch by itself and
choose afterwards: what is infinite in a branch that is not chosen meets no zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uopc.ir.builder import alu, movement, rebuild
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.tensor.loops import bodies
from uopc.tensor.primitive import primitive


def chosen(
    which: UOp, branches: Sequence[Sequence[UOp]], given: Mapping[UOp, UOp],
    values: Sequence[Sequence[UOp]] | None = None,
) -> list[UOp]:  # fmt: skip
    """The results of one of the branches, which give values of the same dtypes and shapes.

    `which`: a bool chooses the first or the second, False or True; an integer counts them, and the
    nearest one is taken if there is none of that number. If it has dimensions, all values have them
    in front. `given`: PARAMs that stand for arguments in the branches. `values`: what the branches
    give for these, if it is known.
    """
    count, flat = len(branches[0]), [u for row in branches for u in row]
    body, taken = bodies.closed(flat, list(given))
    if values is None:
        made = rebuild.rebuild(intern(Ops.TUPLE, dtypes.void, tuple(flat)), given).src
        values = [made[i : i + count] for i in range(0, len(made), count)]
    arguments = (which, body, *given.values(), *taken)
    return [
        primitive(_choice(which, row), "branches", *arguments, details=(i, count))
        for i, row in enumerate(zip(*values))
    ]


def _choice(which: UOp, values: Sequence[UOp]) -> UOp:
    """One of the values, of the same shape."""
    own, dims = shapes.shape(which), shapes.shape(values[0])
    wide = movement.reshape(which, (*own, *(1,) * (len(dims) - len(own))))
    if which.dtype is dtypes.bool_:
        return alu.where(wide, values[1], values[0])
    made = values[-1]
    for i, value in reversed(list(enumerate(values[:-1]))):
        made = alu.where(alu.binary(Ops.CMPLE, wide, i), value, made)
    return made
