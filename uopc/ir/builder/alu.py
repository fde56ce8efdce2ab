"""Builders of scalar and elementwise nodes. Constants and identities fold as nodes are made.

Free functions on UOps; `uop.py` makes them methods. Integers of dtype index are kept in the normal
form of `affine.py`. Floats fold only what is exact: x·1, x − 0.0, constants with constants.
"""

from __future__ import annotations

from uopc.errors import UserTypeError
from uopc.ir.builder.fold import _all_index, fold, spread
from uopc.ir.builder.leaves import located
from uopc.ir.builder.operands import Operand, as_uop, paired
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index import compare


# ---------------------------------------------------------------- elementwise
def alu(a: UOp, op: Op, *others: Operand) -> UOp:
    """An elementwise op on operands of one dtype (WHERE: the condition first), folding constants.

    Shapes broadcast as in NumPy; UserError when they do not.
    """
    if type(op) is not Op or not op.is_alu:
        raise UserTypeError(f"alu: expected an elementwise one of Ops, got {op!r}")
    src = (a, *[as_uop(o, a.dtype.scalar) for o in others])
    if op is Ops.WHERE:
        return where(*src)
    if a.dtype.scalar is dtypes.index and op in compare.OPS and _all_index(src):
        return spread(compare.OPS[op](*src), src)
    folded = fold(op, src)
    if folded is not None:
        return folded
    lanes = max([s.dtype.lanes for s in src])
    out = dtypes.bool_ if op.dtype == "bool" else a.dtype.scalar
    made = intern(op, out.vec(lanes), src)
    shapes.shape(made)  # a mismatch is reported here, at the user's line
    return located(made)


def binary(op: Op, a: Operand, b: Operand) -> UOp:
    """An elementwise op of two operands after promotion."""
    x, y = paired(a, b)
    return alu(x, op, y)


def where(condition: UOp, a: Operand, b: Operand) -> UOp:
    """a where the condition holds, else b."""
    x, y = paired(a, b)
    if condition.dtype.scalar is not dtypes.bool_:
        raise UserTypeError(f"where: the condition must be bool, got {condition.dtype.name}")
    if x is y and not shapes.shape(condition):
        return x
    if condition.op is Ops.CONST and type(condition.arg) is bool:
        chosen = x if condition.arg else y
        if shapes.shape(chosen) == shapes.broadcast([shapes.shape(x), shapes.shape(y)]):
            return chosen
    lanes = max(condition.dtype.lanes, x.dtype.lanes, y.dtype.lanes)
    t = y.dtype if x.op is Ops.INVALID else x.dtype
    made = intern(Ops.WHERE, t.scalar.vec(lanes), (condition, x, y))
    shapes.shape(made)
    return located(made)
