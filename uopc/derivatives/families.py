"""Families of functions: the derivative of each function consists of later functions of its family.

    power_log(a, b, n)   a^b (log a)^n     by a: b a^(b-1) (log a)^n + n a^(b-1) (log a)^(n-1)
                                           by b: a^b (log a)^(n+1)
    sinc(x, n)           the nth derivative of sin(pi x) / (pi x)

So derivatives of any order are exact where a constant replaces the value's formula: sinc at 0,
powers of 0 by the exponent.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.derivatives.rule import Partials
from uopc.derivatives.values import Factor, front_aligned
from uopc.ir.builder import alu, leaves
from uopc.ir.core import shapes
from uopc.ir.core.ops import Ops
from uopc.ir.core.shapes import Dim
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise
from uopc.tensor.float_functions import sinc
from uopc.tensor.primitive import primitive


class _Family(Partials):
    """`details`: the index of the function in its family."""

    def apply_batch(self, u: UOp, operands: Sequence[UOp], batched: Sequence[bool], n: Dim) -> UOp:
        rank = len(shapes.shape(u))
        aligned = [front_aligned(a, rank) if b else a for a, b in zip(operands, batched)]
        return self.made(u.arg.details[0], *aligned)

    def made(self, number: int, *operands: UOp) -> UOp:
        raise NotImplementedError


# ---------------------------------------------------------------- powers
def power_log(a: UOp, b: UOp, n: int, power: UOp | None = None) -> UOp:
    """a^b (log a)^n; 0 if n >= 1, a is 0 and b is not negative. `power`: a^b, if it is known."""
    power = elementwise.power(a, b) if power is None else power
    if n == 0:
        return power
    none = alu.binary(Ops.CMPEQ, a, 0) & alu.binary(Ops.CMPLE, 0, b)
    value = log = alu.where(none, leaves.const(a.dtype, 1), a).log()
    for _ in range(n - 1):
        value = value * log
    return primitive(value * power, "power_log", a, b, details=(n,))


class PowerLog(_Family):
    """a^b (log a)^n."""

    def __init__(self) -> None:
        super().__init__(None, self._by_base, self._by_exponent)

    def made(self, number: int, *operands: UOp) -> UOp:
        a, b = operands
        return power_log(a, b, number)

    @staticmethod
    def _by_base(u: UOp, value: UOp, a: UOp, b: UOp) -> Factor:
        (n,) = u.arg.details
        none = alu.binary(Ops.CMPEQ, a, 0) & alu.binary(Ops.CMPEQ, b, 0)
        base = alu.where(none, leaves.const(a.dtype, 1), a)
        return b * power_log(base, b - 1, n) + float(n) * power_log(base, b - 1, n - 1)

    @staticmethod
    def _by_exponent(u: UOp, value: UOp, a: UOp, b: UOp) -> Factor:
        return power_log(a, b, u.arg.details[0] + 1)


# ---------------------------------------------------------------- sinc
class Sinc(_Family):
    """The nth derivative of sinc; n = 0 is sinc."""

    def __init__(self) -> None:
        super().__init__(None, lambda u, value, x: sinc(x, u.arg.details[0] + 1))

    def made(self, number: int, *operands: UOp) -> UOp:
        return sinc(operands[0], number)
