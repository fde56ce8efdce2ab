"""Remove additions of 0.0 where the sign of a zero is not observable.

    store (0.0 + a·(b + 0.0)) + 2·(c + 0.0)   →   store (0.0 + a·b) + 2·c

`x + 0.0` is x except for x = -0.0, so rules keep it. Sums that begin with zero are full of it, such
as columns of a Jacobian that begin with a vector of zeros. A sum with anything but -0.0, a
comparison and an exponential do not depend on the sign of a zero. If the sign of a value's zeros is
not observable, neither is that of its operands, through products, sines, roots and selections.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from uopc.ir.builder import rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import COMPARISONS, Ops
from uopc.ir.core.uop import UOp

# Ops whose result does not depend on the sign of a zero operand.
_DEAF: Final = frozenset((*COMPARISONS, Ops.ABS, Ops.EXP, Ops.EXP2, Ops.LOG, Ops.LOG2, Ops.COS))
# Ops whose result changes at most in the sign of a zero.
_PASSES: Final = frozenset((
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.MULACC, Ops.NEG, Ops.MAX, Ops.MIN, Ops.WHERE, Ops.AFTER,
    Ops.SQRT, Ops.SIN, Ops.TAN, Ops.TANH, Ops.ERF, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND,
))  # fmt: skip


def without_unseen_signs(kernel: UOp) -> UOp:
    """The kernel without additions of 0.0 that are not observable."""
    order = list(walk.order(kernel))
    added = {u: x for u in order if (x := _but_zero(u)) is not None}
    if not added:
        return kernel
    never = _never_negative(order)
    seen: set[UOp] = set()  # values whose signed zeros are observable
    for u in reversed(order):
        seen.update(_observed(u, u in seen, never))
    gone = {u for u in added if u not in seen}

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp:
        return src[u.src.index(added[u])]

    return rebuild.rewritten(kernel, change, only=gone) if gone else kernel


def _but_zero(u: UOp) -> UOp | None:
    """x of x + 0.0."""
    if u.op is not Ops.ADD or not u.dtype.is_float:
        return None
    a, b = u.src
    return a if _is_positive_zero(b) else b if _is_positive_zero(a) else None


def _is_positive_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg == 0 and math.copysign(1.0, u.arg) > 0


def _never_negative(order: list[UOp]) -> set[UOp]:
    """The values that are never -0.0. A sum is -0.0 only if both terms are; a product may be when
    it underflows."""
    never: set[UOp] = set()
    for u in order:
        match u.op:
            case Ops.CONST:
                found = u.arg != 0 or math.copysign(1.0, u.arg) > 0
            case Ops.ADD:
                found = not never.isdisjoint(u.src)
            case Ops.MAX | Ops.MIN:
                found = never.issuperset(u.src)
            case Ops.WHERE:
                found = never.issuperset(u.src[1:])
            case Ops.SUB | Ops.AFTER | Ops.SQRT:
                found = u.src[0] in never
            case Ops.CAST:
                found = not u.src[0].dtype.is_float
            case _:
                found = u.op in (Ops.ABS, Ops.EXP, Ops.EXP2)
        if found and u.dtype.is_float:
            never.add(u)
    return never


def _observed(u: UOp, seen: bool, never: set[UOp]) -> Sequence[UOp]:
    """The operands whose signed zeros are observable in `u`; `seen`: those of `u` are.

    In a sum one term that is never -0.0 decides the sign of a zero result, preferably a number,
    which no other change removes."""
    if u.op in _DEAF or (u.op is Ops.CAST and not u.dtype.is_float):
        return ()
    if u.op not in _PASSES and u.op is not Ops.CAST:
        return u.src
    terms = {Ops.ADD: u.src, Ops.SUB: u.src[:1], Ops.MULACC: u.src[2:]}.get(u.op, ())
    found = sorted([s for s in terms if s in never], key=lambda s: s.op is not Ops.CONST)
    return (found[:1] or u.src) if seen else ()
