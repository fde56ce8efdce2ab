"""Rounded quotients by a constant, as quantised models have them, are sums of two products.

    round (x / c)   →   round (mulacc x r (x · s))      where r + s is 1 / c

A division takes the time of eight products. r is 1 / c rounded towards zero and s is the remainder,
so that the two products have one sign and infinities stay. In float32 their sum is off by less than
2**-44 of it before it is rounded. A quotient of two floats is never half way between two floats,
and for each c only few numerators come this close to half way: these are tried. If a product
vanishes, its quotient rounds to 0.

This comes after storage is chosen, as x then has a second reader.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from uopc.ir.builder import alu, leaves, rebuild
from uopc.ir.core import walk
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.target import Target

# Beyond these divisors a product of a quotient that is not rounded to 0 might vanish.
_LEAST, _MOST = 2.0**-60, 2.0**60
# Units of the last place by which s may be off: of 100 divisors 8 need some, 4 have none.
_TRIED = (0, 1, -1, 2, -2)


def with_products(graph: UOp, target: Target) -> UOp:
    """Compute rounded quotients by constants as products, if MULACC is an instruction."""
    found = {u for u in walk.nodes(graph) if _is_rounded(u, target)}
    if not found:
        return graph

    def change(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        quotient = src[0]
        t, divisor = quotient.dtype.scalar, _only_number(quotient.src[1])
        pair = None if divisor is None else inverse(divisor, t.whole_bits)
        if pair is None:
            return None
        x, (first, second) = quotient.src[0], [leaves.const(t, n) for n in pair]
        made = alu.alu(x, Ops.MULACC, first, alu.alu(x, Ops.MUL, second))
        return rebuild.remake(u, (made,))

    return rebuild.rewritten(graph, change, outside_kernels=True, only=found)


def _is_rounded(u: UOp, target: Target) -> bool:
    whole = u.op in (Ops.ROUND, Ops.TRUNC) or (u.op is Ops.CAST and u.dtype.is_int)
    if not whole or u.src[0].op is not Ops.FDIV:
        return False
    t = u.src[0].dtype.scalar
    return t.bits >= 32 and target.has_fma(t) and not target.is_software(t)


def _only_number(u: UOp) -> float | None:
    """The number that all elements of a constant equal; None if there are several."""
    while u.op in (Ops.RESHAPE, Ops.EXPAND):
        u = u.src[0]
    if u.op is Ops.DATA and u.arg.array.size == 1:
        return float(u.arg.array.reshape(()))
    return float(u.arg) if u.op is Ops.CONST else None


@functools.lru_cache(maxsize=1 << 12)
def inverse(divisor: float, bits: int) -> tuple[float, float] | None:
    """r and s of `bits` bits such that x·r + x·s, rounded as MULACC does, is x / divisor for every
    x whose products do not vanish. None if there are none, or if the inverse is one number."""
    size = abs(divisor)
    if not _LEAST <= size <= _MOST:
        return None
    c = Fraction(size)
    exact = 1 / c
    if exact == _to_bits(exact, bits):
        return None
    r = _to_bits(exact, bits, down=True)
    missing = _to_bits(exact - r, bits)
    for s in [missing + n * _unit(missing, bits) for n in _TRIED]:
        off = abs(1 - c * (r + s)) + c * s / 2**bits
        if all([_is_quotient(x, c, r, s, bits) for x in _close_calls(c, off, bits)]):
            return math.copysign(float(r), divisor), math.copysign(float(s), divisor)
    return None


def _unit(x: Fraction, bits: int) -> Fraction:
    """The distance from x to the next number of `bits` bits."""
    return Fraction(2) ** (_exponent(x) - bits + 1)


def _exponent(x: Fraction) -> int:
    """e with 2**e <= x < 2**(e + 1)."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def _to_bits(x: Fraction, bits: int, down: bool = False) -> Fraction:
    """Round a positive number to `bits` bits: to the nearest, ties to even, or down."""
    if x == 0:
        return x
    unit = _unit(x, bits)
    return (math.floor(x / unit) if down else round(x / unit)) * unit


def _close_calls(c: Fraction, off: Fraction, bits: int) -> list[int]:
    """The numerators of `bits` bits whose quotients by c are within a share `off` of half way
    between two floats: x · 2**k = c·m + d for an odd m of one more bit and a small d."""
    whole = int(c * Fraction(2) ** (bits - 1 - _exponent(c)))  # c without its exponent
    twos = (whole & -whole).bit_length() - 1
    odd = whole >> twos
    most = math.floor(off * 2 ** (2 * bits + 1)) + 1
    found = []
    for k in (bits, bits + 1):
        modulus = 1 << (k - twos)
        turned = pow(odd, -1, modulus)
        for d in [d for d in range(-most, most + 1) if d and d % (1 << twos) == 0]:
            first = -(d >> twos) * turned % modulus
            for m in range(first, 1 << (bits + 1), modulus):
                x, rest = divmod(whole * m + d, 1 << k)
                if m % 2 and m >> bits and not rest and x >> (bits - 1) == 1:
                    found.append(x)
    return found


def _is_quotient(x: int, c: Fraction, r: Fraction, s: Fraction, bits: int) -> bool:
    return _to_bits(x * r + _to_bits(x * s, bits), bits) == _to_bits(x / c, bits)
