"""Making nodes inside the compiler: folded as the builders fold, but without a source line.

`combine(op, sources)` is the elementwise op on nodes, `make` the same with Python numbers among the
operands. What has no value (INVALID) stays without one: `p.where(x, INVALID)` moves outward before
anything else folds, so that no guard is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uopc.ir.builder import alu as build
from uopc.ir.core import analysis, dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.node import intern
from uopc.ir.core.ops import Op, Ops
from uopc.ir.index import affine

if TYPE_CHECKING:
    from uopc.ir.core.uop import UOp


def make(op: Op, *operands: UOp | int | float) -> UOp:
    """An elementwise node as the builders would make it, without a source line.

    A Python number takes the dtype of the operands that are nodes.
    """
    first = next(o for o in operands[::-1] if not isinstance(o, (bool, int, float)))
    t = first.dtype.scalar
    src = tuple([build.const(t, o) if isinstance(o, (bool, int, float)) else o for o in operands])
    return combine(op, src)


def combine(op: Op, src: tuple[UOp, ...]) -> UOp:
    """`make` on nodes only."""
    made = folded(op, src)
    if made is not None:
        return made
    lanes = max([s.dtype.lanes for s in src])
    t = dtypes.bool_ if op.dtype == "bool" else src[0].dtype.scalar
    return intern(op, t.vec(lanes), src)


def folded(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """What an elementwise op on these sources folds to; None where it is just that node."""
    for s in src:
        if s.op in _MAY_BE_PARTIAL and op is not Ops.WHERE and is_partial(s):
            return _partial(op, src, s)
    if src[0].dtype.kind == "index":
        index_op = affine.OPS.get(op)
        if index_op is not None and all([s.dtype.kind == "index" for s in src]):
            return build.spread(index_op(*src), src)
    if op is Ops.WHERE:
        return select(*src)
    return _stacked(op, src) if src[0].op is Ops.STACK else build.fold(op, src)


def _stacked(op: Op, src: tuple[UOp, ...]) -> UOp | None:
    """{1, 2} + {3, invalid} → {4, invalid}: stacks of constants, one element after the other."""
    rows = [s.src for s in src]
    known = (Ops.CONST, Ops.INVALID)
    if any([s.op is not Ops.STACK or len(s.src) != len(rows[0]) for s in src]):
        return None
    if any([v.op not in known or analysis.shape(v) != () for row in rows for v in row]):
        return None
    made = tuple([combine(op, values) for values in zip(*rows)])
    t = next((v.dtype for v in made if v.op is not Ops.INVALID), src[0].dtype.scalar)
    return intern(Ops.STACK, t.vec(src[0].dtype.lanes), made)


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
        if chosen.op is Ops.INVALID and analysis.shape(made) == ():
            return intern(Ops.INVALID, t)
    kept = None if chosen is None else same_kind(made, chosen)
    return made if kept is None else kept


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


def convert(u: UOp, t: DType) -> UOp:
    """A CAST as the builder would make it, without a source line."""
    if u.op is Ops.WHERE and is_partial(u):
        nothing = intern(Ops.INVALID, t.scalar.vec(u.dtype.lanes))
        return select(u.src[0], convert(u.src[1], t), nothing)
    if u.op is Ops.CONST or u.op is Ops.INVALID or u.dtype is t:
        return build.cast(u, t)
    return intern(Ops.CAST, t.scalar.vec(u.dtype.lanes), (u,))


def like(u: UOp, value: Any) -> UOp:
    """The constant `value` with dtype, lanes and shape of `u`."""
    made = build.const_like(u, value)
    if made.dtype is not u.dtype and made.op is Ops.CONST:
        return intern(Ops.CONST, u.dtype, (), (made.arg,) * u.dtype.lanes)
    return made


def same_kind(u: UOp, made: UOp | None) -> UOp | None:
    """`made` if it has the dtype, lanes and shape of `u`: dropped operands may have been wider."""
    if made is None or made.dtype is not u.dtype or analysis.shape(made) != analysis.shape(u):
        return None
    return made
