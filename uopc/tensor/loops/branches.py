"""Choices between branches in the graph: compute all branches, then choose each value of the
result.

Derivatives treat the choice as one function: they differentiate each branch by itself and choose
afterwards, so that an infinite value in an unchosen branch is never multiplied by 0.
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
    """The results of one of the branches; all branches give values of the same dtypes and shapes.

    `which`: a bool chooses the first (False) or the second branch (True); an integer is the number
    of the branch, clamped to the last or first. If `which` has dimensions, all values have them in
    front. `given`: values of the PARAMs that stand for arguments in the branches. `values`: the
    results of the branches for these arguments, if known.
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
    """Choose one of the values, which have the same shape."""
    own, dims = shapes.shape(which), shapes.shape(values[0])
    wide = movement.reshape(which, (*own, *(1,) * (len(dims) - len(own))))
    if which.dtype is dtypes.bool_:
        return alu.where(wide, values[1], values[0])
    made = values[-1]
    for i, value in reversed(list(enumerate(values[:-1]))):
        made = alu.where(alu.binary(Ops.CMPLE, wide, i), value, made)
    return made
