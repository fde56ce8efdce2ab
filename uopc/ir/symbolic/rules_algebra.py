"""Rules for arithmetic, comparison, shifts, max, min, casts; `builder/fold.py` has x * 0, x + 0.

The builders bring sums and products of dtype index into the normal form of `affine.py`, and fold
constants, x * 0, x + 0, x * 1 and the like. So no rule here is about these.
"""

from __future__ import annotations

import math

import numpy as np

from uopc.ir.builder import leaves
from uopc.ir.builder.fold import combine, convert, is_partial, like, make
from uopc.ir.core import bounds, dtypes, intervals, ops, ranges
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.rewrite.pattern import UPat
from uopc.ir.rewrite.rules import (
    ANY,
    BOOL,
    FLOAT,
    INTEGERS,
    WRAPPING,
    RuleSet,
    at_least,
    c,
    d,
    e,
    exact,
    negatable,
    no,
    p,
    rule,
    rule_fn,
    x,
    y,
)  # fmt: skip

_COMMUTING = tuple([op for op in Op.all() if op.commutes])
_ROUNDING = (Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND)
_BOUNDED = (
    *ops.COMPARISONS, Ops.AND, Ops.OR, Ops.XOR, Ops.NEG, Ops.MAX, Ops.MIN, Ops.ADD, Ops.SUB,
    Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.CDIV, Ops.CMOD, Ops.SHL, Ops.SHR, Ops.CAST, Ops.WHERE,
    Ops.BIND,
)  # fmt: skip


# ---------------------------------------------------------------- constants stand last
@rule_fn("constant-last", UPat(_COMMUTING, src=(c, x), name="u"))
def _constant_last(c: UOp, x: UOp, u: UOp) -> UOp | None:
    """2 + x → x + 2, for every op that commutes exactly (not max and min of floats: ±0)"""
    if x.op is Ops.CONST or (x.dtype.is_float and u.op in (Ops.MAX, Ops.MIN)):
        return None
    return combine(u.op, (x, c))


CONSTANTS = RuleSet("constants", over=ANY, rules=[_constant_last])

# fmt: off
# ---------------------------------------------------------------- sums and products that may wrap
SUMS = RuleSet("sums", over=WRAPPING, rules=[
    # Like terms: multiplication distributes over addition modulo 2^bits.
    rule("twice",               x + x,                x * 2),
    rule("like-terms",          x * c + x * d,        x * (c + d)),
    rule("like-term",           x * c + x,            x * (c + 1)),
    rule("like-terms-behind",   (y + x * c) + x * d,  y + x * (c + d)),
    rule("like-term-behind",    (y + x * c) + x,      y + x * (c + 1)),
    rule("term-like-behind",    (y + x) + x * c,      y + x * (c + 1)),
    rule("twice-behind",        (y + x) + x,          y + x * 2),
    # Constants gather at the end of sums and products.
    rule("sum-constants",       (x + c) + d,          x + (c + d)),
    rule("sum-constant-last",   (x + c) + y,          (x + y) + c),
    rule("factor-constants",    (x * c) * d,          x * (c * d)),
    rule("factor-last",         (x * c) * y,          (x * y) * c),
    # Differences: a constant is added (unless that hides bounds), a negation is taken in.
    rule("minus-itself",        x - x,                0),
    rule("minus-constant",      x - c,                x + (0 - c),   when=[negatable(c)]),
    rule("minus-negative",      x - (-y),             x + y),
    rule("plus-negative",       x + (-y),             x - y),
    rule("add-back",            (x - y) + y,          x),
    rule("take-away",           (x + y) - y,          x),
    rule("take-from-sum",       x - (x + y),          -y),
    rule("negative-twice",      no(no(x)),               x),
    rule("negative-product",    (-x) * c,             x * (0 - c)),
    rule("times-minus-one",     x * -1,               -x),
    rule("negative-difference", -(x - y),             y - x),
    rule("distribute-addend", (x + c) * d + e,        x * d + (c * d + e)),
])
# fmt: on


@rule_fn("mask-shifted-out", (x & c) >> d)
def _mask_shifted_out(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x & c) >> d → x >> d where c only clears bits that the shift drops"""
    width = x.dtype.bits
    if type(c.arg) is not int or type(d.arg) is not int or not 0 <= d.arg < width:
        return None
    every = (1 << width) - 1
    return make(Ops.SHR, x, d) if (c.arg | ((1 << d.arg) - 1)) & every == every else None


@rule_fn(
    "shift-twice",
    UPat((Ops.SHL, Ops.SHR), src=(x, d), name="u"),
    tried_on=[(x << c) << d, (x >> c) >> d, (x << c) >> d],
)
def _shift_twice(x: UOp, d: UOp, u: UOp) -> UOp | None:
    """(x << c) << d → x << (c + d); the same for >>, while the sum is less than the width"""
    if x.op is not u.op or x.src[1].op is not Ops.CONST:
        return None
    first, second = x.src[1].arg, d.arg
    if type(first) is not int or type(second) is not int or first < 0 or second < 0:
        return None
    total = first + second
    return make(u.op, x.src[0], total) if total < x.dtype.bits else None


@rule_fn("mask-of-less", x & c, tried_on=[(x >> d) & c, (x & d) & c])
def _mask_of_less(x: UOp, c: UOp) -> UOp | None:
    """x & c → x where x is from 0 to a number of bits that c has all"""
    low, high = bounds.bounds(x)
    if type(c.arg) is not int or low < 0 or is_partial(x) or ranges.in_empty_loop(x):
        return None
    every = (1 << int(high).bit_length()) - 1
    return x if c.arg & every == every else None


SHIFTS = RuleSet("shifts", over=WRAPPING, rules=[_mask_shifted_out, _shift_twice, _mask_of_less])


# ---------------------------------------------------------------- bounds and comparisons
@rule_fn("one-value", UPat(_BOUNDED, name="u"))
def _one_value(u: UOp) -> UOp | None:
    """a < b → True if bounds decide it; the same for any integer or bool with one possible value"""
    low, high = bounds.bounds(u)
    if low != high or is_partial(u) or ranges.in_empty_loop(u):
        return None
    return like(u, low)


BOUNDS = RuleSet("bounds", over=INTEGERS | BOOL, rules=[_one_value])


@rule_fn("constant-aside", UPat((Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE), src=[x + c, d], name="u"))
def _constant_aside(u: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    """x + c < d → x < d - c, and the like, where neither side wraps"""
    if not (exact(Ops.ADD, x, c) and exact(Ops.SUB, d, c)):
        return None
    rest = make(Ops.SUB, d, c)
    return make(u.op, x, rest) if u.src[1] is d else make(u.op, rest, x)


@rule_fn("constant-strict", UPat(Ops.CMPLE, src=[x, c], name="u"))
def _constant_strict(u: UOp, x: UOp, c: UOp) -> UOp | None:
    """x <= c → x < c + 1 and c <= x → c - 1 < x: one form for comparisons with a constant"""
    if not x.dtype.is_integral or type(c.arg) is not int:
        return None
    low, high = intervals.of_type(c.dtype)
    if u.src[1] is c:
        return make(Ops.CMPLT, x, c.arg + 1) if c.arg < high else None
    return make(Ops.CMPLT, c.arg - 1, x) if c.arg > low else None


COMPARISONS = RuleSet("comparisons", over=INTEGERS, rules=[
    rule("less-than-itself", x < x, False),
    rule("at-most-itself", x <= x, True),
    rule("equals-itself", x.eq(x), True),
    rule("differs-from-itself", x.ne(x), False),
    _constant_strict,
    _constant_aside,
])  # fmt: skip

# ---------------------------------------------------------------- maximum and minimum
GREATER = RuleSet("greater", over=INTEGERS, rules=[
    rule("max-itself",          x.maximum(x),                   x),
    rule("min-itself",          x.minimum(x),                   x),
    rule("max-decided",         x.maximum(y),                   x,  when=[at_least(x, y)]),
    rule("min-decided",         x.minimum(y),                   y,  when=[at_least(x, y)]),
    rule("max-constants",       x.maximum(c).maximum(d),        x.maximum(c.maximum(d))),
    rule("min-constants",       x.minimum(c).minimum(d),        x.minimum(c.minimum(d))),
    rule("max-again",           x.maximum(y).maximum(y),        x.maximum(y)),
    rule("min-again",           x.minimum(y).minimum(y),        x.minimum(y)),
    rule("max-of-min",          x.minimum(y).maximum(y),        y),
    rule("min-of-max",          x.maximum(y).minimum(y),        y),
])  # fmt: skip


# ---------------------------------------------------------------- floats: only what IEEE allows
@rule_fn("divide-by-power", x.alu(Ops.FDIV, c))
def _divide_by_power(x: UOp, c: UOp) -> UOp | None:
    """x / c → x * (1/c) for a power of two c; both round the exact result once"""
    if type(c.arg) is not float or c.arg == 0 or not math.isfinite(c.arg):
        return None
    mantissa, exponent = math.frexp(c.arg)
    exact_inverse = abs(mantissa) == 0.5 and abs(exponent - 1) <= _EXPONENTS[x.dtype.scalar]
    return make(Ops.MUL, x, 1.0 / c.arg) if exact_inverse else None


# |exponent| up to which 2^exponent and its reciprocal are both normal numbers.
_EXPONENTS: dict[DType, int] = {
    dtypes.float64: 1000, dtypes.float32: 120, dtypes.bfloat16: 120, dtypes.float16: 12,
    dtypes.fp8e4m3: 4, dtypes.fp8e5m2: 12, dtypes.fp8e4m3fnuz: 4, dtypes.fp8e5m2fnuz: 12,
}  # fmt: skip


@rule_fn(
    "already-whole", x.f(_ROUNDING), tried_on=[x.f(_ROUNDING).f(_ROUNDING), x.cast().f(_ROUNDING)]
)
def _already_whole(x: UOp) -> UOp | None:
    """floor(trunc(x)) → trunc(x), trunc(float(i)) → float(i)"""
    whole = x.op in _ROUNDING or (x.op is Ops.CAST and not x.src[0].dtype.is_float)
    return x if whole else None


FLOATS = RuleSet("floats", over=FLOAT, rules=[
    rule("negative-twice",      no(no(x)),               x),
    rule("minus-negative",      x - (-y),             x + y),
    rule("plus-negative",       x + (-y),             x - y),
    rule("times-minus-one",     x * -1.0,             -x),
    rule("negative-product",    (-x) * c,             x * (-c)),
    rule("negative-factors",    (-x) * (-y),          x * y),
    rule("max-itself",          x.maximum(x),         x),
    rule("min-itself",          x.minimum(x),         x),
    rule("less-than-itself",    x < x,                False),
    rule("magnitude-negative",  (-x).alu(Ops.ABS),    x.alu(Ops.ABS)),
    rule("magnitude-twice",     x.alu(Ops.ABS).alu(Ops.ABS), x.alu(Ops.ABS)),
    _already_whole,
    _divide_by_power,
])  # fmt: skip


# ---------------------------------------------------------------- casts
def _holds_all(source: UOp, target: DType) -> bool:
    """True if `target` represents every value that `source` may have."""
    t = source.dtype.scalar
    if t.is_float:
        return target.is_float and target.whole_bits >= t.whole_bits and target.bits > t.bits
    low, high = bounds.bounds(source)
    if target.is_float:
        return max(abs(int(low)), abs(int(high))) <= 1 << target.whole_bits
    least, most = intervals.of_type(target)
    return bool(least <= low and high <= most)


@rule_fn("cast-twice", x.cast(name="a").cast(name="u"))
def _cast_twice(x: UOp, a: UOp, u: UOp) -> UOp | None:
    """cast(cast(x)) → cast(x) where the first cast keeps every value"""
    if a.dtype.kind == "bool" or not _holds_all(x, a.dtype.scalar):
        return None
    # A float saturates where an integer wraps.
    saturates = a.dtype.is_float and not x.dtype.is_float and u.dtype.is_integral
    if saturates and not _holds_all(x, u.dtype.scalar):
        return None
    return x if x.dtype is u.dtype else convert(x, u.dtype)


@rule_fn(
    "integer-and-back",
    x.cast(name="a").cast(name="u"),
    tried_on=[x.f(_ROUNDING).cast(dtypes.uint8).cast(dtypes.float32)],
)
def _integer_and_back(x: UOp, a: UOp, u: UOp) -> UOp | None:
    """float(uint8(round(x))) → min((0 < round(x)).where(round(x), 0), 255): no conversion; NaN and
    -0.0 give 0"""
    t = a.dtype.scalar
    if x.dtype is not u.dtype or x.op not in _ROUNDING or t.kind != "uint":
        return None
    if t.bits > x.dtype.scalar.whole_bits or x.dtype.scalar.bits < 32:
        return None
    return make(Ops.WHERE, make(Ops.CMPLT, 0.0, x), x, 0.0).minimum(float(t.bounds[1]))


@rule_fn(
    "bitcast-twice",
    x.bitcast().bitcast(name="u"),
    tried_on=[
        x.bitcast(dtypes.uint8).bitcast(dtypes.int8),
        x.bitcast(dtypes.int8).bitcast(dtypes.uint8),
    ],
)
def _bitcast_twice(x: UOp, u: UOp) -> UOp | None:
    """bitcast(bitcast(x)) → bitcast(x), or x, between types of one size"""
    if not x.dtype.bits == u.src[0].dtype.bits == u.dtype.bits:
        return None
    return x if x.dtype is u.dtype else intern(Ops.BITCAST, u.dtype, (x,))


@rule_fn("bitcast-constant", c.bitcast(name="u"))
def _bitcast_constant(c: UOp, u: UOp) -> UOp | None:
    """bitcast(-1, uint8) → 255, between types of one size that NumPy has"""
    t, source = u.dtype.scalar, c.dtype.scalar
    if t.bits != source.bits or type(c.arg) is tuple or "bool" in (t.kind, source.kind):
        return None
    return leaves.const_of_bits(t, np.asarray(c.arg, source.numpy).view(t.numpy))


@rule_fn("cast-to-bool", x.cast(dtypes.bool_))
def _cast_to_bool(x: UOp) -> UOp | None:
    """bool(x) → x != 0"""
    return make(Ops.CMPNE, x, 0)


@rule_fn("compare-cast-bool", UPat((Ops.CMPEQ, Ops.CMPNE), src=[c, p.cast()], name="u"))
def _compare_cast_bool(c: UOp, p: UOp, u: UOp) -> UOp | None:
    """int(p) != 0 → p, int(p) == 0 → not p, int(p) != 2 → True, and so on"""
    if type(c.arg) is tuple or u.src[0].dtype.kind == "bool":
        return None
    if c.arg not in (0, 1):
        return like(u, u.op is Ops.CMPNE)
    wanted = (c.arg == 1) is (u.op is Ops.CMPEQ)
    return p if wanted else make(Ops.NEG, p)


@rule_fn(
    "compare-casts",
    UPat(ops.COMPARISONS, src=(x, y), name="u"),
    tried_on=[
        UPat(ops.COMPARISONS, src=(x.cast(), c)),
        UPat(ops.COMPARISONS, src=(c, x.cast())),
        UPat(ops.COMPARISONS, src=(x.cast(), x.cast())),
        UPat(ops.COMPARISONS, src=(x.cast(), y.cast())),
    ],
)
def _compare_casts(x: UOp, y: UOp, u: UOp) -> UOp | None:
    """int64(x) < 5 → x < 5 and int64(x) < int64(y) → x < y where the casts keep every value"""
    small = next((s.src[0] for s in (x, y) if s.op is Ops.CAST), None)
    if small is None or small.dtype.kind in ("bool", "index"):
        return None
    sides = [_narrowed(s, small.dtype.scalar) for s in (x, y)]
    left, right = sides
    return None if left is None or right is None else combine(u.op, (left, right))


def _narrowed(s: UOp, t: DType) -> UOp | None:
    """`s` in the dtype t if it is a widening cast from t, or a constant that t represents."""
    if s.op is Ops.CAST and s.src[0].dtype.scalar is t and _holds_all(s.src[0], s.dtype.scalar):
        return s.src[0]
    if s.op is not Ops.CONST or type(s.arg) is not int or t.is_float:
        return None
    low, high = t.bounds
    return leaves.const(t, s.arg) if low <= s.arg <= high else None


CASTS = RuleSet("casts", over=ANY, rules=[
    _cast_twice, _integer_and_back, _bitcast_twice, _bitcast_constant, _cast_to_bool,
    _compare_cast_bool, _compare_casts,
])  # fmt: skip
