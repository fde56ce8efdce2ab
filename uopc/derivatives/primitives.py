"""The rules of functions that one PRIMITIVE stands for, by name; and those that users give."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uopc.derivatives import array_rules, branches_rule, matrix_rules, scan_rule
from uopc.derivatives.rule import Partial, Partials, Rule
from uopc.derivatives.values import Factor, front_aligned
from uopc.errors import Unsupported
from uopc.ir.builder import alu, leaves
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.tensor import float_functions


def _hypot_share(y: UOp, a: UOp) -> Factor:
    """a / hypot(a, b); 0 at the origin, as of abs."""
    none = alu.binary(Ops.CMPEQ, y, 0)
    return alu.where(none, leaves.const(y.dtype, 0), a / alu.where(none, 1.0, y))


def _angle_share(a: UOp, b: UOp, sign: float) -> Factor:
    """a / (a^2 + b^2), without overflow in between."""
    length = a.hypot(b)
    return a / length / (length * sign)


def _of_first(y: UOp, x: UOp, sign_of: UOp) -> Factor:
    return x.sign() * leaves.const_like(sign_of, 1).copysign(sign_of)


def _weight(x: UOp, other: UOp) -> Factor:
    """e^x / (e^x + e^other)"""
    same = alu.alu(x, Ops.CMPEQ, other)
    return ((alu.where(same, 0.0, other - x)).exp() + 1.0).reciprocal()


class _Elementwise(Partials):
    """A function of `float_functions`. Its factors are of the result and the operands."""

    def __init__(self, *partials: Partial | None) -> None:
        super().__init__(None, *[p and _without_value(p) for p in partials])

    def again(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        rank = len(shapes.shape(u))
        aligned = [front_aligned(a, rank) if b else a for a, b in zip(operands, batched)]
        return float_functions.METHODS[u.arg.name](*aligned)


def _without_value(partial: Partial) -> Partial:
    return lambda y, value, *operands: partial(y, *operands)


RULES: dict[str, Rule] = {
    "expm1": _Elementwise(lambda y, x: y + 1.0),
    "log1p": _Elementwise(lambda y, x: (x + 1.0).reciprocal()),
    "log10": _Elementwise(lambda y, x: (x * math.log(10)).reciprocal()),
    "sinh": _Elementwise(lambda y, x: x.cosh()),
    "cosh": _Elementwise(lambda y, x: x.sinh()),
    "asinh": _Elementwise(lambda y, x: x.hypot(1.0).reciprocal()),
    "acosh": _Elementwise(lambda y, x: ((x - 1.0).sqrt() * (x + 1.0).sqrt()).reciprocal()),
    "atanh": _Elementwise(lambda y, x: ((1.0 - x) * (1.0 + x)).reciprocal()),
    "asin": _Elementwise(lambda y, x: ((1.0 - x) * (1.0 + x)).sqrt().reciprocal()),
    "acos": _Elementwise(lambda y, x: -((1.0 - x) * (1.0 + x)).sqrt().reciprocal()),
    "atan": _Elementwise(lambda y, x: (x * x + 1.0).reciprocal()),
    "atan2": _Elementwise(
        lambda y, a, b: _angle_share(b, a, 1), lambda y, a, b: _angle_share(a, b, -1)
    ),
    "hypot": _Elementwise(
        lambda y, a, b: _hypot_share(y, a), lambda y, a, b: _hypot_share(y, b)
    ),
    "copysign": _Elementwise(_of_first),
    **array_rules.RULES,
    **matrix_rules.RULES,
    **scan_rule.RULES,
    "branches": branches_rule.Branches(),
    "logaddexp": _Elementwise(
        lambda y, a, b: _weight(a, b), lambda y, a, b: _weight(b, a)
    ),
}  # fmt: skip


def rule_of(u: UOp) -> Rule:
    """The rule of a PRIMITIVE. Unsupported for one that was made in another process."""
    found = RULES.get(u.arg.name)
    if found is None:
        raise Unsupported(f"the derivative of {u.arg.name}: its rule was given in another process")
    return found
