"""The elementwise builders of users: operands promoted and checked, nodes with a source line.

`fold.py` folds constants and identities. Integers of dtype index stay in the normal form of
`ir/index/affine.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import fold
from uopc.ir.builder.leaves import located, split_dims
from uopc.ir.builder.operands import as_uop, paired
from uopc.ir.core import dtypes, shapes, walk
from uopc.ir.core.calls import is_length
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp, intern


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
    return _of_agreeing(op, functools.partial(fold.combine, op), src)


def binary(op: Op, a: Operand, b: Operand) -> UOp:
    """Apply an elementwise op to two operands after promotion."""
    x, y = paired(a, b, op.symbol or op.name)
    return alu(x, op, y)


def where(condition: UOp, a: Operand, b: Operand) -> UOp:
    """a where the condition holds, else b."""
    x, y = paired(a, b, "where")
    if condition.dtype.scalar is not dtypes.bool_:
        raise UserTypeError(f"where: the condition must be bool, got {condition.dtype.name}")
    return _of_agreeing(Ops.WHERE, lambda src: fold.select(*src), (condition, x, y))


def _of_agreeing(
    op: Op, make: Callable[[tuple[UOp, ...]], UOp], src: tuple[UOp, ...]
) -> UOp:  # fmt: skip
    """The node that `make` makes of operands, or of these in one shape if their shapes differ."""
    try:
        return _checked(op, make(src))
    except UserError:
        agreed = _agreed(src)
        if agreed is src:
            raise
        return _checked(op, make(agreed))


def _agreed(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The operands in one shape, where they differ in lengths that the graph computes: a call
    checks that these are equal. The same operands if there are none."""
    given = [shapes.shape(s) for s in src]
    rank = max(map(len, given))
    common: list[shapes.Dim] = []
    for axis in range(-rank, 0):
        column = [d[axis] for d in given if len(d) >= -axis and d[axis] != 1]
        common.append(next((d for d in column if not _is_length(d)), [*column, 1][0]))
    made = []
    for s, dims in zip(src, given):
        pairs = zip(dims, common[rank - len(dims) :])
        new = tuple([w if d != w and _is_length(d) else d for d, w in pairs])
        known, symbolic = split_dims(new)
        reshaped = intern(Ops.RESHAPE, s.dtype, (s, *symbolic), known)
        made.append(s if new == dims else located(reshaped))
    return src if all([a is b for a, b in zip(made, src)]) else tuple(made)


def _is_length(d: shapes.Dim) -> bool:
    """True for a dimension that depends on a value of the graph."""
    return isinstance(d, UOp) and any([is_length(u) for u in walk.toposort(d)])


def _checked(op: Op, made: UOp) -> UOp:
    """`made`, with the user's source line if it is a node of this op. UserError if the shapes of
    its operands do not broadcast."""
    shapes.shape(made)
    return located(made) if made.op is op else made
