"""Huge float64 angles modulo pi, by a window into the bits of 1/pi (Payne and Hanek 1983).

Some fifty integer operations per element, under a branch that small angles do not take.
`python -m tests.ulp --coefficients` prints the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from uopc.ir.core import dtypes
from uopc.ir.core.uop import UOp
from uopc.passes.decompose.cold_branches import applied, cold_branch

# fmt: off
REDUCE_LIMIT: Final = 2.0**40
PI_LEAD: Final = 40
INVERSE_TWO_PI_BITS: Final = (0x000000000028BE60, 0xDB9391054A7F09D5, 0xF47D4D377036D8A5,
    0x664F10E4107F9458, 0xEAF7AEF1586DC91B, 0x8E909374B801924B, 0xBA827464873F877A,
    0xC72C4A69CFBA208D, 0x7D4BAED1213A671C, 0x09AD17DF904E6475, 0x8E60D4CE7D272117,
    0xE2EF7E4A0EC7FE25, 0xFFF7816603FBCBC4, 0x62D6829B47DB4D9F, 0xB3C9F2C26DD3D18F,
    0xD9A797FA8B5D49EE, 0xB1FAF97C5ECF41CE, 0x7DE294A4BA9AFED7, 0xEC47E357421580CC)
# fmt: on


def where_huge(
    name: str, x: UOp, long: Callable[[UOp], UOp], short: UOp, limit: float = REDUCE_LIMIT
) -> UOp:
    """`long(x)` where |x| is finite and beyond the range of the short reduction, else `short`: at
    infinities that is NaN. `name`: of the function that kernels have for `long`."""
    huge = abs(x) > limit
    beyond = applied(name, long, x)
    return cold_branch(huge, short, (huge & (abs(x) < math.inf)).where(beyond, short))


def _times_window(m: UOp, w: Sequence[UOp]) -> tuple[UOp, UOp, UOp]:
    """m (53 bits) times the 192 bits of w, modulo 2^192: the top word, the next, and a carry."""
    low32 = 0xFFFFFFFF
    m0, m1 = m & low32, m >> 32
    c0, c1 = w[1] & low32, w[1] >> 32
    d0, d1 = w[2] & low32, w[2] >> 32
    middle = m1 * c0 + ((m0 * c0) >> 32)
    cross = m0 * c1 + (middle & low32)
    top = m * w[0] + m1 * c1 + (middle >> 32) + (cross >> 32)
    return top, m * w[1], m1 * d1 + ((m0 * d1) >> 32) + ((m1 * d0) >> 32)


def payne_hanek(x: UOp, turn: int, quarter: int, pi: Sequence[float]) -> tuple[UOp, UOp, UOp]:
    """|x| = n pi + r from the bits of 1/(2 pi): r, its rounding error, -0.0 for odd n or 0.0.

    |x| 2^turn / (2 pi) modulo 1 is a fixed-point fraction of 128 bits; `quarter` is added to it.
    The word of the table is chosen by four levels of selects, then shifted into place.
    """
    bits = x.bitcast(dtypes.uint64)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    offset = ((bits >> 52) & 0x7FF) - (1075 - PI_LEAD - turn)
    words = [m.const_like(w) for w in INVERSE_TWO_PI_BITS]
    for level in (8, 4, 2, 1):
        beyond = (offset & (level * 64)).ne(0)
        count = min(len(words) - level, level + 3)
        words = [beyond.where(words[j + level], words[j]) for j in range(count)]
    left = offset & 63
    right = 63 - left  # after a shift by 1: no count reaches the width
    window = [(words[j] << left) | ((words[j + 1] >> 1) >> right) for j in range(3)]
    top, low, extra = _times_window(m, window)
    top = top + quarter
    odd = (top ^ (top << 1)) & (1 << 63)
    top = top ^ odd
    # The signed top word in two exact floats: its upper 55 bits, and 9 bits joined to 53 of the low
    # word and what is to add: with a carry they fit.
    rest = ((top & 0x1FF) << 53) + (low >> 11) + (extra >> 11)
    high_part = (top & 0xFFFFFFFFFFFFFE00).bitcast(dtypes.int64).cast(dtypes.float64)
    rest_part = rest.bitcast(dtypes.int64).cast(dtypes.float64)
    scale = 2.0**-63
    tail = high_part.mulacc(pi[1] * scale, rest_part * (pi[0] * 2.0**-116))
    r = high_part.mulacc(pi[0] * scale, tail)
    return r, high_part.mulacc(pi[0] * scale, -r) + tail, odd.bitcast(dtypes.float64)
