"""Values that few elements need are computed under a branch, and independent branches share a test.

    branch %x, %a, %y                     branch %x, %any, (branch %x, %a, %y)
    branch %z, %b, %w     →  with %any = %a or %b:
                                          branch %z, %any, (branch %z, %b, %w)

A branch costs a comparison per vector. It pays for arms that are long and that most vectors do not
need. It also splits straight code, which LLVM then schedules worse: with shared tests, the 15 sines
of a Jacobian have two tests instead of 15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uopc.ir.core import dtypes, ranges
from uopc.ir.core.args import FunctionArg, NumberArg
from uopc.ir.core.calls import outside_functions
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern, set_shape
from uopc.passes.analysis.branches import BranchOrder, waits

MOST = 16  # conditions per group: the values they may change stay alive until the last test
Conditions = tuple["UOp", ...]


def cold_branch(condition: UOp, usual: UOp, corrected: UOp) -> UOp:
    """`usual` where no lane holds `condition`, else all lanes of `corrected`, of the same dtype."""
    if condition.op is Ops.CONST:
        return corrected if condition.arg else usual
    some = condition
    if condition.dtype.lanes > 1:
        some = intern(Ops.HREDUCE, dtypes.bool_, (condition,), "add")
    return intern(Ops.BRANCH, usual.dtype, (usual, some, corrected))


def applied(name: str, function: Callable[..., UOp], *operands: UOp) -> UOp:
    """`function(*operands)` as an APPLY: a kernel has the nodes of the function once."""
    numbers = [intern(Ops.NUMBER, s.dtype, (), NumberArg(i)) for i, s in enumerate(operands)]
    body = intern(Ops.FUNCTION, dtypes.void, (function(*numbers),), FunctionArg(name))
    made = intern(Ops.APPLY, body.src[0].dtype, (body, *operands))
    set_shape(made, ())
    return made


def merged_branches(kernel: UOp) -> UOp:
    """A kernel of the vector level with its branches merged in groups."""
    order = outside_functions(kernel)
    branches = [u for u in order if u.op is Ops.BRANCH]
    if len({u.src[1] for u in branches}) < 2:
        return kernel
    below = waits(order)
    groups = _groups(branches, below)
    if not groups:
        return kernel
    made: dict[UOp, UOp] = {}  # node -> its replacement
    any_of: dict[Conditions, UOp] = {}
    # The conditions of a group have fewer branches below them than its members.
    unchanged = made.keys().isdisjoint
    for u in sorted(below, key=lambda u: below[u].branches):
        group = groups.get(u)
        if group is None and unchanged(u.src):
            continue
        src = tuple([made.get(s, s) for s in u.src])
        if group is not None:
            if group not in any_of:
                any_of[group] = _any([made.get(c, c) for c in group])
            inner = intern(Ops.BRANCH, u.dtype, src)
            made[u] = intern(Ops.BRANCH, u.dtype, (src[0], any_of[group], inner))
        else:
            made[u] = intern(u.op, u.dtype, src, u.arg, u.tag)
    return made[kernel]


def _groups(branches: Iterable[UOp], below: dict[UOp, BranchOrder]) -> dict[UOp, Conditions]:
    """For each branch in a group of two or more conditions: those conditions."""
    alike: dict[object, dict[UOp, list[UOp]]] = {}
    for u in branches:
        members = alike.setdefault((below[u], ranges.ranges(u)), {})
        members.setdefault(u.src[1], []).append(u)
    groups: dict[UOp, Conditions] = {}
    for members in alike.values():
        conditions = tuple(members)
        size = -(-len(conditions) // -(-len(conditions) // MOST))
        for i in range(0, len(conditions), size):
            part = conditions[i : i + size]
            if len(part) > 1:
                groups |= {u: part for c in part for u in members[c]}
    return groups


def _any(conditions: list[UOp]) -> UOp:
    """True if one of the conditions holds; vectors are combined before their lanes."""
    total = conditions[0]
    for c in conditions[1:]:
        if c.op is total.op is Ops.HREDUCE and c.src[0].dtype is total.src[0].dtype:
            lanes = intern(Ops.OR, c.src[0].dtype, (total.src[0], c.src[0]))
            total = intern(Ops.HREDUCE, dtypes.bool_, (lanes,), "add")
        else:
            total = intern(Ops.OR, dtypes.bool_, (total, c))
    return total
