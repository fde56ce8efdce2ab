"""Sums along lanes of products of bytes are sums of DOT4s, where the machine has it.

    the sum of the lanes of (a * b): int32x64
    →  the sum of the lanes of dot4(words of a, words of b): int32x16

The bytes of a vector that is read along the sum are words as they lie in memory. A DOT4 takes one
factor as unsigned and the other as signed bytes, so of two alike one gets another highest bit,
which adds 128 to signed bytes and takes it from unsigned ones:

    Σ s·t = Σ (s + 128)·t - Σ 128·t          Σ u·v = Σ u·(v - 128) - Σ u·(-128)

The last sum is that of one factor alone, and rows that share this factor share the sum.
"""

from __future__ import annotations

from typing import TypeAlias

from uopc.ir.builder import leaves
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.contraction import byte_factors
from uopc.passes.analysis.lanes import splat

# A DOT4, and one that is taken from its sum.
Dots: TypeAlias = "tuple[UOp, UOp | None]"

_WORD = 4  # bytes
_TOP = -0x7F7F7F80  # the highest bit of each byte of a word: 128, or -128


def dots(product: UOp, lanes: int, shared: int) -> Dots | None:
    """A DOT4 whose words add up to the lanes of a product, and one that is taken from it, if any;
    None where it is no product of bytes. `shared` is the factor that other products have, too."""
    factors = byte_factors(product)
    if factors is None or lanes % _WORD:
        return None
    t = dtypes.int32.vec(lanes // _WORD)
    own, other = [_words(f, t) for f in (factors[1 - shared], factors[shared])]
    signed = [f.dtype.scalar is dtypes.int8 for f in (factors[1 - shared], factors[shared])]
    if signed[0] != signed[1]:
        return intern(Ops.DOT4, t, (other, own) if signed[0] else (own, other)), None
    top = leaves.const(dtypes.int32, _TOP)
    turned = intern(Ops.XOR, t, (own, top))
    pairs = [(v, other) if signed[0] else (other, v) for v in (turned, top)]
    whole, extra = [intern(Ops.DOT4, t, pair) for pair in pairs]
    return whole, extra


def _words(v: UOp, t: DType) -> UOp:
    """The bytes of a vector, or one byte in each place, as words."""
    return intern(Ops.BITCAST, t, (splat(v, _WORD * t.lanes),))
