"""Elementwise nodes, folded as they are made: constants, identities, index arithmetic, INVALID.

All nodes that users and the compiler make on other nodes come from here: `alu.py` adds the checks
and the source line of the user, `rebuild.py` makes a node again on other sources.

Integers of dtype index are kept in the normal form of `ir/index/affine.py`. Floats fold only what
is exact: x·1, x − 0.0, constants with constants. A value that may be missing is INVALID or
p.where(x, INVALID): it moves outward before anything else folds, so that no guard is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.ir.builder import checks
from uopc.ir.builder.leaves import Scalar, const, const_like, fitting, full, located
from uopc.ir.core import dtypes, semantics, shapes
from uopc.ir.core.constants import wrap
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import compare


# ---------------------------------------------------------------- elementwise ops
def make(op: Op, *operands: UOp | Scalar) -> UOp:
    """`combine`, with Python numbers among the operands: they take the dtype of the nodes."""
    t = next(o for o in operands[::-1] if isinstance(o, UOp)).dtype.scalar
    return combine(op, tuple([o if isinstance(o, UOp) else const(t, o) for o in operands]))


def combine(op: Op, src: tuple[UOp, ...]) -> UOp:
    """An elementwise op on nodes of one dtype (WHERE: the condition first), folded."""
    made = folded(op, src)
    if made is not None:
        return made
    lanes = max([s.dtype.lanes for s in src])
    t = dtypes.bool_ if op.dtype == "bool" else src[0].dtype.scalar
    return intern(op, t.vec(lanes), src)


def folded(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The node that an elementwise op folds to on these sources; None if it does not fold."""
    if op is Ops.WHERE:
        return select(*src)
    for s in src:
        if s.op in _MAY_BE_PARTIAL and is_partial(s):
            return _partial(op, src, s)
    if src[0].dtype.kind == "index":
        index_op = compare.OPS.get(op)
        if index_op is not None and all([s.dtype.kind == "index" for s in src]):
            return _in_common_shape(index_op(*src), src)
    return _stacked(op, src) if src[0].op is Ops.STACK else _without_constants(op, src)


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
    """`made` if it has the dtype, lanes and shape of `u`, else None: dropped operands may have been
    wider."""
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
# Rounding leaves an integer as it is.
ROUNDING = frozenset((Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND))


def _without_constants(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """The value of an op on constants, or the operand that an identity leaves, or None."""
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
    out = dtypes.bool_ if op.dtype == "bool" else t
    if op.fold is not None and not t.is_float and t.kind != "bool":
        value = op.fold(*[s.arg for s in src])
        return intern(Ops.CONST, out, (), wrap(out, value) if out.is_int else value)
    assert op.evaluate is not None
    with np.errstate(all="ignore"):
        value = op.evaluate(*[np.asarray(s.arg, s.dtype.numpy) for s in src])
    return const(out, value.item())


def _identity(op: Op, x: UOp, c: UOp, right: bool) -> UOp | None:
    """x ∘ c (or c ∘ x) where the constant makes the op vanish."""
    t, v = x.dtype, c.arg
    if t.lanes < c.dtype.lanes:
        return None
    if t.is_float:
        vanishes = (op is Ops.MUL and v == 1) or (op is Ops.FDIV and right and v == 1)
        # x + (-0.0) and x - 0.0 are x for every x; x + 0.0 is not (-0.0).
        vanishes |= op is Ops.ADD and v == 0 and str(v) == "-0.0"
        vanishes |= op is Ops.SUB and right and v == 0 and str(v) == "0.0"
        return x if vanishes else None
    return _integer_identity(op, x, c, right)


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


# ---------------------------------------------------------------- values that may be missing
_MAY_BE_PARTIAL = frozenset((Ops.INVALID, Ops.WHERE))


def is_partial(u: UOp) -> bool:
    """INVALID, or p.where(x, INVALID)."""
    op = u.op
    return op is Ops.INVALID or (op is Ops.WHERE and u.src[2].op is Ops.INVALID)


def _partial(op: Op, src: tuple[UOp, ...], s: UOp) -> UOp:
    """INVALID + x → INVALID;  p.where(x, INVALID) + y → p.where(x + y, INVALID)"""
    typed = next((v for v in src if v.op is not Ops.INVALID), s)
    t = dtypes.bool_ if op.dtype == "bool" else typed.dtype.scalar
    nothing = intern(Ops.INVALID, t.vec(max([v.dtype.lanes for v in src])))
    if s.op is Ops.INVALID:
        return nothing
    inner = combine(op, tuple([s.src[1] if v is s else v for v in src]))
    return select(s.src[0], inner, nothing)


def select(p: UOp, a: UOp, b: UOp) -> UOp:
    """p.where(a, b), folded where the condition or the branches decide it.

    What has no value under some condition ends up as valid.where(value, INVALID), one level deep.
    """
    lanes = max(p.dtype.lanes, a.dtype.lanes, b.dtype.lanes)
    t = (b if a.op is Ops.INVALID else a).dtype.scalar.vec(lanes)
    made = intern(Ops.WHERE, t, (p, a, b))
    if is_partial(p) or is_partial(a) or (is_partial(b) and b.op is not Ops.INVALID):
        return _select_partial(p, a, b, intern(Ops.INVALID, t))
    chosen = a if a is b else None
    if p.op is Ops.CONST and type(p.arg) is bool:
        chosen = a if p.arg else b
        if chosen.op is Ops.INVALID and shapes.shape(made) == ():
            return intern(Ops.INVALID, t)
    if chosen is None or chosen.dtype.scalar is not t.scalar:
        return made
    # A scalar may stand for a vector: it repeats.
    return chosen if shapes.shape(chosen) == shapes.shape(made) else made


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
    if u.op is Ops.INVALID:
        return intern(Ops.INVALID, target)
    if u.op is Ops.WHERE and is_partial(u):
        return select(u.src[0], convert(u.src[1], t), intern(Ops.INVALID, target))
    return intern(Ops.CAST, target, (u,))


def cast(a: UOp, dtype: DType) -> UOp:
    """The values of `a` converted: see the op table for rounding and overflow."""
    checks.any_dtype("cast", dtype)
    made = convert(a, dtype)
    return located(made) if made.op is Ops.CAST else made


def bitcast(a: UOp, dtype: DType) -> UOp:
    """The bits of `a` read as another dtype; a different item size scales the last dimension."""
    checks.any_dtype("bitcast", dtype)
    if a.dtype.scalar is dtype:
        return a
    return fitting(intern(Ops.BITCAST, dtype.scalar.vec(a.dtype.lanes), (a,)))
