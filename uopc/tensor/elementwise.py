"""Elementwise tensor methods, with the formula of each function derived from several ops.

Operands promote and broadcast as in NumPy. Functions built of several ops compute float16, bfloat16
and fp8 in float32 and round once. `passes/decompose/functions/transcendental.py` has the formulas
of the ops themselves (exp, sin, ...).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import NoneType
from typing import Any, Concatenate, Final, Literal, ParamSpec

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, fold, leaves, operands
from uopc.ir.builder.fold import cast
from uopc.ir.core import bounds, dtypes, shapes
from uopc.ir.core.args import Opt, ShardArg
from uopc.ir.core.dtypes import DType, DTypeLike
from uopc.ir.core.ops import Op, Ops
from uopc.ir.core.typed import Operand
from uopc.ir.core.uop import UOp, intern
from uopc.ir.index.dims import dim_uop
from uopc.tensor.examples import with_name
from uopc.tensor.primitive import primitive

P = ParamSpec("P")
_RANK = {bool: 0, int: 1, float: 2}
MOST_DECIMALS = 22  # 10**22 is exact in float64


def rounded_once(
    function: Callable[Concatenate[UOp, P], UOp],
) -> Callable[Concatenate[UOp, P], UOp]:
    """Wrap a function of floats: compute narrow floats in float32 and round at the end."""

    @functools.wraps(function)
    def wrapped(a: UOp, /, *args: P.args, **kwargs: P.kwargs) -> UOp:
        x = as_float(a)
        wide = dtypes.accumulator(x.dtype.scalar)
        return cast(function(cast(x, wide), *args, **kwargs), x.dtype)

    return wrapped


# ---------------------------------------------------------------- arithmetic
def negative(a: UOp) -> UOp:
    """Minus a; not a for bool."""
    return alu.alu(a, Ops.NEG)


def positive(a: UOp) -> UOp:
    """The value itself."""
    return a


def invert(a: UOp) -> UOp:
    """Every bit flipped; not a for bool. Integers and bool only."""
    if a.dtype.kind == "bool":
        return alu.alu(a, Ops.NEG)
    if a.dtype.is_float:
        raise UserTypeError(f"~ needs integers or bool, got {a.dtype.name}")
    if a.dtype.kind == "index":
        return alu.binary(Ops.SUB, -1, a)
    return alu.alu(a, Ops.XOR, leaves.const(a.dtype.scalar, -1))


def absolute(a: UOp) -> UOp:
    """The magnitude; the least integer wraps to itself."""
    return a if a.dtype.kind in ("bool", "uint") else alu.alu(a, Ops.ABS)


def divide(a: Operand, b: Operand) -> UOp:
    """The float quotient a / b; integers give float64."""
    x, y = operands.paired(a, b, "/")
    if not x.dtype.is_float:
        x, y = cast(x, dtypes.float64), cast(y, dtypes.float64)
    return alu.alu(x, Ops.FDIV, y)


def operator(op: Op) -> Callable[[Operand, Operand], UOp]:
    """Make the function of a binary op."""

    def function(a: Operand, b: Operand) -> UOp:
        return alu.binary(op, a, b)

    return function


def _no_bool(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """Cast bool to int8, in which NumPy divides and raises bools."""
    if x.dtype.kind == "bool":
        return cast(x, dtypes.int8), cast(y, dtypes.int8)
    return x, y


def floored(op: Op) -> Callable[[Operand, Operand], UOp]:
    """Make the operator // or %, in the common dtype."""

    def function(a: Operand, b: Operand) -> UOp:
        x, y = _no_bool(*operands.paired(a, b, op.symbol or op.name))
        return alu.alu(x, op, y)

    return with_name(function, __name__, op.name)


def bitwise(op: Op) -> Callable[[Operand, Operand], UOp]:
    """Make the operator &, |, ^ or a shift; UserTypeError for floats."""

    def function(a: Operand, b: Operand) -> UOp:
        x, y = operands.paired(a, b, op.symbol or op.name)
        if x.dtype.is_float:
            raise UserTypeError(f"{op.symbol} needs integers or bool, got {x.dtype.name}")
        if op is Ops.SHL or op is Ops.SHR:
            x, y = _no_bool(x, y)
        return alu.alu(x, op, y)

    return with_name(function, __name__, op.name)


def power(a: Operand, b: Operand) -> UOp:
    """a to the b in the common dtype. Integers wrap; a negative exponent gives the integer part.

    Examples:
        >>> x = uopc.constant([2, 3, -1])
        >>> uopc.compile(x.pow(3))(), uopc.compile(x ** -1)()
        (array([ 8, 27, -1]), array([ 0,  0, -1]))
    """
    x, y = _no_bool(*operands.paired(a, b, "**"))
    if y.op is Ops.CONST and type(y.arg) is not tuple:
        found = _fixed_power(x, y.arg)
        if found is not None:
            return found
    return alu.alu(x, Ops.POW, y)


def _fixed_power(x: UOp, exponent: float) -> UOp | None:
    """Compute a power by at most two multiplications or one division (within 1.5 ulp), or None."""
    if exponent == 0:
        return leaves.const_like(x, 1)
    if exponent == 1:
        return x
    if exponent == -1 and x.dtype.is_float:
        return alu.alu(x, Ops.RECIPROCAL)
    if exponent == 2 or (exponent in (3, 4) and x.dtype.bits >= 32):
        square = alu.alu(x, Ops.MUL, x)
        if exponent == 2:
            return square
        return alu.alu(square, Ops.MUL, x if exponent == 3 else square)
    return None


def mulacc(a: UOp, b: Operand, c: Operand) -> UOp:
    """a*b + c; floats round once.

    The three operands are promoted and broadcast.

    Examples:
        >>> x = uopc.constant([1, 2, 3])
        >>> uopc.compile(x.mulacc(10, 5))()
        array([15, 25, 35])
    """
    x, y = operands.paired(a, b)
    x, z = operands.paired(x, c)
    return alu.alu(x, Ops.MULACC, cast(y, x.dtype), z)


def divided(a: Operand, b: Operand) -> tuple[UOp, UOp]:
    """The floored quotient and the remainder, as `divmod` gives them."""
    return floored(Ops.FLOORDIV)(a, b), floored(Ops.FLOORMOD)(a, b)


def rounded(a: UOp, decimals: int | None = None) -> UOp:
    """Rounded to so many decimals, ties to even; integers stay. The same as `numpy.round`."""
    if decimals is not None and type(decimals) is not int:
        raise UserTypeError(f"round: expected a number of decimals, got {decimals!r}")
    if not a.dtype.is_float:
        if decimals is not None and decimals < 0:
            raise UserError(f"round: decimals must be 0 or more for integers, got {decimals}")
        return a
    if not decimals:
        return alu.alu(a, Ops.ROUND)
    if abs(decimals) > MOST_DECIMALS:
        raise UserError(f"round: expected -{MOST_DECIMALS} to {MOST_DECIMALS}, got {decimals}")
    op, undo = (Ops.MUL, Ops.FDIV) if decimals > 0 else (Ops.FDIV, Ops.MUL)
    scale = float(10 ** abs(decimals))
    return alu.binary(undo, alu.alu(alu.binary(op, a, scale), Ops.ROUND), scale)


# ---------------------------------------------------------------- selection
def where(condition: Operand, a: Operand, b: Operand) -> UOp:
    """a where the condition holds, else b; all three broadcast.

    As a function or a method of the condition: `uopc.where(c, a, b)` is `c.where(a, b)`. a and b
    are promoted. UserTypeError unless the condition is bool.

    Examples:
        >>> x = uopc.constant([1.0, -2.0, 3.0])
        >>> uopc.compile(uopc.where(x > 0, x, 0))()
        array([1., 0., 3.])
    """
    if type(a) in _RANK and type(b) in _RANK:
        stronger = max(type(a), type(b), key=_RANK.__getitem__)
        a, b = stronger(a), stronger(b)
    if type(condition) is bool:
        raise UserTypeError(f"where: a Python bool as the condition {operands.COMPARED}")
    return alu.where(operands.as_uop(condition), a, b)


def clip(a: UOp, lo: Operand = None, hi: Operand = None) -> UOp:
    """min(max(a, lo), hi); None leaves that side open. NaN stays."""
    out = a if lo is None else alu.binary(Ops.MAX, a, lo)
    return out if hi is None else alu.binary(Ops.MIN, out, hi)


def sign(a: UOp) -> UOp:
    """-1, 0 or 1 in the dtype of a; NaN stays."""
    if a.dtype.kind == "bool":
        return a
    if a.dtype.kind == "uint":
        return cast(alu.binary(Ops.CMPNE, a, 0), a.dtype)
    # A value that is neither above nor below zero is ±0, whose magnitude is 0, or NaN.
    rest = alu.alu(a, Ops.ABS) if a.dtype.is_float else leaves.const(a.dtype.scalar, 0)
    below = alu.where(alu.binary(Ops.CMPLT, a, 0), leaves.const(a.dtype.scalar, -1), rest)
    return alu.where(alu.binary(Ops.CMPLT, 0, a), leaves.const(a.dtype.scalar, 1), below)


# ---------------------------------------------------------------- float functions
def of_floats(op: Op) -> Callable[[UOp], UOp]:
    """Make the function of a float op; the function converts integers to floats first."""

    def function(a: UOp) -> UOp:
        return alu.alu(as_float(a), op)

    return function


def rounding(op: Op) -> Callable[[UOp], UOp]:
    """Make the function that rounds floats by an op and returns integers unchanged."""

    def function(a: UOp) -> UOp:
        return alu.alu(a, op) if a.dtype.is_float else a

    return function


@rounded_once
def rsqrt(a: UOp) -> UOp:
    """1 / sqrt(a)."""
    return alu.alu(alu.alu(a, Ops.SQRT), Ops.RECIPROCAL)


# ---------------------------------------------------------------- activations
def relu(a: UOp) -> UOp:
    """max(a, 0); NaN stays."""
    return a if a.dtype.kind in ("bool", "uint") else alu.binary(Ops.MAX, a, 0)


def sigmoid(a: UOp) -> UOp:
    """1 / (1 + e^-a). The result is 0 if e^-a overflows."""
    x = as_float(a)
    return primitive(_sigmoid(x), "sigmoid", x)


@rounded_once
def _sigmoid(x: UOp) -> UOp:
    return alu.alu(alu.binary(Ops.ADD, alu.alu(alu.alu(x, Ops.NEG), Ops.EXP), 1), Ops.RECIPROCAL)


def sigmoid_rest(x: UOp) -> UOp:
    """1 - sigmoid(x), which is sigmoid(-x); shares the exponential of sigmoid(x)."""
    if x.op is Ops.NEG:
        return sigmoid(x.src[0])
    return primitive(_sigmoid_rest(x), "sigmoid", alu.alu(x, Ops.NEG))


@rounded_once
def _sigmoid_rest(x: UOp) -> UOp:
    """Multiply e^-x by the sigmoid if x > 0: this loses no digits and does not overflow there."""
    power, share = alu.alu(alu.alu(x, Ops.NEG), Ops.EXP), _sigmoid(x)
    right = alu.alu(share, Ops.MUL, power)
    return alu.where(alu.binary(Ops.CMPLT, 0, x), right, alu.binary(Ops.SUB, 1, share))


@rounded_once
def silu(a: UOp) -> UOp:
    """a · sigmoid(a)."""
    return alu.alu(a, Ops.MUL, sigmoid(a))


@rounded_once
def gelu(a: UOp, approximate: Literal["none", "tanh"] = "none") -> UOp:
    """a · Φ(a), Φ the normal distribution; "tanh" takes Hendrycks and Gimpel's approximation.

    Integers are made floats first. UserError for another `approximate`. (D. Hendrycks and K.
    Gimpel, "Gaussian Error Linear Units", 2016.)

    Examples:
        >>> x = uopc.constant([-1.0, 0.0, 1.0])
        >>> uopc.compile(x.gelu())()
        array([-0.15865525,  0.        ,  0.84134475])
    """
    if approximate == "none":
        curve = alu.alu(alu.binary(Ops.MUL, a, math.sqrt(0.5)), Ops.ERF)
    elif approximate == "tanh":
        cubic = alu.binary(Ops.ADD, alu.binary(Ops.MUL, alu.binary(Ops.MUL, a, a), 0.044715), 1)
        inner = alu.binary(Ops.MUL, alu.binary(Ops.MUL, a, math.sqrt(2 / math.pi)), cubic)
        curve = alu.alu(inner, Ops.TANH)
    else:
        raise UserError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}')
    return alu.binary(Ops.MUL, alu.binary(Ops.MUL, a, 0.5), alu.binary(Ops.ADD, curve, 1))


# ---------------------------------------------------------------- marks
# Numbers that do not fit a dtype without saturation: the least one, and the bits that it becomes,
# NaN or infinity. A number halfway to the next one goes to the even one of both.
_OVERFLOWS: Final[dict[DType, tuple[float, int]]] = {
    dtypes.fp8e4m3: (464.00003, 0x7F), dtypes.fp8e4m3fnuz: (248.0, 0x80),
    dtypes.fp8e5m2: (61440.0, 0x7C), dtypes.fp8e5m2fnuz: (61440.0, 0x80),
}  # fmt: skip


def converted(a: UOp, dtype: DTypeLike, saturate: bool = True) -> UOp:
    """Convert the values of `a` to another dtype: a DType, or NumPy's as `np.float64` or `"f8"`.

    Floats truncate to integers; a value out of range becomes the least or greatest integer, NaN
    becomes 0. Integers wrap. Floats round to nearest. Casts to 8-bit floats start from float32: a
    value out of range becomes the least or greatest number; without `saturate`, NaN, or infinity if
    the dtype has infinity, as in ml_dtypes. UserTypeError for anything but a dtype, UserError for
    another dtype without `saturate`. `astype` is `cast`.

    Examples:
        >>> x = uopc.constant([2.7, -2.7, 1e20])
        >>> uopc.compile(x.cast(dtypes.int32))()
        array([         2,         -2, 2147483647], dtype=int32)
        >>> uopc.compile(x.cast(dtypes.fp8e4m3, saturate=False).astype("f4"))()
        array([ 2.75, -2.75,   nan], dtype=float32)
    """
    made = cast(a, dtype)
    if checks.flag("cast", "saturate", saturate):
        return made
    if made.dtype not in _OVERFLOWS:
        raise UserError(f"cast: saturate=False needs a float of 8 bits, got {made.dtype.name}")
    if a.dtype is made.dtype:
        return a
    least, beyond = _OVERFLOWS[made.dtype]
    wide = cast(a, dtypes.float32)
    below, above = (leaves.const(dtypes.uint8, v) for v in (beyond | 128, beyond))
    bits = fold.bitcast(made, dtypes.uint8)
    over = alu.where(wide < 0, below, above)
    return fold.bitcast(alu.where(absolute(wide) >= least, over, bits), made.dtype)


def contiguous(a: UOp, opts: Any = None) -> UOp:
    """The same value, stored in its own buffer. `opts` are the Opts of the kernel that computes the
    value: exactly these, even with optimize=False; () for none. Their range numbers are those after
    `simplify-ranges`, which merges loops unless optimize=False. UserTypeError for other values;
    `compile` raises UserError for an illegal Opt.

    Examples:
        >>> x = uopc.param("x", (64,))
        >>> whole, cut = x.sin() + 1, x.sin().contiguous() + 1
        >>> len(uopc.compile(whole).kernels), len(uopc.compile(cut).kernels)
        (1, 2)
    """
    if not isinstance(opts, (tuple, list, NoneType)) or any(type(o) is not Opt for o in opts or ()):
        raise UserTypeError(f"contiguous: expected Opts, got {opts!r}")
    chosen = None if opts is None else tuple(opts)
    if a.op is Ops.CONTIGUOUS and (chosen is None or chosen == a.arg):
        return a
    return leaves.located(intern(Ops.CONTIGUOUS, a.dtype, (a,), chosen))


def detach(a: UOp) -> UOp:
    """The same value; no derivative flows through it.

    Its shape, dtype and value are those of `a`.

    Examples:
        >>> x = uopc.constant([1.0, 2.0])
        >>> uopc.compile(x.detach() * 2)()
        array([2., 4.])
    """
    return a if a.op is Ops.DETACH else leaves.located(intern(Ops.DETACH, a.dtype, (a,)))


def contiguous_backward(a: UOp) -> UOp:
    """The same value; its derivative is stored before it flows on.

    Examples:
        >>> x = uopc.constant([1.0, 2.0])
        >>> uopc.compile(x.contiguous_backward() * 2)()
        array([2., 4.])
    """
    return leaves.located(intern(Ops.CONTIGUOUS_BACKWARD, a.dtype, (a,)))


def copy(a: UOp, device: str) -> UOp:
    """Copy the value to a device, such as `cpu` or `cuda:0`.

    UserTypeError if the device is no string; a compile raises UserError for an unknown device.

    Examples:
        >>> x = uopc.param("x", (2,))
        >>> x.device, x.copy("cpu").device
        (None, 'cpu')
    """
    if not isinstance(device, str):
        raise UserTypeError(f"copy: the device must be a string, got {device!r}")
    return leaves.located(intern(Ops.COPY, a.dtype, (a,), device))


def shard(a: UOp, *spec: Any) -> UOp:
    """The value, laid out over the mesh of a compile as a `uopc.P` says; JAX calls it
    `with_sharding_constraint`. A compile without a mesh ignores it.

    UserError for more entries than dimensions, or an axis twice.

    Examples:
        >>> x = uopc.param("x", (4, 2))
        >>> mesh = uopc.make_mesh((2,), ("data",))
        >>> total = x.shard(uopc.P("data")).sum(axis=0)
        >>> program = uopc.compile(total, sharding=uopc.Sharding(mesh))
        >>> program(np.ones((4, 2), "f4"))
        array([4., 4.], dtype=float32)
    """
    from uopc.ir.devices import mesh

    given = spec[0] if len(spec) == 1 and isinstance(spec[0], tuple) else spec
    normal = mesh.normal(given, len(shapes.shape(a)), "shard")
    return leaves.located(intern(Ops.SHARD, a.dtype, (a,), ShardArg(normal)))


# ---------------------------------------------------------------- variables
def bind(a: UOp, value: Any) -> UOp:
    """Give the variable a value for this run: an integer, or an integer that the graph computes,
    without dimensions. UserError if the value is out of bounds; a computed one is checked in each
    call, as soon as it is known.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> ones = uopc.ones((n.bind(3),))
        >>> uopc.compile(ones)()
        array([1., 1., 1.], dtype=float32)
        >>> x = uopc.param("x", (8,))
        >>> positive = uopc.variable("positive", 0, 8).bind((x > 0).sum())
        >>> uopc.compile(x[:positive])(np.array([3, -1, 2, -5, 0, 0, 0, 0], "f4"))
        array([ 3., -1.], dtype=float32)
    """
    if a.op is not Ops.VARIABLE:
        raise UserError(f"bind: expected a variable, got {a.op!r}")
    if isinstance(value, UOp) and value.op is not Ops.CONST:
        if shapes.shape(value) or value.dtype.kind not in ("int", "uint", "index"):
            wanted = "an integer without dimensions"
            raise UserError(f"bind: {a.arg.name} takes {wanted}, got {shapes.show_value(value)}")
        return leaves.located(intern(Ops.BIND, a.dtype, (a, cast(value, dtypes.int64))))
    number = operands.as_dim(value.arg if isinstance(value, UOp) else value)
    if isinstance(number, UOp) or not a.arg.low <= number <= a.arg.high:
        limits = f"{a.arg.low} to {a.arg.high}"
        raise UserError(f"bind: {a.arg.name} takes an integer from {limits}, got {value!r}")
    return leaves.located(intern(Ops.BIND, a.dtype, (a, dim_uop(number))))


def unbind(a: UOp) -> tuple[UOp, int]:
    """The variable and the value of a bound variable.

    UserError for anything else.

    Examples:
        >>> n = uopc.variable("n", 1, 8)
        >>> variable, value = n.bind(3).unbind()
        >>> variable is n, value
        (True, 3)
    """
    if a.op is not Ops.BIND or a.src[0].op is not Ops.VARIABLE or a.src[1].op is not Ops.CONST:
        raise UserError(f"unbind: expected a bound variable, got {a.op!r}")
    return a.src[0], int(bounds.bounds(a.src[1])[0])


def as_float(a: UOp) -> UOp:
    """`a` as a float: integers become float64, bool and small integers float32."""
    if a.dtype.is_float:
        return a
    wide = a.dtype.bits > 16 or a.dtype is dtypes.index
    return cast(a, dtypes.float64 if wide else dtypes.float32)
