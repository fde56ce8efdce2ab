"""The table of functions of arrays: one row makes a function wherever users call it.

    UFunc("hypot", "float", hypot, "sqrt(x1² + x2²).", ("[3.0]", "4.0", "array([5.])"), method=True)

      →  UOp.hypot, uopc.numpy.hypot, numpy.hypot of a UOp or an Array, each with its docstring and
         its example; their stubs, and their place in the reference

A row's function takes UOps; it is a composite of `elementwise`, `float_functions` and the like, the
prelude of this table. ROWS are functions of elements, REDUCTIONS of elements over axes. Of
ROUTINES, which have parameters of their own, the table has the docstrings and examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

from uopc.ir.builder import alu, leaves
from uopc.ir.builder.fold import cast
from uopc.ir.core import dtypes
from uopc.ir.core.ops import Ops
from uopc.ir.core.uop import UOp
from uopc.tensor import elementwise as e
from uopc.tensor import examples, indexing, nn, statistics
from uopc.tensor import float_functions as f
from uopc.tensor import reductions as r
from uopc.tensor.examples import Example
from uopc.tensor.matrices import linear_algebra as la
from uopc.tensor.matrices import products
from uopc.tensor.signals import convolution
from uopc.tensor.sorts import sorting

Function = TypeVar("Function", bound=Callable[..., Any])


class UFunc:
    """A function of one operand x, or of two, x1 and x2.

    `takes`: the kind of operands, a key of KINDS. `doc`: what the function gives. `method`: UOps
    have it as a method, perhaps by another name. `numpy`: it is in `uopc.numpy`, perhaps by other
    names too. `onnx`: the operator that it is.
    """

    def __init__(
        self, name: str, takes: str, function: Callable[..., UOp], doc: str, example: Example,
        method: bool | str = False, numpy: bool | str = True, onnx: str = "",
    ) -> None:  # fmt: skip
        self.name, self.takes, self.function = name, takes, function
        self.doc, self.example = doc, example
        self.method, self.numpy, self.onnx = method, numpy, onnx
        self.operands = 2 if example[1] else 1


# The kinds of operands; what becomes of others in a method, and in a function of `uopc.numpy`.
KINDS: Final = {
    "any": ("", ""),
    "truth": ("", ""),  # any, and the results are bool
    "float": (
        " Bool and integers of up to 16 bits give float32, wider ones float64.",
        " Integers and bool are made float64 first.",
    ),
    "rounding": (" Integers stay as they are.", " UserTypeError for bool."),
    "number": ("", " UserTypeError for bool."),
    "bits": (" UserTypeError for floats.", " UserTypeError for floats."),
    "bool": ("", " Numbers are made bool first: not 0."),  # the results are bool, too
}

_BOOLS = "[True, False]"
# fmt: off
ROWS: Final = (
    # ------------------------------------------------ exponentials and logarithms
    UFunc("exp", "float", e.of_floats(Ops.EXP), "e to the x.",
        ("[0.0, 1.0]", "", "array([1.        , 2.71828183])"), method=True, onnx="Exp"),
    UFunc("exp2", "float", e.of_floats(Ops.EXP2), "2 to the x.",
        ("[0.0, 3.0]", "", "array([1., 8.])"), method=True),
    UFunc("expm1", "float", f.expm1, "e to the x, minus 1, exact for small x too.",
        ("[0.0, 1e-10]", "", "array([0.e+00, 1.e-10])"), method=True),
    UFunc("log", "float", e.of_floats(Ops.LOG), "The natural logarithm; -inf at 0, NaN below.",
        ("[1.0, 10.0]", "", "array([0.        , 2.30258509])"), method=True, onnx="Log"),
    UFunc("log2", "float", e.of_floats(Ops.LOG2), "The logarithm to base 2; -inf at 0, NaN below.",
        ("[1.0, 8.0]", "", "array([0., 3.])"), method=True),
    UFunc("log10", "float", f.log10,
        "The logarithm to base 10, exact at powers of ten; -inf at 0, NaN below.",
        ("[1.0, 1000.0]", "", "array([0., 3.])"), method=True),
    UFunc("log1p", "float", f.log1p, "log(1 + x), exact for small x too; -inf at -1, NaN below.",
        ("[0.0, 1e-10]", "", "array([0.e+00, 1.e-10])"), method=True),
    UFunc("logaddexp", "float", f.logaddexp, "log(e^x1 + e^x2), without overflow in between.",
        ("[0.0, 1000.0]", "1000.0", "array([1000.        , 1000.69314718])"), method=True),
    UFunc("logaddexp2", "float", f.logaddexp2, "log2(2^x1 + 2^x2), without overflow in between.",
        ("[0.0, 10.0]", "10.0", "array([10.00140819, 11.        ])")),
    # ------------------------------------------------ angles, circular and hyperbolic functions
    UFunc("sin", "float", e.of_floats(Ops.SIN), "The sine of radians; NaN at infinity.",
        ("[0.0, np.pi / 2]", "", "array([0., 1.])"), method=True, onnx="Sin"),
    UFunc("cos", "float", e.of_floats(Ops.COS), "The cosine of radians; NaN at infinity.",
        ("[0.0, np.pi]", "", "array([ 1., -1.])"), method=True, onnx="Cos"),
    UFunc("tan", "float", e.of_floats(Ops.TAN), "The tangent of radians; NaN at infinity.",
        ("[0.0, np.pi / 4]", "", "array([0., 1.])"), method=True, onnx="Tan"),
    UFunc("asin", "float", f.asin,
        "The angle with this sine, -pi/2 to pi/2; NaN outside of -1 to 1.",
        ("[0.0, 1.0]", "", "array([0.        , 1.57079633])"),
        method=True, numpy="arcsin", onnx="Asin"),
    UFunc("acos", "float", f.acos, "The angle with this cosine, 0 to pi; NaN outside of -1 to 1.",
        ("[1.0, 0.0]", "", "array([0.        , 1.57079633])"),
        method=True, numpy="arccos", onnx="Acos"),
    UFunc("atan", "float", f.atan, "The angle with this tangent, -pi/2 to pi/2.",
        ("[0.0, 1.0]", "", "array([0.        , 0.78539816])"),
        method=True, numpy="arctan", onnx="Atan"),
    UFunc("atan2", "float", f.atan2,
        "The angle of the point (x2, x1), -pi to pi; signs of zero count.",
        ("[1.0, -1.0]", "np.array([1.0, -1.0])", "array([ 0.78539816, -2.35619449])"),
        method=True, numpy="arctan2"),
    UFunc("sinh", "float", f.sinh, "The hyperbolic sine.",
        ("[0.0, 1.0]", "", "array([0.        , 1.17520119])"), method=True, onnx="Sinh"),
    UFunc("cosh", "float", f.cosh, "The hyperbolic cosine.",
        ("[0.0, 1.0]", "", "array([1.        , 1.54308063])"), method=True, onnx="Cosh"),
    UFunc("tanh", "float", e.of_floats(Ops.TANH), "The hyperbolic tangent.",
        ("[0.0, 1.0]", "", "array([0.        , 0.76159416])"), method=True, onnx="Tanh"),
    UFunc("asinh", "float", f.asinh, "The inverse of the hyperbolic sine.",
        ("[0.0, 1.0]", "", "array([0.        , 0.88137359])"),
        method=True, numpy="arcsinh", onnx="Asinh"),
    UFunc("acosh", "float", f.acosh,
        "The inverse of the hyperbolic cosine, 0 or more; NaN below 1.",
        ("[1.0, 2.0]", "", "array([0.       , 1.3169579])"),
        method=True, numpy="arccosh", onnx="Acosh"),
    UFunc("atanh", "float", f.atanh,
        "The inverse of the hyperbolic tangent; NaN outside of -1 to 1.",
        ("[0.0, 0.5]", "", "array([0.        , 0.54930614])"),
        method=True, numpy="arctanh", onnx="Atanh"),
    UFunc("deg2rad", "float", lambda x: x * (math.pi / 180), "Degrees in radians.",
        ("[180.0, 90.0]", "", "array([3.14159265, 1.57079633])"), numpy="radians"),
    UFunc("rad2deg", "float", lambda x: x * (180 / math.pi), "Radians in degrees.",
        ("[np.pi, np.pi / 2]", "", "array([180.,  90.])"), numpy="degrees"),
    # ------------------------------------------------ other functions of floats
    UFunc("sqrt", "float", e.of_floats(Ops.SQRT), "The square root; NaN below 0.",
        ("[4.0, 2.0]", "", "array([2.        , 1.41421356])"), method=True, onnx="Sqrt"),
    UFunc("rsqrt", "float", e.rsqrt, "1 / sqrt(x); infinite at 0, NaN below.",
        ("[4.0, 0.25]", "", "array([0.5, 2. ])"), method=True, numpy=False),
    UFunc("cbrt", "float", f.cbrt, "The cube root, with the sign of x.",
        ("[27.0, -8.0]", "", "array([ 3., -2.])")),
    UFunc("hypot", "float", f.hypot,
        "sqrt(x1² + x2²), without overflow in between; infinite if one is.",
        ("[3.0, 5.0]", "4.0", "array([5.        , 6.40312424])"), method=True),
    UFunc("reciprocal", "float", e.of_floats(Ops.RECIPROCAL), "1 / x.",
        ("[2.0, -4.0]", "", "array([ 0.5 , -0.25])"), method=True, onnx="Reciprocal"),
    UFunc("erf", "float", e.of_floats(Ops.ERF), "The error function.",
        ("[0.0, 1.0]", "", "array([0.        , 0.84270079])"),
        method=True, numpy=False, onnx="Erf"),
    UFunc("erfinv", "float", f.erfinv,
        "The inverse of the error function: infinite at -1 and 1, NaN beyond.",
        ("[0.0, 0.5, -1.0]", "", "array([0.        , 0.47693628,       -inf])"),
        method=True, numpy=False),
    UFunc("ieee_remainder", "float", f.ieee_remainder,
        "x1 less the multiple of x2 that is nearest, an even one of two: C's remainder, exactly.",
        ("[5.0, 7.0, -3.0]", "2.0", "array([ 1., -1.,  1.])"), method=True, numpy=False),
    UFunc("copysign", "float", f.copysign,
        "The magnitude of x1 with the sign of x2, also of -0.0 and NaN.",
        ("[1.0, 2.0]", "-0.0", "array([-1., -2.])"), method=True),
    UFunc("nextafter", "float", f.nextafter,
        "The float next to x1 in the direction of x2; x2 if they are equal, NaN if one is."
        " UserTypeError for floats of 8 bits.",
        ("[0.0]", "1.0", "array([5.e-324])"), method=True),
    UFunc("fabs", "float", e.absolute, "The magnitude, as a float.",
        ("[-3.0, 2.0]", "", "array([3., 2.])")),
    UFunc("heaviside", "float", f.heaviside, "0 for x1 < 0, x2 for 0, 1 for x1 > 0; NaN for NaN.",
        ("[-1.0, 0.0, 2.0]", "0.5", "array([0. , 0.5, 1. ])")),
    # ------------------------------------------------ activations
    UFunc("sigmoid", "float", e.sigmoid, "1 / (1 + e^-x). Where e^-x overflows the result is 0.",
        ("[0.0, -1000.0, np.log(3.0)]", "", "array([0.5 , 0.  , 0.75])"),
        method=True, numpy=False, onnx="Sigmoid"),
    UFunc("silu", "float", e.silu, "x · sigmoid(x). (Also called swish.)",
        ("[0.0, 4.0]", "", "array([0.        , 3.92805516])"), method=True, numpy=False),
    UFunc("relu", "any", e.relu, "max(x, 0); NaN stays.",
        ("[-1.0, 2.0]", "", "array([0., 2.])"), method=True, numpy=False, onnx="Relu"),
    UFunc("softplus", "float", f.softplus, "log(1 + e^x), without overflow in between.",
        ("[0.0, 1000.0]", "", "array([6.93147181e-01, 1.00000000e+03])"),
        numpy=False, onnx="Softplus"),
    UFunc("softsign", "float", lambda x: x / (abs(x) + 1), "x / (1 + |x|).",
        ("[1.0, -3.0]", "", "array([ 0.5 , -0.75])"), numpy=False, onnx="Softsign"),
    # ------------------------------------------------ roundings and signs
    UFunc("ceil", "rounding", e.rounding(Ops.CEIL), "The least integer from x up, in its dtype.",
        ("[2.3, -2.3]", "", "array([ 3., -2.])"), method=True, onnx="Ceil"),
    UFunc("floor", "rounding", e.rounding(Ops.FLOOR), "The greatest integer up to x, in its dtype.",
        ("[2.7, -2.7]", "", "array([ 2., -3.])"), method=True, onnx="Floor"),
    UFunc("round", "rounding", e.rounding(Ops.ROUND),
        "The nearest integer, ties to even, in its dtype.",
        ("[0.5, 1.5, 2.7]", "", "array([0., 2., 3.])"), method=True, numpy="rint", onnx="Round"),
    UFunc("trunc", "rounding", e.rounding(Ops.TRUNC), "x without its fraction, in its dtype.",
        ("[2.7, -2.7]", "", "array([ 2., -2.])"), method=True, numpy="fix"),
    UFunc("abs", "any", e.absolute, "The magnitude; the least integer wraps to itself.",
        ("[-3, 2]", "", "array([3, 2])"), method=True, numpy="absolute", onnx="Abs"),
    UFunc("sign", "number", e.sign, "-1, 0 or 1 with the sign of x; NaN for NaN.",
        ("[-2.5, 0.0, 3.0]", "", "array([-1.,  0.,  1.])"), method=True, onnx="Sign"),
    UFunc("signbit", "truth", f.signbit, "True where the sign is minus, also of -0.0 and NaN.",
        ("[-1.0, -0.0, 0.0]", "", "array([ True,  True, False])"), method=True),
    UFunc("isfinite", "truth", f.isfinite, "True unless x is infinite or NaN.",
        ("[1.0, np.nan, -np.inf]", "", "array([ True, False, False])"), method=True),
    UFunc("isinf", "truth", f.isinf, "True for an infinity.",
        ("[1.0, np.nan, -np.inf]", "", "array([False, False,  True])"), method=True),
    UFunc("isnan", "truth", f.isnan, "True for NaN.",
        ("[1.0, np.nan, np.inf]", "", "array([False,  True, False])"), method=True, onnx="IsNaN"),
    # ------------------------------------------------ arithmetic
    UFunc("positive", "number", e.positive, "x.",
        ("[1, -2]", "", "array([ 1, -2])")),
    UFunc("negative", "number", e.negative, "-x.",
        ("[1, -2]", "", "array([-1,  2])"), onnx="Neg"),
    UFunc("square", "number", lambda x: alu.alu(x, Ops.MUL, x), "x * x.",
        ("[2, -3]", "", "array([4, 9])")),
    UFunc("conj", "number", e.positive, "x: there are no complex numbers.",
        ("[1.0, 2.0]", "", "array([1., 2.])"), numpy="conjugate"),
    UFunc("real", "number", e.positive, "x: there are no complex numbers.",
        ("[1.0, 2.0]", "", "array([1., 2.])")),
    UFunc("imag", "number", lambda x: leaves.const_like(x, 0), "0: there are no complex numbers.",
        ("[1.0, 2.0]", "", "array([0., 0.])")),
    UFunc("add", "any", e.operator(Ops.ADD), "x1 + x2.",
        ("[1, 2]", "10", "array([11, 12])"), onnx="Add"),
    UFunc("subtract", "number", e.operator(Ops.SUB), "x1 - x2.",
        ("[1, 2]", "10", "array([-9, -8])"), onnx="Sub"),
    UFunc("multiply", "any", e.operator(Ops.MUL), "x1 * x2.",
        ("[1, 2]", "10", "array([10, 20])"), onnx="Mul"),
    UFunc("divide", "float", e.divide, "x1 / x2.",
        ("[7, -7]", "2", "array([ 3.5, -3.5])"), numpy="true_divide"),
    UFunc("floor_divide", "number", f.floor_divide, "The greatest integer up to x1 / x2.",
        ("[7, -7]", "2", "array([ 3, -4])")),
    UFunc("remainder", "number", e.floored(Ops.FLOORMOD), "x1 - x2 * floor(x1 / x2).",
        ("[7, -7]", "3", "array([1, 2])"), numpy="mod"),
    UFunc("fmod", "number", e.operator(Ops.CMOD),
        "x1 - x2 * trunc(x1 / x2), exactly, with the sign of x1.",
        ("[7, -7]", "3", "array([ 1, -1])")),
    UFunc("pow", "number", e.power,
        "x1 to the x2. Integers wrap; a negative power of them is its integer part.",
        ("[2, 3]", "2", "array([4, 9])"), method=True, numpy="power"),
    UFunc("float_power", "number",
        lambda x, y: e.power(cast(x, dtypes.float64), cast(y, dtypes.float64)),
        "x1 to the x2, as float64.",
        ("[2, 3]", "-1", "array([0.5       , 0.33333333])")),
    # ------------------------------------------------ the greater and the less
    UFunc("maximum", "any", e.operator(Ops.MAX), "The greater; NaN if one is NaN.",
        ("[1, 5]", "3", "array([3, 5])"), method=True),
    UFunc("minimum", "any", e.operator(Ops.MIN), "The less; NaN if one is NaN.",
        ("[1, 5]", "3", "array([1, 3])"), method=True),
    UFunc("fmax", "any", f.number_of(Ops.MAX), "The greater; of a NaN and a number, the number.",
        ("[1.0, np.nan]", "0.5", "array([1. , 0.5])")),
    UFunc("fmin", "any", f.number_of(Ops.MIN), "The less; of a NaN and a number, the number.",
        ("[1.0, np.nan]", "0.5", "array([0.5, 0.5])")),
    # ------------------------------------------------ comparisons
    UFunc("equal", "truth", e.operator(Ops.CMPEQ), "x1 == x2 by value; False with NaN.",
        ("[1, 2, 3]", "2", "array([False,  True, False])"), method="eq"),
    UFunc("not_equal", "truth", e.operator(Ops.CMPNE), "x1 != x2 by value; True with NaN.",
        ("[1, 2, 3]", "2", "array([ True, False,  True])"), method="ne"),
    UFunc("less", "truth", e.operator(Ops.CMPLT), "x1 < x2.",
        ("[1, 2, 3]", "2", "array([ True, False, False])"), onnx="Less"),
    UFunc("less_equal", "truth", e.operator(Ops.CMPLE), "x1 <= x2.",
        ("[1, 2, 3]", "2", "array([ True,  True, False])"), onnx="LessOrEqual"),
    UFunc("greater", "truth", lambda x, y: alu.binary(Ops.CMPLT, y, x), "x1 > x2.",
        ("[1, 2, 3]", "2", "array([False, False,  True])"), onnx="Greater"),
    UFunc("greater_equal", "truth", lambda x, y: alu.binary(Ops.CMPLE, y, x), "x1 >= x2.",
        ("[1, 2, 3]", "2", "array([False,  True,  True])"), onnx="GreaterOrEqual"),
    # ------------------------------------------------ bits and bools
    UFunc("bitwise_invert", "bits", e.invert, "Every bit flipped; not x for bool.",
        ("[0, 5]", "", "array([-1, -6])"), numpy="bitwise_not invert", onnx="BitwiseNot"),
    UFunc("bitwise_and", "bits", e.bitwise(Ops.AND), "x1 & x2.",
        ("[4, 7]", "6", "array([4, 6])"), onnx="BitwiseAnd"),
    UFunc("bitwise_or", "bits", e.bitwise(Ops.OR), "x1 | x2.",
        ("[4, 7]", "2", "array([6, 7])"), onnx="BitwiseOr"),
    UFunc("bitwise_xor", "bits", e.bitwise(Ops.XOR), "x1 ^ x2.",
        ("[4, 7]", "2", "array([6, 5])"), onnx="BitwiseXor"),
    UFunc("bitwise_left_shift", "bits", e.bitwise(Ops.SHL), "x1 << x2.",
        ("[1, 3]", "2", "array([ 4, 12])"), numpy="left_shift"),
    UFunc("bitwise_right_shift", "bits", e.bitwise(Ops.SHR), "x1 >> x2.",
        ("[20, -8]", "2", "array([ 5, -2])"), numpy="right_shift"),
    UFunc("logical_not", "bool", e.invert, "not x.",
        (_BOOLS, "", "array([False,  True])"), onnx="Not"),
    UFunc("logical_and", "bool", e.bitwise(Ops.AND), "x1 and x2.",
        (_BOOLS, "np.array([True, True])", "array([ True, False])"), onnx="And"),
    UFunc("logical_or", "bool", e.bitwise(Ops.OR), "x1 or x2.",
        (_BOOLS, "np.array([False, False])", "array([ True, False])"), onnx="Or"),
    UFunc("logical_xor", "bool", e.bitwise(Ops.XOR), "One of x1 and x2.",
        (_BOOLS, "np.array([True, True])", "array([False,  True])"), onnx="Xor"),
)


class Reduction:
    """A function of one operand x over axes.

    `gives`: the dtype of the result and the axes, a key of GIVES. `doc`: what the function gives.
    `method`: UOps have it as a method. `numpy`: it is in `uopc.numpy`. `onnx`: the operator that it
    is. `skips_nan`: it is of the elements that are not NaN.
    """

    def __init__(
        self, name: str, gives: str, function: Callable[..., UOp], doc: str, example: Example,
        method: bool = True, numpy: bool = True, onnx: str = "",
    ) -> None:  # fmt: skip
        self.name, self.gives, self.function = name, gives, function
        self.doc, self.example = doc, example
        self.method, self.numpy, self.onnx = method, numpy, onnx
        self.skips_nan = name.startswith("nan")


_AXES = (
    " Over `axis` (an int, a tuple, or None for all), which the result lacks, or has with size 1"
    " (`keepdims`). UserIndexError for an axis that x lacks."
)
_FLAT = " Of the flattened array without an axis."
_SOME = " UserError over no elements."
_WHOLE = "In the dtype of x; of bool and integers in 64 bits."
_FLOATS = (
    "In the dtype of x; of integers and bool in float32." + _AXES,
    "In the dtype of x; of integers in float64." + _AXES,
)
# What a method gives, and a function of `uopc.numpy`.
GIVES: Final = {
    "total": (
        "In the dtype of x; of bool and small integers in int32 or uint32." + _AXES,
        _WHOLE + _AXES,
    ),
    "greatest": ("In the dtype of x." + _AXES, "In the dtype of x." + _SOME + _AXES),
    "truth": ("A bool." + _AXES, "A bool." + _AXES),
    "mean": _FLOATS, "spread": _FLOATS, "middle": _FLOATS,
    "float": (
        "Integers are made floats first." + _AXES,
        "Integers are made float64 first." + _AXES,
    ),
    "place": ("int32, or int64 where it is needed." + _FLAT + _SOME, "int64." + _FLAT + _SOME),
    "running": (
        "In the dtype of `sum`." + _FLAT
        + " UserError for an axis of a scalar. A symbolic axis takes time with the square of its"
        " length.",
        _WHOLE + _FLAT,
    ),
    "first": (
        "",
        _WHOLE + " `include_initial`: that of no elements first, one element more."
        " UserError without an axis for several dimensions.",
    ),
}
REDUCTIONS: Final = (
    Reduction("sum", "total", r.METHODS["sum"], "The sum of the elements.",
        ("[[1, 2], [3, 4]]", "axis=0", "array([4, 6])"), onnx="ReduceSum"),
    Reduction("prod", "total", r.METHODS["prod"], "The product of the elements.",
        ("[[1, 2], [3, 4]]", "axis=0", "array([3, 8])"), onnx="ReduceProd"),
    Reduction("max", "greatest", r.METHODS["max"], "The greatest element; NaN if there is one.",
        ("[[1, 5], [7, 2]]", "axis=1", "array([5, 7])"), onnx="ReduceMax"),
    Reduction("min", "greatest", r.METHODS["min"], "The least element; NaN if there is one.",
        ("[[1, 5], [7, 2]]", "axis=1", "array([1, 2])"), onnx="ReduceMin"),
    Reduction("any", "truth", r.METHODS["any"], "True if an element is not 0.",
        ("[[0, 0], [0, 1]]", "axis=1", "array([False,  True])")),
    Reduction("all", "truth", r.METHODS["all"], "True if no element is 0.",
        ("[[1, 0], [1, 1]]", "axis=1", "array([False,  True])")),
    Reduction("mean", "mean", r.mean, "The arithmetic mean; NaN over no elements.",
        ("[[1.0, 2.0], [3.0, 6.0]]", "axis=0", "array([2., 4.])")),
    Reduction("var", "spread", r.var,
        "The variance: squared distances from the mean over (count - `correction`); NaN"
        " where the count is not above the correction.",
        ("[1.0, 2.0, 3.0, 6.0]", "", "array(3.5)")),
    Reduction("std", "spread", r.std, "The square root of the variance: see `var`.",
        ("[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]", "", "array(2.)")),
    Reduction("median", "middle", statistics.median,
        "The middle element of the sorted ones, or the mean of the two in the middle; NaN if"
        " there is one.",
        ("[4.0, 1.0, 3.0, 100.0]", "", "array(3.5)")),
    Reduction("logsumexp", "float", nn.logsumexp,
        "log of the sum of e^x, without overflow in between; -inf over no elements.",
        ("[1000.0, 1000.0]", "", "array(1000.69314718)"), onnx="ReduceLogSumExp"),
    Reduction("argmax", "place", r.argmax,
        "The place of the first greatest element, or of the first NaN.",
        ("[[1, 5], [7, 2]]", "axis=1", "array([1, 0])")),
    Reduction("argmin", "place", r.argmin,
        "The place of the first least element, or of the first NaN.",
        ("[[1, 5], [7, 2]]", "axis=1", "array([0, 1])")),
    Reduction("cumsum", "running", r.cumsum, "Sums of the elements up to each one.",
        ("[[1, 2], [3, 4]]", "", "array([ 1,  3,  6, 10])")),
    Reduction("cumprod", "running", r.cumprod, "Products of the elements up to each one.",
        ("[[1, 2], [3, 4]]", "", "array([ 1,  2,  6, 24])")),
    Reduction("cummax", "running", r.cummax,
        "The greatest of the elements up to each one; NaN from the first NaN on.",
        ("[3, 1, 4, 1, 5]", "", "array([3, 3, 4, 4, 5])"), numpy=False),
    Reduction("cummin", "running", r.cummin,
        "The least of the elements up to each one; NaN from the first NaN on.",
        ("[3, 1, 4, 1, 5]", "", "array([3, 1, 1, 1, 1])"), numpy=False),
    Reduction("cumulative_sum", "first", r.cumsum, "Sums of the elements up to each one.",
        ("[1, 2, 3]", "include_initial=True", "array([0, 1, 3, 6])"), method=False),
    Reduction("cumulative_prod", "first", r.cumprod, "Products of the elements up to each one.",
        ("[1, 2, 3]", "include_initial=True", "array([1, 1, 2, 6])"), method=False),
    Reduction("nansum", "total", statistics.nansum, "The sum of the elements that are not NaN.",
        ("[1.0, np.nan, 3.0]", "", "array(4.)"), method=False),
    Reduction("nanprod", "total", statistics.nanprod,
        "The product of the elements that are not NaN.",
        ("[2.0, np.nan, 3.0]", "", "array(6.)"), method=False),
    Reduction("nanmax", "greatest", statistics.nanmax,
        "The greatest of the elements that are not NaN; NaN where there is none.",
        ("[1.0, np.nan, 3.0]", "", "array(3.)"), method=False),
    Reduction("nanmin", "greatest", statistics.nanmin,
        "The least of the elements that are not NaN; NaN where there is none.",
        ("[1.0, np.nan, 3.0]", "", "array(1.)"), method=False),
    Reduction("nanmean", "mean", statistics.nanmean,
        "The mean of the elements that are not NaN; NaN where there is none.",
        ("[1.0, np.nan, 3.0]", "", "array(2.)"), method=False),
    Reduction("nanvar", "spread", statistics.nanvar,
        "The variance of the elements that are not NaN: see `var`.",
        ("[1.0, np.nan, 3.0]", "", "array(1.)"), method=False),
    Reduction("nanstd", "spread", statistics.nanstd, "The square root of `nanvar`.",
        ("[1.0, np.nan, 3.0]", "", "array(1.)"), method=False),
    Reduction("nanmedian", "middle", statistics.nanmedian,
        "The median of the elements that are not NaN; NaN where there is none.",
        ("[1.0, np.nan, 3.0, 100.0]", "", "array(3.)"), method=False),
    Reduction("nanargmax", "place", statistics.nanargmax,
        "The place of the first greatest element that is not NaN; 0 where there is none.",
        ("[1.0, np.nan, 3.0]", "", "array(2)"), method=False),
    Reduction("nanargmin", "place", statistics.nanargmin,
        "The place of the first least element that is not NaN; 0 where there is none.",
        ("[1.0, np.nan, 3.0]", "", "array(0)"), method=False),
    Reduction("nancumsum", "running", r.cumsum,
        "Sums of the elements up to each one that are not NaN.",
        ("[1.0, np.nan, 3.0]", "", "array([1., 1., 4.])"), method=False),
    Reduction("nancumprod", "running", r.cumprod,
        "Products of the elements up to each one that are not NaN.",
        ("[2.0, np.nan, 3.0]", "", "array([2., 2., 6.])"), method=False),
)
# fmt: on

class Routine:
    """A function with its own parameters: a method of UOp, and a function of `uopc.numpy`.

    `doc`: what the function gives. `more`: its dtype and errors. `method`, `numpy`: a sentence for
    only that one. `several`: it gives several arrays. `place`: it gives places, with another dtype
    in `uopc.numpy`. `where`: the part of `uopc.numpy` that has it.
    """

    def __init__(
        self, function: Callable[..., Any], doc: str, more: str, example: Example, method: str = "",
        numpy: str = "", several: bool = False, place: bool = False, where: str = "",
    ) -> None:  # fmt: skip
        self.name, self.function = function.__name__, function
        self.doc, self.more, self.example = doc, more, example
        self.method, self.numpy = method, numpy
        self.several, self.place, self.where = several, place, where


_PLACES = " Places are int32, or int64 where the axis needs it.", " Places are int64."
_OF_X = "In the dtype of x"
_OF_MATRICES = f"{_OF_X}; of integers in float64."
_SQUARE = "UserError for matrices that are not square."
_FITS = "In the dtype that both promote to; of integers in float64. UserError for shapes that do"
# fmt: off
ROUTINES: Final = (
    # ------------------------------------------------ orders
    Routine(sorting.sort,
        "The elements along an axis in ascending order, NaN last; `descending` gives the mirror"
        " image, but equal elements keep their order.",
        f"{_OF_X}. Every sort is stable, whatever `stable` says. UserError for a scalar.",
        ("[30, 10, 20]", "", "array([10, 20, 30])")),
    Routine(sorting.argsort, "The places that the elements of `sort` had, along the axis.",
        "In the shape of x. UserError for a scalar.",
        ("[30, 10, 20]", "", "array([1, 2, 0])"), *_PLACES, place=True),
    Routine(sorting.top_k,
        "The k greatest elements along an axis, the greatest (NaN) first, and their places.",
        f"{_OF_X}. Of equal elements the first ones come first. UserError unless k is from 0 to the"
        " length of the axis, UserTypeError unless it is an int.",
        ("[30, 10, 20, 30]", "3", "[[30, 30, 20], [0, 3, 2]]"),
        f"{_PLACES[0]} Without `largest` the k least, the least first.", _PLACES[1], several=True),
    Routine(sorting.searchsorted,
        "The place where each value fits into a sorted vector: before the elements that are equal"
        " to it (`left`), or behind them (`right`). `sorter` holds the places that sort the vector,"
        " as by argsort.",
        "In the shape of the values; the dtypes promote. UserError unless the vector has one"
        " dimension.",
        ("[10, 20, 30]", "np.array([5, 20, 99])", "array([0, 1, 3])"), *_PLACES, place=True),
    # ------------------------------------------------ choices
    Routine(e.clip, "x, but at least the first bound and at most the second.",
        "None leaves that side open; NaN stays NaN. A bound may be an array that broadcasts; in the"
        " dtype that all promote to.",
        ("[-5, 2, 9]", "0, 5", "array([0, 2, 5])")),
    Routine(indexing.take, "Slices of x at integer indices along an axis.",
        "The shape of the indices replaces the axis. Negative indices count from the end.",
        ("[10, 20, 30]", "np.array([2, 0])", "array([30, 10])"),
        " Out of range: UserError when the indices are known now, else the element is 0. Of the"
        " flattened array without an axis.",
        " One that is out of range reads 0. UserError without an axis for several dimensions."),
    Routine(indexing.tril, "The elements up to the diagonal k above the main one; 0 elsewhere.",
        "Of the last two axes. UserError for fewer.",
        ("[[1, 2], [3, 4]]", "", "array([[1, 0],\n       [3, 4]])")),
    Routine(indexing.triu, "The elements from the diagonal k above the main one on; 0 elsewhere.",
        "Of the last two axes. UserError for fewer.",
        ("[[1, 2], [3, 4]]", "", "array([[1, 2],\n       [0, 4]])")),
    Routine(indexing.squeeze, "Without the axes of size 1: all of them, or those that are named.",
        "UserError where a named one has another size.",
        ("[[1], [2]]", "", "array([1, 2])")),
    # ------------------------------------------------ products
    Routine(products.matmul, "The matrix product of the last two dimensions.",
        "(..., n, k) times (..., k, m) gives (..., n, m), with batches that broadcast; a vector"
        " (k,) on a side drops n or m. In the dtype that both promote to, in which integers wrap."
        " UserError for a scalar, and where the lengths that are summed over differ.",
        ("[[1, 2], [3, 4]]", "np.array([10, 1])", "array([12, 34])")),
    Routine(convolution.convolve,
        "The convolution of two vectors: out[i] is the sum of x[i - j] v[j].",
        '"full": wherever they overlap, n + m - 1 numbers of lengths n and m; "same": the middle of'
        ' it, as long as the longer vector; "valid": where one covers the other. In the dtype that'
        " both promote to. UserError for another mode or rank, no elements, or variables as sizes.",
        ("[1, 2, 3]", "np.array([1, 10])", "array([ 1, 12, 23, 30])")),
    # ------------------------------------------------ attention
    Routine(nn.rotary,
        "Turn pairs of numbers along the last axis of x by angles, whose cosines and sines have the"
        " shape (..., angles): places of words, in a decoder.",
        "The pairs are an element of the first half and one of the second half; neighbours if"
        " `interleaved`. Numbers behind the pairs stay. In the dtype of x, computed in float32 or"
        " wider. UserError where cosines and sines do not broadcast to the pairs. (J. Su and"
        " others, 2021.)",
        ("[1.0, 2.0, 3.0, 4.0]", "np.array([0.0, 1.0]), np.array([1.0, 0.0])",
         "array([-3.,  2.,  1.,  4.])")),
    Routine(nn.attention,
        "softmax(x · keysᵀ · scale) · values: the mean of the values for each query, weighted by"
        " how well its key fits. x is (..., heads, n, size), keys are (..., groups, length, size)"
        " and values (..., groups, length, m); heads / groups heads in a row share a group.",
        "`mask` broadcasts to (..., heads, n, length): bools say what a query sees, floats are"
        " added to scores. Where a query sees nothing the result is NaN, as of softmax, so let it"
        " see something. `scale` is 1 / sqrt(size) by default, and `cap` bounds scores: cap ·"
        " tanh(scores / cap). In the dtype that all promote to. UserError for shapes that do not"
        " fit. (A. Vaswani and others, 2017; J. Ainslie and others, 2023.)",
        ("[[[0.0, 0.0], [9.0, 0.0]]]", "np.array([[[1.0, 0], [0, 1]]]), np.array([[[2.0], [4]]])",
         "array([[[3.        ],\n        [2.00343914]]])")),
    # ------------------------------------------------ matrices
    Routine(la.cholesky,
        "The lower triangles L of x = L·Lᵀ, or with `upper` the upper ones of x = Uᵀ·U; x has shape"
        " (..., n, n). Only the lower (upper) triangle of x is read.",
        f"{_OF_MATRICES} A matrix that is not positive definite gives NaN in the rest of its"
        f" factor. {_SQUARE} Method: Golub and Van Loan, Matrix Computations, 4.2.",
        ("[[4.0, 2.0], [2.0, 5.0]]", "", "array([[2., 0.],\n       [1., 2.]])"), where="linalg."),
    Routine(la.qr,
        "Orthonormal columns q and upper triangles r of x = q·r, for x of shape (..., m, n).",
        f'{_OF_MATRICES} "reduced": q has k = min(m, n) columns and r as many rows; "complete":'
        " both have m. Signs are LAPACK's: the diagonal of r may be negative. UserError for another"
        " mode or fewer dimensions. Method: Householder reflections (Golub and Van Loan, 5.2).",
        ("[[2.0, 0.0], [0.0, 3.0]]", "", "[[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]]]"),
        several=True, where="linalg."),
    Routine(la.solve,
        "The solution of a·x = b for matrices a of shape (..., n, n); b has shape (n,) or (..., n,"
        " m), and their batches broadcast.",
        f"{_FITS} not fit. A singular matrix gives infinities or NaN. Method: Gaussian elimination"
        " with partial pivoting (Golub and Van Loan, 3.4).",
        ("[[0.0, 1.0], [1.0, 1.0]]", "np.array([2.0, 3.0])", "array([1., 2.])"), where="linalg."),
    Routine(la.solve_triangular,
        "The solution of a·x = b for triangles a of shape (..., n, n); b has shape (n,) or (..., n,"
        ' m), and their batches broadcast. `trans` (1 or "T") solves aᵀ·x = b; with `unit_diagonal`'
        " the diagonals count as 1. The other triangle of a and such a diagonal are not read.",
        f"{_FITS} not fit, another `trans`, or flags that are no bools. A zero on a diagonal gives"
        " infinities or NaN. Method: substitution (Golub and Van Loan, 3.1).",
        ("[[2.0, 0.0], [1.0, 4.0]]", "np.array([2.0, 5.0]), lower=True", "array([1., 1.])"),
        where="linalg."),
    Routine(la.inv,
        "The inverse matrices of x, of shape (..., n, n): the solution of x·y = 1, see `solve`.",
        f"{_OF_MATRICES} A singular matrix gives infinities or NaN. {_SQUARE}",
        ("[[0.0, 2.0], [1.0, 0.0]]", "", "array([[0. , 1. ],\n       [0.5, 0. ]])"),
        where="linalg."),
    Routine(la.det,
        "The determinants of matrices of shape (..., n, n): the products of the pivots of `solve`.",
        f"{_OF_MATRICES} 1 for n = 0. {_SQUARE}",
        ("[[0.0, 2.0], [3.0, 1.0]]", "", "array(-6.)"), where="linalg."),
    Routine(la.slogdet,
        "The signs of the determinants of matrices, and the logarithms of their magnitudes, which"
        " do not overflow.",
        f"{_OF_MATRICES} A singular matrix gives 0 and -inf. {_SQUARE}",
        ("[[0.0, 1.0], [1.0, 0.0]]", "", "[-1.0, 0.0]"), several=True, where="linalg."),
    Routine(la.matrix_power,
        "The n-th power of matrices of shape (..., k, k) by repeated squaring; of the inverse for a"
        " negative n, the identity for 0.",
        f"{_OF_X}; for a negative n as `inv`. UserTypeError unless n is an int; {_SQUARE}",
        ("[[1, 1], [0, 1]]", "3", "array([[1, 3],\n       [0, 1]])"), where="linalg."),
)
# fmt: on


def row(name: str) -> UFunc:
    """The row of a function."""
    return next(row for row in ROWS if row.name == name)


def operator(onnx: str) -> Callable[..., UOp]:
    """The function of an ONNX operator."""
    return next(row.function for row in ROWS if row.onnx == onnx)


def methods() -> dict[str, Callable[..., UOp]]:
    """The methods of UOp; sets their docstrings."""
    made = {row.name if row.method is True else row.method: row for row in ROWS if row.method}
    for name, row in made.items():
        row.function.__doc__ = _method_doc(row, name)
    over = {row.name: row for row in REDUCTIONS if row.method}
    for name, reduction in over.items():
        gives = GIVES[reduction.gives][0]
        shown = examples.of_method(name, reduction.example)
        if reduction.gives == "place":  # whose dtype differs in `uopc.numpy`
            shown = f"{shown.removesuffix(')')}, dtype=int32)"
        reduction.function.__doc__ = f"{reduction.doc}\n\n{gives}{shown}"
    own = {routine.name: routine for routine in ROUTINES}
    for name, routine in own.items():
        shown = examples.of_method(name, routine.example, routine.several)
        if routine.place:
            shown = f"{shown.removesuffix(')')}, dtype=int32)"
        routine.function.__doc__ = f"{routine.doc}\n\n{routine.more}{routine.method}{shown}"
    return {name: found.function for name, found in (made | over | own).items()}


def _method_doc(row: UFunc, name: str) -> str:
    """The docstring of a method; its operands are x, the node, and b."""
    made = _made(row) + KINDS[row.takes][0]
    doc = row.doc
    if row.operands == 2:
        doc = doc.replace("x1", "x").replace("x2", "b")
    return f"{doc}\n\n{made}{examples.of_method(name, row.example)}"


def function_doc(row: UFunc) -> str:
    """The docstring of the function of `uopc.numpy`."""
    made = _made(row) + KINDS[row.takes][1]
    return f"{row.doc}\n\n{made}{examples.of_function(row.name, row.example)}"


def reduction_doc(row: Reduction, more: str) -> str:
    """The docstring of a function of `uopc.numpy` over axes; `more`: a sentence on its options."""
    gives = GIVES[row.gives][1]
    return f"{row.doc}\n\n{gives}{more}{examples.of_function(row.name, row.example)}"


def routine(function: Function) -> Function:
    """Give a function of `uopc.numpy` the docstring of its row."""
    row = next(row for row in ROUTINES if row.name == function.__name__)
    shown = examples.of_function(f"{row.where}{row.name}", row.example, row.several)
    function.__doc__ = f"{row.doc}\n\n{row.more}{row.numpy}{shown}"
    return function


def _made(row: UFunc) -> str:
    """The shape and dtype of the results."""
    bools = row.takes in ("truth", "bool")
    if row.operands == 2:
        return f"The operands promote and broadcast{' to bools' if bools else ''}."
    made = "a bool for each element of x" if bools else "in the shape and dtype of x"
    return f"Elementwise: {made}."


EXAMPLES: Final = examples.ROWS | {
    row.name: row.example for row in (*ROWS, *REDUCTIONS, *ROUTINES)
}
