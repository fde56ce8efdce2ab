"""The rules of functions that are a single PRIMITIVE, by name; and the rules of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from uopc.derivatives import (
    accumulate,
    array_rules,
    branches_rule,
    families,
    matrix_rules,
    scan_rule,
)
from uopc.derivatives.rule import DerivativeRule, Partial, Partials, wide
from uopc.derivatives.values import Factor, front_aligned
from uopc.errors import Unsupported
from uopc.ir.builder import alu, leaves
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise, float_functions, statistics


def _hypot_share(y: UOp, a: UOp) -> Factor:
    """a / hypot(a, b); 0 at the origin, like the derivative of abs."""
    none = alu.binary(Ops.CMPEQ, y, 0)
    return alu.where(none, leaves.const(y.dtype, 0), a / alu.where(none, 1.0, y))


def _angle_share(a: UOp, b: UOp, sign: float) -> Factor:
    """a / (a^2 + b^2), without overflow of the squares."""
    length = a.hypot(b)
    return a / length / (length * sign)


def _of_first(y: UOp, x: UOp, sign_of: UOp) -> Factor:
    return x.sign() * leaves.const_like(sign_of, 1).copysign(sign_of)


def _weight(x: UOp, other: UOp) -> Factor:
    """e^x / (e^x + e^other); ½ if both are the same infinity."""
    distance = x - other
    undefined = alu.alu(distance, Ops.CMPNE, distance) & alu.alu(x, Ops.CMPEQ, other)
    return elementwise.sigmoid(alu.where(undefined, 0.0, distance))


def _squared(a: UOp) -> UOp:
    return a * a


class _Elementwise(Partials):
    """An elementwise function, by default the function of this name in `float_functions`. Factors
    depend on the result and the operands, of which narrow floats first become float32."""

    def __init__(
        self, *partials: Partial | None, function: Callable[..., UOp] | None = None
    ) -> None:
        super().__init__(None, *[p and _without_value(wide(p)) for p in partials])
        self._function = function

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        rank = len(shapes.shape(u))
        aligned = [front_aligned(a, rank) if b else a for a, b in zip(operands, batched)]
        return (self._function or getattr(float_functions, u.arg.name))(*aligned)


def _without_value(partial: Partial) -> Partial:
    return lambda y, value, *operands: partial(y, *operands)


RULES: dict[str, DerivativeRule] = {
    "expm1": _Elementwise(lambda y, x: x.exp()),
    "log1p": _Elementwise(lambda y, x: (x + 1.0).reciprocal()),
    "log10": _Elementwise(lambda y, x: math.log10(math.e) / x),
    "sinh": _Elementwise(lambda y, x: x.cosh()),
    "cosh": _Elementwise(lambda y, x: x.sinh()),
    "asinh": _Elementwise(lambda y, x: x.hypot(1.0).reciprocal()),
    "acosh": _Elementwise(lambda y, x: ((x - 1.0).sqrt() * (x + 1.0).sqrt()).reciprocal()),
    "atanh": _Elementwise(lambda y, x: ((1.0 - x) * (1.0 + x)).reciprocal()),
    "asin": _Elementwise(lambda y, x: ((1.0 - x) * (1.0 + x)).sqrt().reciprocal()),
    "acos": _Elementwise(lambda y, x: -((1.0 - x) * (1.0 + x)).sqrt().reciprocal()),
    "atan": _Elementwise(lambda y, x: _squared(x.hypot(1.0).reciprocal())),
    "atan2": _Elementwise(
        lambda y, a, b: _angle_share(b, a, 1), lambda y, a, b: _angle_share(a, b, -1)
    ),
    "hypot": _Elementwise(
        lambda y, a, b: _hypot_share(y, a), lambda y, a, b: _hypot_share(y, b)
    ),
    "copysign": _Elementwise(_of_first, None),
    "erfinv": _Elementwise(lambda y, x: (y * y).exp() * (0.5 * math.sqrt(math.pi))),
    "ieee_remainder": _Elementwise(
        lambda y, a, b: leaves.const_like(y, 1), lambda y, a, b: -((a - y) / b).round()
    ),
    **array_rules.RULES,
    **matrix_rules.RULES,
    **scan_rule.RULES,
    "branches": branches_rule.Branches(),
    "logaddexp": _Elementwise(
        lambda y, a, b: _weight(a, b), lambda y, a, b: _weight(b, a)
    ),
    "cbrt": _Elementwise(lambda y, x: (y * y * 3.0).reciprocal()),
    "sigmoid": _Elementwise(
        lambda y, x: y * elementwise.sigmoid_rest(x), function=elementwise.sigmoid
    ),
    "between": _Elementwise(
        lambda y, a, b, part: 1.0 - part, lambda y, a, b, part: part,
        lambda y, a, b, part: b - a, function=statistics.between,
    ),
    "others": accumulate.Others(),
    "product": accumulate.Product(),
    "power_log": families.PowerLog(),
    "sinc": families.Sinc(),
}  # fmt: skip


def rule_of(u: UOp) -> DerivativeRule:
    """The rule of a PRIMITIVE. Unsupported if the PRIMITIVE was made in another process."""
    found = RULES.get(u.arg.name)
    if found is None:
        raise Unsupported(
            f"{u.arg.name} has no derivative rule here: another process defined the rule"
        )
    return found
