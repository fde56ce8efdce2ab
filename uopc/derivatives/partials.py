"""The partial derivatives of the elementwise ops.

A function takes the result y and the operands, and gives the factor of an operand's tangent. At
corners: a tie of max or min is shared between the operands, but a literal takes all of it (`relu`
at 0 has the derivative 0); abs has 0 at 0; pow has 0 by the base if the exponent is 0, and by the
exponent if the base is 0.
"""

from __future__ import annotations

import math

from uopc.derivatives import families
from uopc.derivatives.rule import Partial, Partials, wide
from uopc.derivatives.values import Factor, Mask, number_in
from uopc.ir.builder import alu, leaves
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise


def _same(y: UOp, *operands: UOp) -> Factor:
    return 1.0


def _opposite(y: UOp, *operands: UOp) -> Factor:
    return -1.0


def _partial_of_extreme(greater: bool, mine: int) -> Partial:
    """The factor of max (min): 1 if the operand is greater (less) than the other, ½ if both are
    equal."""

    def partial(y: UOp, *operands: UOp) -> Factor:
        own, other = operands[mine], operands[1 - mine]
        low, high = (other, own) if greater else (own, other)
        if number_in(other) is not None:
            return Mask(alu.alu(low, Ops.CMPLT, high))
        one, half = leaves.const(own.dtype, 1), leaves.const(own.dtype, 0.5)
        scale = alu.where(alu.alu(own, Ops.CMPEQ, other), half, one)
        return Mask(alu.alu(low, Ops.CMPLE, high), scale=scale)

    return partial


def _by_base(y: UOp, a: UOp, b: UOp) -> Factor:
    """b a^(b-1); 0 if a and b are 0."""
    none = alu.binary(Ops.CMPEQ, a, 0) & alu.binary(Ops.CMPEQ, b, 0)
    return b * elementwise.power(alu.where(none, leaves.const(a.dtype, 1), a), b - 1)


def _by_exponent(y: UOp, a: UOp, b: UOp) -> Factor:
    return families.power_log(a, b, 1, y)


def _whole_quotient(y: UOp, a: UOp, b: UOp) -> Factor:
    """Minus the integer quotient that matches the remainder y: a / b alone may be rounded up to the
    next integer."""
    return -((a - y) / b).round()


PARTIALS: dict[Op, Partials] = {
    Ops.NEG: Partials(_opposite),
    Ops.ABS: Partials(lambda y, a: a.sign()),
    Ops.EXP: Partials(lambda y, a: y),
    Ops.EXP2: Partials(lambda y, a: y * math.log(2)),
    Ops.LOG: Partials(lambda y, a: a.reciprocal()),
    Ops.LOG2: Partials(lambda y, a: math.log2(math.e) / a),
    Ops.SIN: Partials(lambda y, a: a.cos()),
    Ops.COS: Partials(lambda y, a: -a.sin()),
    Ops.TAN: Partials(lambda y, a: y * y + 1.0),
    Ops.TANH: Partials(lambda y, a: (1.0 - y) * (1.0 + y)),
    Ops.ERF: Partials(lambda y, a: (-(a * a)).exp() * (2 / math.sqrt(math.pi))),
    Ops.SQRT: Partials(lambda y, a: 0.5 / y),
    Ops.RECIPROCAL: Partials(lambda y, a: -(y * y)),
    Ops.ADD: Partials(_same, _same),
    Ops.SUB: Partials(_same, _opposite),
    Ops.MUL: Partials(lambda y, a, b: b, lambda y, a, b: a),
    Ops.FDIV: Partials(lambda y, a, b: b.reciprocal(), lambda y, a, b: -(y / b)),
    Ops.FLOORMOD: Partials(_same, _whole_quotient),
    Ops.CMOD: Partials(_same, _whole_quotient),
    Ops.MAX: Partials(_partial_of_extreme(True, 0), _partial_of_extreme(True, 1)),
    Ops.MIN: Partials(_partial_of_extreme(False, 0), _partial_of_extreme(False, 1)),
    Ops.POW: Partials(wide(_by_base), _by_exponent),
    Ops.MULACC: Partials(lambda y, a, b, c: b, lambda y, a, b, c: a, _same),
    Ops.DOT2: Partials(None, None, _same),
    Ops.WHERE: Partials(
        None, lambda y, c, a, b: Mask(c), lambda y, c, a, b: Mask(c, False)
    ),
    Ops.CAST: Partials(_same),
}  # fmt: skip
