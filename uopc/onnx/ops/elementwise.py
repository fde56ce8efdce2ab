"""Operators on elements: functions, arithmetic, comparisons, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import uopc
from uopc import UOp, dtypes
from uopc.errors import UserError
from uopc.ir.core.ops import Ops
from uopc.onnx.narrow import NARROW, fitted, narrow_of
from uopc.onnx.node import Node
from uopc.onnx.ops.texts import cast_texts, text
from uopc.onnx.registry import op
from uopc.onnx.values import STRING, Labels, dtype_of, is_text
from uopc.tensor import table
from uopc.tensor.float_functions import softplus


def _register(row: table.UFunc) -> None:
    """Register the operators that a row of the table names."""
    if row.operands == 1:
        op(row.onnx)(lambda n: row.function(n.x(0)))
    else:
        op(row.onnx)(lambda n: row.function(n.x(0), n.x(1)))


for _row in table.ROWS:
    if _row.onnx:
        _register(_row)


def _variadic(names: str, f: Callable[[UOp, UOp], UOp]) -> None:
    op(names)(lambda n: functools.reduce(f, n.all()))


_variadic("Sum", lambda a, b: a + b)
_variadic("Max", UOp.maximum)
_variadic("Min", UOp.minimum)


op("Identity Optional OptionalGetElement")(lambda n: (n.raw(0),))
op("Where")(lambda n: uopc.where(n.x(0), n.x(1), n.x(2)))
op("PRelu")(lambda n: uopc.where(n.x(0) < 0, n.x(0) * n.x(1), n.x(0)))
op("BitCast")(lambda n: n.x(0).bitcast(dtype_of(n.attr("to", 0))))
# The greater bound wins where the bounds cross. Before version 11 the bounds are attributes.
op("Clip", since=11)(lambda n: n.x(0).clip(n.maybe(1), n.maybe(2)))
op("Clip")(lambda n: n.x(0).clip(n.attr("min", None), n.attr("max", None)))


@op("Equal")
def equal(n: Node) -> Any:
    """Compare elements; strings must be known."""
    if is_text(n.raw(0)):
        return np.asarray(text(n, 0) == text(n, 1))
    return n.x(0).eq(n.x(1))


@op("Div")
def div(n: Node) -> UOp:
    a, b = n.x(0), n.x(1)
    return a / b if a.dtype.is_float else a.alu(Ops.CDIV, b)


@op("Mean")
def mean(n: Node) -> UOp:
    values = n.all()
    return functools.reduce(lambda a, b: a + b, values) / len(values)


@op("Mod")
def mod(n: Node) -> UOp:
    """Return the remainder with the sign of the divisor; with `fmod`, of the dividend."""
    a, b = n.x(0), n.x(1)
    return a.alu(Ops.CMOD, b) if n.attr("fmod", 0) else a % b


@op("Pow")
def power(n: Node) -> UOp:
    """Raise to a power, in the dtype of the base. A float exponent first makes integers floats."""
    a, b = n.x(0), n.x(1)
    if a.dtype is b.dtype:
        return a**b
    if a.dtype.is_float:
        return a ** b.cast(a.dtype)
    if not b.dtype.is_float:
        return a ** b.cast(a.dtype)
    return (a.cast(b.dtype) ** b).cast(a.dtype)


@op("BitShift")
def shift(n: Node) -> UOp:
    """Shift bits. Shifts by the width or more give 0, or all sign bits."""
    left = n.attr("direction", "") == "LEFT"
    a, b = n.x(0), n.x(1)
    bits = a.dtype.itemsize * 8
    if left:
        return uopc.where(b < bits, a << b, 0)
    return uopc.where(b < bits, a >> b, uopc.where(a < 0, -1, 0).cast(a.dtype))


@op("IsInf")
def isinf(n: Node) -> UOp:
    """Test for infinities; attributes may exclude either sign."""
    x = n.x(0)
    sides = [
        x.eq(value) for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf))
        if n.attr(name, 1)
    ]  # fmt: skip
    return functools.reduce(lambda a, b: a | b, sides, uopc.full(x.shape, False, dtypes.bool_))


# ---------------------------------------------------------------- activations
# Functions of x, alpha and beta, with the values of these if they are left out.
ACTIVATIONS: dict[str, tuple[Callable[[UOp, float, float], UOp], float, float]] = {
    "Elu": (lambda x, a, b: uopc.where(x < 0, x.minimum(0.0).expm1() * a, x), 1.0, 0.0),
    "HardSigmoid": (lambda x, a, b: (x * a + b).clip(0.0, 1.0), 0.2, 0.5),
    "LeakyRelu": (lambda x, a, b: uopc.where(x < 0, x * a, x), 0.01, 0.0),
    "ThresholdedRelu": (lambda x, a, b: uopc.where(x > a, x, 0.0), 1.0, 0.0),
}


def _activation(name: str, f: Callable[..., UOp], **attributes: float) -> None:
    """Register an operator of x and of attributes, with the defaults of the attributes."""
    op(name)(lambda n: f(n.x(0), *[n.number(a, value) for a, value in attributes.items()]))


for _name, (_f, _alpha, _beta) in ACTIVATIONS.items():
    _activation(_name, _f, alpha=_alpha, beta=_beta)
_activation("Celu", lambda x, a: x.maximum(0.0) + ((x.minimum(0.0) / a).expm1() * a), alpha=1.0)
_activation(
    "Selu", lambda x, a, g: uopc.where(x > 0, x * g, x.minimum(0.0).expm1() * (a * g)),
    alpha=1.6732632, gamma=1.050701,
)  # fmt: skip
_activation("HardSwish", lambda x: x * (x / 6 + 0.5).clip(0.0, 1.0))
_activation("Mish", lambda x: x * softplus(x).tanh())
_activation("Swish", lambda x, a: x * (x * a).sigmoid(), alpha=1.0)
op("Gelu")(lambda n: n.x(0).gelu(approximate=n.attr("approximate", "none")))


@op("Shrink")
def shrink(n: Node) -> UOp:
    """Move x towards 0 by `bias` outside of -lambd..lambd; 0 inside."""
    x, lambd, bias = n.x(0), n.number("lambd", 0.5), n.number("bias", 0.0)
    made = uopc.where(x < -lambd, x + bias, uopc.where(x > lambd, x - bias, 0))
    return made.cast(x.dtype)


@op("Dropout")
def dropout(n: Node) -> Any:
    """Return the input: inference, the only supported mode, drops nothing."""
    training = n.known(2)
    if training is not None and bool(training):
        ratio = n.known(1)
        if ratio is None or float(ratio) != 0:
            raise UserError("Dropout in training mode is not supported: its ratio must be 0")
    x = n.x(0)
    return x, uopc.full(x.shape, True, dtypes.bool_)


# ---------------------------------------------------------------- dtypes
@op("Cast")
def cast(n: Node) -> Any:
    """Cast; floats truncate to integers. `saturate` applies to 8-bit floats."""
    number = n.attr("to", 0)
    if number == STRING and isinstance(n.raw(0), Labels):
        return n.raw(0)
    if number == STRING or is_text(n.raw(0)):
        known = n.known(0)
        return None if known is None else cast_texts(known, number)
    return _to(n, number if number in NARROW else dtype_of(number))


@op("CastLike")
def cast_like(n: Node) -> Any:
    """Cast to the type of the second input."""
    number = narrow_of(n.raw(1))
    return _to(n, n.x(1).dtype if number is None else number)


def _to(n: Node, kind: int | dtypes.DType) -> Any:
    """Cast to a dtype, or to the narrow type of an ONNX number."""
    saturate = bool(n.attr("saturate", 1))
    if isinstance(kind, int):
        return fitted(n.x(0), kind, saturate, n.attr("round_mode", "up"))
    return _cast(n.x(0), kind, saturate)


def _cast(x: UOp, dtype: dtypes.DType, saturate: bool) -> UOp:
    if dtype is dtypes.bool_:
        return x.ne(0)
    narrow = dtype.is_float and dtype.bits == 8
    return x.cast(dtype, saturate=saturate or not narrow)
