"""The elementwise functions of the Array API, and the operators of Array.

Operands promote as the standard says: Python numbers are weak; integers in a function of floats
become float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from uopc.errors import UserError, UserTypeError
from uopc.ir.builder import alu, checks, fold, leaves, operands
from uopc.ir.core import dtypes
from uopc.ir.core.dtypes import DType
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.numpy.array import Array, is_operand, is_weak, promoted, same_kind, uop_of
from uopc.numpy.creation import asarray
from uopc.numpy.dtype_functions import finfo, form_of
from uopc.numpy.memory.writing import into
from uopc.tensor import elementwise, examples, float_functions, table
from uopc.tensor.examples import with_name

__all__ = [
    "angle", "clip", "divmod", "isneginf", "isposinf", "modf", "nan_to_num", "select", "sinc",
    "where",
]  # fmt: skip
Function = Callable[..., Any]


def _applied(name: str, takes: str, build: Callable[..., UOp], values: tuple[Any, ...]) -> Any:
    """Apply a function of floats, bools, bits, numbers or any operands to values."""
    form = form_of(name, values, {})
    if form is not None:
        return form(*values)
    uops, weak = promoted(name, *values, floats=takes == "float")
    t = uops[0].dtype.scalar
    if takes == "bool" and t.kind != "bool":
        uops = [fold.cast(u, dtypes.bool_) for u in uops]
    elif takes == "bits" and t.is_float:
        raise UserTypeError(f"{name} needs integers or bool, got {t.name}")
    elif takes in ("number", "rounding") and t.kind == "bool":
        raise UserTypeError(f"{name} needs numbers, got bool")
    return same_kind(build(*uops), values, weak)


def _function(row: table.UFunc, build: Callable[..., UOp]) -> Function:
    """Make the function of a row of the table; `build` computes its UOps."""
    name, takes = row.name, row.takes

    def of_one(x: Any, /) -> Any:
        return _applied(name, takes, build, (x,))

    def of_two(x1: Any, x2: Any, /) -> Any:
        return _applied(name, takes, build, (x1, x2))

    return with_name(
        of_one if row.operands == 1 else of_two, "uopc.numpy", name, table.function_doc(row)
    )


FUNCTIONS: dict[str, Function] = {
    row.name: _function(row, row.function) for row in table.ROWS if row.numpy
}
# NumPy's other names, by which its functions reach a UOp or an Array too.
NUMPY_NAMES = {
    name: row.name for row in table.ROWS if isinstance(row.numpy, str) for name in row.numpy.split()
}
FUNCTIONS |= {name: FUNCTIONS[standard] for name, standard in NUMPY_NAMES.items()}


def _apart(x: UOp) -> tuple[UOp, UOp]:
    """The magnitude of floats, and 1 with their sign, also of -0.0. Both are linear on either side
    of 0, so that a zero has the derivative of its neighbours (abs and copysign give another)."""
    sign = float_functions.copysign(leaves.const_like(x, 1), x)
    return x * sign, sign


# NumPy's quotient, which fits its remainder: of an infinity it is NaN.
whole_quotient = _function(table.row("floor_divide"), elementwise.floored(Ops.FLOORDIV))


def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y.

    The operands promote and broadcast; a condition that is not bool holds where it is not 0.

    Examples:
        >>> x = unp.asarray([1.0, -2.0, 3.0])
        >>> np.asarray(unp.where(x > 0, x, 0))
        array([1., 0., 3.])
    """
    if type(condition) is bool:
        operands.check_truth("where", condition, x, y)
        condition = leaves.const(dtypes.bool_, condition)
    (c,), _ = promoted("where", condition)
    uops, weak = promoted("where", x, y)
    return same_kind(alu.where(fold.cast(c, dtypes.bool_), *uops), (condition, x, y), weak)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each element the first choice whose condition holds, else the default.

    Conditions and choices broadcast, and the choices promote. UserError unless there are as many
    choices as conditions, and at least one; UserTypeError for a condition that is not bool.

    Examples:
        >>> x = unp.asarray([-3, 4, 20])
        >>> np.asarray(unp.select([x < 0, x > 10], [-1, 1], default=0))
        array([-1,  0,  1])
    """
    conditions = list(checks.sequence("select", "condlist", condlist))
    choices = list(checks.sequence("select", "choicelist", choicelist))
    if not conditions or len(conditions) != len(choices):
        given = f"{len(conditions)} and {len(choices)}"
        raise UserError(f"select: needs as many choices as conditions, got {given}")
    operands.check_truth("select", *conditions, *choices, default)
    uops, _ = promoted("select", *choices, default)
    found = uops[-1]
    for condition, choice in zip(reversed(conditions), reversed(uops[:-1])):
        (c,), _ = promoted("select", condition)
        if c.dtype.scalar is not dtypes.bool_:
            raise UserTypeError(f"select: conditions must be bool, got {c.dtype.name}")
        found = alu.where(c, choice, found)
    return same_kind(found, (*conditions, *choices, default), False)


# ---------------------------------------------------------------- of NumPy alone
def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """The greatest integer up to x1 / x2, NaN for infinite x1; and `remainder(x1, x2)`.

    The operands promote and broadcast. UserTypeError for bool.

    Examples:
        >>> [int(v) for v in unp.divmod(unp.asarray(-7), 3)]
        [-3, 2]
    """
    return whole_quotient(x1, x2), FUNCTIONS["remainder"](x1, x2)


def modf(x: Any, /) -> tuple[Any, Any]:
    """The fraction and the integer part, both with the sign of the element; integers give float64.

    Examples:
        >>> [float(v) for v in unp.modf(unp.asarray(-2.5))]
        [-0.5, -2.0]
    """
    (u,), weak = promoted("modf", x, floats=True)
    whole = u.trunc()
    size, sign = _apart(u)
    rest = alu.where(float_functions.isinf(u), leaves.const_like(u, 0), size - size.floor())
    made = (rest * sign, whole)
    return tuple([same_kind(v, (x,), weak) for v in made])


def sinc(x: Any) -> Any:
    """sin(pi * x) / (pi * x), and 1 at 0.

    In the shape and dtype of x; integers give float64.

    Examples:
        >>> np.asarray(unp.sinc(unp.asarray([0.0, 0.5])))
        array([1.        , 0.63661977])
    """
    (u,), weak = promoted("sinc", x, floats=True)
    return same_kind(float_functions.sinc(u), (x,), weak)


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of each number in the plane of complex numbers: 0, or pi where its sign is minus.

    In radians, or in degrees with `deg`; integers give float64.

    Examples:
        >>> np.asarray(unp.angle(unp.asarray([1.0, -1.0]), deg=True))
        array([  0., 180.])
    """
    (u,), weak = promoted("angle", z, floats=True)
    half = leaves.const_like(u, 180.0 if checks.flag("angle", "deg", deg) else math.pi)
    made = alu.where(float_functions.signbit(u), half, leaves.const_like(u, 0))
    return same_kind(alu.where(float_functions.isnan(u), u, made), (z,), weak)


def _infinity(name: str, value: float, which: str, result: str) -> Function:
    found = float_functions.infinity(value)

    def function(x: Any) -> Any:
        return _applied(name, "number", found, (x,))

    doc = f"True for the {which} infinity.\n\nElementwise. UserTypeError for bool."
    example = ("[1.0, np.inf, -np.inf]", "", result)
    return with_name(function, "uopc.numpy", name, doc + examples.of_function(name, example))


isposinf = _infinity("isposinf", math.inf, "positive", "array([False,  True, False])")
isneginf = _infinity("isneginf", -math.inf, "negative", "array([False, False,  True])")


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Replace NaN by `nan`, and the infinities by `posinf` and `neginf`: by default 0, and the
    greatest and least number of the dtype. The dtype stays.

    With `copy=False` the values are written to x, an Array. UserTypeError for others.

    Examples:
        >>> np.asarray(unp.nan_to_num(unp.asarray([np.nan, 1.0, np.inf]), posinf=9.0))
        array([0., 1., 9.])
    """
    if not copy:
        into(x, nan_to_num(x, True, nan, posinf, neginf), "nan_to_num")
        return x
    u = uop_of(x, "nan_to_num")
    if not u.dtype.is_float:
        return same_kind(u, (x,))
    least, most = finfo(u.dtype).min, finfo(u.dtype).max
    bounds = [least if neginf is None else neginf, most if posinf is None else posinf]
    fills = [fold.cast(uop_of(v, "nan_to_num"), u.dtype) for v in (nan, *bounds)]
    made = u
    for where_it_is, fill in zip((u.ne(u), u.eq(-math.inf), u.eq(math.inf)), fills):
        made = alu.where(where_it_is, fill, made)
    return same_kind(made, (x, nan, posinf, neginf))


@table.routine
def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    bounds = [v for v in (min, max) if v is not None]
    (made, *limits), weak = promoted("clip", x, *bounds)
    if min is not None:
        made = alu.alu(made, Ops.MAX, limits[0])
    if max is not None:
        made = alu.alu(made, Ops.MIN, limits[-1])
    return same_kind(made, (x, *bounds), weak)


# ---------------------------------------------------------------- operators
def _operand(value: Any) -> Any:
    """Convert a list to an array, as NumPy's operators do. NotImplemented for no operand."""
    if isinstance(value, (list, tuple)):
        return asarray(value)
    return value if is_operand(value) else NotImplemented


def operator(function: Function) -> Function:
    """Make an operator of Array from a function; NotImplemented for unknown operands."""

    def method(a: Any, other: Any) -> Any:
        b = _operand(other)
        return b if b is NotImplemented else function(a, b)

    return method


def _quotient(x: Any, y: Any) -> Any:
    """x // y: NumPy's quotient in a traced function, otherwise the standard's."""
    traced = any([isinstance(v, Array) and v.tracing is not None for v in (x, y)])
    return (whole_quotient if traced else FUNCTIONS["floor_divide"])(x, y)


def _dtype_of(v: Any) -> DType:
    return v.dtype if isinstance(v, Array) else uop_of(v).dtype


def _power(x: Any, k: Any) -> Any:
    """x ** k. UserTypeError for a power of Python integers that could be a float."""
    integers = all([is_weak(v) and _dtype_of(v).is_int for v in (x, k)])
    if integers and not (type(k) is int and k >= 0):
        raise UserTypeError(
            f"{x!r} ** {k!r}: the exponent is not known, and Python gives a float if it is"
            " negative: write a float (`10.0 ** k`), or name the argument in static_argnames"
        )
    return FUNCTIONS["pow"](x, k)


def reflected(function: Function) -> Function:
    """Make the operator with the Array on the right."""
    return operator(lambda a, b: function(b, a))


def _equality(function: Function, sign: str) -> Function:
    compared = operator(function)

    def method(a: Any, other: Any) -> Any:
        if other is None or isinstance(other, (str, bytes)):
            raise UserTypeError(
                f"`{sign}` of an array and {other!r}: elements are compared with numbers; write"
                " `x is None` to ask whether there is an array"
            )
        return compared(a, other)

    return method


_BOTH_SIDES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "mod": "remainder", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}
OPERATORS: dict[str, Function] = {
    **{f"__{n}__": operator(FUNCTIONS[f]) for n, f in (_BOTH_SIDES | _COMPARISONS).items()},
    **{f"__r{n}__": reflected(FUNCTIONS[f]) for n, f in _BOTH_SIDES.items()},
    "__floordiv__": operator(_quotient), "__rfloordiv__": reflected(_quotient),
    "__pow__": operator(_power), "__rpow__": reflected(_power),
    "__eq__": _equality(FUNCTIONS["equal"], "=="),
    "__ne__": _equality(FUNCTIONS["not_equal"], "!="),
    "__neg__": FUNCTIONS["negative"], "__pos__": FUNCTIONS["positive"],
    "__abs__": FUNCTIONS["abs"], "__invert__": FUNCTIONS["bitwise_invert"],
}  # fmt: skip
