"""DOT4 and DOT2: as instructions of the widths that machines have, or their products one by one."""

from __future__ import annotations

import functools

from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.decompose.integers.integer_division import constant, instruction

Source = tuple["UOp", ...]


def dot(u: UOp, src: Source, most: int | None) -> UOp | None:
    """The products of two words, one by one; with `most`, in pieces of at most `most` lanes."""
    if most:
        return _cut(u, src, most)
    return _dot4(src) if u.op is Ops.DOT4 else _dot2(src)


def _dot4(src: Source) -> UOp:
    """The products of the bytes of two words, one by one."""
    a, b, *more = src
    for shift in (0, 8, 16, 24):
        signed = instruction(Ops.SHL, b, constant(b, 24 - shift)) if shift < 24 else b
        unsigned = instruction(Ops.SHR, a, constant(a, shift)) if shift else a
        more.append((unsigned & 255) * instruction(Ops.SHR, signed, constant(b, 24)))
    return functools.reduce(lambda x, y: x + y, more)


def _dot2(src: Source) -> UOp:
    """The products of the halves of two words, one by one."""
    a, b, *more = src
    for half in (_low_half, _high_half):
        more.append(half(a) * half(b))
    return functools.reduce(lambda x, y: x + y, more)


def _low_half(a: UOp) -> UOp:
    return instruction(Ops.SHL, a, constant(a, 16)).bitcast(dtypes.float32)


def _high_half(a: UOp) -> UOp:
    return (a & -0x10000).bitcast(dtypes.float32)


def _cut(u: UOp, src: Source, most: int) -> UOp | None:
    """A DOT4 or DOT2 in pieces of a width that it is an instruction for: 1, 4, 8 or 16 lanes."""
    lanes = u.dtype.lanes
    size = lanes if lanes < 4 else next(n for n in (16, 8, 4, 1) if n <= most and lanes % n == 0)
    if size == lanes:
        return None
    t = u.dtype.scalar.vec(size)
    parts = [
        intern(u.op, t, tuple([_lanes_of(s, tuple(range(i, i + size))) for s in src]))
        for i in range(0, lanes, size)
    ]
    return intern(Ops.STACK, u.dtype, tuple(parts))


def _lanes_of(s: UOp, order: tuple[int, ...]) -> UOp:
    if s.dtype.lanes == 1:
        return s
    t = s.dtype.scalar.vec(len(order))
    if len(order) == 1:
        return intern(Ops.LANE, t, (s,), order[0])
    return intern(Ops.SHUFFLE, t, (s, s), order)
