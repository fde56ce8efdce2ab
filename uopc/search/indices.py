"""The integers that arrays get as indices where a kernel is measured: each address stays inside.

    x[s1[i]·8 + j] if 0 ≤ s1[i] < 300        {1: 300}: the integers of argument 1 are in 0..299
"""

from __future__ import annotations

from uopc.errors import Unsupported
from uopc.ir.builder.rebuild import rebuild
from uopc.ir.core import walk
from uopc.ir.core.arena import arena
from uopc.ir.core.args import VariableArg
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.nest.accesses import Access
from uopc.ir.symbolic.simplify import simplify
from uopc.ir.verify import in_bounds


def limits(kernel: UOp) -> dict[int, int]:
    """By slot of an argument whose integers are indices: a limit of the integers, from 0, under
    which each address stays inside of its storage, and conditions on the integers hold as for 0
    and 1. Unsupported if other values decide whether an address stays inside."""
    written = {Access(u.src[0]).storage for u in walk.nodes(kernel) if u.op is Ops.STORE}
    read = list(dict.fromkeys([
        v for u in walk.nodes(kernel) if u.op is Ops.INDEX for s in u.src[1:] for v in walk.nodes(s)
        if v.op is Ops.INDEX and v.dtype.is_integral and Access(v).storage not in written
    ]))  # fmt: skip
    numbers = {v: i for i, v in enumerate(read)}
    numbers |= {
        u: numbers[u.src[0]] for u in walk.nodes(kernel)
        if u.op is Ops.BITCAST and u.src[0] in numbers and u.dtype.is_integral
    }  # fmt: skip

    def stood_in(limit: int) -> UOp:
        return rebuild(kernel, {v: _below(v, i, limit) for v, i in numbers.items()})

    with arena():
        for access in in_bounds.accesses(stood_in(1)):
            if access.verdict is not in_bounds.Verdict.INSIDE:
                why = f"index {access.index.render()} depends on values that the program computes"
                raise Unsupported(why)
        if not read:
            return {}
        low, high = 1, 2 + min([v.dtype.bounds[1] for v in read])
        least = _dependent(stood_in(2))
        while high - low > 1:
            middle = (low + high) // 2
            found = stood_in(middle)
            valid = _dependent(found) <= least and all(
                [a.verdict is in_bounds.Verdict.INSIDE for a in in_bounds.accesses(found)]
            )
            low, high = (middle, high) if valid else (low, middle)
    return {Access(v).storage.arg.slot: low for v in read}


_READ = "read "  # no user's name has a space


def _below(v: UOp, number: int, limit: int) -> UOp:
    """A stand-in for an integer from 0 below a limit."""
    return intern(Ops.VARIABLE, v.dtype, (), VariableArg(f"{_READ}{number}", 0, limit - 1))


def _dependent(kernel: UOp) -> int:
    """The number of values that depend on a stand-in: few where all conditions are decided."""
    found: set[UOp] = set()
    for u in walk.nodes(simplify(kernel)):
        stands_in = u.op is Ops.VARIABLE and u.arg.name.startswith(_READ)
        if stands_in or not found.isdisjoint(u.src):
            found.add(u)
    return len(found)
