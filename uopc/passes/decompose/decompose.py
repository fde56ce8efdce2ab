"""Replace what the target has no instruction for: functions, divisions, narrow arithmetic.

Before (vector)                            After (vector)
  %1 = param "" slot=0 : i32[4]              %1 = param "" slot=0 : i32[4]
  %2 = range 4 axis=0.0 kind=loop : index    %2 = range 4 axis=0.0 kind=loop : index
  %3 = param "" slot=1 : i32[4]              %3 = param "" slot=1 : i32[4]
  %4 = load %3[%2] : i32                     %4 = load %3[%2] : i32
  %5 = floordiv %4, 10:i32 : i32             %5 = cmod %4, 10:i32 : i32
  %6 = store %1[%2], %5                      %6 = cmpne %5, 0:i32 : bool
  %7 = end %6, %2                            %7 = cmplt %5, 0:i32 : bool
  sink %7 name=E_4 opts=()                   %8 = and %6, %7 : bool
                                             %9 = cdiv %4, 10:i32 : i32
                                             %10 = sub %9, 1:i32 : i32
                                             %11 = where %8, %10, %9 : i32
                                             %12 = store %1[%2], %11
                                             %13 = end %12, %2
                                             sink %13 name=E_4 opts=()

Quotients become the machine's truncating ones with operands that cannot trap; shifts by an unknown
count are guarded; float16 functions are computed in float32 and rounded once. Conversions of narrow
floats are spelled out where the machine has none. Bools change lanes as bytes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from uopc.ir.builder import rebuild
from uopc.ir.builder.float_bits import to_odd
from uopc.ir.core import dtypes, walk
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.passes.analysis.lanes import splat
from uopc.passes.contract import Context
from uopc.passes.decompose.cold_branches import merged_branches
from uopc.passes.decompose.dots import dot
from uopc.passes.decompose.floats.float_division import float_division
from uopc.passes.decompose.floats.soft_arithmetic import rounded_by_sums, unfused
from uopc.passes.decompose.floats.soft_floats import SOFTWARE, narrow, widen
from uopc.passes.decompose.functions.expansion_cache import Use, applied
from uopc.passes.decompose.functions.transcendental import DECOMPOSITIONS
from uopc.passes.decompose.integers.arithmetic import between, integer_power, shift, threefry
from uopc.passes.decompose.integers.integer_division import integer_division
from uopc.passes.decompose.integers.narrow_indices import narrowed
from uopc.passes.decompose.lookups import looked_up
from uopc.passes.decompose.moved_bools import MOVES, moved

Source = tuple["UOp", ...]
# Functions that end in a SCALE, where the machine has it.
_SCALED = frozenset((Ops.EXP, Ops.EXP2, Ops.POW))
_SCALE_BITS = (128, 256, 512)  # widths of vectors that SCALE is an instruction for
_TOTALS = frozenset((Ops.REDUCE, Ops.HREDUCE))


class Native(NamedTuple):
    """Instructions that the machine has."""

    floats: frozenset[DType]  # narrow floats with conversions from and to float32
    has_scale: bool
    has_functions: bool
    dot_lanes: dict[Op, int]  # the most lanes of DOT4 and DOT2 where they are instructions
    fuses: frozenset[DType]  # types whose MULACC functions use
    uses: Counter[tuple[Op, DType]]  # of functions of the kernel, by the type they compute in

    def function(self, op: Op, t: DType) -> Callable[..., UOp]:
        """The decomposition of a function of a type."""
        if t in self.fuses:
            return DECOMPOSITIONS[op]
        from uopc.passes.decompose.functions import without_fma  # for few machines

        return without_fma.function(op)

    def use(self, u: UOp) -> Use:
        """The number of times that the kernel has such a function."""
        return Use(u.op.name, self.uses[u.op, u.dtype])

    def computes(self, t: DType) -> bool:
        """True if the machine has arithmetic for a type, and not conversions alone."""
        return t not in SOFTWARE and (t is not dtypes.float16 or t in self.floats)


def _computing(t: DType) -> DType:
    """The type that a function of a type is computed in."""
    return dtypes.float32.vec(t.lanes) if t.is_float and t.bits < 32 else t


def _narrow_float(u: UOp, src: Source, native: Native) -> UOp:
    """An op of a narrow float type in float32, rounded once where it rounds."""
    target, wide = u.dtype.scalar, tuple([_widened(s, native) for s in src])
    t = dtypes.float32 if target.is_float else target
    single = intern(u.op, t.vec(max(s.dtype.lanes for s in src)), wide)
    made = _decomposed(single, wide, native)
    made = single if made is None else made
    return _rounded(made, target, native, u.op in _SELECTS) if target.is_float else made


def _narrow_total(u: UOp, src: Source, native: Native) -> UOp:
    """A REDUCE, or an HREDUCE, of a narrow float type in float32, rounded once."""
    t = dtypes.float32.vec(u.dtype.lanes)
    made = intern(u.op, t, (_widened(src[0], native), *src[1:]), u.arg)
    op = u.arg if u.op is Ops.HREDUCE else u.arg.op
    return _rounded(made, u.dtype.scalar, native, op in ("max", "min"))


def _widened(s: UOp, native: Native) -> UOp:
    """`s` as float32, if it is a narrow float."""
    t = s.dtype.scalar
    if native.computes(t) or s.op is Ops.CONST:
        return s.cast(dtypes.float32) if t.is_float else s
    return _converted(s, dtypes.float32) if t in native.floats else widen(s)


def _rounded(a: UOp, target: DType, native: Native, exact: bool = False) -> UOp:
    """The float32 `a` in any type. The machine's conversion to fp8e5m2 makes infinity the greatest
    value; where infinity must stay (`exact`), ours is used."""
    if native.computes(target):
        return a.cast(target)
    if target in native.floats and not (exact and target is dtypes.fp8e5m2):
        return _converted(a, target)
    return narrow(a, target, exact)


def _converted(a: UOp, target: DType) -> UOp:
    """The machine's own conversion, not rewritten again."""
    return intern(Ops.CAST, target.vec(a.dtype.lanes), (a,))


def _cast(u: UOp, src: Source, native: Native) -> UOp | None:
    """Conversions that go through float32: narrow formats, and float64 to one of them."""
    a, target = src[0], u.dtype.scalar
    if not native.computes(a.dtype.scalar):
        return _rounded(_widened(a, native), target, native)
    if not target.is_float or target.bits > 16:
        return None
    double = a.dtype.scalar is dtypes.float64
    if native.computes(target) and not double:
        return None
    a = _rounded_to_odd(a) if double else a.cast(dtypes.float32)
    return _converted(a, target) if native.computes(target) else _rounded(a, target, native)


def _rounded_to_odd(a: UOp) -> UOp:
    """float64 → float32 such that rounding the result again to fewer bits rounds correctly."""
    single = _converted(a, dtypes.float32)
    back = single.cast(dtypes.float64)
    return to_odd(single, back.ne(a) & a.eq(a), abs(back) < abs(a))


_DOTS = (Ops.DOT4, Ops.DOT2)
_SELECTS = (Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN)  # the result is an operand, up to its sign
_DIVISIONS = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD)
_IN_FLOAT32 = frozenset((  # for float16 too
    *DECOMPOSITIONS, *_DIVISIONS, Ops.SQRT, Ops.FDIV, Ops.RECIPROCAL, Ops.MULACC,
))  # fmt: skip


def _decomposed(u: UOp, src: Source, native: Native) -> UOp | None:
    op, t = u.op, u.dtype.scalar
    if op in MOVES:
        return moved(u, src)
    if op in _TOTALS:
        return None if native.computes(t) else _narrow_total(u, src, native)
    if op.is_alu and op is not Ops.WHERE:
        operand = src[0].dtype.scalar
        if not native.computes(operand) or (t is dtypes.float16 and op in _IN_FLOAT32):
            return _narrow_float(u, src, native)
    if op in _DIVISIONS:
        return float_division(op, *src) if t.is_float else integer_division(u, src)
    if op is Ops.POW and not t.is_float:
        return integer_power(src)
    if op in _SCALED and native.has_scale and u.dtype.bits * u.dtype.lanes in _SCALE_BITS:
        return applied(native.function(op, t), src, native.use(u), scales=True)
    if op in DECOMPOSITIONS:
        if native.has_functions and t.bits >= 32:
            return None
        return applied(native.function(op, t), src, native.use(u))
    if op in (Ops.SHL, Ops.SHR):
        return shift(u, src)
    if op is Ops.THREEFRY:
        return threefry(src)
    if op in _DOTS:
        return dot(u, src, native.dot_lanes.get(op))
    if op is Ops.MULACC and not t.is_float:
        return src[0] * src[1] + src[2]
    if op in (Ops.MAX, Ops.MIN) and t.kind == "bool":
        return src[0] | src[1] if op is Ops.MAX else src[0] & src[1]
    if op is Ops.AND and t.kind == "bool":
        return between(src)
    return _cast(u, src, native) if op is Ops.CAST else None


# Ops with decompositions; others have some for bool and narrow floats only.
_WITH_OTHERS = frozenset((
    *DECOMPOSITIONS, *_DIVISIONS, Ops.SHL, Ops.SHR, Ops.THREEFRY, Ops.MULACC, Ops.CAST,
    *_DOTS,
))  # fmt: skip


def _may_change(u: UOp) -> bool:
    t = u.src[0].dtype if u.src else u.dtype
    narrow = t.kind == "float" and t.bits <= 16
    if u.op in _TOTALS:
        return narrow
    if u.op in MOVES:
        return t.kind == "bool"
    return u.op in _WITH_OTHERS or (u.op.is_alu and (t.kind == "bool" or narrow))


def _change(native: Native, u: UOp, src: Source) -> UOp:
    """The decomposition of `u` on the operands `src`, at the width of the node."""
    made = _decomposed(u, src, native)
    return _renewed(u, src) if made is None else splat(made, u.dtype.lanes)


def _renewed(u: UOp, src: Source) -> UOp:
    return u if src == u.src else splat(rebuild.as_written(u, src), u.dtype.lanes)


def decompose(kernel: UOp, context: Context) -> UOp:
    """The kernel in operations that the target has."""
    target = context.target
    floats = (dtypes.float32, dtypes.float64)
    fuses = frozenset([t for t in floats if target.fuses(t) or target.is_software(t)])
    dots = ((Ops.DOT4, target.dot4), (Ops.DOT2, target.dot2))
    native = Native(
        target.native_floats, target.has_scale, target.has_functions,
        {op: target.lanes(32) for op, name in dots if name}, fuses, Counter(),
    )  # fmt: skip
    only = {u for u in walk.order(kernel) if _may_change(u)}
    if target.gpu is None:  # its threads would spill all that they hold
        functions = [u for u in only if u.op in DECOMPOSITIONS]
        native.uses.update([(u.op, _computing(u.dtype)) for u in functions])
    made = rebuild.rewritten(kernel, functools.partial(_change, native), renew=_renewed, only=only)
    if slow := {t for t in floats if not (target.has_fma(t) or target.is_software(t))}:
        only = {u for u in walk.order(made) if u.op is Ops.MULACC and u.dtype.scalar in slow}
        made = rebuild.rewritten(made, unfused, only=only)
    if not target.has_rounding:
        made = rebuild.rewritten(made, rounded_by_sums)
    if lanes := target.lookup_lanes:
        made = looked_up(made, lanes)
    return merged_branches(narrowed(made))
