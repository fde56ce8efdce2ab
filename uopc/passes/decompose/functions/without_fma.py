"""Functions of floats for machines without an instruction for a*b + c with one rounding.

A product and a sum in software that round once for any numbers take 60 operations, and functions
consist of them. In functions, of which we know the numbers, fewer do:

    result * x + 0.3        rounds twice: a step of a polynomial
    a * b + (c - a * b)     the error of the product, by halves of its factors, and that of the sum
                            are added to their sum: 24 operations, as accurate as one rounding

float32 is computed as float64, where products are exact. Angles of float64 have functions of their
own (`trig_without_fma.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from uopc.ir.builder import rebuild
from uopc.ir.core import dtypes, walk
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.floats.soft_arithmetic import accurate
from uopc.passes.decompose.functions import trig_without_fma
from uopc.passes.decompose.functions.transcendental import DECOMPOSITIONS

# Functions in which the products of two variables may round, by the bits of the operand: the others
# compute with pairs of numbers, whose second one is the error of the first.
_ROUND = {
    32: frozenset((Ops.EXP, Ops.EXP2, Ops.TANH, Ops.ERF, Ops.POW)),
    64: frozenset((Ops.EXP, Ops.EXP2, Ops.LOG, Ops.TANH, Ops.ERF)),
}

_ROUND_AT = 2.0**51  # from there on, a sum rounds to whole numbers


@functools.cache
def function(op: Op) -> Callable[..., UOp]:
    """The decomposition of a function, with few products and sums that round once."""

    def made(*src: UOp, **options: bool) -> UOp:
        own = trig_without_fma.FUNCTIONS.get(op) if src[0].dtype.bits == 64 else None
        whole = DECOMPOSITIONS[op](*src, **options) if own is None else own(*src)
        given = {u for s in src for u in walk.toposort(s)}
        rounds = op in _ROUND.get(src[0].dtype.bits, ())
        only = {u for u in walk.toposort(whole) if u.op is Ops.MULACC and u not in given}
        change = functools.partial(_changed, rounds, src[0].dtype.bits == 32)
        return rebuild.rewritten(whole, change, only=only)

    return made


def _changed(rounds: bool, huge: bool, u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """`huge`: an angle of float32 has a quotient by pi / 2 that float64 does not round well."""
    a, b, c = src
    t = u.dtype.scalar
    if t is dtypes.float32:
        a, b, c = [_wide(s) for s in src]
        return (a * b + c).cast(t)
    if t is not dtypes.float64:
        return None
    if c.op is Ops.CONST and not (huge and abs(c.arg) >= _ROUND_AT):
        return a * b + c
    if rounds and b.op is not Ops.CONST and not _is_error(a, b, c):
        return a * b + c
    return accurate(a, b, c)


def _wide(a: UOp) -> UOp:
    """A float32 as float64: what was float64 before is not rounded in between."""
    if a.op is Ops.CAST and a.src[0].dtype.scalar is dtypes.float64:
        return a.src[0]
    return a.cast(dtypes.float64)


def _is_error(a: UOp, b: UOp, c: UOp) -> bool:
    """True if the product of the same numbers was rounded before, on the way to c."""
    pairs = [u.src[:2] for u in walk.toposort(c) if u.op in (Ops.MUL, Ops.MULACC)]
    return any([set(p) == {a, b} for p in pairs])
