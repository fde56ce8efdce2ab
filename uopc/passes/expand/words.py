"""Sums along lanes of products of narrow integers are added up in words of 32 bits.

    the sum of the lanes of (a * b): int32x64
    →  the sum of the lanes of dot4(words of a, words of b): int32x16

The bytes of a vector that is read along the sum are words as they lie in memory. A DOT4 takes one
factor as unsigned and the other as signed bytes, so of two alike one gets another highest bit,
which adds 128 to signed bytes and takes it from unsigned ones:

    Σ s·t = Σ (s + 128)·t - Σ 128·t          Σ u·v = Σ u·(v - 128) - Σ u·(-128)

The last sum is that of one factor alone, and rows that share this factor share the sum. Where there
is no DOT4, the products of neighbours are added first, which x86 does for pairs of 16 bits at once.
"""

from __future__ import annotations

from typing import TypeAlias

from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.contraction import narrow_factors, terms_of_a_word
from uopc.passes.analysis.lanes import splat
from uopc.passes.contract import Context

# Sums of neighbours, and of others that are taken from them.
Sums: TypeAlias = "tuple[UOp, UOp | None]"

_TOP = -0x7F7F7F80  # the highest bit of each byte of a word: 128, or -128


def in_words(product: UOp, lanes: int, shared: int, context: Context) -> Sums | None:
    """The sums of neighbouring lanes of a product that share a word; None if no lanes do. `shared`:
    the factor that other products use, too."""
    factors, count = narrow_factors(product), terms_of_a_word(product, context)
    if factors is None or count == 1 or lanes % count or lanes == 2:  # two are added up at the end
        return None
    if count == 4:
        return _dots(factors[1 - shared], factors[shared], lanes)
    wide, t = splat(product, lanes), dtypes.int32.vec(lanes // 2)
    even, odd = [intern(Ops.SHUFFLE, t, (wide, wide), tuple(range(i, lanes, 2))) for i in (0, 1)]
    return intern(Ops.ADD, t, (even, odd)), None


def _dots(own: UOp, shared: UOp, lanes: int) -> Sums:
    t = dtypes.int32.vec(lanes // 4)
    a, b = _words(own, t), _words(shared, t)
    signed, other = [f.dtype.scalar is dtypes.int8 for f in (own, shared)]
    if signed != other:
        return intern(Ops.DOT4, t, (b, a) if signed else (a, b)), None
    top = leaves.const(dtypes.int32, _TOP)
    pairs = [(v, b) if signed else (b, v) for v in (intern(Ops.XOR, t, (a, top)), top)]
    whole, extra = [intern(Ops.DOT4, t, pair) for pair in pairs]
    return whole, extra


def _words(v: UOp, t: DType) -> UOp:
    """The bytes of a vector, or one byte in each place, as words."""
    return intern(Ops.BITCAST, t, (splat(v, 4 * t.lanes),))
