"""The elementwise builders of users: operands promoted and checked, nodes with a source line.

`fold.py` folds constants and identities. Integers of dtype index stay in the normal form of
`ir/index/affine.py`.
"""

from __future__ import annotations

from uopc.errors import UserTypeError
from uopc.ir.builder import fold
from uopc.ir.builder.leaves import located
from uopc.ir.builder.operands import as_uop, paired
from uopc.ir.core import dtypes, shapes
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp


def alu(a: UOp, op: Op, *others: Operand) -> UOp:
    """An elementwise op on operands of one dtype (WHERE: the condition first), folding constants.

    Shapes broadcast as in NumPy; UserError when they do not, UserTypeError for another op.

    Examples:
        >>> x = uopc.constant([1, 2, 3])
        >>> uopc.compile(x.alu(uopc.Ops.MAX, 2))()
        array([2, 2, 3])
    """
    if type(op) is not Op or not op.is_alu:
        raise UserTypeError(f"alu: expected an elementwise one of Ops, got {op!r}")
    src = (a, *[as_uop(o, a.dtype.scalar, op.symbol or op.name) for o in others])
    if op is Ops.WHERE:
        return where(*src)
    return _checked(op, fold.combine(op, src))


def binary(op: Op, a: Operand, b: Operand) -> UOp:
    """Apply an elementwise op to two operands after promotion."""
    x, y = paired(a, b, op.symbol or op.name)
    return alu(x, op, y)


def where(condition: UOp, a: Operand, b: Operand) -> UOp:
    """a where the condition holds, else b."""
    x, y = paired(a, b, "where")
    if condition.dtype.scalar is not dtypes.bool_:
        raise UserTypeError(f"where: the condition must be bool, got {condition.dtype.name}")
    return _checked(Ops.WHERE, fold.select(condition, x, y))


def _checked(op: Op, made: UOp) -> UOp:
    """`made`, with the user's source line if it is a node of this op. UserError if the shapes of
    its operands do not broadcast."""
    shapes.shape(made)
    return located(made) if made.op is op else made
