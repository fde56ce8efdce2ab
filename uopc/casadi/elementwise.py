"""CasADi's elementwise operations, for scalars of SX and for nonzeros of MX.

A truth value is 0 or 1, and any number but 0 is true, as in C; `fmin`, `fmax`, `fmod` and
`remainder` are those of C.
"""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca

from uopc.casadi.structures import F8
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.tensor import float_functions


def _as_number(truth: UOp) -> UOp:
    return truth.cast(F8)


def _is_true(a: UOp) -> UOp:
    return a.ne(0.0)


def _sign(a: UOp) -> UOp:
    """-1, 1, or the argument itself: 0, -0 or NaN."""
    return (a < 0.0).where(-1.0, (a > 0.0).where(1.0, a))


UNARY: dict[int, Callable[[UOp], UOp]] = {
    ca.OP_ASSIGN: lambda a: a,
    ca.OP_NEG: lambda a: -a,
    ca.OP_EXP: UOp.exp,
    ca.OP_LOG: UOp.log,
    ca.OP_SQRT: UOp.sqrt,
    ca.OP_SQ: lambda a: a * a,
    ca.OP_TWICE: lambda a: a + a,
    ca.OP_SIN: UOp.sin,
    ca.OP_COS: UOp.cos,
    ca.OP_TAN: UOp.tan,
    ca.OP_ASIN: UOp.asin,
    ca.OP_ACOS: UOp.acos,
    ca.OP_ATAN: UOp.atan,
    ca.OP_NOT: lambda a: _as_number(a.eq(0.0)),
    ca.OP_FLOOR: UOp.floor,
    ca.OP_CEIL: UOp.ceil,
    ca.OP_FABS: UOp.abs,
    ca.OP_SIGN: _sign,
    ca.OP_ERF: UOp.erf,
    ca.OP_INV: UOp.reciprocal,
    ca.OP_SINH: UOp.sinh,
    ca.OP_COSH: UOp.cosh,
    ca.OP_TANH: UOp.tanh,
    ca.OP_ASINH: UOp.asinh,
    ca.OP_ACOSH: UOp.acosh,
    ca.OP_ATANH: UOp.atanh,
    ca.OP_LOG1P: UOp.log1p,
    ca.OP_EXPM1: UOp.expm1,
    ca.OP_ERFINV: float_functions.erfinv,
}
BINARY: dict[int, Callable[[UOp, UOp], UOp]] = {
    ca.OP_ADD: lambda a, b: a + b,
    ca.OP_SUB: lambda a, b: a - b,
    ca.OP_MUL: lambda a, b: a * b,
    ca.OP_DIV: lambda a, b: a / b,
    ca.OP_POW: lambda a, b: a.pow(b),
    ca.OP_CONSTPOW: lambda a, b: a.pow(b),
    ca.OP_LT: lambda a, b: _as_number(a < b),
    ca.OP_LE: lambda a, b: _as_number(a <= b),
    ca.OP_EQ: lambda a, b: _as_number(a.eq(b)),
    ca.OP_NE: lambda a, b: _as_number(a.ne(b)),
    ca.OP_AND: lambda a, b: _as_number(_is_true(a) & _is_true(b)),
    ca.OP_OR: lambda a, b: _as_number(_is_true(a) | _is_true(b)),
    ca.OP_FMOD: lambda a, b: a.alu(Ops.CMOD, b),
    ca.OP_REMAINDER: float_functions.ieee_remainder,
    ca.OP_COPYSIGN: lambda a, b: a.copysign(b),
    ca.OP_IF_ELSE_ZERO: lambda a, b: _is_true(a).where(b, 0.0),
    ca.OP_FMIN: float_functions.number_of(Ops.MIN),
    ca.OP_FMAX: float_functions.number_of(Ops.MAX),
    ca.OP_ATAN2: lambda a, b: a.atan2(b),
    ca.OP_HYPOT: lambda a, b: a.hypot(b),
    ca.OP_PRINTME: lambda a, b: a,
    ca.OP_LIFT: lambda a, b: a,
}
