"""Offsets in an arena of blocks whose sizes a call decides, as expressions over the sizes.

    block      a          b           c           a and c are never alive at once
    bytes      4·n        64·n·m      8·n + 16
    begins at  0          8·n + 16    0           b: where both a and c have ended

Blocks that are alive at the same time have an order, that of their offsets for typical sizes: each
begins where all blocks before it have ended. Ends are polynomials (`ir/index/polynomials.py`), so
the plan holds for all sizes, takes no more than the sum of the blocks, and its expressions are
short. Blocks of one common factor lie as `memory_plan.py` lays numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from uopc.backends import memory_plan
from uopc.backends.memory_plan import Lifetime, Timeline
from uopc.ir.core.shapes import Dim
from uopc.ir.index import polynomials
from uopc.ir.index.dims import uop_dim
from uopc.ir.index.polynomials import ONE, Polynomial


def plan(blocks: Sequence[Lifetime]) -> tuple[list[Dim], Dim]:
    """The offset of each block, and the size of the arena. Live blocks do not overlap. Blocks of
    known sizes lie first."""
    fixed = [i for i, b in enumerate(blocks) if b.bound is None]
    free = [i for i, b in enumerate(blocks) if b.bound is not None]
    found, base = memory_plan.plan([blocks[i] for i in fixed])
    if not free:
        return [*found], base
    stacked, end = _stacked([blocks[i] for i in free], base)
    offsets: dict[int, Dim] = {**dict(zip(fixed, found)), **dict(zip(free, stacked))}
    return [offsets[i] for i in range(len(blocks))], end


def _stacked(blocks: Sequence[Lifetime], base: int) -> tuple[list[Dim], Dim]:
    """The offsets of blocks from `base` on, and the end of all."""
    typical, _ = memory_plan.plan(blocks)
    placed = Timeline(blocks)
    offsets: list[Dim] = [0] * len(blocks)
    ends = [polynomials.constant(base)] * len(blocks)
    for i in sorted(range(len(blocks)), key=lambda i: (typical[i], i)):
        block = blocks[i]
        assert block.bound is not None
        below = [ends[j] for j in placed.overlapping(i)]
        begin = _at_multiple(polynomials.greatest([ends[i], *below]), block.alignment)
        offsets[i] = uop_dim(polynomials.expression(begin, block.alignment))
        ends[i] = polynomials.plus(begin, block.bound)
        placed.add(i)
    reach = [_with_an_element(end, b) for end, b in zip(ends, blocks)]
    return offsets, uop_dim(polynomials.expression(polynomials.whole(polynomials.greatest(reach))))


def _with_an_element(end: Polynomial, block: Lifetime) -> Polynomial:
    """The end of a block, behind which a line follows if the block may be empty: where a guard does
    not hold, a kernel may read the first element in vain."""
    assert block.bound is not None
    if block.bound.get(ONE, Fraction(0)) > 0:
        return end
    return polynomials.plus(end, polynomials.constant(memory_plan.ALIGNMENT))


def _at_multiple(p: Polynomial, alignment: int) -> Polynomial:
    """A polynomial with room to round its values down to a multiple of an alignment."""
    free = {m: c for m, c in p.items() if m is not ONE}
    rest = p.get(ONE, Fraction(0))
    if polynomials.are_multiples(free, alignment):
        return {**free, ONE: Fraction(math.ceil(rest / alignment) * alignment)}
    return {**free, ONE: rest + alignment}
