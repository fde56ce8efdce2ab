"""Elementwise nodes, folded as they are made: constants, identities, index arithmetic, INVALID.

Users and the compiler make all nodes with operands here: `alu.py` adds checks and the user's source
line, `rebuild.py` makes a node again on other sources.

Integers of dtype index are kept in the normal form of `ir/index/affine.py`. Floats fold only what
is exact: x·1, x − 0.0, constants with constants. A value that may be missing is INVALID or
p.where(x, INVALID). INVALID moves outward before anything else folds, so that no guard is lost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uopc.ir.builder import checks
from uopc.ir.builder.leaves import (
    Scalar,
    const,
    const_like,
    constant_in,
    fitting,
    full,
    located,
    spread,
)  # fmt: skip
from uopc.ir.core import bounds, dtypes, semantics, shapes
from uopc.ir.core.constants import wrap
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import affine, compare, size_conditions
from uopc.ir.index.dims import dim_uop


# ---------------------------------------------------------------- elementwise ops
def make(op: Op, *operands: UOp | Scalar) -> UOp:
    """`combine` for operands that may be Python numbers, which take the dtype of the nodes."""
    t = next(o for o in operands[::-1] if isinstance(o, UOp)).dtype.scalar
    return combine(op, tuple([o if isinstance(o, UOp) else const(t, o) for o in operands]))


def combine(op: Op, src: tuple[UOp, ...]) -> UOp:
    """An elementwise op on nodes of one dtype (WHERE: the condition first), folded."""
    made = folded(op, src)
    if made is not None:
        return made
    lanes = max([s.dtype.lanes for s in src])
    return intern(op, result_of(op, src[0].dtype.scalar).vec(lanes), src)


def result_of(op: Op, t: DType) -> DType:
    """The scalar dtype of an elementwise op on operands of a scalar dtype."""
    return dtypes.bool_ if op.dtype == "bool" else dtypes.float32 if op.dtype == "float32" else t


def folded(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The folded node of an elementwise op on these sources; None if the op does not fold."""
    if op is Ops.WHERE:
        return select(*src)
    for s in src:
        if s.op in UNUSUAL:
            if is_partial(s):
                return _partial(op, src, s)
            if s.op is Ops.EXPAND and s.src[0].op is Ops.CONST:
                return _as_scalars(op, src)
    if src[0].dtype.kind == "index":
        index_op = compare.OPS.get(op)
        if index_op is not None and all([s.dtype.kind == "index" for s in src]):
            return _in_common_shape(index_op(*src), src)
    return _stacked(op, src) if src[0].op is Ops.STACK else _without_constants(op, src)


def _as_scalars(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """x * (0 in the shape of x) → 0 in that shape: a constant with a shape folds as a scalar."""
    scalars = [s.src[0] if s.op is Ops.EXPAND and s.src[0].op is Ops.CONST else s for s in src]
    made = folded(op, tuple(scalars))
    return None if made is None else spread(made, shapes.broadcast(map(shapes.shape, src)))


def _in_common_shape(made: UOp, src: tuple[UOp, ...]) -> UOp:
    """`made` in the common shape of the operands: the normal form may have dropped some."""
    operands = [shape for s in src if (shape := shapes.shape(s))]
    if not operands:
        return made
    dims = shapes.broadcast(operands)
    return made if shapes.shape(made) == dims else full(made, dims)


def _stacked(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """{1, 2} + {3, invalid} → {4, invalid}: stacks of constants, one element after the other."""
    rows = [s.src for s in src]
    known = (Ops.CONST, Ops.INVALID)
    if any([s.op is not Ops.STACK or len(s.src) != len(rows[0]) for s in src]):
        return None
    if any([v.op not in known or shapes.shape(v) != () for row in rows for v in row]):
        return None
    made = tuple([combine(op, values) for values in zip(*rows)])
    t = next((v.dtype for v in made if v.op is not Ops.INVALID), src[0].dtype.scalar)
    return intern(Ops.STACK, t.vec(src[0].dtype.lanes), made)


def same_kind(u: UOp, made: UOp | None) -> UOp | None:
    """`made` if its dtype, lanes and shape are those of `u`, else None: a dropped operand may have
    been wider."""
    if made is None or made.dtype is not u.dtype or shapes.shape(made) != shapes.shape(u):
        return None
    return made


def like(u: UOp, value: Any) -> UOp:
    """The constant `value` with the dtype, lanes and shape of `u`."""
    made = const_like(u, value)
    if made.dtype is not u.dtype and made.op is Ops.CONST:
        return intern(Ops.CONST, u.dtype, (), (made.arg,) * u.dtype.lanes)
    return made


# ---------------------------------------------------------------- constants and identities
# IEEE 754 gives the sign of their NaN. That of others depends on the machine; in constants it is +.
_SIGN_NANS = frozenset((Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN))
# Rounding leaves an integer as it is.
ROUNDING = frozenset((Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND))


def _without_constants(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The value of an op on constants, or the operand left by an identity, or None."""
    if op.evaluate is None:
        return None
    if src[0].op is Ops.CONST and all([s.op is Ops.CONST for s in src]):
        return _evaluated(op, src)
    if len(src) != 2:
        return src[0] if op in ROUNDING and not src[0].dtype.is_float else None
    a, b = src
    if b.op is Ops.CONST and type(b.arg) is not tuple:
        return _identity(op, a, b, right=True)
    if a.op is Ops.CONST and type(a.arg) is not tuple:
        return _identity(op, b, a, right=False)
    return None


def _evaluated(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    t = src[0].dtype.scalar
    if any(type(s.arg) is tuple for s in src):
        return None
    out = result_of(op, t)
    if op.fold is not None and not t.is_float and t.kind != "bool":
        value = op.fold(*[s.arg for s in src])
        return intern(Ops.CONST, out, (), wrap(out, value) if out.is_int else value)
    assert op.evaluate is not None
    with np.errstate(all="ignore"):
        value = op.evaluate(*[np.asarray(s.arg, s.dtype.numpy) for s in src]).item()
    return const(out, math.nan if value != value and op not in _SIGN_NANS else value)


def _identity(op: Op, x: UOp, c: UOp, right: bool) -> UOp | None:
    """Simplify x ∘ c (or c ∘ x) if the constant makes the op vanish; None otherwise."""
    t, v = x.dtype, c.arg
    if t.lanes < c.dtype.lanes:
        return None
    if t.is_float:
        vanishes = (op is Ops.MUL and v == 1) or (op is Ops.FDIV and right and v == 1)
        # x + (-0.0) and x - 0.0 are x for every x; x + 0.0 is not (-0.0).
        vanishes |= op is Ops.ADD and v == 0 and str(v) == "-0.0"
        vanishes |= op is Ops.SUB and right and v == 0 and str(v) == "0.0"
        if op is Ops.MUL and v == 0 and _is_natural(x):
            return const_like(x, v)
        return x if vanishes else None
    return _integer_identity(op, x, c, right)


def _is_natural(x: UOp) -> bool:
    """True if a float is surely finite and not negative: its product with a zero equals the zero.
    """
    if x.op is not Ops.CAST or x.src[0].dtype.is_float:
        return False
    low, high = bounds.bounds(x.src[0])
    return bool(low >= 0 and high < 1 << 15)  # a cast to 8 bits saturates


def _integer_identity(op: Op, x: UOp, c: UOp, right: bool) -> UOp | None:
    t, v = x.dtype, c.arg
    every_bit = True if t.kind == "bool" else t.bounds[1] if t.kind == "uint" else -1
    if op is Ops.ADD or op is Ops.OR or op is Ops.XOR:
        if not v:
            return x
        return const_like(x, v) if op is Ops.OR and v == every_bit else None
    if op is Ops.MUL:
        return const_like(x, 0) if not v else x if v == 1 else None
    if op is Ops.AND:
        return const_like(x, 0) if not v else x if v == every_bit else None
    if not right:
        return None
    if op in (Ops.SUB, Ops.SHL, Ops.SHR) and not v:
        return x
    if op in (Ops.FLOORDIV, Ops.CDIV) and v == 1:
        return x
    return const_like(x, 0) if op in (Ops.FLOORMOD, Ops.CMOD) and v == 1 else None


# ---------------------------------------------------------------- fast zeros
# The arg of a sum, difference or product of floats with exact zeros: 0 * x is 0, x + 0 is x and
# x + -inf is -inf for every x, also where IEEE 754 gives NaN or the other zero.
FAST = 1
_WITH_ZEROS = frozenset((Ops.ADD, Ops.SUB, Ops.MUL))


def with_fast_zeros(op: Op, src: tuple[UOp, ...]) -> UOp:
    """`combine`, where zeros are exact if the op is a sum, difference or product of floats."""
    plain = combine(op, src)
    if not takes_fast_zeros(plain) or plain.src != src:
        return plain
    made = fast_folded(op, src)
    return intern(op, plain.dtype, src, FAST) if made is None else made


def takes_fast_zeros(u: UOp) -> bool:
    """True for a sum, difference or product of floats."""
    return u.op in _WITH_ZEROS and u.dtype.is_float and u.tag is None


def fast_folded(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The node that a sum, difference or product with fast zeros folds to, or None."""
    a, b = src
    if a.dtype.lanes > 1 or b.dtype.lanes > 1:
        return None
    made = None
    if op is Ops.MUL:
        made = _fast_product(a, b)
        made = _fast_product(b, a) if made is None else made
    elif _is_zero(b):
        made = a
    elif _is_zero(a):
        made = b if op is Ops.ADD else combine(Ops.NEG, (b,))
    elif op is Ops.ADD:
        made = _fast_sum(a, b)
        made = _fast_sum(b, a) if made is None else made
    elif _is_infinite(a, -1) or _is_infinite(b, 1):
        made = const(a.dtype, -math.inf)
    return None if made is None else spread(made, shapes.broadcast(map(shapes.shape, src)))


def _fast_product(x: UOp, w: UOp) -> UOp | None:
    """x * 0 → 0;  x * p.where(w, 0) → p.where(x * w, 0);  x * float(p) → p.where(x, 0)"""
    if _is_zero(w):
        return w
    if not _has_zero(w):
        return None
    if w.op is Ops.CAST:
        return select(w.src[0], x, const(x.dtype, 0))
    branches = [v if _is_zero(v) else with_fast_zeros(Ops.MUL, (x, v)) for v in w.src[1:]]
    return select(w.src[0], *branches)


def _fast_sum(x: UOp, w: UOp) -> UOp | None:
    """x + -inf → -inf;  x + p.where(0, -inf) → p.where(x, -inf)"""
    if _is_infinite(w, -1):
        return w
    if w.op is not Ops.WHERE or not any([_is_infinite(v, -1) for v in w.src[1:]]):
        return None
    inside = [v for v in w.src[1:] if not _is_infinite(v, -1)]
    if not all([_is_zero(v) for v in inside]):
        return None
    return select(w.src[0], *[x if _is_zero(v) else v for v in w.src[1:]])


def _is_infinite(u: UOp, sign: int) -> bool:
    value = constant_in(u)
    return value is not None and value.arg == sign * math.inf


def _is_zero(u: UOp) -> bool:
    value = constant_in(u)
    return value is not None and value.arg == 0


def _has_zero(u: UOp, depth: int = 0) -> bool:
    """True for float(bool), and for selections with a zero branch."""
    if u.op is Ops.WHERE and depth < _MOST_NESTED:
        return any([_is_zero(v) or _has_zero(v, depth + 1) for v in u.src[1:]])
    return u.op is Ops.CAST and u.src[0].dtype.kind == "bool"


_MOST_NESTED = 8


# ---------------------------------------------------------------- constants with a shape
def of_constant(u: UOp) -> UOp | None:
    """Fold a movement or a REDUCE of a constant with a shape. None if folding would lose a
    condition on symbolic sizes."""
    value = constant_in(u.src[0])
    if value is None:
        return None
    zero = not value.arg and str(value.arg) != "-0.0"
    if not zero and (u.op is Ops.PAD or (u.op is Ops.SHRINK and not is_inside(u))):
        return None
    sizes = (*shapes.shape(u.src[0]), *u.src[1:])
    if not all([type(d) is int for d in sizes]) and size_conditions.unproved(u):
        return None
    if u.op is Ops.REDUCE:
        dims = shapes.shape(u.src[0])
        value = _reduced_constant(value, u.arg.op, [dims[i] for i in u.arg.axes])
    return None if value is None else full(value, shapes.shape(u))


def is_inside(u: UOp) -> bool:
    """True if a SHRINK surely reads inside its operand; outside, it reads zeros."""
    for begin, size, whole in zip(*shapes.window(u), shapes.shape(u.src[0])):
        past = affine.sub(affine.add(dim_uop(begin), dim_uop(size)), dim_uop(whole))
        if bounds.bounds(dim_uop(begin))[0] < 0 or bounds.bounds(past)[1] > 0:
            return False
    return True


def _reduced_constant(value: UOp, op: str, dims: list[shapes.Dim]) -> UOp | None:
    """Reduce a constant; None if a symbolic size may be 0 or decides the value.

    A sum or product of floats is rounded once.
    """
    t = value.dtype
    if 0 in dims:
        return const(t, semantics.reduce_identity(op, t))
    if op in ("max", "min"):
        return value if all([isinstance(d, int) or bounds.bounds(d)[0] > 0 for d in dims]) else None
    n = shapes.size(tuple(dims))
    if not isinstance(n, int):
        return None
    if t.kind == "bool":
        return value  # or, and
    if t.is_float:
        with np.errstate(all="ignore"):
            c = np.float64(value.arg)
            return const(t, float(c * n if op == "add" else c**n))
    if t.is_int:  # modulo 2^64, and so modulo 2^bits
        return const(t, value.arg * n if op == "add" else pow(value.arg, n, 1 << 64))
    return const(t, value.arg * n) if op == "add" else None


# ---------------------------------------------------------------- values that may be missing
UNUSUAL = frozenset((Ops.INVALID, Ops.WHERE, Ops.EXPAND))  # partial, or constants with a shape


def is_partial(u: UOp) -> bool:
    """True for INVALID and p.where(x, INVALID)."""
    op = u.op
    return op is Ops.INVALID or (op is Ops.WHERE and u.src[2].op is Ops.INVALID)


def _partial(op: Op, src: tuple[UOp, ...], s: UOp) -> UOp:
    """INVALID + x → INVALID;  p.where(x, INVALID) + y → p.where(x + y, INVALID)"""
    typed = next((v for v in src if v.op is not Ops.INVALID), s)
    t = result_of(op, typed.dtype.scalar)
    nothing = intern(Ops.INVALID, t.vec(max([v.dtype.lanes for v in src])))
    if s.op is Ops.INVALID:
        return nothing
    inner = combine(op, tuple([s.src[1] if v is s else v for v in src]))
    return select(s.src[0], inner, nothing)


def select(p: UOp, a: UOp, b: UOp) -> UOp:
    """p.where(a, b), folded if the condition or the branches decide the result.

    A value that is missing under some condition becomes valid.where(value, INVALID), one level
    deep.
    """
    lanes = max(p.dtype.lanes, a.dtype.lanes, b.dtype.lanes)
    t = (b if a.op is Ops.INVALID else a).dtype.scalar.vec(lanes)
    made = intern(Ops.WHERE, t, (p, a, b))
    if is_partial(p) or is_partial(a) or (is_partial(b) and b.op is not Ops.INVALID):
        return _select_partial(p, a, b, intern(Ops.INVALID, t))
    known = p if p.op is Ops.CONST else constant_in(p)
    chosen = a if a is b or (a.op is Ops.EXPAND and a.src[0] is constant_in(b)) else None
    if chosen is None and b.op is Ops.EXPAND and b.src[0] is constant_in(a):
        chosen = b
    if known is not None and type(known.arg) is bool:
        chosen = a if known.arg else b
        if chosen.op is Ops.INVALID and shapes.shape(made) == ():
            return intern(Ops.INVALID, t)
    if chosen is None or chosen.op is Ops.INVALID or chosen.dtype.scalar is not t.scalar:
        return made
    # A scalar may stand for a vector: it repeats.
    return spread(chosen, shapes.shape(made))


def _select_partial(p: UOp, a: UOp, b: UOp, nothing: UOp) -> UOp:
    if p.op is Ops.INVALID or (a.op is Ops.INVALID and b.op is Ops.INVALID):
        return nothing
    if is_partial(p):
        return select(p.src[0], select(p.src[1], a, b), nothing)
    if b.op is Ops.INVALID:
        return select(combine(Ops.AND, (p, a.src[0])), a.src[1], nothing)
    if a.op is Ops.INVALID:
        opposite = combine(Ops.NEG, (p,))
        if not is_partial(b):
            return select(opposite, b, nothing)
        return select(combine(Ops.AND, (opposite, b.src[0])), b.src[1], nothing)
    yes = intern(Ops.CONST, dtypes.bool_, (), True)
    has_a, x = a.src[:2] if is_partial(a) else (yes, a)
    has_b, y = b.src[:2] if is_partial(b) else (yes, b)
    return select(select(p, has_a, has_b), select(p, x, y), nothing)


# ---------------------------------------------------------------- conversions
def convert(u: UOp, t: DType) -> UOp:
    """The values of `u` as another dtype, folded."""
    target = t.scalar.vec(u.dtype.lanes)
    if u.dtype is target:
        return u
    if u.op is Ops.CONST and type(u.arg) is not tuple:
        if not u.dtype.is_float:
            return const(target.scalar, u.arg)
        with np.errstate(all="ignore"):
            value = semantics.cast(np.asarray(u.arg, u.dtype.numpy), u.dtype, target)
        return const(target.scalar, value.item())
    if u.op is Ops.EXPAND and u.src[0].op is Ops.CONST:
        return full(convert(u.src[0], t), shapes.shape(u))
    if u.op is Ops.INVALID:
        return intern(Ops.INVALID, target)
    if u.op is Ops.WHERE and is_partial(u):
        return select(u.src[0], convert(u.src[1], t), intern(Ops.INVALID, target))
    return intern(Ops.CAST, target, (u,))


def cast(a: UOp, dtype: DTypeLike) -> UOp:
    """The values of `a` in another dtype: a DType, or a NumPy spelling such as `np.float64` or
    `"f8"`."""
    dtype = checks.any_dtype("cast", dtype)
    made = convert(a, dtype)
    return located(made) if made.op is Ops.CAST else made


def bitcast(a: UOp, dtype: DTypeLike) -> UOp:
    """The bits of `a` read as another dtype; a different item size scales the last dimension.

    A bool is a byte of 0 or 1, and a byte other than 0 is True. UserError where the last dimension
    does not divide.

    Examples:
        >>> x = uopc.constant(np.array([1.0, -0.0], "f4"))
        >>> [hex(v) for v in uopc.compile(x.bitcast(dtypes.uint32))().tolist()]
        ['0x3f800000', '0x80000000']
    """
    dtype = checks.any_dtype("bitcast", dtype)
    if a.dtype.scalar is dtype:
        return a
    if a.dtype.scalar is dtypes.bool_:
        return bitcast(cast(a, dtypes.uint8), dtype)
    if dtype is dtypes.bool_:
        return cast(bitcast(a, dtypes.uint8), dtypes.bool_)
    return fitting(intern(Ops.BITCAST, dtype.scalar.vec(a.dtype.lanes), (a,)))
